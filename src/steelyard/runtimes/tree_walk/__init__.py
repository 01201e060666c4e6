"""Trees evaluated by a small extension in C: exactly what LightGBM's library gives, several times as fast.

`walker.py` opens a model text for the `lightgbm` and the `forest` runtimes. Where the extension could not be built, or
a text holds what it does not know, they call the library.
"""
