"""Tests of models, behind its public calls."""
