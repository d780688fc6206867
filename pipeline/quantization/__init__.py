"""Rounded weights: grids, the folders that hold them, and recognising one. What config.json says needs no torch."""

from pipeline.quantization.stored import Stored, stored_quantisation

__all__ = ["Stored", "stored_quantisation"]
