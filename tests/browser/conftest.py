import pytest

from tests.browser.ui_endpoint import Endpoint, serving
from tests.tracking.conftest import browser  # noqa: F401 - the same Chromium fixture

PHONE = {"viewport": {"width": 375, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def serve_page(browser, tmp_path):  # noqa: F811 - pytest passes the fixture
    """`serve_page(replicas=..., key=...)` gives the page and its endpoint; `options` go to the browser's context."""
    opened = []

    def serve(options=None, **endpoint):
        served = serving(Endpoint(**endpoint))
        started = served.__enter__()
        context = browser.new_context(**(options or {}))
        opened.append((context, served))
        context.set_default_timeout(60_000)  # a busy machine is slow, not wrong
        page = context.new_page()
        page.asked, page.errors = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
        page.goto(f"{started.url}/ui")
        return page, started

    yield serve
    for context, served in opened:
        context.close()
        served.__exit__(None, None, None)
