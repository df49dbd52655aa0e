"""A Gantt chart as a picture: rows of lanes of bars on one axis of time, drawn so that nothing short is lost.

A batch is one run, and a run as high as its share. Without models a row is its runs alone, and a run on several GPUs is
one box over their rows, if these lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from truenorth.models.cluster import GPU, MICROSECONDS_PER_SECOND
from truenorth.models.instance import Instance
from truenorth.models.timeline import UNPLACED, Residency, Timeline, batch_leaders
from truenorth.models.units import say_size
from truenorth.models.workload import WHOLE
from truenorth.planner.show.canvas import AS_DATA, PLAIN, PNG_DPI, blank, colour_of, fade, ink_on, lay_out

MOST_ROWS, MOST_OF_RUNS = 16, 48
"""A picture shows at most so many GPUs, the busiest, or of rows of runs alone; more would be too thin to read."""
_FILLED, _TOP = 0.9, 0.97
"""Share of a row that its lanes take, and where the first begins."""
_DOWN = 1 - 1 / _FILLED
"""Where, as a share of a row's only lane, that of the row below begins."""
_HELD, _LOADING = 0.85, 0.4
"""Strengths of a model in memory."""


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A task alone, or a batch of tasks.

    Parameters
    ----------
    tasks
        Lowest first; more than one are a batch.
    low, high
        The part of the compute lane that it takes, from 0 at the floor to 1: as high as its share of the GPU.
    """

    tasks: tuple[int, ...]
    start_us: int
    end_us: int
    low: float
    high: float


def runs_by_gpu(instance: Instance, timeline: Timeline) -> list[list[ShownRun]]:
    """Return the runs of every GPU in order of time; those that overlap in time lie at different heights."""
    members: dict[int, list[int]] = {}
    each, leaders = timeline.runs, batch_leaders(instance, timeline).tolist()
    # Runs of requests that were cut come behind the tasks' own, and lead themselves.
    for run, leader in enumerate([*leaders, *range(len(leaders), len(each.task))]):
        if each.gpu[run] != UNPLACED:
            members.setdefault(leader, []).append(int(each.task[run]))
    runs: list[list[ShownRun]] = [[] for _ in range(instance.n_gpus)]
    active: list[list[ShownRun]] = [[] for _ in range(instance.n_gpus)]
    for first in sorted(members, key=lambda run: (int(each.start_us[run]), run)):
        place, start_us, end_us = (int(of[first]) for of in (each.gpu, each.start_us, each.end_us))
        share = int(instance.template_share[instance.task_template[members[first][0]]]) / WHOLE
        for gpu in instance.places.gpus[place]:
            active[gpu] = [run for run in active[gpu] if run.end_us > start_us]
            low = _floor(active[gpu], share)
            active[gpu].append(ShownRun(tuple(members[first]), start_us, end_us, low, low + share))
            runs[gpu].append(active[gpu][-1])
    return runs


def _floor(active: Sequence[ShownRun], share: float) -> float:
    """Return the lowest height at which a share fits between what runs; where only pieces are free, the top."""
    slack = 1e-9  # shares are drawn: ten thousandths need not add up to the last bit
    for low in sorted({0.0, *(run.high for run in active)}):
        if low + share <= 1 + slack and all(
            run.high <= low + slack or run.low >= low + share - slack for run in active
        ):
            return low
    return 1 - share


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that lasts.

    Parameters
    ----------
    model
        Index of the model whose colour it has; None: of no model.
    text
        Written on it where there is room.
    low, high
        The part of its lane's height that it takes, from 0 at the floor to 1.
    strength
        What is left of its colour: all of it for work, less for a model in memory, least while that still loads.
    """

    start_us: int
    end_us: int
    model: int | None
    text: str = ""
    low: float = 0.0
    high: float = 1.0
    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class BarLane:
    """Bars at one height.

    Parameters
    ----------
    height
        Beside that of other lanes.
    hatched
        Whether its bars are loads.
    levels
        Heights of lines across it, as shares of its own: the sizes of a memory.
    """

    name: str
    height: float
    bars: tuple[Bar, ...]
    hatched: bool = False
    levels: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class GPUBars:
    """The lanes of a GPU, from above, and when it is away."""

    name: str
    lanes: tuple[BarLane, ...]
    away: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BarRows:
    """A whole chart: its rows from above, the names of the models that it shows by index, and what it leaves out."""

    rows: tuple[GPUBars, ...]
    until_us: int
    models: dict[int, str]
    left_out: str


