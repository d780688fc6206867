"""The benchmarks of arXiv 2509.25827 (tables 1 and 2) and the tiny world, one entry each.

The paper's own files are not on the hub, so an entry names a public data set of the same problems. Column names: those
of aime24, math500 and gpqa-diamond are stated by their data sets' cards, those of livecodebench-v6 by the card of the
mirror named here; of aime25, amc23 and olympiad only programs that read them, or cards of copies, could be consulted.
Columns that are not there are told at loading. The prompt suffix of the mathematics sets is that of the paper's
released code; its wording for gpqa-diamond and livecodebench-v6 is not public as text, so those two are ours.
"""

from pipeline.evaluation.suites.choices import CHOICES, with_letters
from pipeline.evaluation.suites.programs import TEST_COLUMNS, program_meta, with_instructions
from pipeline.evaluation.suites.single import single_answer
from pipeline.evaluation.suites.suite import Kind, Protocol, Suite

MATH = "Let's think step by step and output the final answer within \\boxed{}."
CHOICE = "Please reason step by step, and put the letter of your choice within \\boxed{}."

ENTRIES = (
    Suite("tiny", Kind.MATH),
    Suite(
        "aime24",
        Kind.MATH,
        hub="HuggingFaceH4/aime_2024",
        split="train",
        id="id",
        suffix=MATH,
        problems=30,
        protocol=Protocol(samples=128),
    ),
    Suite(
        "aime25",
        Kind.MATH,
        hub="math-ai/aime25",
        id="id",
        suffix=MATH,
        problems=30,
        protocol=Protocol(samples=128),
    ),
    Suite(
        "amc23",
        Kind.MATH,
        hub="math-ai/amc23",
        prompt="question",
        id="id",
        suffix=MATH,
        problems=40,
        protocol=Protocol(samples=128),
    ),
    Suite(
        "math500",
        Kind.MATH,
        hub="HuggingFaceH4/MATH-500",
        id="unique_id",
        level="level",
        suffix=MATH,
        problems=500,
        protocol=Protocol(samples=16),
    ),
    Suite(
        "olympiad",
        Kind.MATH,
        hub="Hothan/OlympiadBench",
        subset="OE_TO_maths_en_COMP",  # open-ended, text only, English competition mathematics
        split="train",
        prompt="question",
        gold="final_answer",
        id="id",
        suffix=MATH,
        problems=581,
        protocol=Protocol(samples=16),
        adapt=single_answer,
    ),
    Suite(
        "gpqa-diamond",
        Kind.CHOICE,
        hub="Idavidrein/gpqa",  # gated: accept its terms on the hub first
        subset="gpqa_diamond",
        split="train",
        prompt="Question",
        gold="Correct Answer",
        id="Record ID",
        level="Writer's Difficulty Estimate",
        suffix=CHOICE,
        problems=198,
        protocol=Protocol(samples=16),
        adapt=with_letters,
        needs=CHOICES,
    ),
    Suite(
        "livecodebench-v6",
        Kind.CODE,
        hub="lighteval/code_generation_lite",
        subset="v6",  # the problems added by release 6; the paper does not say how many it used
        prompt="question_content",
        gold="public_test_cases",
        id="question_id",
        level="difficulty",
        protocol=Protocol(samples=10),
        adapt=with_instructions,
        meta=program_meta,
        needs=TEST_COLUMNS,
    ),
)
SUITES = {entry.name: entry for entry in ENTRIES}
