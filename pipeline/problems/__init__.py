"""Problems: questions with known answers, where they come from, and in which order they are issued."""

from pipeline.problems.load import check_sources, load_problems, overlap
from pipeline.problems.order import epoch_order, sample_seed
from pipeline.problems.problem import Problem, with_suffix

__all__ = ["Problem", "check_sources", "epoch_order", "load_problems", "overlap", "sample_seed", "with_suffix"]
