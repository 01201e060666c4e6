"""The proof at scale: `policy/` on a virtual clock, against simulated replicas and recorded or synthetic traces.

`steelyard simulate` calls it. It decides nothing itself: the choosers are those of the live router, and what a policy
knows here is what it would know there. Nothing in it opens a socket or waits for real time to pass.
"""
