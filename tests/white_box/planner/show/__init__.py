"""Tests of planner.show, behind its public calls."""
