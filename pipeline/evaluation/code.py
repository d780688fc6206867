"""Grades a program by its tests."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation

from pipeline.evaluation.sandbox import Ended, Limits, Run, run_program
from pipeline.grading import Verdict

FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
Test = Mapping[str, str]


def last_program(answer: str) -> str | None:
    """The text of the last closed fenced block, None without one."""
    blocks = FENCED.findall(answer)
    return blocks[-1] if blocks else None


def grade_program(answer: str, tests: Sequence[Test], function: str | None, limits: Limits) -> Verdict:
    """RIGHT when the last fenced program passes every test, each in a process of its own.

    Stops at the first test it fails. UNKNOWN when the sandbox could not run a test and no other one failed. Tests of
    type "functional" call `function` with one JSON value a line; the others compare standard output.
    """
    program = last_program(answer)
    if program is None:
        return Verdict.WRONG
    verdict = Verdict.RIGHT
    for test in tests:
        run = _run(program, test, function, limits)
        if run.ended is Ended.SANDBOX:
            verdict = Verdict.UNKNOWN
        elif run.ended is not Ended.DONE or not _passes(run.output, test):
            return Verdict.WRONG
    return verdict


def _run(program: str, test: Test, function: str | None, limits: Limits) -> Run:
    if test["testtype"] != "functional":
        return run_program(program, test["input"], limits)
    arguments = [json.loads(line) for line in test["input"].split("\n") if line.strip()]
    return run_program(program, json.dumps(arguments), limits, function)


def _passes(output: str, test: Test) -> bool:
    if test["testtype"] != "functional":
        return same_output(output, test["output"])
    try:
        return json.loads(output) == json.loads(test["output"])
    except ValueError:
        return False


def same_output(output: str, expected: str) -> bool:
    """Equal line by line: as text without white space at the ends, or number by number ("1.0" is "1")."""
    given, wanted = (text.strip().split("\n") for text in (output, expected))
    return len(given) == len(wanted) and all(map(_same_line, given, wanted))


def _same_line(given: str, wanted: str) -> bool:
    if given.strip() == wanted.strip():
        return True
    try:
        numbers = [[Decimal(word) for word in line.split()] for line in (given, wanted)]
    except InvalidOperation:
        return False
    return numbers[0] == numbers[1]
