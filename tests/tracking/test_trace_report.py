import io
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.rewards.outcome import Outcome
from pipeline.tracking.html_page import esc, island
from pipeline.tracking.trace_report import comparison_html, trace_report_html
from pipeline.tracking.trace_text import comparison_text, takes_colour
from pipeline.tracking.trace_view import Part, TokenView, TraceView, token_views

N, R, U, A = Part.NECESSARY, Part.REDUNDANT, Part.UNMARKED, Part.ANSWER


def trace(tokens, **changes):
    fields = {"problem": "1 + 1?", "gold": "2", "source": "sums", "verdict": "right", "version": "3"}
    return TraceView(**{**fields, **changes}, tokens=tuple(TokenView(text, part) for text, part in tokens))


LONG = trace([("one", N), (" two\n", N), ("Wait", R), (" two", R), (" two", R), ("</think>", A), ("2", A)])
SHORT = trace([("two\n", N), ("</think>", A), ("2", A)])


def test_parts_follow_prefix_and_think_end():
    def parts(**outcome):
        return [v.part for v in token_views(list("abcdef"), Outcome(length=6, **outcome))]

    assert parts(correct=True, prefix_length=2, think_length=4) == [N, N, R, R, A, A]
    assert parts(correct=True, prefix_length=4, think_length=4) == [N, N, N, N, A, A]
    assert parts(correct=True, prefix_length=None, think_length=4) == [U, U, U, U, A, A]
    assert parts(correct=False, prefix_length=2, think_length=4) == [U, U, U, U, A, A]
    assert parts(correct=False, prefix_length=None, think_length=6) == [U] * 6


def test_views_carry_reward_and_advantage_and_leave_out_padding():
    views = token_views(["a", "b"], Outcome(2, True, 1, 1), [1.1, 1.0, 0.0], [0.5, -0.5, 0.0])
    assert views == (TokenView("a", N, 1.1, 0.5), TokenView("b", A, 1.0, -0.5))
    with pytest.raises(ValueError, match="1 token texts for a trace of 2"):
        token_views(["a"], Outcome(2, True, 1, 1))
    with pytest.raises(ValueError, match="1 rewards for a trace of 2"):
        token_views(["a", "b"], Outcome(2, True, 1, 1), [1.0])


def test_necessary_share_counts_thinking_only():
    assert LONG.nrp_share == 2 / 5 and SHORT.nrp_share == 1.0
    assert trace([("x", U), ("y", A)]).nrp_share is None
    assert [(part, start, len(tokens)) for part, start, tokens in LONG.runs()] == [(N, 0, 2), (R, 2, 3), (A, 5, 2)]


class Tags(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self._raw = [], [], [], False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self._raw = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._raw = False

    def handle_data(self, data):
        if not self._raw:
            self.text.append(data)


def parsed(page):
    parser = Tags()
    parser.feed(page)
    return parser


ATTACKS = [
    "<script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "</script><b>",
    "<!--",
    "&lt;b&gt;",
    "'",
]


def test_nothing_a_model_or_data_set_wrote_becomes_markup():
    bad = "".join(ATTACKS)
    fields = {"problem": bad, "gold": bad, "source": bad, "verdict": bad, "version": bad, "label": bad, "stop": bad}
    one = trace([(bad, N), (bad, A)], group=bad, **fields)
    for page in (trace_report_html([one, SHORT], bad, bad), comparison_html(one, one, bad)):
        found = parsed(page)
        assert found.tags.count("script") == 1 and not {"img", "iframe", "object"} & set(found.tags)
        assert not [name for name in found.attributes if name.startswith("on")]
        assert "".join(found.text).count(bad) >= 6


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=st.characters()))
def test_any_text_comes_out_as_it_went_in(text):
    shown = "".join("\ufffd" if c == "\0" or 0xD800 <= ord(c) <= 0xDFFF else c for c in text).replace("\r", "␍")
    assert "".join(parsed(f"<p>{esc(text)}</p>").text) == shown
    esc(text).encode("utf-8")


