"""Tests of planner.answers, behind its public calls."""
