"""Inference with levers for each request: `InferenceOptimizer`, over an engine of one's own or a running endpoint."""

from serve.inference.optimizer import InferenceOptimizer
from serve.inference.result import Acceptance, InferenceFailed, InferenceResult, Piece

__all__ = ["Acceptance", "InferenceFailed", "InferenceOptimizer", "InferenceResult", "Piece"]
