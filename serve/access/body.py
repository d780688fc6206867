"""Which fields of a request reach the engine, and within which bounds.

Most mistakes vLLM answers itself with a 400, and they are left to it. The tables below hold the rest, checked against
the request models of vLLM 0.32: what would name a file or an address, load code or tensors that a client sent, go
around the gate, end as a 500, or hold the engine up for everyone.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from serve.access.errors import Refusal

MAX_SEQUENCES = 128  # prompts x n of one request; vLLM allows 16384 of each
MAX_SPEC_BYTES = 1 << 14  # of a schema, regex or choices: compiling it, in the engine, takes the square
MAX_NESTED = 500  # copies of a sign that repeats within repeats make: `(a{1,20}){1,20}` 400; see `nested_repeats`
UNBOUNDED = 16  # copies that `*`, `+` and `{n,}` count for
MAX_PATTERN = 256  # tokens: repetition detection compares that many patterns at each new token
MAX_STOP_BYTES = 1 << 10  # the end of a reply as long as the longest stop string is held back and searched again

REFUSED = {
    "chat_template": "a template is a program; the model's own is used",
    "prompt_embeds": "tensors are not accepted; send text or token ids",
    "kv_transfer_params": "it steers the transfer of caches between engines, which is not open to clients",
    "ec_transfer_params": "it steers the transfer of caches between engines, which is not open to clients",
    "vllm_xargs": "it reaches the engine's extensions, which are not open to clients",
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
TOOLS = ("function", "custom", "namespace")
MEDIA = re.compile(r"(image|audio|video|file|prompt)_(url|embeds|pil|id|data)|input_(image|audio|video|file)|uuid")
_REGEXES = ("pattern", "regex", "whitespace_pattern")
_TEXT_SCHEMAS = ("json", "structural_tag")
_ATOMS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<repeat>[*+?]|\{\s*(\d+)\s*(,)?\s*(\d*)\s*\})|\(|\)|.", re.DOTALL
)

Check = Callable[[Any], None]


def check_body(body: dict[str, Any]) -> None:
    """Raises Refusal (400, with the field's name) for the first field that must not reach the engine."""
    for name, why in REFUSED.items():
        if body.get(name) is not None:
            raise _refusal(name, f"{name} is not accepted: {why}")
    if body.get("use_beam_search"):
        raise _refusal("use_beam_search", "beam search is not accepted: its steps pass by the scheduler")
    for name, check in CHECKS.items():
        if body.get(name) is not None:
            check(body[name])
    _check_sequences(body)


def _refusal(param: str, message: str) -> Refusal:
    return Refusal(400, message, param=param)


def _check_sequences(body: dict[str, Any]) -> None:
    """One request's share of the engine: the number of prompts times the replies to each."""
    prompt, n = body.get("prompt"), 1 if body.get("n") is None else body["n"]
    if type(n) is not int:
        raise _refusal("n", "n must be a whole number")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], list | str) else 1
    if prompts * n > MAX_SEQUENCES:
        name = "n" if prompts == 1 else "prompt"
        raise _refusal(name, f"{prompts} prompt(s) with n={n} make more than {MAX_SEQUENCES} replies; ask for fewer")


def _check_template_kwargs(value: Any) -> None:
    for name in TEMPLATE_KWARGS:
        if isinstance(value, dict) and name in value:
            raise _refusal("chat_template_kwargs", f"chat_template_kwargs.{name} is not accepted")


def _check_stop(value: Any) -> None:
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and len(text) > MAX_STOP_BYTES:
            raise _refusal("stop", f"a stop string is longer than {MAX_STOP_BYTES} signs")


def _check_repetition(value: Any) -> None:
    numbers = value.values() if isinstance(value, dict) else []
    if any(isinstance(number, int | float | str) and _above(number, MAX_PATTERN) for number in numbers):
        raise _refusal("repetition_detection", f"repetition_detection takes numbers up to {MAX_PATTERN}")


def _above(number: float | str, limit: int) -> bool:
    try:
        return float(number) > limit
    except ValueError:
        return False


# --- messages --------------------------------------------------------------------------------------------------------


def _check_messages(value: Any) -> None:
    if value == []:
        raise _refusal("messages", "messages is empty")
    for message in value if isinstance(value, list) else []:
        _check_content(message, "messages")


def _check_input(value: Any) -> None:
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict) and item.get("type", "message") not in INPUT_ITEMS:
            raise _refusal("input", f"input items of type {_shown(item['type'])} are not accepted")
        _check_content(item, "input")


