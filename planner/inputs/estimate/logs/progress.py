"""How far a job is, put together from what its lines say, and how fast it goes: bars, counts of steps and of epochs.

The pace is a robust one over a recent window, with how much it varied.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.planner.inputs.estimate.logs.marks import EPOCH, STEP, Mark, Said, SpeedSaid

_MOST_SERIES = 50
_MOST_UNITS = 12
_RATES = 51
"""Most recent rates that a stated speed is the median of."""
_NEAR = 0.02
WINDOW = 400
"""Most recent advances that count."""
BLOCKS = 10
"""Parts of equal progress that the window is cut into."""
LEAST_BLOCKS = 5
"""Fewer say nothing about variation."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """Time until the end.

    Parameters
    ----------
    low_us, high_us
        As long as it takes at the pace of the fast and of the slow tenth of the recent window; None
        if the log shows too few advances. They describe the window: nothing is calibrated.
    expected_us
        At the window's median pace; without a window, at the rate, or for the time, that the log states.
    """

    low_us: int | None
    expected_us: int
    high_us: int | None


class Pace:
    """Advances of one count by one clock, in a window of bounded size."""

    def __init__(self) -> None:
        self._advances: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._last: tuple[float, int] | None = None

    def note(self, done: float, at_us: int) -> None:
        """Take note of a count and the clock's time."""
        if self._last is None or done < self._last[0] or at_us < self._last[1]:
            self._last = done, at_us
            return
        before, then_us = self._last
        if done > before and at_us > then_us:
            self._advances.append((done - before, at_us - then_us))
            self._last = done, at_us

    def restart(self) -> None:
        """Forget where the count stood, but not how fast it was."""
        self._last = None

    def us_per_unit(self) -> tuple[float | None, float, float | None] | None:
        """Return microseconds per unit: fast tenth, median, slow tenth; None if the count never advanced."""
        paces = self._block_paces()
        if not paces:
            return None
        if len(paces) < LEAST_BLOCKS:
            return None, float(np.median(paces)), None
        fast, median, slow = np.quantile(paces, [0.1, 0.5, 0.9])
        return float(fast), float(median), float(slow)

    def _block_paces(self) -> list[float]:
        """Return the pace of each part of the window; a part ends with the advance that completes it."""
        share = sum(units for units, _ in self._advances) / BLOCKS
        paces: list[float] = []
        units, took_us = 0.0, 0
        for advance, us in self._advances:
            units, took_us = units + advance, took_us + us
            if units >= share * (1 - 1e-9):
                paces.append(took_us / units)
                units, took_us = 0.0, 0
        return paces


@dataclass(frozen=True, slots=True)
class Count:
    """A count that the log states.

    Parameters
    ----------
    unit
        ``step`` or ``epoch``.
    done, total
        Units finished, and of how many; None if nothing says it.
    line
        Where it was last stated.
    """

    unit: str
    done: float
    total: float | None
    line: int


@dataclass(slots=True)
class Series:
    """Counts that belong together: one bar, or one kind of line."""

    total: float | None
    epochs_seen: int
    done: float = 0.0
    line: int = 0
    order: int = 0
    inner: bool = False
    """Whether it starts anew in every epoch."""
    whole: bool = False
    """Whether it went on through the end of an epoch."""
    marks: int = 0
    took_us: int = 0
    left_us: int | None = None
    pace: Pace = field(default_factory=Pace)

    def note(self, mark: Mark, line: int, order: int, written_us: int | None, epochs_seen: int) -> bool:
        """Take note of a count; say whether it went on."""
        new_epoch = epochs_seen != self.epochs_seen and self.marks > 0
        again = mark.done < self.done or (new_epoch and mark.done == self.done)
        if again:
            if self.total is None and not new_epoch:
                return False
            self.inner = self.inner or new_epoch
            self.pace.restart()
        elif new_epoch and mark.done > self.done:
            self.whole = True
        went_on = mark.done != self.done or again
        clock = written_us if mark.elapsed_us is None else mark.elapsed_us
        if clock is not None:
            self.pace.note(mark.done, clock)
        self.took_us = max(self.took_us, mark.elapsed_us or 0)
        self.inner, self.left_us = self.inner or mark.inner, mark.left_us
        self.done, self.line, self.order, self.epochs_seen = mark.done, line, order, epochs_seen
        self.marks += 1
        return went_on


