"""Ways of running a model: one file per runtime, behind the two protocols of `base.py`.

`select.py` chooses one from what a package says of itself. Called by the replica; no runtime knows HTTP or endpoints.
"""
