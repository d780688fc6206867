"""The report of a run in Chromium, as a reader uses it."""

import pytest

from pipeline.tracking.run_report import run_report_html
from tests.tracking.run_report_builders import ATTACK, report, view

pytestmark = pytest.mark.browser
PAGE = run_report_html(report())
HOSTILE = run_report_html(
    report(name=ATTACK, traces=[view(source=ATTACK, problem=ATTACK + "x" * 400, version=ATTACK, text=ATTACK)] * 2)
)
EMPTY = run_report_html(report(history={}, traces=[], pairs=[]))
PHONE = {"viewport": {"width": 375, "height": 740}, "has_touch": True, "is_mobile": True}


def tip(page):
    return page.get_by_role("tooltip", include_hidden=True)


def in_view(locator):
    """Scrolled to, and past the scroll event, which hides the tooltip."""
    locator.scroll_into_view_if_needed()
    locator.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return locator


@pytest.mark.parametrize("html", [PAGE, HOSTILE, EMPTY], ids=["whole", "hostile", "empty"])
@pytest.mark.parametrize("options", [{}, PHONE, {"color_scheme": "dark"}], ids=["wide", "phone", "dark"])
def test_it_loads_alone_without_an_error_and_fits(open_page, html, options):
    page = open_page(html, **options)
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert page.errors == [] and page.evaluate("window.hit") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    opened = page.locator("details")
    for index in range(opened.count()):
        opened.nth(index).evaluate("element => { element.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_filters_by_source_version_and_verdict_by_keyboard_alone(open_page):
    page = open_page(PAGE)
    visible = lambda: page.locator("details.trace:visible").count()  # noqa: E731
    assert visible() == 5
    page.get_by_role("button", name="Wrong").focus()
    page.keyboard.press("Enter")
    assert visible() == 1 and page.locator(".shown").inner_text() == "1 of 5 traces"
    page.get_by_role("button", name="All", exact=False).first.press("Space")
    page.get_by_label("Source").select_option("search")
    assert visible() == 2
    page.get_by_label("Version").select_option("4")
    assert visible() == 1 and page.locator("details.trace:visible .verdict").inner_text() == "Unknown"
    page.get_by_role("button", name="Right").press("Enter")
    assert visible() == 0 and page.locator(".empty").is_visible()


def test_pointing_at_a_token_shows_reward_and_advantage(open_page):
    page = open_page(PAGE)
    in_view(page.locator("details.trace .t").nth(12)).hover()
    words = ["token", "12", "part", "redundant", "reward", "0.7", "advantage", "-0.25"]
    assert tip(page).inner_text().split() == words


def test_pointing_at_a_chart_shows_the_numbers_of_the_nearest_step(open_page):
    page = open_page(PAGE)
    chart = in_view(page.locator("svg[data-chart=accuracy]"))
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] - 20, "y": 40})
    assert tip(page).inner_text().split() == ["steps", "trained", "7", "training", "batch", "84.0%", "sums", "50.0%"]
    page.locator("h1").hover()
    assert tip(page).is_hidden()


def test_the_arrow_keys_move_along_a_chart(open_page):
    page = open_page(PAGE)
    in_view(page.locator("svg[data-chart=tokens]")).focus()  # a focus that scrolled would hide the first tip
    seen = []
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowLeft"):
        page.keyboard.press(key)
        tip(page).wait_for(state="visible")  # until it is laid out its text runs together
        seen.append(tip(page).inner_text().split()[2])
    assert seen == ["0", "1", "7", "6"]
    page.keyboard.press("Escape")
    assert tip(page).is_hidden()


def test_the_points_of_the_plot_are_found_by_place(open_page):
    page = open_page(PAGE)
    in_view(page.locator("circle.start")).hover()
    assert tip(page).inner_text().split()[:4] == ["point", "start", "version", "0"]


def test_verdict_and_charts_need_no_script(open_page):
    page = open_page(PAGE, java_script_enabled=False)
    assert page.locator(".sentence").inner_text().startswith("Worth it, shorter and more accurate")
    assert page.locator("svg:visible").count() == 5 and page.locator("polyline").count() >= 5
    page.get_by_text("All numbers by step").click()
    assert page.get_by_role("cell", name="84.0%").is_visible()


def test_on_paper_there_are_no_controls(open_page):
    page = open_page(PAGE)
    page.emulate_media(media="print")
    assert page.locator(".controls").is_hidden() and page.locator(".sentence").is_visible()
