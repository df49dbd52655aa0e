"""The drawn figures of a page: shares of jobs within each slowdown, the gap over time, and lines over a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from models.objective import gap
from planner.show.colours import COLOURS
from planner.show.report.axes import Axis, horizontal, vertical
from planner.show.report.section import Curve, Figure

Point = tuple[float, float]


def slowdown_ecdf(slowdowns: Mapping[str, Sequence[float]], clairvoyant: Iterable[str]) -> Figure:
    """Return the share of jobs at or below each slowdown, a curve per timeline; who knows the future is drawn bold."""
    x = horizontal([value for values in slowdowns.values() for value in (min(values), max(values))], logarithmic=True)
    y = vertical((0.0, 1.0))
    bold = set(clairvoyant)
    curves: list[Curve] = []
    for name, values in slowdowns.items():
        ordered = sorted(values)
        points = [(value, (rank + 1) / len(ordered)) for rank, value in enumerate(ordered)]
        path = _staircase([(x.at(value), y.at(share)) for value, share in points], y.at(0))
        curves.append(Curve(name, path, "" if name in bold else _colour(len(curves)), name in bold))
    return Figure(
        "Slowdown of the jobs: further to the upper left is better",
        "slowdown: latency / critical path (logarithmic)",
        "share of jobs at or below",
        x.ticks(),
        y.ticks(percent=True),
        curves,
    )


def gap_over_time(incumbents: Sequence[tuple[float, float | None, float | None]], runtime_s: float) -> Figure | None:
    """Return (value - bound) / value of the best plan and bound so far over the seconds of the search.

    None if there were never both.
    """
    shares = [
        (seconds, None if value is None or bound is None else gap(Fraction(value), Fraction(bound)))
        for seconds, value, bound in incumbents
    ]
    gaps = [(seconds, share) for seconds, share in shares if share is not None]
    if not gaps:
        return None
    x = horizontal([0.0, runtime_s])
    y = vertical([0.0, max(share for _, share in gaps)])
    last = gaps[-1][1]
    path = _staircase([(x.at(seconds), y.at(share)) for seconds, share in gaps], y.at(gaps[0][1])) + f"H{x.last:g}"
    ending = [(x.last, y.at(last), f"{last:.2%} at the end of {runtime_s:.1f} s")]
    return Figure(
        "Optimality gap over time: how far the best plan may still lie from the best possible one",
        "seconds of search",
        "(plan - bound) / plan",
        x.ticks(),
        y.ticks(percent=True),
        [Curve("gap of the best plan and bound so far", path, COLOURS[0], True, ending)],
    )


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Sequence[Point]],
    limit: tuple[str, float] | None = None,
    logarithmic: bool = False,
) -> Figure:
    """Return a line with dots per series; `limit` is the name and height of a line to compare with.

    Heights begin at 0, except on a logarithmic axis, for which they must lie above 0.
    """
    everything = [point for points in series.values() for point in points]
    heights = [value for _, value in everything] + ([] if limit is None else [limit[1]])
    x, y = (
        horizontal([across for across, _ in everything]),
        vertical(heights if logarithmic else [0.0, *heights], logarithmic),
    )
    curves: list[Curve] = []
    if limit is not None:
        curves.append(Curve(limit[0], f"M{x.first:g} {y.at(limit[1]):g}H{x.last:g}", bold=True))
    for name, points in series.items():
        curves.append(_line(name, sorted(points), x, y, _colour(len(curves))))
    return Figure(title, x_label, y_label, x.ticks(), y.ticks(), curves)


def _line(name: str, points: Sequence[Point], x: Axis, y: Axis, colour: str) -> Curve:
    dots = [(x.at(across), y.at(value), f"{name}: {value:.5g} at {across:g}") for across, value in points]
    path = "M" + "L".join(f"{left:g} {top:g}" for left, top, _ in dots)
    return Curve(name, path, colour, points=dots)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _staircase(points: Sequence[Point], floor: float) -> str:
    """Return the path that keeps each height until the next point; where points share a pixel, the last one counts."""
    kept = [here for here, after in pairwise(points) if after[0] != here[0]] + [points[-1]]
    return f"M{kept[0][0]:g} {floor:g}" + "".join(f"H{left:g}V{top:g}" for left, top in kept)
