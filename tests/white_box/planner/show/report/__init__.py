"""Tests of planner.show.report, behind its public calls."""
