"""Tests of planner.inputs.importers, behind its public calls."""
