"""Benchmarks: how fast, how good, how far; a small file each, and its figures beside it."""
