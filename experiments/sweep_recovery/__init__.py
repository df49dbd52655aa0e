"""Sweeps that are killed, and how well they use two cores."""
