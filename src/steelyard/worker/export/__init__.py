"""Converts a model for the native runtimes: a short process in the model's own environment.

Started by `runtimes/` as `python -m steelyard.worker.export MODEL_DIR OUT_DIR`; it leaves `OUT/<name>/artifact.json` or
`OUT/<name>/refused.txt` for each way that it tried, and `OUT/hints.json`. Whether a conversion tells the same truth is
not its business: the proof decides that.
"""
