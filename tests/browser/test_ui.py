"""The endpoint's page in Chromium, as its users see it."""

import pytest

from tests.browser.conftest import PHONE
from tests.browser.ui_endpoint import ANSWER, THINKING, Replica, pieces

pytestmark = pytest.mark.browser
ATTACK = "<script>window.hit=1</script><img src=x onerror='window.hit=1'>\u202e"
DONE = "article.reply[data-state=done]"


def two():
    return [Replica(0, 5), Replica(1, 2, canary=True)]


def ready(page):
    page.locator("#send:enabled").wait_for()
    return page


def ask(page, text, state="done"):
    ready(page).get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")
    reply = page.locator(f"article.reply[data-state={state}]").last
    reply.wait_for()
    return reply


def words(locator):
    return " ".join(locator.inner_text().split())


def unexpected(page, *statuses):
    """Console errors, without those with which Chromium itself reports the statuses that a test asks for."""
    return [error for error in page.errors if not any(f"status of {status}" in error for status in statuses)]


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_thinking_is_apart_and_counted_and_the_version_stands_below(serve_page):
    page, endpoint = serve_page()
    reply = ask(page, "What is 7 + 8 - 4?")
    thought = len(pieces(THINKING[5]))
    assert words(reply.locator("summary")).startswith(f"Thought · {thought} tokens ·")
    assert reply.locator(".thinking .text").inner_text() == THINKING[5]
    assert reply.locator(".answer").inner_text() == ANSWER
    assert endpoint.replicas[0].mark in words(reply.locator(".cost")) and "≈" not in words(reply)
    assert f"{len(pieces(ANSWER)) + 2} answer tokens" in words(reply.locator(".cost"))
    reply.locator("summary").click()
    assert reply.locator(".thinking .text").is_hidden()
    assert page.errors == []
    assert {url for url in page.asked if not url.startswith((f"{endpoint.url}/", "data:"))} == set()


