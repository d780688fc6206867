"""How many tokens a request used: what the engine's usage says, else what can be told from outside."""

import json
import re

from serve.policy import EVENT_END

BYTES_PER_TOKEN = 4  # of English text with common vocabularies; text of other kinds has more tokens than this says
_OUTPUT = re.compile(rb'"(?:completion|output)_tokens":\s*(\d+)')
_PROMPT = re.compile(rb'"(?:prompt|input)_tokens":\s*(\d+)')
_REASONING = re.compile(rb'"reasoning_tokens":\s*(\d+)')
_TOTAL = re.compile(rb'"total_tokens":\s*(\d+)')


def output_tokens(text: bytes) -> int | None:
    """The tokens of the reply by the last usage in `text`, None where it has none. Quotes inside a JSON text are
    escaped, so nothing that a model wrote counts."""
    return _last(_OUTPUT, text)


def total_tokens(text: bytes) -> int | None:
    """Prompt and reply by the last usage in `text`, None where it has none."""
    return _last(_TOTAL, text)


def prompt_tokens(text: bytes) -> int | None:
    """The tokens of the prompt by the last usage in `text`, None where it has none."""
    return _last(_PROMPT, text)


def reasoning_tokens(text: bytes) -> int:
    """The tokens before the end of the thinking by the last usage in `text`, 0 where it tells none."""
    return _last(_REASONING, text) or 0


def _last(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.findall(text)
    return int(found[-1]) if found else None


def estimated_tokens(size: int) -> int:
    """About how many tokens `size` bytes of a request's body are, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


def without_usage_event(chunk: bytes) -> bytes:
    """`chunk` of a stream without the event that `stream_options.include_usage` adds: one of usage and no choices."""
    if b'"usage"' not in chunk:
        return chunk
    return EVENT_END.join(event for event in chunk.split(EVENT_END) if not _is_usage(event))


def _is_usage(event: bytes) -> bool:
    if not event.startswith(b"data: {"):
        return False
    try:
        data = json.loads(event.removeprefix(b"data: "))
    except ValueError:
        return False
    return data.get("choices") == [] and bool(data.get("usage"))
