"""Checks: random questions whose answers, limits and files must be right; exit 1 if one is wrong."""
