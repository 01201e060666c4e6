"""What the benchmarks share: processes on a core of their own, the load generator, models and requests."""
