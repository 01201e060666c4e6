"""What a process tells of itself, and what it sees around it: structured logs, OpenMetrics, the machine's real size.

Every other room may use it. It never decides anything and never holds a request up.
"""
