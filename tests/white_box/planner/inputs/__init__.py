"""Tests of planner.inputs, behind its public calls."""
