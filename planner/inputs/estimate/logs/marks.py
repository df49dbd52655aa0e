"""What one line says: when it was written, how long something took or will take, counts, rates and totals.

Every pattern is bounded, so no line takes long, and is tried only on lines that hold its literal words; what says
something of progress comes in lower case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from truenorth.models.cluster import MICROSECONDS_PER_SECOND

STEP, EPOCH = "step", "epoch"
_NUMBER = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})"
_BAR = re.compile(
    r"(?<!\d)\d{1,3}%\|[^|]{0,300}\|\s{0,9}([\d.]{1,15})([kmg]?)/([\d.]{1,15})([kmg]?)\s?\w{0,12}\s?"
    r"\[([\d:]{4,12})<([\d:]{4,12}|\?)(?:,\s{0,9}(?:([\d.]{1,12})\s?(\w{1,20})/(\w{1,20})|\?))?"
)
_KERAS = re.compile(r"\s{0,20}(\d{1,9})/(\d{1,9})\s{1,4}(?:\[[=>.]{5,80}\]|[━╸╺ \u2500]{5,80})")
_EPOCH_BATCH = re.compile(r"\bepoch:?\s{0,4}\[?(\d{1,7})(?:/(\d{1,7}))?\]?,?\s{0,4}\[\s{0,8}(\d{1,9})\s?/\s?(\d{1,9})")
_EPOCH = re.compile(
    r"(?<![a-z])epochs?(?![a-z])['\"]?[\s:#=\[(]{0,5}(\d{1,7})(\.\d{1,9})?(?:\s?(?:/|of)\s?(\d{1,7}))?(?![\d.])"
)
_STEP = re.compile(
    r"(?<![a-z])(?:step|iter|iteration|batch|update)s?(?![a-z_])['\"]?[\s:#=\[(]{1,12}"
    + _NUMBER
    + r"(?:\s{0,9}(?:/|of)\s{0,9}"
    + _NUMBER
    + r")?(?![\d.%])"
)
_TOTAL = re.compile(
    r"(?:total optimization steps|max_steps|total_steps|total steps|num_training_steps|num epochs|num_epochs"
    r"|max_epochs|num_train_epochs)['\"]?\s{0,3}[=:]\s{0,3}" + _NUMBER
)
_RATE = re.compile(
    r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)\s?(it|iter|iteration|step|batch|batche|sample|example|image|img|token|tok|seq"
    r"|epoch)s?\s?(?:/\s?|per )(?:s|sec|second)\b"
)
_NAMED_RATE = re.compile(
    r"(it|iter|iteration|step|sample|example|image|token)s?(?:/s|/sec|_per_second|_per_sec|_per_s)['\"]?\s?[:=]\s?"
    r"(\d{1,9}(?:\.\d{1,9})?)"
)
_PACE = re.compile(
    r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)\s?(ms|s|sec|seconds)\s?(?:/\s?|per )(it|iter|iteration|step|batch|epoch)\b"
)
_MEGATRON = re.compile(r"elapsed time per iteration \((ms|s)\): (\d{1,9}(?:\.\d{1,9})?)")
_ETA = re.compile(r"\beta:?\s{0,3}((?:\d{1,4} days?, )?[\d:]{4,12})(?![\d:])")
_EPOCH_OF_BAR = re.compile(r"epoch\D{0,4}(\d{1,7})(?:\s?/\s?(\d{1,7}))?\D{0,40}$")
_EPOCHS_BAR = re.compile(r"epochs?\W{0,6}$")
_ASIDE = re.compile(
    r"eval|valid|\btest|download|load|\bmap\b|filter|tokeni|generat|fetch|prepar|\bsav|upload|extract|shard|process"
    r"|cach|sanity|predict|infer|collect|\bnum_proc"
)
_EVALUATION = re.compile(r"\b(?:eval|evaluat(?:e|ing|ion)|val|valid|validat(?:e|ing|ion)|test|testing)\b(?![/\\])")
_METRIC = re.compile(r"\b(?:\w{0,20}loss|acc|accuracy|ppl|metric)\b")
_BEFORE = re.compile(r"([a-z]{1,20})[\s_-]{0,3}$")
_NOT_PROGRESS = frozenset(
    (
        "total", "max", "num", "number", "optimization", "warmup", "logging", "save", "eval", "accumulation", "per",
        "every",
    )
)  # fmt: skip
_SCALE = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_ONE = {"it": STEP, "iter": STEP, "iteration": STEP, "batche": "batch", "img": "image", "tok": "token", "ba": "batch"}
_WITHIN = 80
"""A time stamp stands near the start of a line."""
_TIME = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?!\d)"
_DATE = re.compile(r"(?<!\d)(\d{4})[-/](\d\d)[-/](\d\d)[T ]" + _TIME + r"(?: ?(Z|[+-]\d\d:?\d\d)(?![\d:]))?")
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/(\d{4}) " + _TIME)
_TIME_ALONE = re.compile(r"[\s\[(<]{0,4}(?:(?:DEBUG|INFO|WARN|WARNING|ERROR)\b[\s:|\[(-]{0,4})?" + _TIME + r"(?!:)")
_SPAN = re.compile(r"(?:(\d{1,4}) days?, )?(?:(\d{1,5}):)?(\d{1,3}):(\d\d)")
_HOUR_US = 3_600 * MICROSECONDS_PER_SECOND
_DAY_US = 24 * _HOUR_US
_SUNDAY = 6
_LATEST_CHANGE = 5
"""Clocks change in the night to a Sunday, before this hour."""
_UNUSUAL = 4
"""A step is a change of clocks if without the hour it is at most so many times the longest before it, and a minute."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A count that a line states.

    Parameters
    ----------
    unit
        ``step`` or ``epoch``.
    done, total
        Units finished, and of how many; None if the line does not say.
    source
        ``bar`` or ``text``.
    elapsed_us, left_us
        The bar's own clock, and its own guess.
    inner
        Whether the format itself says that the count starts anew in every epoch.
    named
        The number that an epoch goes by, from which `done` follows if the first epoch is number 1.
    """

    unit: str
    done: float
    total: float | None
    source: str = "text"
    elapsed_us: int | None = None
    left_us: int | None = None
    inner: bool = False
    named: int | None = None


@dataclass(frozen=True, slots=True)
class SpeedSaid:
    """A speed that a line states, in units per second."""

    unit: str
    per_second: float


@dataclass(frozen=True, slots=True)
class Said:
    """What one line says: counts, at most one rate, and the totals that it announces."""

    marks: tuple[Mark, ...] = ()
    rate: SpeedSaid | None = None
    total: tuple[str, float] | None = None


def said(text: str) -> Said:
    """Return what a line, in lower case, says about progress.

    >>> mark = said("step 120/1000 loss 0.5").marks[0]
    >>> mark.unit, mark.done, mark.total
    ('step', 120.0, 1000.0)
    """
    bar = _BAR.search(text) if "%|" in text else None
    if bar is not None:
        return _of_bar(text, bar)
    total = _TOTAL.search(text) if any(word in text for word in ("total", "max_", "num")) else None
    if total is not None:
        return Said(total=(EPOCH if "epoch" in total[0] else STEP, _count(total[1])))
    return Said(_marks(text), _rate(text))


def _of_bar(text: str, bar: re.Match[str]) -> Said:
    before = text[max(0, bar.start() - 120) : bar.start()]
    try:
        done, total = float(bar[1]) * _SCALE[bar[2]], float(bar[3]) * _SCALE[bar[4]]
        value = float(bar[7]) if bar[7] else None
    except ValueError:
        return Said()
    over, under = bar[8] or "", bar[9] or ""
    if _ASIDE.search(before) or over.endswith("b") or over in ("examples", "files") or done > total:
        return Said()
    unit = EPOCH if "epoch" in (over, under) or _EPOCHS_BAR.search(before) else STEP
    rate = None
    if value:
        rate = (
            SpeedSaid(_unit(over), value)
            if under == "s"
            else SpeedSaid(_unit(under), 1 / value)
            if over == "s"
            else None
        )
    epoch = _EPOCH_OF_BAR.search(before)
    clock = {"elapsed_us": span_us(bar[5]), "left_us": span_us(bar[6])}
    marks = [Mark(unit, done, total, "bar", **clock, inner=epoch is not None and unit == STEP)]
    if epoch is not None and unit == STEP:
        marks.append(_running(epoch[1], epoch[2]))
    return Said(tuple(marks), rate)


def _marks(text: str) -> tuple[Mark, ...]:
    """Return the counts of a line that holds no bar."""
    if keras := _KERAS.match(text):
        return (Mark(STEP, float(keras[1]), float(keras[2]), "bar", left_us=_left_us(text), inner=True),)
    epochs = "epoch" in text
    if epochs and (found := _EPOCH_BATCH.search(text)):
        return Mark(STEP, float(found[3]), float(found[4]), inner=True), _running(found[1], found[2])
    marks: list[Mark] = []
    if (found := _STEP.search(text)) and not _announces(text, found.start()):
        total = _count(found[2]) if found[2] else None
        marks.append(Mark(STEP, _count(found[1]), total, left_us=_left_us(text)))
    if epochs and (found := _EPOCH.search(text)) and not _announces(text, found.start()):
        marks.append(_epoch(text, found))
    return tuple(mark for mark in marks if mark.total is None or mark.done <= mark.total)


def _left_us(text: str) -> int | None:
    """Return the time that the line itself expects to be left."""
    eta = _ETA.search(text) if "eta" in text else None
    return span_us(eta[1]) if eta else None


def _epoch(text: str, found: re.Match[str]) -> Mark:
    """Return the epochs that are finished: all but the one named, unless the line reports its outcome."""
    total = float(found[3]) if found[3] else None
    if found[2]:
        return Mark(EPOCH, float(found[1] + found[2]), total)
    if _METRIC.search(text) and not _STEP.search(text):
        return Mark(EPOCH, float(found[1]), total, named=int(found[1]))
    return _running(found[1], found[3])


def _running(number: str, total: str | None) -> Mark:
    return Mark(EPOCH, float(number) - 1, float(total) if total else None, named=int(number))


def _announces(text: str, start: int) -> bool:
    """Say whether words before a count make it something else, such as a number of warm-up steps."""
    before = _BEFORE.search(text[max(0, start - 24) : start])
    return (before is not None and before[1] in _NOT_PROGRESS) or _EVALUATION.search(text, 0, start) is not None


def _rate(text: str) -> SpeedSaid | None:
    if not any(word in text for word in ("/s", "s/", " per ", "per_s")):
        return None
    if found := _RATE.search(text):
        return _positive(_unit(found[2]), float(found[1]))
    if found := _NAMED_RATE.search(text):
        return _positive(_unit(found[1]), float(found[2]))
    if (found := _PACE.search(text)) and float(found[1]):
        seconds = float(found[1]) / (1_000 if found[2] == "ms" else 1)
        return _positive(_unit(found[3]), 1 / seconds)
    if "elapsed time per" in text and (found := _MEGATRON.search(text)) and float(found[2]):
        return _positive(STEP, (1_000 if found[1] == "ms" else 1) / float(found[2]))
    return None


def _positive(unit: str, per_second: float) -> SpeedSaid | None:
    return SpeedSaid(unit, per_second) if 0 < per_second < MICROSECONDS_PER_SECOND * 1_000 else None


def _unit(word: str) -> str:
    return _ONE.get(word, word if word in ("s", "batch", "class") else word.removesuffix("s"))


def _count(digits: str) -> float:
    return float(digits.replace(",", ""))


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a line was written.

    Parameters
    ----------
    us
        Microseconds since 1970, by the clock that the line was written by, or since midnight.
    dated
        Whether it has a date.
    zoned
        Whether it says its zone, and counts in UTC.
    """

    us: int
    dated: bool
    zoned: bool


