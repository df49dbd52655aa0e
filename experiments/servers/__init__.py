"""Benchmarks of ``truenorth servers``: known minima, the authors' workload, and the fluid bound at scale."""
