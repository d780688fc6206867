"""The pages name commands, options and other pages that are there. Nothing is started: commands are only parsed."""

import re
import runpy
import shlex
import sys
import warnings
from functools import cache
from urllib.parse import unquote

import pytest

import jobs._cli
import jobs.services
from jobs._cli import _parser
from pipeline.config import ROOT, UserError, load_config

PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "infra/models").rglob("*.md")],
    key=lambda path: path.as_posix(),
)
MODULE = re.compile(r"-m (jobs\.\w+)\s*(.*)", re.DOTALL)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"[][|…]|\.\.\.")  # what a call in running text leaves out: [--to NUMBER], add|list, ...


def label(page):
    return page.relative_to(ROOT).as_posix()


def block_calls(text):
    """(module, arguments) of each command in the page's shell blocks."""
    for kind, block in FENCE.findall(text):
        if kind in ("sh", "bash"):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                if found := MODULE.search(line):
                    yield found[1], shlex.split(found[2], comments=True)


def inline_calls(text):
    """(module, arguments as text) of each command in running text."""
    for code in re.findall(r"`([^`]+)`", FENCE.sub("", text)):
        if found := MODULE.search(code):
            yield found[1], " ".join(found[2].split())


def pairs(calls):
    return [
        pytest.param(*call, id=f"{label(page)}: {call[0]}")
        for page in PAGES
        for call in dict.fromkeys((m, tuple(a) if isinstance(a, list) else a) for m, a in calls(page.read_text()))
    ]


@cache
def parser_of(module):
    """The command's own parser: the module runs as a command, in a frame that hands the parser over and stops."""
    if module == "jobs.services":
        return jobs.services._parser()
    made = []

    def frame(name, description, main, extra_args=None, plan=None, argv=None):
        made.append(_parser(name, description, extra_args))
        return 0

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # another test may have imported it already
        patch.setattr(jobs._cli, "run_command", frame)
        patch.setattr(sys, "argv", [module])
        with pytest.raises(SystemExit):
            runpy.run_module(module, run_name="__main__")
    (parser,) = made
    return parser


def check(module, arguments):
    parsed = parser_of(module).parse_intermixed_args(list(arguments))
    if hasattr(parsed, "overrides"):
        load_config(parsed.config, parsed.overrides)


@pytest.mark.parametrize(("module", "arguments"), pairs(block_calls))
def test_a_command_of_a_block_parses_and_its_options_are_known(module, arguments):
    check(module, arguments)


@pytest.mark.parametrize(("module", "text"), pairs(inline_calls))
def test_a_command_in_running_text_exists_with_its_options(module, text):
    parser = parser_of(module)
    known = {option for action in parser._actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z-]+", text)) <= known
    if text and not PLACEHOLDER.search(text):
        check(module, shlex.split(text))


def test_mistakes_in_pages_would_be_found():
    (call,) = block_calls("```sh\nmake up\n.venv/bin/python -m jobs.serve \\\n    serve.replica=2  # two\n```\n")
    assert call == ("jobs.serve", ["serve.replica=2"])
    with pytest.raises(UserError, match="replicas"):
        check(*call)
    with pytest.raises(UserError, match="no-such"):
        check("jobs.promote", ["--no-such"])
    assert list(inline_calls("run `python -m jobs.rollback [--to X]` or `make`")) == [("jobs.rollback", "[--to X]")]


def anchors(page):
    """The names that a page's headings have as targets of links."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_links_lead_somewhere(page):
    wrong = []
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue  # another site
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    assert wrong == []


def test_every_page_is_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = LINK.findall(page.read_text())
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links if not link.startswith("http")]
    assert {label(page) for page in PAGES if page.parent == ROOT / "docs"} <= {label(page) for page in seen}
