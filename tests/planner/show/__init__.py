"""Tests of planner.show."""
