"""DECS pipeline: teach a reasoning model to stop at the answer, and serve the result."""
