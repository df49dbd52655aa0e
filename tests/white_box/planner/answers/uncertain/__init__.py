"""Tests of planner.answers.uncertain, behind its public calls."""