def test_history_and_options_go_along_and_an_example_begins_anew(serve_page):
    page, endpoint = serve_page()
    ask(page, "first")
    page.locator("#chosen").click()
    page.get_by_label("Max tokens").fill("64")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Think budget").fill("0")
    page.get_by_label("Effort").select_option("low")
    ready(page).get_by_label("Message").fill("two")
    page.get_by_label("Message").press("Shift+Enter")
    page.get_by_label("Message").type("lines")
    page.get_by_label("Message").press("Enter")
    page.locator(DONE).nth(1).wait_for()
    ready(page).get_by_role("button", name="What is 7 + 8 - 4?").click()
    page.locator(DONE).nth(2).wait_for()
    plain, second, alone = endpoint.asked
    assert plain == {
        "model": "policy", "messages": [{"role": "user", "content": "first"}], "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert [message["content"] for message in second["messages"]] == ["first", ANSWER, "two\nlines"]
    assert words(page.locator("#chosen")) == "Options · max tokens 64 · temperature 0.5 · think budget 0 · effort low"
    chosen = {"max_tokens": 64, "temperature": 0.5, "thinking_token_budget": 0, "reasoning_effort": "low"}
    assert chosen.items() <= second.items()
    assert len(alone["messages"]) == 1 and page.get_by_text("New conversation").is_visible()
    page.get_by_role("button", name="Clear").click()
    assert page.locator("article").count() == 0 and page.locator("#empty").is_visible()


def test_stop_ends_the_reply_at_the_endpoint_too(serve_page):
    page, endpoint = serve_page(pause_s=0.2, thinking="Wait " * 200)
    ready(page).get_by_label("Message").fill("go")
    page.get_by_label("Message").press("Enter")
    page.locator("article.reply[data-state=thinking]").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator("article.reply[data-state=broken]").wait_for()
    assert "Stopped." in words(page.locator(".cost")) and "≈" in words(page.locator(".thinking summary"))
    ready(page)
    for _ in range(100):
        if endpoint.cut_off:
            break
        page.wait_for_timeout(100)
    assert endpoint.cut_off == 1 and page.errors == []


def test_the_key_is_asked_for_kept_in_the_tab_and_used(serve_page):
    page, endpoint = serve_page(key="sk-right")
    field = page.get_by_label("Key", exact=True)
    assert field.get_attribute("type") == "password"
    field.fill("sk-wrong")
    field.press("Enter")
    page.get_by_text("or does not know this one").wait_for()
    field.fill("sk-right")
    field.press("Enter")
    ask(page, "hello")
    assert page.get_by_role("dialog").is_hidden() and page.locator(".replica").count() == 1
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert not any("sk-right" in url for url in page.asked) and unexpected(page, 401) == []


def test_without_the_scope_admin_the_gauges_say_so_and_rest(serve_page):
    page, _ = serve_page(admin=False)
    page.get_by_text("need a key with the scope admin").wait_for()
    assert page.locator("#gauges").is_hidden() and page.get_by_role("switch").is_disabled()
    asked = sum(url.endswith("/admin/version") for url in page.asked)
    page.wait_for_timeout(3000)
    assert sum(url.endswith("/admin/version") for url in page.asked) == asked == 1
    ask(page, "the chat works")


def test_a_full_endpoint_is_named_counted_down_and_the_text_comes_back(serve_page):
    page, _ = serve_page(limited=1)
    ready(page).get_by_label("Message").fill("again")
    page.get_by_label("Message").press("Enter")
    page.get_by_text("Too many requests. It says: slow down").wait_for()
    page.get_by_text("Free again in").wait_for()
    assert page.get_by_label("Message").input_value() == "again" and page.locator("article").count() == 0
    page.get_by_text("You can send again now.").wait_for()
    page.get_by_role("button", name="Send").click()
    page.locator(DONE).wait_for()
    assert page.locator("#notice").inner_text().strip() == "" and unexpected(page, 429) == []


def test_two_versions_side_by_side_with_the_difference(serve_page):
    page, endpoint = serve_page(replicas=two())
    page.get_by_role("switch", disabled=False).check()
    for _ in range(3):  # by chance the first try may meet the right replica on both sides
        ready(page).get_by_label("Message").fill("What is 7 + 8 - 4?")
        page.get_by_label("Message").press("Enter")
        page.locator(".turn").last.locator(DONE).nth(1).wait_for()
    turn = page.locator(".turn").last
    champion, previous = turn.locator("article").all()
    assert champion.locator("h3").inner_text() == f"Champion {endpoint.replicas[0].mark}"
    assert previous.locator("h3").inner_text() == f"Previous {endpoint.replicas[1].mark}"
    assert endpoint.replicas[1].mark in words(previous.locator(".cost"))
    few, many = len(pieces(THINKING[5])), len(pieces(THINKING[2]))
    said = words(turn.locator(".difference"))
    assert f"{many - few} thinking tokens fewer ({few} against {many}, −" in said and "the same answer" in said
    assert len(endpoint.asked) == 6 and unexpected(page, 412) == []


def test_a_version_that_vanished_ends_the_comparison_after_bounded_tries(serve_page):
    page, endpoint = serve_page(replicas=two())
    page.get_by_role("switch", disabled=False).check()
    page.route("**/admin/version", lambda route: route.abort())  # the page does not hear that the canary ended
    endpoint.replicas[1].version = 5
    ready(page).get_by_label("Message").fill("hello")
    page.get_by_label("Message").press("Enter")
    page.get_by_text("none of 40 tries met").first.wait_for()
    assert endpoint.refused == 40 and page.locator("article[data-state=done]").count() == 1


def test_with_one_version_the_switch_says_how_to_get_a_second(serve_page):
    page, _ = serve_page()
    page.get_by_text("python -m jobs.canary start --candidate previous").wait_for()
    assert page.get_by_role("switch").is_disabled()


def test_gauges_follow_and_a_swap_shows(serve_page):
    page, endpoint = serve_page()
    ask(page, "one")
    replica = page.locator("[data-replica=replica-0]")
    total = len(pieces(THINKING[5])) + len(pieces(ANSWER)) + 2
    replica.locator("dd", has_text=f"{total:.1f}").wait_for()
    assert f"Tokens / reply {total:.1f} Requests 1 Failed 0 Inside / waiting 1 / 0 Parity 0.0012" in words(replica)
    old = endpoint.replicas[0].mark
    endpoint.replicas[0].swap(6)
    new = endpoint.replicas[0].mark
    page.locator(".replica .head b", has_text=new).wait_for()
    assert "swapped" in words(replica) and "Last pause 42 ms" in words(replica)
    assert page.locator("#chart line.swap").count() == 1
    assert page.locator("#spoken").text_content() == f"Replica 0 went from {old} to {new}"
    ask(page, "two")
    page.locator("#legend li", has_text=new).wait_for()
    assert page.locator("#chart polyline").count() == 2 and page.errors == []


BROKEN_ONCE = """
const real = window.fetch;
let left = 1;
const body = () => new ReadableStream({ start: (control) => control.error(new TypeError("network error")) });
window.fetch = (path, options) =>
  String(path).includes("admin/version") && left-- > 0 ? Promise.resolve(new Response(body())) : real(path, options);
"""


def test_gauges_go_on_after_a_connection_that_broke_in_the_answer(serve_page):
    page, endpoint = serve_page()
    page.add_init_script(BROKEN_ONCE)
    page.reload()
    page.locator("#gauges-note", has_text="the connection broke").wait_for()
    page.locator("#replicas .replica").wait_for()  # at the next look
    assert page.errors == []


def test_chunks_are_counted_until_usage_is_known(serve_page):
    page, _ = serve_page()
    script = "async ([chunks, usage]) => (await import('/ui/counts.js')).tokens(chunks, usage)"
    for chunks, usage, expected in (
        ((5, 4), None, (5, 4, 9, False)),
        ((5, 4), {"completion_tokens": 11, "completion_tokens_details": {"reasoning_tokens": 6}}, (6, 5, 11, True)),
        ((5, 4), {"completion_tokens": 11, "completion_tokens_details": {"reasoning_tokens": 0}}, (5, 6, 11, False)),
        ((5, 5), {"completion_tokens": 40}, (20, 20, 40, False)),  # several tokens a chunk: by the share of chunks
        ((5, 0), {"completion_tokens": 40}, (40, 0, 40, True)),
        ((0, 5), {"completion_tokens": 7}, (0, 7, 7, True)),
    ):
        found = page.evaluate(script, [dict(zip(("thinking", "answer"), chunks, strict=True)), usage])
        assert found == dict(zip(("thinking", "answer", "total", "exact"), expected, strict=True))


def test_a_hidden_page_asks_nothing(serve_page):
    page, _ = serve_page()
    page.locator(".replica").wait_for()
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => window.away });"
        "window.away = true; document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.wait_for_timeout(500)  # one that was under way may end
    asked = len(page.asked)
    page.wait_for_timeout(3000)
    assert len(page.asked) == asked
    with page.expect_request("**/admin/version"):
        page.evaluate("() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')); }")


