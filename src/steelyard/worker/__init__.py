"""The process that runs a model's own code, in the environment that the model was built in.

Started by `runtimes/workers.py` with the environment's interpreter. It needs the standard library, msgspec and what
the model itself needs, so that it works beside old pins; it imports nothing of the platform above `packages`.
"""
