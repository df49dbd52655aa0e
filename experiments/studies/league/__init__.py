"""A league of policies."""
