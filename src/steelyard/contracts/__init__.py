"""The values that cross a process boundary, as msgspec structs: routing snapshot, replica spec, load report.

Everyone may import this room; it imports nothing of Steelyard.
"""
