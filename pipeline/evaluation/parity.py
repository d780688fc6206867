"""How far an engine's log-probs are from those of the model in a snapshot's folder."""

from pathlib import Path

from pipeline.weights.reference import Reference, folder_reference, read_reference


def reference_of(folder: str | Path) -> Reference:
    """The log-probs that the snapshot brings along; computed here, in float32, where it brings none."""
    return read_reference(folder) or folder_reference(folder)
