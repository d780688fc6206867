"""Letters, programs and the sandbox they run in."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation import sandbox
from pipeline.evaluation.choice import grade_choice, leading_letter
from pipeline.evaluation.code import grade_program, last_program, same_output
from pipeline.evaluation.sandbox import Ended, Limits, run_program
from pipeline.grading import Verdict

RIGHT, WRONG, UNKNOWN = Verdict.RIGHT, Verdict.WRONG, Verdict.UNKNOWN
LIMITS = Limits(seconds=5, memory_bytes=512 << 20, file_bytes=1 << 20)
ADD = [{"input": "1 2", "output": "3", "testtype": "stdin"}, {"input": "5 6", "output": "11", "testtype": "stdin"}]
SUM = "a, b = map(int, input().split())\nprint(a + b)"


def fenced(source, language="python"):
    return f"So:\n```{language}\n{source}\n```\n"


@pytest.mark.parametrize(
    "text,letter",
    [
        ("B", "B"),
        ("b", "B"),
        ("(C)", "C"),
        (" D. ", "D"),
        ("A) 10^-4 eV", "A"),
        ("\\text{B}", "B"),
        ("\\textbf{(A)}", "A"),
        ("\\mathrm{C}", "C"),
        ("$D$", "D"),
        ("{B}", "B"),
        ("B: the second", "B"),
        ("A metal of the fifth period", None),
        ("10^-4 eV", None),
        ("Both", None),
        ("", None),
        ("\\text{None}", None),
    ],
)
def test_leading_letter(text, letter):
    assert leading_letter(text) == letter


@pytest.mark.parametrize(
    "answer,verdict",
    [
        ("The answer is \\boxed{B}.", RIGHT),
        ("\\boxed{\\text{B}}", RIGHT),
        ("\\boxed{B) 10^{-4} eV}", RIGHT),
        ("The answer is (B).", RIGHT),
        ("First \\boxed{A}, no: \\boxed{B}", RIGHT),
        ("Answer: B", RIGHT),
        ("\\boxed{A}", WRONG),
        ("\\boxed{10^{-4} eV}", WRONG),
        ("I do not know.", WRONG),
        ("", WRONG),
        ("\\boxed{B", WRONG),
    ],
)
@pytest.mark.parametrize("gold", ["B", "B) 10^-4 eV"])
def test_choices_are_graded_by_their_letter(answer, verdict, gold):
    assert grade_choice(answer, gold) is verdict


def test_a_gold_without_a_letter_says_nothing_about_the_answer():
    assert grade_choice("\\boxed{B}", "10^-4 eV") is UNKNOWN


@pytest.mark.parametrize(
    "answer,program",
    [
        (fenced("print(1)"), "print(1)\n"),
        (fenced("print(1)", ""), "print(1)\n"),
        (fenced("x = 1") + "better:" + fenced("x = 2", "py"), "x = 2\n"),
        ("```python\nprint(1)", None),
        ("print(1)", None),
        ("Use `print`.", None),
        (fenced("s = '```'\nprint(s)"), "s = '```'\nprint(s)\n"),
    ],
)
def test_the_last_closed_block_is_the_program(answer, program):
    assert last_program(answer) == program


@pytest.mark.parametrize(
    "output,expected,same",
    [
        ("3\n", "3", True),
        ("  3  ", "3\n\n", True),
        ("1 2\n3 4\n", "1 2\n3 4", True),
        ("1.0 2", "1 2.00", True),
        ("1e2", "100", True),
        ("3", "3\n4", False),
        ("Yes", "YES", False),
        ("1 2", "12", False),
        ("0.1", "0.1000001", False),
        ("", "0", False),
        ("nan", "nan", True),
        ("nan", "NaN", False),
    ],
)
def test_outputs_are_compared_line_by_line(output, expected, same):
    assert same_output(output, expected) is same


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_outputs_can_be_compared(one, two):
    assert same_output(one, one) and same_output(one, two) == same_output(two, one)


@pytest.mark.parametrize(
    "source,verdict",
    [
        (SUM, RIGHT),
        ("print(3)", WRONG),  # passes the first test only
        ("print(", WRONG),
        ("raise SystemExit(1)", WRONG),
        ("a, b = map(int, input().split())\nprint(a + b)\nraise ValueError", WRONG),
        ("", WRONG),
    ],
)
def test_programs_must_pass_every_test(source, verdict):
    assert grade_program(fenced(source), ADD, None, LIMITS) is verdict


def test_no_program_is_wrong_and_nothing_runs(monkeypatch):
    monkeypatch.setattr("pipeline.evaluation.code.run_program", lambda *arguments: pytest.fail("ran"))
    assert grade_program("I cannot.", ADD, None, LIMITS) is WRONG


@pytest.mark.parametrize("ends,verdict", [(["sandbox", "done"], UNKNOWN), (["sandbox", "failed"], WRONG)])
def test_a_sandbox_that_fails_is_unknown_unless_another_test_decides(monkeypatch, ends, verdict):
    runs = [sandbox.Run(Ended(end), "11") for end in ends]
    monkeypatch.setattr("pipeline.evaluation.code.run_program", lambda *arguments: runs.pop(0))
    assert grade_program(fenced(SUM), ADD, None, LIMITS) is verdict and not runs


def test_functions_are_called_with_json_values():
    test = {"input": '[3, 1]\n"x"', "output": '["x", 3]', "testtype": "functional"}
    method = (
        "class Solution:\n    def f(self, a: List[int], s) -> tuple:\n        print('noise')\n        return s, max(a)"
    )
    assert grade_program(fenced(method), [test], "f", LIMITS) is RIGHT
    assert grade_program(fenced("def f(a, s): return [s, max(a)]"), [test], "f", LIMITS) is RIGHT
    assert grade_program(fenced("def f(a, s): return {s}"), [test], "f", LIMITS) is WRONG
    assert grade_program(fenced("def g(a, s): return [s, 3]"), [test], "f", LIMITS) is WRONG


def test_names_of_contest_sites_are_in_scope():
    run = run_program(
        "d: Deque[int] = deque([1])\nprint(gcd(4, 6), heapq.nsmallest(1, [3, 2]), pow(2, 5, 7))", "", LIMITS
    )
    assert (run.ended, run.output) == (Ended.DONE, "2 [2] 4\n")


def test_memory_is_limited():
    run = run_program("x = bytearray(4 << 30)", "", LIMITS)
    assert run.ended is Ended.FAILED and "MemoryError" in run.detail


def test_processor_time_is_limited():
    began = time.monotonic()
    run = run_program("while True: pass", "", Limits(seconds=1))
    assert run.ended in (Ended.FAILED, Ended.TIMEOUT) and time.monotonic() - began < 60


def test_a_program_that_sleeps_is_ended_with_its_children(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "START_S", 1.5)
    pid = tmp_path / "pid"
    source = f"""
