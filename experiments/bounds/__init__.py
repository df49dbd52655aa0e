"""Benchmarks of the lower bounds: their height, their price, and that they never exceed an optimum."""
