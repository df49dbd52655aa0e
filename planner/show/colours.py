"""The colours of models and of contenders in every picture, for people with colour blindness too."""

from __future__ import annotations

from matplotlib.colors import to_rgb

COLOURS = (
    "#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#EE8866", "#44BB99", "#9988DD", "#AAAA00",
    "#FFAABB", "#77AADD",
)  # fmt: skip
"""P. Tol's bright and light sets, one colour per model, starting over where there are more models."""
PLAIN = "#BBBBBB"
"""What belongs to no model."""
Rgb = tuple[float, float, float]


def colour_of(model: int | None) -> str:
    """Return the colour of a model by its index; None is what belongs to no model."""
    return PLAIN if model is None else COLOURS[model % len(COLOURS)]


def fade(colour: str, share: float) -> Rgb:
    """Return a colour of which so much is left over white paper."""
    red, green, blue = (1 - share + share * part for part in to_rgb(colour))
    return red, green, blue


def contrast(one: str | Rgb, other: str | Rgb) -> float:
    """Return the contrast ratio of two colours, from 1 to 21; text should have 4.5 (WCAG 2.2, 1.4.3).

    >>> round(contrast("black", "white"), 3)
    21.0
    """
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def ink_on(colour: str | Rgb) -> str:
    """Return black or white, whichever is easier to read on a colour; the ratio is at least 4.58 on any.

    >>> ink_on("#4477AA"), ink_on("#CCBB44")
    ('white', 'black')
    """
    return max(("black", "white"), key=lambda ink: contrast(ink, colour))


def _luminance(colour: str | Rgb) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
