"""Short prompts are rendered on the event loop instead of in the thread of vLLM's renderer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

SIGNS = 2048  # in about one pass of the loop, for all prompts together: they take it 0.4 ms
MESSAGE = 16  # signs that a message counts besides its own: templates have work with an empty one, too

Function = Callable[..., Any]


def render_short_at_once(renderer: Any) -> None:
    """Makes vLLM's `renderer` apply its template and tokenize without its thread where little is to be done.

    A chat request goes to the thread twice. The ways there and back take 0.2 ms, more than the work for a hundred signs
    does, and each waits until the loop lets Python's lock go. Only vLLM's general renderer has tokenizers that a thread
    and the loop may use at the same time.
    """
    from vllm.renderers.hf import HfRenderer, safe_apply_chat_template

    if type(renderer) is not HfRenderer:
        return
    share = LoopShare(SIGNS)
    tokenize, apply = renderer._tokenize_prompt_async, renderer._apply_chat_template_async
    renderer._tokenize_prompt_async = share.at_once(renderer._tokenize_prompt, tokenize, _text_length)
    renderer._apply_chat_template_async = share.at_once(safe_apply_chat_template, apply, _chat_length)


class LoopShare:
    """How much may be done at once in each pass of the event loop; what goes beyond it is left to a thread."""

    def __init__(self, size: int) -> None:
        self._size = self._left = size

    def at_once(self, function: Function, threaded: Function, length: Callable[..., int]) -> Function:
        """`threaded`, which runs `function` in a thread, without the thread while the share holds out. `length` says
        what a call takes of it."""

        def run(*arguments: Any, **options: Any) -> Awaitable[Any]:
            if not self._take(length(*arguments, **options)):
                return threaded(*arguments, **options)
            done = asyncio.get_running_loop().create_future()
            try:
                done.set_result(function(*arguments, **options))
            except Exception as error:  # noqa: BLE001 - who waits for the result gets it
                done.set_exception(error)
            return done

        return run

    def _take(self, length: int) -> bool:
        if length > self._left:
            return False
        if self._left == self._size:
            asyncio.get_running_loop().call_soon(self._renew)
        self._left -= length
        return True

    def _renew(self) -> None:
        self._left = self._size


def _text_length(prompt: dict[str, Any], params: Any) -> int:
    return len(prompt["prompt"])


def _chat_length(
    model_config: Any,
    tokenizer: Any,
    conversation: list[dict[str, Any]],
    /,
    *,
    chat_template: Any = None,
    **options: Any,
) -> int:
    """Of all that a client sent for the template to write out. The template itself is the server's."""
    said = (value for message in conversation for value in message.values())
    return MESSAGE * len(conversation) + sum(len(str(value)) for value in (*said, *options.values()))
