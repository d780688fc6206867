"""The trace's format, the backends' rules, and the choice among sizes: pure."""

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import UserError
from pipeline.engine.blocks.choice import choose, excess
from pipeline.engine.blocks.replay import Replayed
from pipeline.engine.blocks.rules import RULES, sizes_for
from pipeline.engine.blocks.trace import read_trace, trace_lines
from pipeline.engine.vllm_source import folder


def trace(tmp_path, *lines):
    file = tmp_path / "trace.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return read_trace(file)


def alike(one, other):
    """How many tokens two prompts begin with in common."""
    pairs = zip(one.prompt, other.prompt, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one.prompt), len(other.prompt)))


def test_named_texts_are_shared_and_the_rest_is_ones_own(tmp_path):
    first, second, third = trace(
        tmp_path,
        {"prompt_tokens": 90, "output_tokens": 30, "shared": [["system", 50]], "reply": "chat.1"},
        "",
        {"prompt_tokens": 90, "output_tokens": 30, "shared": [["system", 40]]},
        {"prompt_tokens": 100, "output_tokens": 5, "shared": [["system", 50], ["chat.1", 30]], "salt": "a"},
    )
    assert (len(first.prompt), len(first.output), first.tokens, first.salt, third.salt) == (90, 30, 120, None, "a")
    assert [alike(first, second), alike(first, third), alike(second, third)] == [40, 50, 40]
    assert third.prompt[50:80] == first.output
    assert len({*first.prompt, *first.output, *second.prompt}) == 90 + 30 + 50


def test_token_ids_come_back(tmp_path):
    pairs = [((5, 6, 7), (8,)), ((5, 6), (9, 9))]
    found = trace(tmp_path, *(line.strip() for line in trace_lines(pairs)))
    assert [(request.prompt, request.output) for request in found] == pairs


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 2: "),
        ("[" * 100_000, "line 2: "),
        ("5", "a request is a mapping"),
        ('{"prompt_tokens": 5, "output_tokens": 5, "prompt_tokens": 6}', "'prompt_tokens' is given twice"),
        ({"prompt_tokens": 5}, "give either output_ids or output_tokens"),
        ({"output_tokens": 5}, "give either prompt_ids or prompt_tokens"),
        ({"prompt_tokens": 5, "prompt_ids": [1], "output_tokens": 5}, "give either prompt_ids or prompt_tokens"),
        ({"prompt_tokens": 0, "output_tokens": 5}, "prompt_tokens is 0; it must be a whole number from 1"),
        ({"prompt_tokens": True, "output_tokens": 5}, "prompt_tokens is True"),
        ({"prompt_tokens": 1.5, "output_tokens": 5}, "prompt_tokens is 1.5"),
        ({"prompt_tokens": 1 << 40, "output_tokens": 5}, "from 1 to 4194304"),
        ({"prompt_ids": [], "output_tokens": 5}, "prompt_ids must be a list"),
        ({"prompt_ids": [-1], "output_tokens": 5}, "prompt_ids holds -1"),
        ({"prompt_ids": [1], "output_ids": ["a"]}, "output_ids holds 'a'"),
        ({"prompt_tokens": 5, "output_token": 5}, "did you mean 'output_tokens'"),
        ({"prompt_tokens": 5, "output_tokens": 5, "shared": [["s", 6]]}, "more than prompt_tokens (5)"),
        ({"prompt_tokens": 5, "output_tokens": 5, "shared": "s"}, "shared holds 's'"),
        ({"prompt_tokens": 5, "output_tokens": 5, "shared": [["s", 0]]}, "shared 's' is 0"),
        ({"prompt_ids": [5], "output_tokens": 5, "shared": [["s", 1]]}, "shared does nothing beside prompt_ids"),
        ({"prompt_ids": [5], "output_ids": [5], "reply": "a"}, "reply does nothing beside output_ids"),
        ({"prompt_tokens": 5, "output_tokens": 5, "reply": 7}, "reply is 7"),
        ({"prompt_tokens": 5, "output_tokens": 5, "salt": 7}, "salt is 7"),
    ],
    ids=str,
)
def test_a_bad_line_is_one_sentence(tmp_path, line, text):
    with pytest.raises(UserError) as caught:
        trace(tmp_path, {"prompt_tokens": 5, "output_tokens": 5}, line)
    assert "trace.jsonl line 2: " in str(caught.value) and text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_a_newline_ends_a_line(tmp_path):
    name = "a\u2028b\x85c"
    line = json.dumps({"prompt_tokens": 5, "output_tokens": 5, "salt": name}, ensure_ascii=False)
    (tmp_path / "t").write_bytes(f"{line}\r\n{line}".encode())
    assert [request.salt for request in read_trace(tmp_path / "t")] == [name, name]


