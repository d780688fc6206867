"""LiveCodeBench: the programming tasks, and their tests.

Tests are JSON texts of `{"input", "output", "testtype"}`. The private ones of the original files are a pickle, packed
with zlib and base64. Reading a pickle runs what its writer put in, so those are refused: write the JSON in its place,
packed the same way or plain, on a machine you can lose.
"""

import base64
import binascii
import hashlib
import json
import zlib

from pipeline.config import UserError
from pipeline.evaluation.suites.suite import Raw

TEST_COLUMNS = ("private_test_cases", "starter_code", "metadata")
MOST_BYTES = 512 << 20  # of one problem's tests, unpacked
PICKLE = b"\x80"  # how every pickle since protocol 2 begins

TASK = "Write a Python program that solves this problem."
FROM_INPUT = "Read the input from standard input and write the answer to standard output."
FROM_STARTER = "Complete this starter code, keeping its names:"
FORMAT = "Put the whole program into one fenced block that begins with ```python at the end of your answer."


def with_instructions(row: Raw) -> Raw:
    """The row with the whole task as its prompt, and the identity of its tests where the answer stands."""
    starter = str(row.get("starter_code") or "").strip()
    how = f"{FROM_STARTER}\n```python\n{starter}\n```" if starter else FROM_INPUT
    tests = _tests(row)
    if not tests:
        raise UserError(f"{_where(row)} has no tests, so no program could be graded; leave the row out")
    identity = hashlib.sha256(json.dumps(tests, sort_keys=True).encode()).hexdigest()[:16]
    return {
        **row,
        "question_content": "\n\n".join([TASK, str(row["question_content"]).strip(), how, FORMAT]),
        "public_test_cases": f"{len(tests)} tests {identity}",
    }


def program_meta(row: Raw) -> Raw:
    """The tests, and the name of the function they call (None: programs that read their input)."""
    tests = _tests(row)
    metadata = _json(row.get("metadata") or "{}", "metadata", row)
    function = metadata.get("func_name") if isinstance(metadata, dict) else None
    if any(test["testtype"] == "functional" for test in tests) and not function:
        raise UserError(f"{_where(row)} has tests that call a function, and metadata names no func_name")
    return {"tests": tests, "function": function}


def _tests(row: Raw) -> list[Raw]:
    tests = [*_cases(row.get("public_test_cases"), "public_test_cases", row), *_private(row)]
    if not all(isinstance(test, dict) and {"input", "output", "testtype"} <= test.keys() for test in tests):
        raise UserError(f"{_where(row)} has a test without input, output or testtype; mend the file")
    return tests


def _private(row: Raw) -> list[Raw]:
    packed = row.get("private_test_cases")
    if not isinstance(packed, str) or packed.lstrip().startswith("["):
        return _cases(packed, "private_test_cases", row)
    if not packed.strip():
        return []
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(base64.b64decode(packed, validate=True), MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise UserError(f"{_where(row)}: private_test_cases is neither JSON nor packed JSON ({error})") from None
    if unpacker.unconsumed_tail:
        raise UserError(f"{_where(row)}: private_test_cases unpacks to more than {MOST_BYTES >> 20} MiB")
    if text.startswith(PICKLE):
        raise UserError(
            f"{_where(row)}: private_test_cases is a pickle, which can run code when it is read, and is refused; "
            "replace it by its JSON text (see docs/evaluation.md) and give the file with --suite-file"
        )
    return _cases(text.decode("utf-8", "replace"), "private_test_cases", row)


def _cases(value: object, column: str, row: Raw) -> list[Raw]:
    found = _json(value, column, row) if isinstance(value, str) and value.strip() else value or []
    if not isinstance(found, list):
        raise UserError(f"{_where(row)}: {column} is not a list of tests")
    return found


def _json(text: str, column: str, row: Raw) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"{_where(row)}: {column} is not JSON ({error})") from None


def _where(row: Raw) -> str:
    return f"problem {row.get('question_id')}"