def test_a_reply_across_a_swap_is_marked_mixed(serve_page):
    page, _ = serve_page(swap_under_reply=6)
    reply = ask(page, "hello")
    assert "v5-5e5e5e5e+v6-6f6f6f6f" in words(reply.locator(".cost")) and reply.get_by_text("mixed").is_visible()


def test_what_a_model_or_user_writes_stays_text(serve_page):
    page, _ = serve_page(thinking=ATTACK, answer=ATTACK)
    reply = ask(page, ATTACK)
    assert reply.locator(".answer").text_content() == ATTACK and page.locator(".said").text_content() == ATTACK
    assert page.locator("#log script, #log img").count() == 0
    assert page.evaluate("window.hit") is None and page.errors == []


@pytest.mark.parametrize("options", [PHONE, {"color_scheme": "dark"}], ids=["phone", "dark"])
def test_it_fits_and_can_be_looked_at(serve_page, options, tmp_path):
    page, _ = serve_page(options, replicas=two(), answer=f"{ANSWER} {'x' * 300}")
    page.get_by_role("switch", disabled=False).check()
    ask(page, "What is 7 + 8 - 4? " + "y" * 300)
    assert fits(page) and page.errors == [error for error in page.errors if "status of 412" in error]
    assert page.screenshot(path=tmp_path / "ui.png", full_page=True)
    assert page.evaluate("document.querySelector('#send').getBoundingClientRect().right") <= page.viewport_size["width"]


def test_all_can_be_reached_and_read_by_name(serve_page):
    page, _ = serve_page(replicas=two())
    page.get_by_role("switch", disabled=False).wait_for()
    ready(page)
    unnamed = page.evaluate(
        "() => [...document.querySelectorAll('input, select, textarea')].filter((one) => !one.labels.length).length"
    )
    assert unnamed == 0
    page.locator("#chosen").press("Enter")
    page.locator("#model").focus()
    reached = {"model"}
    for _ in range(25):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {"model", "open-key", "log", "prompt", "send", "temperature", "effort", "compare", "clear"} <= reached
