"""Swap often or batch more? A study: see README.md."""
