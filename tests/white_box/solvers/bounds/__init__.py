"""Tests of solvers.bounds, behind its public calls."""
