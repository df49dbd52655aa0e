"""Windows of a trace, and another rate of arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario.quantities import MAX_TIME_US
from truenorth.models.units import QuantityError, parse_time


@dataclass(frozen=True, slots=True)
class ImportWindow:
    """Releases from a start to before an end.

    Parameters
    ----------
    start_us, end_us
        Times since the trace's time zero, or moments since 1970.
    moments
        Which of the two.
    """

    start_us: int
    end_us: int
    moments: bool = False

    @classmethod
    def parse(cls, start: str, end: str, dated: bool) -> ImportWindow:
        """Read two times with a unit, or, for a dated trace, two moments.

        Raises
        ------
        QuestionError
            If they are neither, before time zero or too late, or the window is empty.

        >>> ImportWindow.parse("10 min", "0.5 h", dated=False)
        ImportWindow(start_us=600000000, end_us=1800000000, moments=False)
        >>> ImportWindow.parse("1970-01-01 00:00", "1970-01-01T00:01:00", dated=True)
        ImportWindow(start_us=0, end_us=60000000, moments=True)
        """
        read = [_bound(text, dated) for text in (start, end)]
        (start_us, moment), (end_us, other) = read
        if moment is not other:
            raise QuestionError(f"{start!r} to {end!r} mixes a time with a moment; allowed are two of a sort", "window")
        if start_us < 0:
            zero = "1970" if moment else "time zero"
            raise QuestionError(f"{start!r} lies before {zero}; allowed is a start from there on", "window")
        if start_us >= end_us:
            raise QuestionError(f"{start!r} to {end!r} is an empty window; allowed is a start before the end", "window")
        latest_us = MAX_TIME_US * (10 if moment else 1)
        if end_us > latest_us:
            raise QuestionError(f"{end!r} is too late; allowed is up to {latest_us / 1e6:g} s from zero", "window")
        return cls(start_us, end_us, moment)

    @property
    def length_us(self) -> int:
        """How long it is."""
        return self.end_us - self.start_us


def _bound(text: str, dated: bool) -> tuple[int, bool]:
    try:
        return parse_time(text), False
    except QuantityError:
        pass
    moment = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True) if dated and len(text) >= 10 else pd.NaT
    if pd.isna(moment):
        also = ", or a date and time such as 2024-12-06T00:00" if dated else ""
        raise QuestionError(
            f"{text[:60]!r} is no time; allowed is a number with a unit such as '3600 s'{also}", "window"
        )
    return int(moment.as_unit("us").asm8.astype(np.int64)), True


def cut(release_us: Ints, window: ImportWindow | None, rate_factor: Fraction, dated: bool) -> tuple[Ints, Ints]:
    """Return the positions of the releases in a window, in release order, and the releases from its start on.

    Equal releases keep their order. Time zero is the window's start; without a window, the first release of a dated
    trace, or the zero of the trace's own clock. Then every release is divided by the rate factor, rounded half up.

    Raises
    ------
    QuestionError
        If the window holds no release.
    """
    first = int(release_us.min())
    zero = first if dated and not (window and window.moments) else 0
    start, end = (0, None) if window is None else (window.start_us, window.end_us)
    since = release_us - zero
    inside = since >= start if end is None else (since >= start) & (since < end)
    rows = np.flatnonzero(inside)
    if not rows.size:
        last = int(release_us.max())
        raise QuestionError(
            f"the window holds no release: they lie from {_said(first, zero, dated)} to {_said(last, zero, dated)}; "
            "allowed is a window with a release"
        )
    rows = rows[np.argsort(since[rows], kind="stable")]
    return rows.astype(np.int64), _slower(since[rows] - start, 1 / rate_factor)


def _said(release_us: int, zero: int, dated: bool) -> str:
    """Return a release as a person would give it as the edge of a window."""
    elapsed = f"{(release_us - zero) / 1e6:g} s"
    return f"{pd.Timestamp(release_us, unit='us'):%Y-%m-%dT%H:%M:%S}" if dated and not zero else elapsed


def _slower(release_us: Ints, factor: Fraction) -> Ints:
    """Return releases multiplied by a factor, exactly, rounded half up."""
    if factor == 1:
        return release_us
    doubled = release_us.astype(np.object_) * (2 * factor.numerator) + factor.denominator
    stretched = doubled // (2 * factor.denominator)
    if stretched.max() > MAX_TIME_US:
        raise QuestionError(
            f"the last release lies beyond {MAX_TIME_US} us at this rate; allowed is a higher rate factor"
        )
    return np.asarray(stretched, np.int64)
