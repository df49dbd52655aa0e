"""Tests of executor.devices, behind its public calls."""
