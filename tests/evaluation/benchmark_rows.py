"""Made-up rows with the column names of the public data sets, and answers that solve them."""

import base64
import json
import zlib


def aime(year="2024"):
    rows = [
        ("Find the number of positive divisors of $5^{7}$ times $4$.", "24"),
        ("Let $x$ satisfy $x-17=83$. Find $x$.", "100"),
        ("The sum of the first $10$ odd numbers is $S$. Find $S$.", "100"),
        ("Find the remainder of $7^{2}$ on division by $1000$.", "049"),
    ]
    return [
        {
            "id": 60 + number,
            "problem": problem,
            "solution": f"It is \\boxed{{{answer}}}.",
            "answer": answer,
            "url": f"https://example.org/{number}",
            "year": year,
        }
        for number, (problem, answer) in enumerate(rows)
    ]


def aime25():
    return [{"problem": row["problem"], "answer": row["answer"], "id": str(i)} for i, row in enumerate(aime())]


def amc23():
    rows = [("How many minutes are in two hours?", 120.0), ("What is half of $9$?", 4.5), ("What is $3-30$?", -27.0)]
    return [{"id": i, "answer": gold, "url": "https://example.org", "question": q} for i, (q, gold) in enumerate(rows)]


def math500():
    rows = [
        ("Write $0.75$ as a fraction.", "\\frac{3}{4}", "Prealgebra", 1),
        ("Solve $x^2=8$ for $x>0$.", "2\\sqrt{2}", "Algebra", 2),
        ("Convert $(0,3)$ to polar coordinates.", "\\left( 3, \\frac{\\pi}{2} \\right)", "Precalculus", 2),
        ("On which interval is $\\sqrt{2-x}$ defined?", "(-\\infty,2]", "Intermediate Algebra", 4),
        ("What is the largest prime below $100$?", "97", "Number Theory", 5),
        ("Who scored most?", "\\text{Evelyn}", "Algebra", 3),
    ]
    return [
        {
            "problem": problem,
            "solution": f"So the answer is $\\boxed{{{answer}}}$.",
            "answer": answer,
            "subject": subject,
            "level": level,
            "unique_id": f"test/{subject.lower()}/{number}.json",
        }
        for number, (problem, answer, subject, level) in enumerate(rows)
    ]


def olympiad():
    rows = [
        ("Determine $1+2+\\dots+10$.", ["$55$"], False),
        ("Find the least prime above $90$.", ["97"], False),
        ("Give all $x$ with $x^2=4$.", ["$2$", "$-2$"], True),
        ("Find the product of the roots of $x^2-6x+1$.", ["$1$"], False),
    ]
    return [
        {
            "id": 1600 + number,
            "question": question,
            "solution": ["Compute."],
            "final_answer": answers,
            "context": None,
            "is_multiple_answer": several,
            "unit": None,
            "answer_type": "Numerical",
            "subfield": "Algebra",
            "difficulty": "Competition",
        }
        for number, (question, answers, several) in enumerate(rows)
    ]


def gpqa():
    rows = [
        ("Which of these is the energy?", "10^-4 eV", ["10^-11 eV", "10^-8 eV", "10^-9 eV"]),
        ("Which metal is meant?", "A metal of the fifth period", ["Iron", "Copper", "B is not a metal"]),
        ("How many products form?", "4", ["2", "3", "12"]),
        ("Which gas escapes?", "Carbon dioxide", ["Argon", "Chlorine", "Dinitrogen"]),
        ("Which spin?", "1/2", ["0", "1", "3/2"]),
        ("Which phylum?", "Cnidaria", ["Annelida", "Mollusca", "Porifera"]),
    ]
    levels = ["Hard undergraduate level", "Easy undergraduate level", "Post-graduate level"]
    return [
        {
            "Pre-Revision Question": "unused",
            "Question": question,
            "Correct Answer": right,
            "Incorrect Answer 1": wrong[0],
            "Incorrect Answer 2": wrong[1],
            "Incorrect Answer 3": wrong[2],
            "Explanation": "none",
            "Subdomain": "Physics",
            "Writer's Difficulty Estimate": levels[number % 3],
            "Record ID": f"rec{number:04}",
        }
        for number, (question, right, wrong) in enumerate(rows)
    ]


SOLUTIONS = {
    "3001_A": "a, b = map(int, input().split())\nprint(a + b)",
    "3001_B": "import sys\nfor line in sys.stdin:\n    print(line.strip()[::-1])",
    "3602": "class Solution:\n    def largest(self, nums: List[int], k: int) -> List[int]:\n"
    "        return sorted(nums, reverse=True)[:k]",
    "3603": "class Solution:\n    def half(self, n: int) -> float:\n        return n / 2",
}


def packed(tests):
    return base64.b64encode(zlib.compress(json.dumps(tests).encode())).decode()


def livecodebench():
    def case(kind, *pairs):
        return [{"input": given, "output": wanted, "testtype": kind} for given, wanted in pairs]

    rows = [
        ("3001_A", "Add two numbers.", "", case("stdin", ("1 2\n", "3")), case("stdin", ("5 6", "11\n")), {}),
        ("3001_B", "Reverse each line.", "", case("stdin", ("ab\ncd\n", "ba\ndc\n")), [], {}),
        (
            "3602",
            "Return the k largest, in falling order.",
            "class Solution:\n    def largest(self, nums: List[int], k: int) -> List[int]:\n        ",
            case("functional", ("[3, 1, 2]\n2", "[3, 2]")),
            case("functional", ("[9]\n1", "[9]"), ("[5, 5, 1]\n2", "[5, 5]")),
            {"func_name": "largest"},
        ),
        (
            "3603",
            "Return half of n.",
            "class Solution:\n    def half(self, n: int) -> float:\n        ",
            case("functional", ("3", "1.5")),
            case("functional", ("4", "2.0")),
            {"func_name": "half"},
        ),
    ]
    return [
        {
            "question_title": key,
            "question_content": text,
            "platform": "leetcode" if starter else "atcoder",
            "question_id": key,
            "contest_id": "1",
            "contest_date": "2025-02-01T00:00:00",
            "starter_code": starter,
            "difficulty": "easy" if number % 2 else "hard",
            "public_test_cases": json.dumps(public),
            "private_test_cases": packed(private) if private else "",
            "metadata": json.dumps(metadata),
        }
        for number, (key, text, starter, public, private, metadata) in enumerate(rows)
    ]


ROWS = {
    "aime24": aime,
    "aime25": aime25,
    "amc23": amc23,
    "math500": math500,
    "olympiad": olympiad,
    "gpqa-diamond": gpqa,
    "livecodebench-v6": livecodebench,
}


def write_rows(path, rows):
    """Writes jsonl or parquet, by the file's name."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def right_answer(problem):
    """An answer that solves the problem, as a model would write it after its thinking."""
    key = problem.id.split("/", 1)[1]
    if key in SOLUTIONS:
        return f"Here it is:\n```python\n{SOLUTIONS[key]}\n```"
    return f"The answer is \\boxed{{{problem.gold}}}."
