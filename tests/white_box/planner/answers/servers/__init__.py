"""Tests of planner.answers.servers, behind its public calls."""
