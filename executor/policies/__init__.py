"""Policies: online ones, and the replay of a plan."""
