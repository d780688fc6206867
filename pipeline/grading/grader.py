"""Right, wrong or unknown. Callable from any thread, Ray actor or event loop; never sees a prompt."""

import re

from pipeline.grading.compare import settle
from pipeline.grading.extract import extract_answer
from pipeline.grading.pool import shared_pool
from pipeline.grading.verdict import Counters, Failure, Verdict

_counters = Counters()


def grade(text: str, gold: str) -> Verdict:
    """Whether the answer in `text` (what the model wrote after its thinking, or all of it) is `gold`.

    No answer to be found is WRONG; UNKNOWN means that the checker failed (see `counters`). `gold` may be boxed.
    """
    answer = extract_answer(text)
    if answer is None:
        return _counters.add(Verdict.WRONG)
    return same_answer(answer, gold)


def same_answer(answer: str, gold: str) -> Verdict:
    """Whether two answers are the same thing: by spelling and exact numbers here, by algebra in a worker process."""
    gold = _unboxed(gold)
    if not gold.strip():
        return _counters.add(Verdict.UNKNOWN, Failure.GOLD)
    known = settle(answer, gold) if _balanced(answer) else False
    if known is not None:
        return _counters.add(Verdict.RIGHT if known else Verdict.WRONG)
    reply = shared_pool().compare(answer, gold)
    return _counters.add(reply.verdict, reply.failure)


def grade_response(answer_text: str, gold: str, ends_seen: int) -> Verdict:
    """The training reward's correctness: exactly one end-of-think tag or WRONG, and only the text after it is read.

    A response that is cut off while thinking (`ends_seen` 0) or closes its thinking twice earns nothing.
    """
    return grade(answer_text, gold) if ends_seen == 1 else _counters.add(Verdict.WRONG)


def counters() -> dict[str, int]:
    """calls, right, wrong, unknown, and unknown_<reason> of this process since its start."""
    return _counters.read()


def _balanced(answer: str) -> bool:
    """Whether its braces close; LaTeX that does not compile is no answer, and slow to refuse for a parser."""
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", answer):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _unboxed(gold: str) -> str:
    """References that come as a solution text with a box are read through it."""
    return (extract_answer(gold) or gold) if "\\boxed" in gold or "\\fbox" in gold else gold
