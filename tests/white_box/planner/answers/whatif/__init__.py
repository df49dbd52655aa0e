"""Tests of planner.answers.whatif, behind its public calls."""
