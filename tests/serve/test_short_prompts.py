"""Which prompts are rendered where they arrive."""

import asyncio

import pytest

from serve.short_prompts import SHORT, _chat_length, _text_length, at_once


def run_with(length, function):
    threaded = []

    def in_a_thread(*arguments, **options):
        threaded.append((arguments, options))
        return asyncio.sleep(0, "from the thread")

    run = at_once(function, in_a_thread, lambda *arguments, **options: length)
    return asyncio.run(awaited(run)), threaded


async def awaited(run):
    return await run(1, b=2)


def test_short_ones_are_done_at_once_and_long_ones_in_the_thread():
    assert run_with(SHORT, lambda *arguments, **options: (arguments, options)) == (((1,), {"b": 2}), [])
    assert run_with(SHORT + 1, None) == ("from the thread", [((1,), {"b": 2})])


def test_who_waits_gets_the_error():
    def broken(*arguments, **options):
        raise ValueError("no such template")

    with pytest.raises(ValueError, match="no such template"):
        run_with(0, broken)


def test_all_that_a_template_writes_out_counts():
    chat = [{"role": "user", "content": "1234"}, {"role": "assistant", "content": None, "reasoning": "12"}]
    assert _chat_length(None, None, chat) == len("user1234assistantNone12")
    assert _chat_length(None, None, chat, tools=[{"a": 1}], chat_template=None) == 23 + len("[{'a': 1}]")
    assert _chat_length(None, None, chat, documents=[{"text": "a"}]) > SHORT
    parts = [{"role": "user", "content": [{"type": "text", "text": "a" * SHORT}]}]
    assert _chat_length(None, None, parts) > SHORT
    assert _text_length({"prompt": "12345"}, None) == 5


@pytest.mark.slow
def test_a_renderer_of_vllms_tokenizes_and_applies_its_template_at_once():
    from vllm.renderers.hf import HfRenderer
    from vllm.renderers.mistral import MistralRenderer

    from serve.short_prompts import render_short_at_once

    def threaded(*arguments, **options):
        raise AssertionError("a short prompt went to the thread")

    for kind in (HfRenderer, MistralRenderer):
        renderer = object.__new__(kind)
        renderer._tokenize_prompt = lambda prompt, params: prompt["prompt"].split()
        renderer._tokenize_prompt_async = renderer._apply_chat_template_async = threaded
        render_short_at_once(renderer)

        async def tokens(renderer=renderer):
            return await renderer._tokenize_prompt_async({"prompt": "3 + 4"}, None)

        assert asyncio.run(tokens()) == ["3", "+", "4"]
        assert (renderer._apply_chat_template_async is threaded) is (kind is MistralRenderer)
