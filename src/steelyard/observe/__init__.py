"""What a process tells of itself: structured logs and OpenMetrics.

Every other room may use it. It never decides anything and never holds a request up.
"""
