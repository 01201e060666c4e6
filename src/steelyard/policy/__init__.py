"""The decisions: what load is, who gets a request, who waits, who is refused.

Everything here is a pure function, or a small owner of state that is told the time (`now_s`, monotonic seconds) and
given its random numbers. Standard library and numpy only; no I/O, no clock, no knowledge of HTTP or processes.
"""
