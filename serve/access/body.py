"""Which fields of a request reach the engine, and within which bounds.

Most mistakes vLLM answers itself with a 400, and they are left to it. The tables below hold the rest, checked against
the request models of vLLM 0.32: what would name a file or an address, load code or tensors that a client sent, go
around the gate, end as a 500, or hold the engine up for everyone.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.config.option_catalogue import catalogue
from serve.access.errors import bad_field, shown
from serve.access.specs import check_chat_format, check_named_tool, check_structured, check_text_format, check_tools
from serve.lever_checks import sampling_refusals
from serve.speculation.settings import CAP

MAX_SEQUENCES = 128  # prompts x n of one request; vLLM allows 16384 of each
MAX_PATTERN = 256  # tokens: repetition detection compares that many patterns at each new token
MAX_STOP_BYTES = 1 << 10  # the end of a reply as long as the longest stop string is held back and searched again

REFUSED = {
    "chat_template": "a template is a program; the model's own is used",
    "prompt_embeds": "tensors are not accepted; send text or token ids",
    "kv_transfer_params": "it steers the transfer of caches between engines, which is not open to clients",
    "ec_transfer_params": "it steers the transfer of caches between engines, which is not open to clients",
    "mm_processor_kwargs": "this endpoint takes text only",
    "media_io_kwargs": "this endpoint takes text only",
    "previous_input_messages": "send the earlier messages within input",
    "request_id": "send the header x-request-id instead",
    **dict.fromkeys(
        ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend"),
        "the engine would ignore it; use structured_outputs or response_format",
    ),
}
TEMPLATE_KWARGS = (  # of the tokenizer's method, not of templates
    *("model_config", "tokenizer"),
    *("chat_template", "conversation", "tokenize", "tokenizer_kwargs", "return_tensors", "return_dict"),
    *("return_assistant_tokens_mask", "padding", "truncation", "max_length", "tools", "documents"),
)
TEXT_PARTS = ("text", "input_text", "output_text", "reasoning_text", "summary_text", "refusal", "thinking")
INPUT_ITEMS = (
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
)
MEDIA = re.compile(r"(image|audio|video|file|prompt)_(url|embeds|pil|id|data)|input_(image|audio|video|file)|uuid")

Check = Callable[[Any], None]


def check_body(body: dict[str, Any]) -> None:
    """Raises Refusal (400, with the field's name) for the first field that must not reach the engine."""
    options = catalogue()
    for name, value in body.items():
        if value is not None and name in REFUSED:
            raise bad_field(name, f"{name} is not accepted: {REFUSED[name]}")
        if value is not None and name in CHECKS:
            CHECKS[name](value)
        if name in options:  # an engine's option, or one that never was: vLLM takes the field and reads it nowhere
            for sentence in sampling_refusals([name]):
                raise bad_field(name, sentence)
    if body.get("use_beam_search"):
        raise bad_field("use_beam_search", "beam search is not accepted: its steps pass by the scheduler")
    check_named_tool(body)
    _check_sequences(body)


def _check_sequences(body: dict[str, Any]) -> None:
    """One request's share of the engine: the number of prompts times the replies to each."""
    prompt, n = body.get("prompt"), 1 if body.get("n") is None else body["n"]
    if type(n) is not int:
        raise bad_field("n", "n must be a whole number")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], list | str) else 1
    if prompts * n > MAX_SEQUENCES:
        name = "n" if prompts == 1 else "prompt"
        raise bad_field(name, f"{prompts} prompt(s) with n={n} make more than {MAX_SEQUENCES} replies; ask for fewer")


def _check_template_kwargs(value: Any) -> None:
    for name in TEMPLATE_KWARGS:
        if isinstance(value, dict) and name in value:
            raise bad_field("chat_template_kwargs", f"chat_template_kwargs.{name} is not accepted")


def _check_stream(value: Any) -> None:
    if type(value) is not bool:  # vLLM takes "yes" and 1 as well, and what counts a stream's tokens would have to
        raise bad_field("stream", "stream must be true or false")


def _check_stream_options(value: Any) -> None:
    for name in ("include_usage", "continuous_usage_stats") if isinstance(value, dict) else ():
        if value.get(name) is not None and type(value[name]) is not bool:
            raise bad_field("stream_options", f"stream_options.{name} must be true or false")


def _check_stop(value: Any) -> None:
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and len(text) > MAX_STOP_BYTES:
            raise bad_field("stop", f"a stop string is longer than {MAX_STOP_BYTES} signs")


def _check_repetition(value: Any) -> None:
    numbers = value.values() if isinstance(value, dict) else []
    if any(isinstance(number, int | float | str) and _above(number, MAX_PATTERN) for number in numbers):
        raise bad_field("repetition_detection", f"repetition_detection takes numbers up to {MAX_PATTERN}")


def _check_extensions(value: Any) -> None:
    """Arguments of the engine's extensions: of these only a cap on drafted tokens is open to clients."""
    for name in value if isinstance(value, dict) else [shown(value)]:
        if name != CAP:
            raise bad_field("vllm_xargs", f"vllm_xargs takes {CAP} alone, not {shown(name)}")
        if type(value[name]) is not int or value[name] < 0:
            raise bad_field("vllm_xargs", f"vllm_xargs.{CAP} must be a whole number of at least 0")


def _above(number: float | str, limit: int) -> bool:
    try:
        return float(number) > limit
    except ValueError:
        return False


# --- messages --------------------------------------------------------------------------------------------------------


def _check_messages(value: Any) -> None:
    if value == []:
        raise bad_field("messages", "messages is empty")
    for message in value if isinstance(value, list) else []:
        _check_content(message, "messages")


def _check_input(value: Any) -> None:
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict) and item.get("type", "message") not in INPUT_ITEMS:
            raise bad_field("input", f"input items of type {shown(item['type'])} are not accepted")
        _check_content(item, "input")


def _check_content(message: Any, param: str) -> None:
    """Content is text, or a list of parts that are text: other parts name files, addresses or tensors."""
    for part in _parts(message):
        if isinstance(part, dict):
            kind = part.get("type")
            if kind is not None and kind not in TEXT_PARTS:
                raise bad_field(param, f"content parts of type {shown(kind)} are not accepted; send text")
            for name in part:
                if MEDIA.fullmatch(name):
                    raise bad_field(param, f"content parts with {name} are not accepted; send text")
            _check_content(part, param)
        elif not isinstance(part, str):
            raise bad_field(param, f"content parts are objects or text, not {shown(part)}")


def _parts(message: Any) -> Iterator[Any]:
    for name in ("content", "output", "summary"):
        value = message.get(name) if isinstance(message, dict) else None
        yield from value if isinstance(value, list) else [value] if isinstance(value, dict) else []


CHECKS: dict[str, Check] = {
    "stream": _check_stream,
    "stream_options": _check_stream_options,
    "messages": _check_messages,
    "input": _check_input,
    "tools": check_tools,
    "chat_template_kwargs": _check_template_kwargs,
    "structured_outputs": check_structured,
    "response_format": check_chat_format,
    "text": check_text_format,
    "stop": _check_stop,
    "repetition_detection": _check_repetition,
    "vllm_xargs": _check_extensions,
}