def read_stamp(text: str) -> Stamp | None:
    """Return the time at the start of a line; None if there is none.

    >>> read_stamp("2026-03-29T03:00:01,5+02:00 step 3").us - read_stamp("2026-03-29 00:59:59Z start").us
    2500000
    >>> read_stamp("[00:00:07] step 4")
    Stamp(us=7000000, dated=False, zoned=False)
    """
    head = text[:_WITHIN]
    if ":" not in head:
        return None
    zone = None
    if found := _DATE.search(head):
        (year, month, day), time, zone = found.group(1, 2, 3), found.group(4, 5, 6, 7), found[8]
    elif found := _AMERICAN.search(head):
        (month, day, year), time = found.group(1, 2, 3), found.group(4, 5, 6, 7)
    elif found := _TIME_ALONE.match(head):
        year, month, day, time = "1970", "01", "01", found.group(1, 2, 3, 4)
    else:
        return None
    hour, minute, second, part = time
    try:
        moment = datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:{minute}:{second}{zone or '+00:00'}")
    except ValueError:
        return None
    us = int(moment.timestamp()) * MICROSECONDS_PER_SECOND + int((part or "").ljust(6, "0")[:6])
    return Stamp(us, found.re is not _TIME_ALONE, zone is not None)


class LogClock:
    """The time that passes from line to line: midnights and changes of clocks are no progress, and no standstill.

    The first stamp says what sort the log's are; others are ignored.
    """

    def __init__(self) -> None:
        self._sort: tuple[bool, bool] | None = None
        self._last_us: int | None = None
        self._longest_us = self._shift_us = 0

    def read_us(self, text: str) -> int | None:
        """Return when a line was written, in microseconds since any one moment; None if it does not say."""
        stamp = read_stamp(text)
        if stamp is None or (stamp.dated, stamp.zoned) != (self._sort or (stamp.dated, stamp.zoned)):
            return None
        self._sort = stamp.dated, stamp.zoned
        if self._last_us is not None:
            step_us = stamp.us + self._shift_us - self._last_us
            if not stamp.dated and step_us < -_DAY_US // 2:
                self._shift_us += _DAY_US
            elif stamp.dated and not stamp.zoned and self._changed(stamp, step_us):
                self._shift_us -= _HOUR_US if step_us > 0 else -_HOUR_US
            self._longest_us = max(self._longest_us, stamp.us + self._shift_us - self._last_us)
        self._last_us = stamp.us + self._shift_us
        return self._last_us

    def _changed(self, stamp: Stamp, step_us: int) -> bool:
        """Say whether clocks were put forward or back by an hour between the line before and this one."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=stamp.us)
        if moment.weekday() != _SUNDAY or moment.hour >= _LATEST_CHANGE:
            return False
        without_us = step_us - _HOUR_US if step_us > 0 else step_us + _HOUR_US
        return abs(step_us) > _HOUR_US // 2 and 0 <= without_us <= self._usual_us

    @property
    def _usual_us(self) -> int:
        return _UNUSUAL * min(self._longest_us, _HOUR_US // 8) + 60 * MICROSECONDS_PER_SECOND


def span_us(text: str) -> int | None:
    """Return a duration such as ``01:30``, ``6:28:43`` or ``1 day, 0:00:01`` in microseconds; None if it is none.

    >>> span_us("01:30"), span_us("6:28:43"), span_us("?")
    (90000000, 23323000000, None)
    """
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * MICROSECONDS_PER_SECOND