def _check_content(message: Any, param: str) -> None:
    """Content is text, or a list of parts that are text: other parts name files, addresses or tensors."""
    for part in _parts(message):
        if isinstance(part, dict):
            kind = part.get("type")
            if kind is not None and kind not in TEXT_PARTS:
                raise _refusal(param, f"content parts of type {_shown(kind)} are not accepted; send text")
            for name in part:
                if MEDIA.fullmatch(name):
                    raise _refusal(param, f"content parts with {name} are not accepted; send text")
            _check_content(part, param)
        elif not isinstance(part, str):
            raise _refusal(param, f"content parts are objects or text, not {_shown(part)}")


def _parts(message: Any) -> Iterator[Any]:
    for name in ("content", "output", "summary"):
        value = message.get(name) if isinstance(message, dict) else None
        yield from value if isinstance(value, list) else [value] if isinstance(value, dict) else []


def _shown(value: Any) -> str:
    return repr(value)[:80] if isinstance(value, str) else type(value).__name__


# --- tools and structured outputs ------------------------------------------------------------------------------------


def _check_tools(value: Any) -> None:
    for tool in value if isinstance(value, list) else []:
        kind = tool.get("type", "function") if isinstance(tool, dict) else None
        if kind not in TOOLS:
            raise _refusal("tools", f"tools of type {_shown(kind)} are not accepted; known: {', '.join(TOOLS)}")
        function = tool.get("function", tool)  # chat nests name and schema, responses does not
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _refusal("tools", "a tool has no name")
        _check_spec(function.get("parameters"), "tools")


def _check_structured(value: Any) -> None:
    if not isinstance(value, dict):
        raise _refusal("structured_outputs", "structured_outputs must be an object")
    _check_spec(value, "structured_outputs")


def _check_format(value: Any) -> None:
    _check_spec(value, "response_format")


def _check_text_format(value: Any) -> None:
    _check_spec(value.get("format") if isinstance(value, dict) else None, "text")


def _check_spec(spec: Any, param: str) -> None:
    """A schema, grammar or regex that is compiled: neither large nor with large repeats."""
    if len(json.dumps(spec)) > MAX_SPEC_BYTES:
        raise _refusal(param, f"{param} is larger than {MAX_SPEC_BYTES} bytes, which would hold the engine up")
    waiting = [spec]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            for name, value in node.items():
                _check_entry(name, value, param)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _check_entry(name: str, value: Any, param: str) -> None:
    if name == "grammar" and isinstance(value, str):
        raise _refusal(param, f"{param}: grammars are not accepted, their cost has no bound; use a schema or a regex")
    if name in _REGEXES and isinstance(value, str) and nested_repeats(value) > MAX_NESTED:
        raise _refusal(
            param, f"{param}: {name} repeats what repeats (more than {MAX_NESTED} times in all); make it flat"
        )
    if name in _TEXT_SCHEMAS and isinstance(value, str):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return  # vLLM says what is wrong
        if isinstance(inner, dict):
            _check_spec(inner, param)


def nested_repeats(regex: str) -> int:
    """The largest number of copies that a repeat of something that itself repeats stands for; 0 without such a repeat.

    xgrammar follows all readings of a text at once: `(a{1,100}){1,100}` and `((a*)*)*` have so many that one step of
    the engine, which all requests wait for, takes seconds and more. A flat `a{1,100000}` has one.
    """
    worst, groups = 0, [0]  # of each open group: the most copies of a sign in it, 0 where nothing repeats
    last = 0  # the same of the last atom
    for found in _ATOMS.finditer(regex):
        text = found.group()
        if text == "(":
            groups.append(0)
            last = 0
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
        elif found["repeat"]:
            copies = _copies(text, found)
            if last:
                worst = max(worst, last * copies)
            last = max(last, 1) * copies
        else:
            last = 0
        groups[-1] = max(groups[-1], last)
    return worst


def _copies(repeat: str, found: re.Match[str]) -> int:
    if repeat == "?":
        return 1
    low, comma, high = found.group(2), found.group(3), found.group(4)
    if low is None or (comma and not high):
        return max(int((low or "0")[:9]), UNBOUNDED)
    return max(int((high or low)[:9]), 1)


CHECKS: dict[str, Check] = {
    "messages": _check_messages,
    "input": _check_input,
    "tools": _check_tools,
    "chat_template_kwargs": _check_template_kwargs,
    "structured_outputs": _check_structured,
    "response_format": _check_format,
    "text": _check_text_format,
    "stop": _check_stop,
    "repetition_detection": _check_repetition,
}
