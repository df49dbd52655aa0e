"""Tests of planner.answers."""
