"""The colours of models and of contenders in every picture, for people with colour blindness too."""

from __future__ import annotations

COLOURS = (
    "#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#EE8866", "#44BB99", "#9988DD", "#AAAA00",
    "#FFAABB", "#77AADD",
)  # fmt: skip
"""P. Tol's bright and light sets, one colour per model, starting over where there are more models."""
PLAIN = "#BBBBBB"
"""What belongs to no model."""
