"""Tests of models.formulations, behind its public calls."""
