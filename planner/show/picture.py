"""What all pictures share."""

from __future__ import annotations

from matplotlib import rc_context

AS_DATA = rc_context({"text.parse_math": False})
"""Decorates what draws a picture: names are data, and a dollar sign in one begins no formula."""
