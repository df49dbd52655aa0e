"""Studies and benchmarks, each asked once, reproducibly."""
