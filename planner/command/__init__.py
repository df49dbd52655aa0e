"""The command ``truenorth``."""
