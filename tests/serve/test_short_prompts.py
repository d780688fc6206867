"""Which prompts are rendered where they arrive."""

import asyncio

import pytest

from serve.short_prompts import MESSAGE, SIGNS, LoopShare, _chat_length, _text_length

SIZE = 10


def run_all(lengths, function=lambda length: ("at once", length)):
    """What calls of these lengths get that are made in one pass of the loop, and after a pass what one more gets."""

    async def in_a_thread(length):
        return "threaded", length

    async def main():
        run = LoopShare(SIZE).at_once(function, in_a_thread, lambda length: length)
        first = await asyncio.gather(*(run(length) for length in lengths))
        return first, await run(SIZE)

    return asyncio.run(main())


def test_a_pass_of_the_loop_does_what_its_share_holds_and_the_thread_the_rest():
    first, later = run_all([4, 11, 6, 1, 0])
    assert first == [("at once", 4), ("threaded", 11), ("at once", 6), ("threaded", 1), ("at once", 0)]
    assert later == ("at once", SIZE)
    assert run_all([SIZE + 1]) == ([("threaded", SIZE + 1)], ("at once", SIZE))


def test_who_waits_gets_the_error():
    def broken(length):
        raise ValueError("no such template")

    with pytest.raises(ValueError, match="no such template"):
        run_all([1], broken)


def test_all_that_a_client_sends_for_the_template_counts():
    chat = [{"role": "user", "content": "1234"}, {"role": "assistant", "content": None, "reasoning": "12"}]
    size = 2 * MESSAGE + len("user1234assistantNone12")
    assert _chat_length(None, None, chat) == _chat_length(None, None, chat, chat_template="a" * SIGNS) == size
    assert _chat_length(None, None, chat, tools=[{"a": 1}]) == size + len("[{'a': 1}]")
    assert _chat_length(None, None, chat, custom_tools=["a" * SIGNS]) > SIGNS
    assert _chat_length(None, None, [{"role": "user", "content": ""}] * 200) > SIGNS
    parts = [{"role": "user", "content": [{"type": "text", "text": "a" * SIGNS}]}]
    assert _chat_length(None, None, parts) > SIGNS
    assert _text_length({"prompt": "12345"}, None) == 5


@pytest.mark.slow
def test_prompts_are_the_same_with_and_without_the_thread():
    from vllm import EngineArgs
    from vllm.renderers import ChatParams, TokenizeParams, renderer_from_config

    from serve.short_prompts import render_short_at_once
    from tests.serve.live_endpoint import SHIPPED

    renderer = renderer_from_config(EngineArgs(model=str(SHIPPED)).create_engine_config())
    chats = [[{"role": "user", "content": "3 + 4 = ? " * times}] for times in (1, 20, 40, 60, 300)]
    texts = [{"prompt": chat[0]["content"]} for chat in chats]
    pool, used = renderer._executor, []
    submit = pool.submit
    pool.submit = lambda function, *more: used.append(function) or submit(function, *more)

    async def rendered():
        tokens, chat = TokenizeParams(max_total_tokens=None), ChatParams(chat_template_kwargs={"tokenize": False})
        _, prompts = await renderer.render_chat_async(chats, chat, tokens)
        return [prompt["prompt_token_ids"] for prompt in prompts + await renderer.render_cmpl_async(texts, tokens)]

    try:
        threaded = asyncio.run(rendered())
        assert len(used) == 3 * len(chats)
        used.clear()
        render_short_at_once(renderer)
        assert asyncio.run(rendered()) == threaded
        assert 3 <= len(used) <= 2 * len(chats)  # the longest each time, and what a pass had no share for
    finally:
        renderer.shutdown()


@pytest.mark.slow
def test_renderers_whose_tokenizer_only_the_thread_may_use_stay_as_they_are():
    from vllm.renderers.mistral import MistralRenderer

    from serve.short_prompts import render_short_at_once

    renderer = object.__new__(MistralRenderer)
    render_short_at_once(renderer)
    assert vars(renderer) == {}