def test_the_page_names_no_place_outside_itself():
    page = trace_report_html([LONG, SHORT])
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)|url\(|@import|https?://""", page)
    assert "default-src 'none'" in page


def test_the_report_groups_counts_and_marks():
    other = trace([("x", U)], problem="2 + 2?", verdict="WRONG", source="search")
    page = trace_report_html([LONG, other, SHORT])
    assert page.count("<section") == 2  # the two traces of one problem stand together
    assert page.count("answer reached, token 2<") == 1
    assert page.index("2 of 2</b> right") < page.index("2 + 2?")
    assert 'data-verdict="wrong"' in page and "needed <b>40%" in page and "needed <b>–" in page
    assert page.count(" open>") == 3
    assert trace_report_html([LONG] * 8).count(" open>") == 1
    assert "No traces." in trace_report_html([])


def test_a_long_trace_loses_its_middle_and_says_so():
    tokens = [("n ", N)] * 1500 + [("r ", R)] * 3000 + [("a", A)] * 10
    page = trace_report_html([trace(tokens)])
    assert page.count("class=t ") == 1200 and "<b>4510</b> tokens" in page
    assert ">900 tokens not shown" in page and ">2410 tokens not shown" in page  # of either part
    assert "answer reached, token 1500<" in page
    assert 'data-i="' not in page and "data-i=599>" in page and "data-i=3910>" in page and "data-i=600>" not in page


def test_a_long_problem_is_cut_and_says_so():
    page = trace_report_html([trace([("x", U)], problem="p" * 5000)])
    assert "p" * 4000 + " … (1000 more characters)" in page and "p" * 4001 not in page


def test_versions_are_offered_in_order_where_there_are_several():
    page = trace_report_html([trace([("x", U)], version=version) for version in ("10", "9", "0", "0–1")])
    options = re.findall(r'value="([^"]+)">', page.split("id=version")[1].split("</select>")[0])
    assert options == ["0", "9", "10", "0–1"]
    assert "id=version" not in trace_report_html([LONG, SHORT])


def test_data_for_a_script_cannot_end_it():
    bad = "</script><!--&\u2028\ud800"
    block = island("data", {"text": bad})
    inside = block.split(">", 1)[1].removesuffix("</script>")
    assert not set("<>&\u2028") & set(inside) and json.loads(inside) == {"text": bad}
    with pytest.raises(ValueError):
        island("data", float("nan"))


def test_colours_by_reward_are_offered_only_where_there_are_any():
    assert 'data-tint-by="reward"' not in trace_report_html([LONG])
    views = token_views(["a"], Outcome(1, True, 1, 1), [1.1])
    page = trace_report_html([TraceView("p", "g", "s", "right", "0", views)])
    assert 'data-tint-by="reward"' in page and 'data-tint-by="advantage"' not in page
    assert 'data-reward="1.1"' in page


def test_the_comparison_tells_what_was_saved():
    page = comparison_html(LONG, SHORT)
    assert "<b>−57%</b>7 → 3 tokens" in page and page.index("Before") < page.index("After")


def test_the_terminal_dims_the_redundant_part():
    text = comparison_text(LONG, SHORT, colour=True)
    assert "\x1b[2mWait two two\x1b[0m" in text and "Tokens   7 -> 3 (-57%)" in text
    plain = comparison_text(LONG, SHORT, colour=False)
    assert "\x1b" not in plain
    assert re.search(r"one two\n\n--- answer reached.*---\nWait two two\n---\n</think>2", plain)


def test_a_model_cannot_steer_the_terminal():
    bad = trace([("a\x1b[2Jb\rc\u202ed\x9b", A)], problem="\x1b]0;x\x07", gold="\x1b")
    text = comparison_text(bad, bad, colour=False)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_colour_only_for_a_terminal_that_wants_it(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert takes_colour(Terminal()) and not takes_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not takes_colour(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not takes_colour(Terminal())
