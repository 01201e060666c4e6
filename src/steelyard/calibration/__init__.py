"""Finds out what the requests of a model cost, by loading one of its replicas: a process of its own, for minutes.

Control starts it (`contracts/cost.py`) with a replica's address and reads what it prints; a load generator in
control's own loop would make everything else there wait. `policy/` decides what to run and fits the result; here is
only the doing. It never talks to a router, a store or a user.
"""
