"""The pictures of *How it works*, drawn from runs."""