def rows_of(instance: Instance, timeline: Timeline) -> BarRows:
    """Return the chart of a timeline: per GPU what runs, what is copied, and the models in memory."""
    gpus, left_out = _drawn_gpus(instance, [timeline], MOST_ROWS if instance.models else MOST_OF_RUNS)
    until_us = _last_us([timeline])
    runs = runs_by_gpu(instance, timeline)
    if not instance.models:
        return BarRows(tuple(_rows_of_runs(instance, gpus, runs, until_us)), until_us, {}, left_out)
    rows = []
    for gpu in gpus:
        device = instance.cluster.gpus[gpu]
        here = _on(instance, timeline, gpu)
        lanes = (
            BarLane("compute", 0.42, _runs(instance, runs[gpu])),
            BarLane("copy", 0.18, _loads(here), hatched=True),
            _memory(instance, device, here, until_us),
        )
        rows.append(GPUBars(f"{device.id} ({device.kind})", lanes, tuple(device.available.absences(until_us))))
    return BarRows(tuple(rows), until_us, _named(instance, [timeline]), left_out)


def _rows_of_runs(
    instance: Instance, gpus: Sequence[int], runs: Sequence[Sequence[ShownRun]], until_us: int
) -> Iterator[GPUBars]:
    """Yield the rows of GPUs that hold no models; a run that is on the GPU below, too, reaches down to it."""
    above: frozenset[tuple[int, ...]] = frozenset()
    for gpu, below in zip(gpus, [*gpus[1:], None], strict=True):
        shared = frozenset() if below is None else frozenset(run.tasks for run in runs[below])
        bars = tuple(
            replace(bar, low=_DOWN if run.tasks in shared else bar.low, text="" if run.tasks in above else bar.text)
            for run, bar in zip(runs[gpu], _runs(instance, runs[gpu]), strict=True)
        )
        device = instance.cluster.gpus[gpu]
        lane = BarLane("", 1.0, bars)
        yield GPUBars(f"{device.id} ({device.kind})", (lane,), tuple(device.available.absences(until_us)))
        above = frozenset(run.tasks for run in runs[gpu])


def rows_of_both(instance: Instance, predicted: Timeline, measured: Timeline) -> BarRows:
    """Return the chart of a run on devices: per GPU its runs and its loads, predicted over measured."""
    both = {"predicted": predicted, "measured": measured}
    gpus, left_out = _drawn_gpus(instance, list(both.values()), MOST_ROWS)
    run = {how: runs_by_gpu(instance, line) for how, line in both.items()}
    rows = []
    for gpu in gpus:
        device = instance.cluster.gpus[gpu]
        runs = [BarLane(f"compute, {how}", 0.3, _runs(instance, run[how][gpu])) for how in both]
        loads = [
            BarLane(f"copy, {how}", 0.2, _loads(_on(instance, line, gpu)), hatched=True) for how, line in both.items()
        ]
        rows.append(GPUBars(f"{device.id} ({device.kind})", (*runs, *loads)))
    return BarRows(tuple(rows), _last_us(both.values()), _named(instance, list(both.values())), left_out)


def _on(instance: Instance, timeline: Timeline, gpu: int) -> list[Residency]:
    """Return the residencies of which a GPU has a part, or all."""
    return [residency for residency in timeline.residencies if gpu in instance.places.gpus[residency.gpu]]


def _last_us(timelines: Iterable[Timeline]) -> int:
    return max(int(timeline.end_us.max(initial=1)) for timeline in timelines)


def _named(instance: Instance, timelines: Sequence[Timeline]) -> dict[int, str]:
    used = sorted({residency.model for timeline in timelines for residency in timeline.residencies})
    return {model: instance.models[model].name for model in used}


