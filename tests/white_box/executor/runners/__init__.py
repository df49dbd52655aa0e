"""Tests of executor.runners, behind its public calls."""
