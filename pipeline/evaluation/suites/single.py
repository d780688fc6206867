"""OlympiadBench: answers come as a list, and some problems have several."""

from pipeline.evaluation.suites.suite import Raw


def single_answer(row: Raw) -> Raw | None:
    """The row with its one answer as text; None for a problem with several.

    Which 581 of the set's problems the paper used is not stated; leaving out those with several answers is our reading.
    """
    answers = row.get("final_answer")
    if not isinstance(answers, list):
        return row
    if len(answers) > 1 or row.get("is_multiple_answer"):
        return None
    return {**row, "final_answer": str(answers[0]).strip().strip("$") if answers else None}