class Tracker:
    """Follows a log line by line, in bounded memory.

    Parameters
    ----------
    steps, epochs
        Totals that the log need not state, from a description of the job.
    """

    def __init__(self, steps: float | None = None, epochs: float | None = None) -> None:
        self.advances = 0
        """How often the job got further."""
        self._totals = {STEP: steps, EPOCH: epochs}
        self._series: dict[tuple[str, float | None], Series] = {}
        self._epochs = Series(None, 0)
        self._from_zero = self._exact = False
        self._order = 0
        self._rates: dict[str, deque[float]] = {}

    def note(self, line: int, said: Said, written_us: int | None) -> None:
        """Take note of what a line says, and when it was written."""
        self._order += 1
        if said.total is not None:
            self._totals[said.total[0]] = said.total[1]
        if said.rate is not None and (said.rate.unit in self._rates or len(self._rates) < _MOST_UNITS):
            self._rates.setdefault(said.rate.unit, deque(maxlen=_RATES)).append(said.rate.per_second)
        for mark in sorted(said.marks, key=lambda mark: mark.unit != EPOCH):
            if mark.unit == EPOCH:
                self._note_epoch(mark, line, written_us)
            else:
                self._note_step(mark, line, written_us)

    def _note_epoch(self, mark: Mark, line: int, written_us: int | None) -> None:
        self._from_zero = self._from_zero or mark.named == 0
        self._exact = mark.named is None and mark.source == "text"
        before = self._epochs
        if mark.done < before.done:  # the job began again
            self._series.clear()
            self._epochs = before = Series(before.total, before.epochs_seen)
        if mark.done > before.done or not before.marks:
            self.advances += before.marks > 0
            before.epochs_seen += before.marks > 0
        before.total = mark.total or before.total
        before.note(mark, line, self._order, written_us, before.epochs_seen)

    def _note_step(self, mark: Mark, line: int, written_us: int | None) -> None:
        key = mark.source, mark.total
        if key not in self._series:
            if len(self._series) >= _MOST_SERIES:
                return
            self._series[key] = Series(mark.total, self._epochs.epochs_seen)
        self.advances += self._series[key].note(mark, line, self._order, written_us, self._epochs.epochs_seen)

    def counts(self) -> tuple[Count, ...]:
        """Return the steps and the epochs, as far as the log states them."""
        found: list[Count] = []
        series = self._main()
        if series is not None:
            found.append(Count(STEP, series.done, series.total or self._totals[STEP], series.line))
        if self._epochs.marks:
            found.append(Count(EPOCH, self._epochs_done(), self._epochs_total(), self._epochs.line))
        return tuple(found)

    def rates(self) -> tuple[SpeedSaid, ...]:
        """Return the job's speed: by its own clock where there is one, and as the log states it."""
        series = self._main()
        paces = None if series is None else series.pace.us_per_unit()
        stated = {unit: median(values) for unit, values in self._rates.items()}
        measured = {} if paces is None else {STEP: MICROSECONDS_PER_SECOND / paces[1]}
        return tuple(SpeedSaid(unit, value) for unit, value in (stated | measured).items())

    def overall(self) -> tuple[str, float, float] | None:
        """Return the unit in which the whole job can be counted, units done and units in all; None if in none.

        Steps that start anew in every epoch are counted through all epochs. None also if a log in
        its first epoch leaves open which of the two it counts.
        """
        series, epochs_total = self._main(), self._epochs_total()
        total = None if series is None else series.total or self._totals[STEP]
        if series is None or not total:
            return (EPOCH, self._epochs_done(), epochs_total) if self._epochs.marks and epochs_total else None
        if not self._epochs.marks:
            return (STEP, series.done, total) if not series.inner else None
        inner = self._starts_anew(series, total)
        if inner is None or (inner and not epochs_total):
            return None
        if not inner:
            return STEP, series.done, total
        before = self._epochs_done() // 1 * total
        return STEP, before + (0 if self._epochs.order > series.order else series.done), total * (epochs_total or 1)

    def remaining(self) -> Remaining | None:
        """Return the time until the end; None if the log does not say how much is left, or how fast it goes."""
        overall = self.overall()
        if overall is None:
            return None
        unit, done, total = overall
        left = max(0.0, total - done)
        series = self._epochs if unit == EPOCH else self._main()
        if left == 0 or series is None:
            return Remaining(0, 0, 0)
        paces = series.pace.us_per_unit()
        if paces is not None:
            low, expected, high = (None if pace is None else round(pace * left) for pace in paces)
            return Remaining(low, expected or 0, high)
        if unit in self._rates:
            return Remaining(None, round(left / median(self._rates[unit]) * MICROSECONDS_PER_SECOND), None)
        return None if series.left_us is None or series.inner else Remaining(None, series.left_us, None)

    def _starts_anew(self, series: Series, total: float) -> bool | None:
        """Say whether steps start anew in every epoch; None if the log leaves it open."""
        if series.inner or series.whole:
            return series.inner
        epochs_total = self._epochs_total()
        if epochs_total is None or epochs_total <= 1:
            return False
        share, epochs = series.done / total, self._epochs_done()
        if self._exact and abs(share - epochs / epochs_total) <= _NEAR:
            return False
        return True if epochs < 1 and share > 1 / epochs_total + _NEAR else None

    def _main(self) -> Series | None:
        """Return the steps of the job proper: the bar that ran longest, or lines if they count further."""
        bars = [series for (source, _), series in self._series.items() if source == "bar"]
        lines = [series for (source, total), series in self._series.items() if source == "text" and total is not None]
        bar = max(bars, key=lambda series: (series.took_us, series.marks), default=None)
        text = max(lines, key=lambda series: series.marks, default=None)
        if bar is None or (text is not None and (text.total or 0) > (bar.total or 0)):
            return text or bar or self._series.get(("text", None))
        return bar

    def _epochs_done(self) -> float:
        return max(0.0, self._epochs.done + (1 if self._from_zero and not self._exact else 0))

    def _epochs_total(self) -> float | None:
        return self._epochs.total or self._totals[EPOCH]
