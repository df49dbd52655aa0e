"""Instances of neighbouring problems whose optima are known, planned as a user would plan them."""
