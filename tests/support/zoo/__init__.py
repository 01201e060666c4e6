"""Real models of every classic family, each with 500 rows and its own predictions on them.

One file per family; `catalog.py` lists them, `python -m support.zoo.build` makes them in a process of their own, so
that no test process ever holds a dozen OpenMP libraries. Nothing here knows the platform.
"""
