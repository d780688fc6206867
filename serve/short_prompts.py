"""Short prompts are rendered on the event loop instead of in the thread of vLLM's renderer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

SHORT = 2048  # signs; they take about half a millisecond, for which every other request waits

Function = Callable[..., Any]


def render_short_at_once(renderer: Any) -> None:
    """For a chat request vLLM goes to that thread twice: with the template, then with its text. The ways there and back
    take 0.2 ms, more than the work itself for a hundred signs, and each waits until the loop lets Python's lock go."""
    from vllm.renderers.hf import HfRenderer, safe_apply_chat_template

    renderer._tokenize_prompt_async = at_once(renderer._tokenize_prompt, renderer._tokenize_prompt_async, _text_length)
    if type(renderer) is HfRenderer:  # the others apply templates of their own
        threaded = renderer._apply_chat_template_async
        renderer._apply_chat_template_async = at_once(safe_apply_chat_template, threaded, _chat_length)


def at_once(function: Function, threaded: Function, length: Callable[..., int]) -> Callable[..., Awaitable[Any]]:
    """`threaded`, which runs `function` in a thread, without the thread where `length` of the arguments is short."""

    def run(*arguments: Any, **options: Any) -> Awaitable[Any]:
        if length(*arguments, **options) > SHORT:
            return threaded(*arguments, **options)
        done = asyncio.get_running_loop().create_future()
        try:
            done.set_result(function(*arguments, **options))
        except Exception as error:  # noqa: BLE001 - who waits for the result gets it
            done.set_exception(error)
        return done

    return run


def _text_length(prompt: dict[str, Any], params: Any) -> int:
    return len(prompt["prompt"])


def _chat_length(
    model_config: Any, tokenizer: Any, conversation: list[dict[str, Any]], *, tools: Any = None, **options: Any
) -> int:
    """Of all that a template writes out; `documents` are among `options` and never short."""
    if options.get("documents"):
        return SHORT + 1
    said = (value for message in conversation for value in message.values())
    return sum(len(str(value)) for value in (*said, tools or ""))