def _drawn_gpus(instance: Instance, timelines: Sequence[Timeline], most: int) -> tuple[list[int], str]:
    """Return the GPUs that are drawn, in order, and in words which are not: idle ones, and the least busy."""
    work = np.zeros(instance.n_gpus)
    for timeline in timelines:
        placed = timeline.place != UNPLACED
        run_us = (timeline.end_us - timeline.start_us)[placed]
        each, gpus = instance.places.members(timeline.place[placed])
        work += np.bincount(gpus, run_us[each], instance.n_gpus)
        for residency in timeline.residencies:
            loaded_us = 0 if residency.initial else residency.ready_us - residency.load_start_us
            work[list(instance.places.gpus[residency.gpu])] += loaded_us
    busy = int(np.count_nonzero(work))
    kept = sorted(np.argsort(-work, kind="stable")[: max(1, min(busy, most))].tolist())
    parts = [f"{busy - len(kept)} that are less busy"] if busy > len(kept) else []
    parts += [f"{instance.n_gpus - busy} that neither run nor load anything"] if busy < instance.n_gpus else []
    return kept, f"{len(kept)} of {instance.n_gpus} GPUs; not drawn: {' and '.join(parts)}." if parts else ""


def _runs(instance: Instance, runs: Sequence[ShownRun]) -> tuple[Bar, ...]:
    """Return the runs on a GPU, each with the number of its job and, of a batch, its size."""
    bars = []
    for run in runs:
        needs, job = instance.task_needs(run.tasks[0]), instance.task_job[run.tasks[0]]
        text = f"{job}" if len(run.tasks) == 1 else f"{job} and {len(run.tasks) - 1} more"
        bars.append(Bar(run.start_us, run.end_us, needs[0] if needs else None, text, run.low, run.high))
    return tuple(bars)


def _loads(here: Iterable[Residency]) -> tuple[Bar, ...]:
    return tuple(Bar(r.load_start_us, r.ready_us, r.model) for r in here if not r.initial)


