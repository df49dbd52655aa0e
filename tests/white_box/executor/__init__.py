"""Tests of executor, behind its public calls."""
