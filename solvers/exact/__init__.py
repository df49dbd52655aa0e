"""Exact solvers: CP-SAT, the MILP twin, arc flow, exhaustive search."""
