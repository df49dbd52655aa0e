"""Benchmarks of the exact solvers: known optima, the oracle, and how far proofs reach on the authors' workload."""