def test_files_that_hold_none(tmp_path):
    with pytest.raises(UserError, match="holds no request"):
        trace(tmp_path, "", " ")
    with pytest.raises(UserError, match="cannot be read"):
        read_trace(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot be read"):
        read_trace(tmp_path / "bytes")


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "sizes"),
    [
        ("cpu", (32, 64, 128, 256)),
        ("flash_attn", (16, 32, 64, 128, 256)),
        ("flashinfer", (16, 32, 64, 128, 256)),
        ("flashmla", (64, 128, 256)),
        ("cutlass_mla", (128, 256)),
        ("cpu_mla", (16,)),
    ],
)
def test_sizes_of_a_backend(backend, sizes):
    assert sizes_for(backend) == sizes
    assert RULES[backend].usual in sizes


@pytest.mark.parametrize(
    ("backend", "size", "text"),
    [
        ("cpu", 8, "takes multiples of 32; no backend takes less than 16"),
        ("cpu", 16, "vLLM's CPU attention takes multiples of 32; leave 16 out"),
        ("cpu", 48, "multiples of 32"),
        ("flash_attn", 8, "FlashAttention takes multiples of 16; no backend takes less than 16"),
        ("flash_attn", 24, "multiples of 16"),
        ("flashinfer", 8, "pages of 16, 32 and 64"),
        ("flashmla", 32, "multiples of 64"),
        ("cpu_mla", 32, "takes 16 alone"),
        ("cpu", 0, "refused"),
    ],
)
def test_sizes_that_are_refused(backend, size, text):
    with pytest.raises(UserError) as caught:
        sizes_for(backend, (64, size) if backend == "cpu" else (size,))
    assert f"a block of {size} tokens is refused" in str(caught.value) and text in str(caught.value)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules_are_the_installed_vllms(rule):
    """Read from its source: the sizes that each backend returns."""
    tree = ast.parse((folder() / "v1/attention/backends" / rule.file).read_text(encoding="utf-8"))
    found = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "get_supported_kernel_block_sizes"
    )
    returned = [node.value for node in ast.walk(found) if isinstance(node, ast.Return)]
    lists = [ast.unparse(value) for value in returned]
    wanted = f"[{', '.join(map(str, rule.pages))}]" if rule.pages else f"[{rule.every}]"
    assert wanted in lists or f"[MultipleOf({rule.every})]" in lists, lists
    if rule.pages:
        assert rule.every == min(rule.pages) and all(page % rule.every == 0 for page in rule.pages)


# --- the choice -------------------------------------------------------------------------------------------------------


def row(size, computed=1000, held=1000, steps=100):
    return Replayed(size, 10, steps=steps, computed_tokens=computed, held_tokens=held)


def test_the_largest_that_costs_next_to_nothing():
    rows = [row(128, held=1100), row(32), row(64, held=1015)]
    choice = choose(rows, 0.02)
    assert choice.size == 64
    assert "the largest within 2% of the best" in choice.why and "128 would need" in choice.why
    assert "+10.0% memory held" in choice.why
    assert choose(rows, 0.0).size == 32 and choose(rows, 0.2).size == 128
    assert choose([row(32)], 0.02).why.endswith("no larger size was tried")


def test_where_none_is_near_in_everything_the_nearest():
    rows = [row(32, computed=1000, held=1500), row(64, computed=1100, held=1000)]
    choice = choose(rows, 0.02)
    assert choice.size == 64 and "none is within 2%" in choice.why
    # A pool too small: large blocks let few in, which are seldom preempted and take many steps.
    few = [row(16, 59_276, 3440, 1229), row(32, 59_041, 3461, 1397), row(256, 46_863, 3619, 2972)]
    assert choose(few, 0.02).size == 16


def test_excess_by_hand():
    rows = [row(32, 1000, 800, 100), row(64, 1250, 1000, 100)]
    assert excess(rows[1], rows) == {"computed_tokens": 0.25, "held_tokens": 0.25, "steps": 0.0}


figures = st.tuples(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))


@given(st.lists(figures, min_size=1, max_size=5), st.floats(0, 1))
def test_what_is_taken_is_never_beaten_in_everything_by_more_than_the_tolerance(costs, tolerance):
    rows = [row(32 << i, *cost) for i, cost in enumerate(costs)]
    taken = next(r for r in rows if r.block_size == choose(rows, tolerance).size)
    worst = {r.block_size: max(excess(r, rows).values()) for r in rows}
    total = {r.block_size: sum(excess(r, rows).values()) for r in rows}
    assert worst[taken.block_size] <= tolerance or total[taken.block_size] == min(total.values())
    assert not any(r.block_size > taken.block_size and worst[r.block_size] <= tolerance for r in rows)
