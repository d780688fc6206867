"""The trace page in Chromium, as a reader uses it."""

import pytest

from pipeline.rewards.outcome import Outcome
from pipeline.tracking.trace_report import comparison_html, trace_report_html
from pipeline.tracking.trace_view import TraceView, token_views

pytestmark = pytest.mark.browser
ATTACK = "<script>window.hit=1</script><img src=x onerror='window.hit=1'>"


def view(verdict, source, count=30, problem="How many?", version="4"):
    texts = ["tok "] * (count - 2) + [ATTACK, "x" * 400]
    outcome = Outcome(count, verdict == "right", 10, 20)
    rewards = [1.1] * 10 + [0.7] * (count - 10)
    advantages = [0.5] * 10 + [-0.25] * (count - 10)
    return TraceView(problem, "7", source, verdict, version, token_views(texts, outcome, rewards, advantages), problem)


TRACES = [
    view("right", "sums"),
    view("wrong", "sums", version="5"),
    view("right", "search", problem="Which? " + ATTACK),
]


@pytest.mark.parametrize(
    "html", [trace_report_html(TRACES), comparison_html(*TRACES[:2])], ids=["report", "comparison"]
)
def test_no_request_leaves_and_no_injected_script_runs(open_page, html):
    page = open_page(html)
    page.locator(".t").first.click()
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("window.hit") is None and page.errors == []
    assert ATTACK in page.locator(".text").first.inner_text()


def test_pointing_at_a_token_shows_its_reward(open_page):
    page = open_page(trace_report_html(TRACES))
    tip = page.get_by_role("tooltip", include_hidden=True)
    assert tip.is_hidden()
    page.locator(".t").nth(12).hover()
    assert tip.inner_text().split() == ["token", "12", "part", "redundant", "reward", "0.7", "advantage", "-0.25"]
    page.locator("h1").hover()
    assert tip.is_hidden()


def test_the_keyboard_reaches_every_token(open_page):
    page = open_page(trace_report_html(TRACES))
    page.locator(".t").first.focus()
    for key, index in (("ArrowRight", "1"), ("ArrowDown", "11"), ("End", "29"), ("ArrowRight", "29"), ("Home", "0")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.i") == index
        assert page.locator(".tip").inner_text().split()[:2] == ["token", index]
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()
    page.keyboard.press("Tab")  # one stop a trace: on to the next one
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_filters_by_verdict_and_source(open_page):
    page = open_page(trace_report_html(TRACES))
    visible = lambda: page.locator("details.trace:visible").count()  # noqa: E731
    assert visible() == 3
    page.get_by_role("button", name="Wrong").click()
    assert visible() == 1 and page.locator(".group:visible").count() == 1
    assert page.locator(".shown").inner_text() == "1 of 3 traces"
    page.get_by_label("Source").select_option("search")
    assert visible() == 0 and page.locator(".empty").is_visible()
    page.get_by_role("button", name="All", exact=False).first.click()
    assert visible() == 1 and page.locator(".empty").is_hidden()
    page.get_by_label("Version").select_option("5")
    assert visible() == 0
    page.get_by_label("Source").select_option("")
    assert visible() == 1
    page.get_by_role("button", name="Close all").click()
    assert page.locator("details[open]").count() == 0


def test_colour_by_advantage_tells_sign_from_sign(open_page):
    page = open_page(trace_report_html(TRACES))
    tokens = page.locator(".t")
    colour = lambda index: tokens.nth(index).evaluate("e => getComputedStyle(e).backgroundColor")  # noqa: E731
    plain = colour(0)
    page.get_by_role("button", name="Advantage").click()
    assert len({plain, colour(0), colour(15)}) == 3
    page.get_by_role("button", name="Part").click()
    assert colour(0) == plain


@pytest.mark.parametrize(
    "html", [trace_report_html(TRACES), comparison_html(*TRACES[:2])], ids=["report", "comparison"]
)
def test_a_phone_shows_it_without_scrolling_sideways(open_page, html):
    page = open_page(html, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".t").nth(3).tap()
    box = page.locator(".tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    assert page.locator(".tip").inner_text().split()[1] == "3"


def test_light_and_dark_have_readable_redundant_text(open_page):
    def luminance(rgb):
        parts = [c / 255 for c in rgb]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    seen = []
    for scheme in ("light", "dark"):
        page = open_page(trace_report_html(TRACES), color_scheme=scheme)
        style = page.locator(".run.redundant").first.evaluate(
            "e => ['color', 'backgroundColor'].map(k => getComputedStyle(e)[k].match(/\\d+/g).map(Number))"
        )
        low, high = sorted(map(luminance, style))
        assert (high + 0.05) / (low + 0.05) >= 4  # dimmed, and still readable
        seen.append(style)
    assert seen[0] != seen[1]
