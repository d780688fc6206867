"""Pictures for the documentation: a run in the MLflow UI, a page of traces, the report of a run, the endpoint's page.

    python docs/make_screenshots.py --mlflow http://127.0.0.1:5000 --run RUN_ID --traces traces.html \
        --report runs/NAME/report.html --endpoint http://127.0.0.1:8000 --out docs/images

The endpoint's page is taken from a live endpoint: it is asked a problem; where it serves two versions, both are asked.
An endpoint with keys needs one with the scope admin, in the environment variable ENDPOINT_KEY.

Needs Chromium and the playwright package. Exit code 2 with one sentence when something is missing.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 60_000


class Missing(Exception):
    """Something the pictures need is not there."""


def experiment_of(mlflow: str, run: str) -> str:
    """The experiment id of a run, from the server."""
    url = f"{mlflow}/api/2.0/mlflow/runs/get?run_id={run}"
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return json.load(reply)["run"]["info"]["experiment_id"]
    except urllib.error.HTTPError as error:
        raise Missing(f"run {run} is not on {mlflow} (status {error.code}); check --run") from error
    except OSError as error:
        raise Missing(f"no MLflow answers at {mlflow} ({error}); start it or check --mlflow") from error


def settle(page: "Page", text: str) -> None:
    """Wait until the page shows `text` and has stopped changing. The UI loads its parts one after another and goes on
    asking the server for news, so a quiet network is no sign; a quiet document is."""
    page.get_by_text(text, exact=False).first.wait_for(timeout=WAIT_MS)
    size, quiet = -1, 0
    for _ in range(WAIT_MS // 500):
        page.wait_for_timeout(500)
        now = page.evaluate("document.body.innerHTML.length")
        quiet = quiet + 1 if now == size else 0
        if quiet == 4:
            return
        size = now


def mlflow_pages(browser: "Browser", mlflow: str, run: str, out: Path) -> list[Path]:
    """The overview and the metric charts of a run."""
    base = f"{mlflow}/#/experiments/{experiment_of(mlflow, run)}/runs/{run}"
    made = []
    page = browser.new_page(viewport={"width": 1440, "height": 1000}, color_scheme="light")
    for name, address, text in (
        ("mlflow_overview", base, "Parameters"),
        ("mlflow_metrics", f"{base}/model-metrics", "rollout"),
    ):
        page.goto(address, wait_until="domcontentloaded", timeout=WAIT_MS)
        settle(page, text)
        for close in page.get_by_role("button", name="Close").all():
            if close.is_visible():
                close.click()
        made.append(out / f"{name}.png")
        page.screenshot(path=made[-1])
    page.close()
    return made


def trace_page(browser: "Browser", html: Path, out: Path) -> list[Path]:
    """A page of traces: wide with a token pointed at, dark, and on a phone."""
    made = []
    for name, width, height, scheme in (
        ("traces", 1200, 900, "light"),
        ("traces_dark", 1200, 900, "dark"),
        ("traces_phone", 390, 844, "light"),
    ):
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=2)
        page.goto(html.resolve().as_uri(), timeout=WAIT_MS)
        tokens = page.locator(".t:visible")
        if tokens.count():
            token = tokens.nth(min(8, tokens.count() - 1))
            token.scroll_into_view_if_needed()
            page.wait_for_timeout(300)  # scrolling hides the tooltip
            token.hover()
        made.append(out / f"{name}.png")
        page.screenshot(path=made[-1])
        page.close()
    return made


def report_page(browser: "Browser", html: Path, out: Path) -> list[Path]:
    """The top of a run's report: verdict, accuracy against tokens, curves, with the numbers of one step."""
    page = browser.new_page(viewport={"width": 1200, "height": 1360}, color_scheme="light", device_scale_factor=1.5)
    page.goto(html.resolve().as_uri(), timeout=WAIT_MS)
    chart = page.locator("svg[data-chart=accuracy]")
    if chart.count():
        box = chart.bounding_box() or {"width": 0, "height": 0}
        chart.hover(position={"x": box["width"] * 0.6, "y": box["height"] * 0.4})
    made = out / "report.png"
    page.screenshot(path=made)
    page.close()
    return [made]


