"""Answers to questions: plan, check, simulate, compare."""
