"""Scenario files that the README, the tests and the studies share."""