def endpoint_page(browser: "Browser", endpoint: str, key: str, out: Path) -> list[Path]:
    """A live endpoint's page after a reply (of both versions where it serves two), with the gauges of its replicas."""
    try:
        urllib.request.urlopen(f"{endpoint}/ui", timeout=10).close()
    except OSError as error:
        raise Missing(f"no endpoint's page answers at {endpoint}/ui ({error}); check --endpoint") from error
    page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light", device_scale_factor=1.5)
    page.set_default_timeout(WAIT_MS)
    if key:
        page.add_init_script(f"sessionStorage.setItem('endpoint-key', {json.dumps(key)})")
    page.goto(f"{endpoint}/ui")
    page.locator("#send:enabled").wait_for()
    page.locator(".replica").first.wait_for()
    page.wait_for_timeout(5000)  # each look may hear of one replica alone
    compared = page.locator("#compare").is_enabled()
    if compared:
        page.locator("#compare").check()
    page.locator("#examples button").first.click()
    page.locator("article.reply[data-state=done]").nth(int(compared)).wait_for()
    page.wait_for_timeout(3000)  # until the gauges count the reply
    made = out / "ui.png"
    page.screenshot(path=made)
    page.close()
    return [made]


def fetch_traces(mlflow: str, run: str, artifact: str, folder: Path) -> Path:
    """Download a page of traces from the run's artifacts."""
    target = folder / "traces.html"
    url = f"{mlflow}/get-artifact?path={artifact}&run_uuid={run}"
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            target.write_bytes(reply.read())
    except OSError as error:
        raise Missing(f"artifact {artifact} of run {run} cannot be fetched ({error}); check --artifact") from error
    return target


def make(arguments: argparse.Namespace) -> list[Path]:
    """Take every picture that was asked for; returns the files."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise Missing("no Chromium on PATH; install it")
    try:
        from playwright.sync_api import TimeoutError as Late
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise Missing("the playwright package is not installed") from error
    made: list[Path] = []
    arguments.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            html = arguments.traces
            if arguments.artifact:
                html = fetch_traces(arguments.mlflow, arguments.run, arguments.artifact, Path(folder))
            if html:
                made += trace_page(browser, html, arguments.out)
            if arguments.report:
                made += report_page(browser, arguments.report, arguments.out)
            if arguments.endpoint:
                made += endpoint_page(browser, arguments.endpoint, os.environ.get("ENDPOINT_KEY", ""), arguments.out)
            if arguments.run:
                made += mlflow_pages(browser, arguments.mlflow, arguments.run, arguments.out)
        except Late as error:
            raise Missing(f"a page did not show what was waited for ({str(error).splitlines()[0]})") from error
        finally:
            browser.close()
    return made


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlflow", default="http://127.0.0.1:5000", help="address of the MLflow server")
    parser.add_argument("--run", help="id of the run to show")
    parser.add_argument("--traces", type=Path, help="a page of traces on this machine")
    parser.add_argument("--report", type=Path, help="the report of a run on this machine")
    parser.add_argument("--artifact", help="a page of traces among the run's artifacts, such as traces/step_00030.html")
    parser.add_argument("--endpoint", help="address of a live endpoint whose page to show")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    arguments = parser.parse_args(argv)
    arguments.mlflow = arguments.mlflow.rstrip("/")
    if not (arguments.run or arguments.traces or arguments.report or arguments.endpoint):
        parser.error("nothing to show; give --run, --traces, --report or --endpoint")
    arguments.endpoint = arguments.endpoint and arguments.endpoint.rstrip("/")
    if arguments.artifact and not arguments.run:
        parser.error("--artifact needs --run")
    return arguments


def main() -> int:
    """Take the pictures and print where they are."""
    try:
        for path in make(parse(sys.argv[1:])):
            print(path)
    except Missing as error:
        print(f"make_screenshots: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