import subprocess, time
child = subprocess.Popen(["sleep", "300"])
open({str(pid)!r}, "w").write(str(child.pid))
time.sleep(300)"""
    began = time.monotonic()
    assert run_program(source, "", Limits(seconds=1)).ended is Ended.TIMEOUT
    assert time.monotonic() - began < 60
    assert not _sleeping()


def _sleeping():
    """Whether a `sleep 300` of a sandbox is still there."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    command = file.read().split(b"\0")
                folder = os.readlink(f"/proc/{entry}/cwd")
            except OSError:
                continue
            if command[:2] == [b"sleep", b"300"] and "program-" in folder:
                return True
    return False


def test_what_it_prints_is_limited():
    assert run_program("print('x' * (8 << 20))", "", LIMITS).ended is Ended.FAILED


@pytest.mark.parametrize("isolated", [True, False])
def test_there_is_no_network(monkeypatch, isolated):
    if not isolated:
        monkeypatch.setattr(sandbox, "isolation", lambda: ())
    run = run_program("import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=2)", "", LIMITS)
    assert run.ended is Ended.FAILED and "no network" in run.detail


def test_namespaces_hide_the_network_from_other_programs_too():
    if not sandbox.isolation():
        pytest.skip("this system allows no user namespaces")
    run = run_program("import os\nos.system('cat /proc/net/dev')", "", LIMITS)
    assert run.ended is Ended.DONE
    assert [line.split(":")[0].strip() for line in run.output.split("\n")[2:] if line] == ["lo"]


def test_keys_in_the_environment_stay_outside(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "42")
    run = run_program("import os\nprint(sorted(os.environ), os.getcwd() == os.environ['HOME'])", "", LIMITS)
    assert run.ended is Ended.DONE and "SECRET" not in run.output and run.output.endswith("True\n")


def test_only_the_standard_library_is_there():
    assert run_program("import numpy", "", LIMITS).ended is Ended.FAILED
    assert run_program("import pipeline", "", LIMITS).ended is Ended.FAILED


def test_its_folder_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_program("open('left', 'w').write('x')", "", LIMITS).ended is Ended.DONE
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_that_cannot_start_is_no_fault_of_the_program(monkeypatch):
    monkeypatch.setattr(sandbox, "CHILD", sandbox.CHILD.with_name("none.py"))
    assert run_program(SUM, "1 2", LIMITS).ended is Ended.SANDBOX
    monkeypatch.setattr(sandbox.sys, "executable", "/no/such/python")
    monkeypatch.setattr(sandbox, "isolation", lambda: ())
    run = run_program(SUM, "1 2", LIMITS)
    assert run.ended is Ended.SANDBOX and "FileNotFoundError" in run.detail
    assert grade_program(fenced(SUM), ADD, None, LIMITS) is UNKNOWN
