"""Tests of planner.inputs.estimate, behind its public calls."""
