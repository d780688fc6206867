"""All that a reward may see of a trace."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Lengths in tokens, counted from the first response token.

    `length` the whole response (answer and EOS included); `prefix_length` the end of the necessary reasoning
    prefix, None where the judge found no right segment; `think_length` the index of the end-of-think token
    (the number of thinking tokens before it), equal to `length` where the tag is missing.

    The rest is what the strategy's own `steer` asked for: `target_length` the tokens its prompt named (None: none),
    `no_think` whether the response was made to start with the end-of-think tag.
    """

    length: int
    correct: bool
    prefix_length: int | None
    think_length: int
    target_length: int | None = None
    no_think: bool = False
