"""Tests of solvers, behind its public calls."""
