"""Tests of planner, behind its public calls."""
