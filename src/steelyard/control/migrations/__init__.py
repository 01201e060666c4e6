"""Schema migrations of the store, run by `store.py` each time control starts; there is no separate command.

Each file in `versions/` is one step. A released step is never edited: a change is a new file.
"""
