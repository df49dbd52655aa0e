"""Tests of experiments.suites: readers, oracles, and plans of instances with known optima."""
