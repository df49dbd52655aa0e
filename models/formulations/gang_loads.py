"""Models of runs on several GPUs in CP-SAT: chains of uses at places, their loads, and the memory that they fill.

A *use* is a task, a model that it needs, and where it then is: a place over which the model is split, or one GPU (rule
G2). As in `cp_sat_residency` a use opens a residency, by a load or since the model was there at time 0, or follows
another use of the same residency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ortools.sat.python import cp_model

from truenorth.models.formulations.normal_form import Chain, normal_form
from truenorth.models.instance import Instance
from truenorth.models.metrics import model_uses, serving_residency
from truenorth.models.timeline import Placement, Timeline


@dataclass(frozen=True, slots=True)
class Use:
    """A task that needs a model at a place.

    Parameters
    ----------
    present
        Whether the task runs where it needs the model right there.
    hold
        Since when its residency, or its part of one, holds memory: from the end of the use before it, or a load.
    load, initial
        Whether it opens a residency, by a load or one that was there at time 0; None: none was.
    """

    task: int
    model: int
    place: int
    present: cp_model.IntVar
    hold: cp_model.IntVar
    load: cp_model.IntVar
    initial: cp_model.IntVar | None


@dataclass(frozen=True, slots=True)
class Loads:
    """The uses of a formulation, and by pairs of them whether the second follows the first in one residency.

    `last` says of each use whether nothing follows it, where models are never swapped.
    """

    uses: Sequence[Use]
    follows: dict[tuple[int, int], cp_model.IntVar]
    last: Sequence[cp_model.IntVar]


class _Pieces:
    """Intervals by GPU, by GPU and model, and by model: what loads, and what holds memory, each with its bytes."""

    def __init__(self) -> None:
        self.replicas: dict[int, list[cp_model.IntervalVar]] = {}
        self.loads: dict[int, list[cp_model.IntervalVar]] = {}
        self.held: dict[int, list[tuple[cp_model.IntervalVar, int]]] = {}
        self.of_model: dict[tuple[int, int], list[cp_model.IntervalVar]] = {}


def add_loads(
    model: cp_model.CpModel,
    instance: Instance,
    start: Sequence[cp_model.IntVar],
    end: Sequence[cp_model.IntVar],
    ways: Sequence[Sequence[tuple[int, cp_model.IntVar]]],
    horizon_us: int,
) -> Loads:
    """Add what models ask for to a model of runs; return its variables.

    Parameters
    ----------
    ways
        Per task: the places where it can run, each with whether it does.

    Notes
    -----
    Invariant: every plan, without the residencies that serve nothing, is a solution, and every solution a plan.
    Because: uses at one place are one after the other, since runs there are; so a residency is a chain of them, whose
        pieces join without a gap, and memory, copy engines and R4 need nothing but intervals on every GPU of a place.
        Limits on replicas count each chain once; where nothing is swapped its last piece goes on to the horizon.
    If wrong: unsound.
    """
    uses = [*_uses(model, instance, ways, horizon_us)]
    pieces, follows = _Pieces(), _follow(model, uses, end)
    last: list[cp_model.IntVar] = []
    for number, use in enumerate(uses):
        incoming = [hit for (_, after), hit in follows.items() if after == number]
        outgoing = [hit for (before, _), hit in follows.items() if before == number]
        opening = [use.load] if use.initial is None else [use.load, use.initial]
        model.add(sum(incoming + opening) == use.present).with_name(f"served[{number}]")
        model.add(sum(outgoing) <= use.present).with_name(f"one_follower[{number}]")
        _hold(model, instance, use, number, start[use.task], end[use.task], horizon_us, pieces)
        if instance.restrictions.no_swaps:
            last.append(model.new_bool_var(f"last[{number}]"))
            model.add(sum(outgoing) + last[number] == use.present).with_name(f"last[{number}]")
            _stay(model, instance, use, number, end[use.task], last[number], horizon_us, pieces)
    _work(model, instance, start, ways, pieces)
    for gpu, loads in pieces.loads.items():
        model.add_no_overlap(loads).with_name(f"copy_engine[{gpu}]")
    for (wanted, gpu), held in pieces.of_model.items():
        model.add_no_overlap(held).with_name(f"one_copy[{wanted},{gpu}]")
    for gpu, here in pieces.held.items():
        capacity = instance.cluster.gpus[gpu].memory_bytes
        intervals, demands = [piece for piece, _ in here], [size for _, size in here]
        model.add_cumulative(intervals, demands, capacity).with_name(f"memory[{gpu}]")
    for wanted, held_by in pieces.replicas.items():
        most = instance.restrictions.max_replicas.get(instance.models[wanted].name)
        if most is not None:
            model.add_cumulative(held_by, [1] * len(held_by), most).with_name(f"replicas[{wanted}]")
    for first in {(use.model, use.place) for use in uses if use.initial is not None}:
        opened = [use.initial for use in uses if (use.model, use.place) == first and use.initial is not None]
        model.add_at_most_one(opened).with_name(f"initial_once[{first}]")
    return Loads(uses, follows, last)


def pairs_of(instance: Instance) -> int:
    """Return how many pairs of uses could follow each other: what the size of a formulation grows with."""
    count: dict[tuple[int, int], int] = {}
    for task in range(instance.n_tasks):
        where = {each for place in instance.eligible_places(task) for each in instance.model_places(task, place)}
        for pair in product(instance.task_needs(task), where):
            count[pair] = count.get(pair, 0) + 1
    return sum(uses * (uses - 1) for uses in count.values())


def _uses(
    model: cp_model.CpModel,
    instance: Instance,
    ways: Sequence[Sequence[tuple[int, cp_model.IntVar]]],
    horizon_us: int,
) -> Iterator[Use]:
    """Declare the uses; one that several places bring about is present if the task runs at one of them."""
    there = {(resident.model, resident.gpu) for resident in instance.initial}
    for task, options in enumerate(ways):
        by_place: dict[int, list[cp_model.IntVar]] = {}
        for place, taken in options:
            for where in instance.model_places(task, place):
                by_place.setdefault(where, []).append(taken)
        for wanted in instance.task_needs(task):
            for where, taken_by in by_place.items():
                name = f"[{task},{wanted},{where}]"
                present = model.new_bool_var(f"uses{name}")
                model.add(sum(taken_by) == present).with_name(f"uses{name}")
                hold = model.new_int_var(0, horizon_us, f"hold{name}")
                initial = model.new_bool_var(f"initial{name}") if (wanted, where) in there else None
                yield Use(task, wanted, where, present, hold, model.new_bool_var(f"load{name}"), initial)


def _follow(
    model: cp_model.CpModel, uses: Sequence[Use], end: Sequence[cp_model.IntVar]
) -> dict[tuple[int, int], cp_model.IntVar]:
    """Declare which use follows which: a piece begins where that before it ends."""
    follows = {}
    for before, one in enumerate(uses):
        for after, other in enumerate(uses):
            if one.task != other.task and (one.model, one.place) == (other.model, other.place):
                hit = model.new_bool_var(f"hit[{before},{after}]")
                model.add(other.hold == end[one.task]).with_name(f"held_since[{before},{after}]").only_enforce_if(hit)
                follows[before, after] = hit
    return follows


def _hold(
    model: cp_model.CpModel,
    instance: Instance,
    use: Use,
    number: int,
    start: cp_model.IntVar,
    end: cp_model.IntVar,
    horizon_us: int,
    pieces: _Pieces,
) -> None:
    """Have a use hold memory from its load, or the use before it, to the end of its task; which waits for the load."""
    load_us = instance.load_time(use.model, use.place)
    # Both hold whether the task runs there or not: an interval has to end at its start plus its length in any case.
    span = model.new_int_var(0, horizon_us, f"span[{number}]")
    model.add(use.hold + span == end).with_name(f"span[{number}]")
    model.add(start >= use.hold).with_name(f"held_at_start[{number}]")
    model.add(start >= use.hold + load_us).with_name(f"ready[{number}]").only_enforce_if(use.load)
    if use.initial is not None:
        model.add(use.hold == 0).with_name(f"held_from_0[{number}]").only_enforce_if(use.initial)
    piece = model.new_optional_interval_var(use.hold, span, end, use.present, f"piece[{number}]")
    load = model.new_optional_fixed_size_interval_var(use.hold, load_us, use.load, f"loads[{number}]")
    for gpu in instance.places.gpus[use.place]:
        pieces.loads.setdefault(gpu, []).append(load)
    _take(instance, use, piece, pieces)


def _stay(
    model: cp_model.CpModel,
    instance: Instance,
    use: Use,
    number: int,
    end: cp_model.IntVar,
    last: cp_model.IntVar,
    horizon_us: int,
    pieces: _Pieces,
) -> None:
    """Have a model stay for ever behind its last use."""
    stay = model.new_optional_interval_var(end, horizon_us - end, horizon_us, last, f"stays[{number}]")
    _take(instance, use, stay, pieces)


def _take(instance: Instance, use: Use, piece: cp_model.IntervalVar, pieces: _Pieces) -> None:
    """Have a piece of a residency hold its memory, as the one residency of its model on each GPU of its place."""
    pieces.replicas.setdefault(use.model, []).append(piece)
    for gpu in instance.places.gpus[use.place]:
        pieces.held.setdefault(gpu, []).append((piece, instance.held_bytes(use.model, use.place)))
        pieces.of_model.setdefault((use.model, gpu), []).append(piece)


def _work(
    model: cp_model.CpModel,
    instance: Instance,
    start: Sequence[cp_model.IntVar],
    ways: Sequence[Sequence[tuple[int, cp_model.IntVar]]],
    pieces: _Pieces,
) -> None:
    """Have runs hold their own memory on every GPU of their place."""
    for task, options in enumerate(ways):
        held = int(instance.template_memory[instance.task_template[task]])
        for place, taken in options if held else ():
            run_us = instance.run_time(task, place)
            work = model.new_optional_fixed_size_interval_var(start[task], run_us, taken, f"work[{task},{place}]")
            for gpu in instance.places.gpus[place]:
                pieces.held.setdefault(gpu, []).append((work, held))


def add_load_hints(model: cp_model.CpModel, loads: Loads, instance: Instance, known: Timeline) -> None:
    """Hint the residencies of a known plan."""
    task, wanted, where = model_uses(instance, known)
    serving = serving_residency(instance, known, task, wanted, where).tolist()
    rows = zip(task.tolist(), wanted.tolist(), where.tolist(), serving, strict=True)
    served = {row[:3]: row[3] for row in rows}
    by_key = {(use.task, use.model, use.place): number for number, use in enumerate(loads.uses)}
    before: dict[int, int] = {}
    hits = set[tuple[int, int]]()
    for key in sorted(served, key=lambda key: int(known.start_us[key[0]])):
        number, stay = by_key[key], served[key]
        if stay in before:
            hits.add((before[stay], number))
        before[stay] = number
    opened = {by_key[key] for key in served} - {after for _, after in hits}
    for pair, hit in loads.follows.items():
        model.add_hint(hit, int(pair in hits))
    followed = {before for before, _ in hits}
    for number, var in enumerate(loads.last):
        use = loads.uses[number]
        model.add_hint(var, int((use.task, use.model, use.place) in served and number not in followed))
    since = {after: int(known.end_us[loads.uses[one].task]) for one, after in hits}
    for number, use in enumerate(loads.uses):
        stay = served.get((use.task, use.model, use.place))
        residency = None if stay is None else known.residencies[stay]
        initial = residency is not None and residency.initial
        model.add_hint(use.present, int(stay is not None))
        model.add_hint(use.load, int(number in opened and not initial))
        if use.initial is not None:
            model.add_hint(use.initial, int(number in opened and initial))
        load_start_us = 0 if residency is None else residency.load_start_us
        model.add_hint(use.hold, since.get(number, load_start_us))


def read_loads(
    loads: Loads, instance: Instance, placements: Sequence[Placement], value: Callable[[cp_model.IntVar], int]
) -> Timeline:
    """Return the timeline of runs with the residencies of a solution, in normal form."""
    follower = {before: after for (before, after), hit in loads.follows.items() if value(hit)}
    chains = []
    for number, use in enumerate(loads.uses):
        initial = use.initial is not None and bool(value(use.initial))
        if not (value(use.load) or initial):
            continue
        last = number
        while last in follower:
            last = follower[last]
        end_us = placements[loads.uses[last].task].end_us
        chains.append(Chain(use.model, use.place, value(use.hold), initial, end_us))
    return normal_form(instance, placements, chains)
