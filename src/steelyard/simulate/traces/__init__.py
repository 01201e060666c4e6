"""Where simulated requests come from: one module per public format, and one for what no public trace has.

A loader is given a path and returns a `Trace`; it copies nothing and fetches nothing. `catalogue.py` knows them all.
"""