def _memory(instance: Instance, device: GPU, here: Sequence[Residency], until_us: int) -> BarLane:
    """Return the memory of a GPU: its slots with what they hold, or its models upon each other in their order."""
    memory = device.memory_bytes
    stays = [
        _ShownResidency(r, r.load_start_us, until_us if r.end_us is None else min(r.end_us, until_us)) for r in here
    ]
    bars: list[Bar] = []
    for stay, start_us, end_us, floor in _in_slots(device, stays) if device.slots else _stack(instance, stays):
        model = stay.residency.model
        low, high = floor / memory, (floor + instance.held_bytes(model, stay.residency.gpu)) / memory
        ready_us = min(max(stay.residency.ready_us, start_us), end_us)
        if start_us < ready_us:
            bars.append(Bar(start_us, ready_us, model, "", low, high, _LOADING))
        if ready_us < end_us:
            bars.append(Bar(ready_us, end_us, model, instance.models[model].name, low, high, _HELD))
    tops = np.cumsum(device.slots or [memory]) / memory
    return BarLane(f"memory {say_size(memory)}", 0.4, tuple(bars), levels=tuple(tops.tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class _ShownResidency:
    residency: Residency
    start_us: int
    end_us: int


_Piece = tuple[_ShownResidency, int, int, int]
"""A stay, from when to when, and the bytes below it."""


def _in_slots(device: GPU, stays: Sequence[_ShownResidency]) -> list[_Piece]:
    floors = [0, *np.cumsum(device.slots).tolist()]
    return [(stay, stay.start_us, stay.end_us, floors[stay.residency.slot or 0]) for stay in stays]


def _stack(instance: Instance, stays: Sequence[_ShownResidency]) -> list[_Piece]:
    """Return pieces of stays between which what lies below them changes."""
    pieces: list[_Piece] = []
    waiting = sorted(stays, key=lambda stay: stay.start_us, reverse=True)
    held: list[_ShownResidency] = []
    latest: dict[_ShownResidency, int] = {}
    times = sorted({time for stay in stays for time in (stay.start_us, stay.end_us)})
    for start_us, end_us in pairwise(times):
        while waiting and waiting[-1].start_us <= start_us:
            held.append(waiting.pop())
        held = sorted((stay for stay in held if stay.end_us > start_us), key=lambda stay: stay.residency.model)
        floor = 0
        for stay in held:
            last = latest.get(stay)
            if last is not None and pieces[last][2:] == (start_us, floor):
                pieces[last] = (stay, pieces[last][1], end_us, floor)
            else:
                latest[stay] = len(pieces)
                pieces.append((stay, start_us, end_us, floor))
            floor += instance.held_bytes(stay.residency.model, stay.residency.gpu)
    return pieces


_ROW_INCHES, _LANE_INCHES, _AROUND_INCHES = 1.15, 0.4, 1.9
"""Height of a row of lanes, of a row of one lane, and of all around them."""
_GAP, _WIDE = 1.5, 5.0
"""A bar that is wider than the second of these leaves the first free at its right; in pixels."""
_CHARACTER, _LETTERS = 7.0, 13.0
"""Pixels per character of a text on a bar, and its height."""
_MOST_TEXTS = 600
"""Texts on bars, the widest first: each takes milliseconds to draw, and more are no help to read a crowded chart."""
_MOST_NAMES, _LINE = 24, 190
"""Models named in a legend, and characters in one of its lines."""


def gantt(instance: Instance, timeline: Timeline, title: str) -> Figure:
    """Return a Gantt chart: per GPU, runs on the compute engine, loads on the copy engine, and the models in memory."""
    memory = "Memory: models held, up to the line that is the GPU's memory." if instance.models else ""
    return draw(rows_of(instance, timeline), title, memory)


def predicted_over_measured(instance: Instance, predicted: Timeline, measured: Timeline, title: str) -> Figure:
    """Return a chart with four lanes per GPU: runs and loads, predicted and measured, on one axis of time."""
    return draw(rows_of_both(instance, predicted, measured), title, "")


@AS_DATA
def draw(chart: BarRows, title: str, note: str) -> Figure:
    """Return the picture of a chart."""
    row_inches = _ROW_INCHES if chart.models or len(chart.rows[0].lanes) > 1 else _LANE_INCHES
    figure, axes = blank(16, _AROUND_INCHES + row_inches * len(chart.rows))
    axes.set_ylim(0, len(chart.rows))
    axes.set_xlim(0, chart.until_us / MICROSECONDS_PER_SECOND)
    axes.set_xlabel("time in seconds")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(title, x=0.005, ha="left", fontsize=13)
    remark = f"{chart.left_out} Numbers are jobs in release order. {note}".strip()
    axes.set_title(remark, loc="left", fontsize=9, color="#555555")
    _name_models(figure, chart)
    lanes = _place_lanes(axes, chart)
    # How wide a bar must be to be seen depends on the room that names and legend leave.
    lay_out(figure)
    extent, pixels = axes.get_window_extent(), PNG_DPI / figure.dpi
    pixel_us, pixel_row = chart.until_us / (extent.width * pixels), len(chart.rows) / (extent.height * pixels)
    texts = _written(lanes, pixel_us, pixel_row)
    for lane, floor, height in lanes:
        _draw_lane(axes, lane, (floor, height), pixel_us, texts)
    return figure


def _written(lanes: Sequence[tuple[BarLane, float, float]], pixel_us: float, pixel_row: float) -> set[int]:
    """Return the identities of the bars whose text is written: those with room for it, the widest of them.

    Parameters
    ----------
    pixel_us, pixel_row
        What a pixel is worth.
    """
    room = [
        bar
        for lane, _, height in lanes
        for bar in lane.bars
        if bar.text
        and bar.end_us - bar.start_us > _CHARACTER * (len(bar.text) + 1) * pixel_us
        and (bar.high - bar.low) * height >= _LETTERS * pixel_row
    ]
    return {id(bar) for bar in sorted(room, key=lambda bar: bar.start_us - bar.end_us)[:_MOST_TEXTS]}


def _place_lanes(axes: Axes, chart: BarRows) -> list[tuple[BarLane, float, float]]:
    """Name the lanes on the vertical axis, shade every other row, and return every lane's floor and height."""
    placed, names = [], []
    for index, row in enumerate(chart.rows):
        below = len(chart.rows) - 1 - index
        axes.axhspan(below, below + 1, color="#F4F4F4" if index % 2 else "white", zorder=0)
        spans = [(gone / MICROSECONDS_PER_SECOND, (back - gone) / MICROSECONDS_PER_SECOND) for gone, back in row.away]
        axes.broken_barh(spans, (below, 1), facecolor="none", edgecolor="#BBBBBB", hatch="///", linewidth=0, zorder=0.5)
        # A tenth of a row's height is for what stands between its lanes.
        unit, top = _FILLED / sum(lane.height for lane in row.lanes), below + _TOP
        for lane in row.lanes:
            height = lane.height * unit
            top -= height
            placed.append((lane, top, height))
            names.append(f"{row.name}  {lane.name}".rstrip() if lane is row.lanes[0] else lane.name)
            top -= 0.07 / len(row.lanes)
    axes.set_yticks([floor + height / 2 for _, floor, height in placed], names, fontsize=8)
    return placed


def _draw_lane(axes: Axes, lane: BarLane, span: tuple[float, float], pixel_us: float, texts: set[int]) -> None:
    """Draw the bars of a lane, each at least a pixel wide, with their texts and lines at the lane's levels.

    Parameters
    ----------
    span
        Floor and height, in rows.
    pixel_us
        What a pixel is worth.
    texts
        Identities of the bars whose text is written.
    """
    (floor, height), second = span, MICROSECONDS_PER_SECOND
    boxes, colours = [], []
    for bar in lane.bars:
        colour = fade(colour_of(bar.model), bar.strength)
        low, high = floor + bar.low * height, floor + bar.high * height
        left, right = bar.start_us / second, _right_us(bar, pixel_us) / second
        boxes.append([(left, low), (right, low), (right, high), (left, high)])
        colours.append(colour)
        if id(bar) in texts:
            middle = (left + right) / 2, (low + high) / 2
            axes.text(*middle, bar.text, ha="center", va="center", fontsize=7, color=ink_on(colour), clip_on=True)
    drawn = PolyCollection(boxes, facecolors=colours, linewidths=0)
    if lane.hatched:
        drawn.set(hatch="/////", edgecolor="#00000099")
    axes.add_collection(drawn, autolim=False)
    if lane.levels:
        heights = [floor + level * height for level in lane.levels]
        axes.hlines(heights, 0, axes.get_xlim()[1], color="black", linewidth=0.6)


def _right_us(bar: Bar, pixel_us: float) -> float:
    """Return where the drawing of a bar ends: a little earlier where it is wide, later where it could not be seen."""
    width = (bar.end_us - bar.start_us) / pixel_us
    return bar.start_us + pixel_us * (width - _GAP if width > _WIDE else max(width, 1.0))


def _name_models(figure: Figure, chart: BarRows) -> None:
    """Say below the chart which colour is which model."""
    named: Sequence[tuple[int, str]] = list(chart.models.items())
    patches = [Patch(color=colour_of(model), label=name) for model, name in named[:_MOST_NAMES]]
    if len(named) > len(patches):
        patches.append(Patch(color="none", label=f"and {len(named) - len(patches)} models more, colours in turn"))
    if named:
        patches.append(Patch(color=PLAIN, label="no model"))
    if any(row.away for row in chart.rows):
        patches.append(Patch(facecolor="white", edgecolor="#BBBBBB", hatch="///", linewidth=0, label="away"))
    if named:
        patches.append(Patch(facecolor="white", edgecolor="black", hatch="/////", label="load"))
    if not patches:
        return
    columns = max(1, _LINE // (6 + max(len(str(patch.get_label())) for patch in patches)))
    figure.legend(
        handles=patches, loc="outside lower left", ncols=min(len(patches), columns), frameon=False, fontsize=9
    )
