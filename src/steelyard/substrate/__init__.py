"""Where replicas run. `local.LocalSubstrate` runs each as a process group on this machine.

A substrate starts, finds, ends and puts away replicas as it is told. It never decides which should run, and it speaks
no HTTP with them. Called by control, and by the supervisor for the last sweep.
"""

from steelyard.substrate.local import FoundReplica, LocalSubstrate

__all__ = ["FoundReplica", "LocalSubstrate"]
