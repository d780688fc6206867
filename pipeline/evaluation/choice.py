"""Grades a multiple-choice answer by its letter."""

import re

from pipeline.grading import Verdict, extract_answer

# A letter alone, or one that punctuation sets off from what follows: "C", "(C)", "C) 10 eV", "\text{C}".
WRAPPING = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathsf|bf|rm)\b|[\s$*{}()\[\]\\]")
LEADING = re.compile(r"^([A-Za-z])(?:$|[).:,;\]}])")


def leading_letter(text: str) -> str | None:
    """The letter (upper case) that an answer begins with, None where it begins with a word or a number."""
    opened = re.match(rf"(?:{WRAPPING.pattern})*", text)
    rest = text[opened.end() :].rstrip() if opened else text
    found = LEADING.match(rest) or LEADING.match(WRAPPING.sub("", rest))
    return found[1].upper() if found else None


def grade_choice(answer: str, gold: str) -> Verdict:
    """Whether the answer's letter is that of `gold`, which may be a letter or a whole choice ("B) 10 eV").

    No answer, or one that is no letter, is WRONG; UNKNOWN is a gold without a letter.
    """
    wanted = leading_letter(gold)
    if wanted is None:
        return Verdict.UNKNOWN
    given = extract_answer(answer)
    return Verdict.RIGHT if given is not None and leading_letter(given) == wanted else Verdict.WRONG
