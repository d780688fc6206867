"""Adaptive draft lengths for speculative decoding: policies, their simulator, logs and the way into vLLM.

Pure Python and numpy; only `serve.speculation.vllm_scheduler` imports vLLM. See docs/speculation.md.
"""

from serve.speculation.build import POLICIES, make_policy
from serve.speculation.controller import Controller, Live, Order, Verified
from serve.speculation.costs import CostModel, Timing, fit_costs
from serve.speculation.exactness import ChiSquare, Difference, compare_samples, compare_to_law, first_difference
from serve.speculation.fit import fit_table, timings
from serve.speculation.fixed import Static, Table, TablePolicy
from serve.speculation.goodput import Goodput, Thompson
from serve.speculation.learned import LearnedDepth
from serve.speculation.logs import Decision, DecisionLog, read_decisions
from serve.speculation.policy import Policy
from serve.speculation.settings import Settings, engine_options
from serve.speculation.state import State
from serve.speculation.ucb import UCB

__all__ = [
    "POLICIES",
    "UCB",
    "ChiSquare",
    "Controller",
    "CostModel",
    "Decision",
    "DecisionLog",
    "Difference",
    "Goodput",
    "LearnedDepth",
    "Live",
    "Order",
    "Policy",
    "Settings",
    "State",
    "Static",
    "Table",
    "TablePolicy",
    "Thompson",
    "Timing",
    "Verified",
    "compare_samples",
    "compare_to_law",
    "engine_options",
    "first_difference",
    "fit_costs",
    "fit_table",
    "make_policy",
    "read_decisions",
    "timings",
]
