"""Tests of models.scenario, behind its public calls."""
