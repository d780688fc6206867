"""GPQA: four choices in an order of their own for each question, and the letter that the right one gets."""

import random

from pipeline.config import UserError
from pipeline.evaluation.suites.suite import Raw

LETTERS = "ABCD"
CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
ORDER_SEED = 0  # fixed, and not the run's: every model gets the same prompts


def with_letters(row: Raw) -> Raw:
    """The row with its choices below the question and its answer as a letter.

    In the data set the right choice is always the first; the order here is drawn from the question's own text, so it
    does not depend on which other rows there are.
    """
    choices = [str(row[column] or "").strip() for column in CHOICES]
    if not all(choices):
        raise UserError(f"question {row.get('Record ID')} lacks one of {', '.join(CHOICES)}; mend the file")
    order = list(range(len(choices)))
    random.Random(f"{ORDER_SEED}/{row['Question']}").shuffle(order)
    lines = [f"{letter}) {choices[index]}" for letter, index in zip(LETTERS, order, strict=True)]
    return {
        **row,
        "Question": "\n".join([str(row["Question"]).strip(), "", *lines]),
        "Correct Answer": LETTERS[order.index(0)],
    }
