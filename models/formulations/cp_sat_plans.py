"""Plans in and out of the CP-SAT model: a complete hint from a timeline, a timeline from a solution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from ortools.sat.python import cp_model

from truenorth.models.formulations.choices import renumber
from truenorth.models.formulations.cp_sat import CpSatFormulation
from truenorth.models.formulations.equal_jobs import sort_equal_jobs
from truenorth.models.formulations.normal_form import Chain, normal_form, serving_chains
from truenorth.models.formulations.orders import overlapping
from truenorth.models.objective import completion_us
from truenorth.models.timeline import Placement, Timeline, batch_leaders

Assignment = Iterator[tuple[cp_model.IntVar, int]]


def add_hint(formulation: CpSatFormulation, timeline: Timeline) -> None:
    """Hint every variable with a feasible timeline that is no worse than the one the model was built with.

    Notes
    -----
    Every variable has a value, or CP-SAT looks for the rest and may drop the plan: half a hint is worth nothing.
    If wrong: slower; the log says that a hint is no solution, and a test reads it.
    """
    instance, objective = formulation.choices.instance, formulation.objective.objective
    timeline = renumber(sort_equal_jobs(instance, objective, timeline), formulation.choices.equal_gpus)
    values = (_hint_tasks, _hint_batches, _hint_residencies, _hint_costs, _hint_surcharges)
    # A start can also be a job's term; CP-SAT wants every variable hinted once.
    hint = {variable.index: (variable, value) for part in values for variable, value in part(formulation, timeline)}
    for variable, value in hint.values():
        formulation.model.add_hint(variable, value)


def _hint_tasks(formulation: CpSatFormulation, timeline: Timeline) -> Assignment:
    """Yield the values of assignment, start, end and GPU use."""
    v = formulation.variables
    for (task, gpu), literal in v.assign.items():
        yield literal, int(timeline.place[task] == gpu)
    for task, (start, end) in enumerate(zip(v.start, v.end, strict=True)):
        yield start, int(timeline.start_us[task])
        if isinstance(end, cp_model.IntVar):
            yield end, int(timeline.end_us[task])
    # In the order of tasks, as `used` counts them.
    first = {gpu: task for task, gpu in reversed([*enumerate(timeline.place.tolist())])}
    for (task, gpu), literal in v.used.items():
        yield literal, int(first.get(gpu, len(v.start)) <= task)


def _hint_batches(formulation: CpSatFormulation, timeline: Timeline) -> Assignment:
    """Yield who leads and joins, how large and long batches are, and how long tasks hold memory of their own."""
    v, instance = formulation.variables, formulation.choices.instance
    leader = batch_leaders(instance, timeline).tolist()
    members = Counter(leader)
    lasts = (timeline.end_us - timeline.start_us).tolist()
    for (task, gpu), literal in v.carry.items():
        if literal is not v.assign[task, gpu]:
            yield literal, int(leader[task] == task and timeline.place[task] == gpu)
    for (a, b), literal in v.join.items():
        yield literal, int(leader[b] == a)
    for (task, count), literal in v.size.items():
        yield literal, int(members[task] == count)
    for task, length in v.length.items():
        yield length, lasts[task]
    for task, working in v.working.items():
        yield working, lasts[task]


def _hint_residencies(formulation: CpSatFormulation, timeline: Timeline) -> Assignment:
    """Yield the values of everything about needs, from the chains that the timeline's residencies form."""
    v, choices = formulation.variables, formulation.choices
    beside = overlapping(choices.instance)
    leaders = set(batch_leaders(choices.instance, timeline).tolist())
    opened: set[tuple[int, bool]] = set()
    hits: set[tuple[int, int]] = set()
    there: set[tuple[int, int, int]] = set()
    since = dict.fromkeys(range(len(choices.needs)), 0)
    until = {need: int(timeline.end_us[task]) for need, (task, _) in enumerate(choices.needs)}
    rooms = dict.fromkeys(since, -1)
    first: dict[tuple[int, int, int], int] = {}
    for residency, served in serving_chains(choices.instance, timeline):
        needs = [need for need in served if choices.needs[need][0] in leaders]
        opened.add((needs[0], residency.initial))
        hits.update(pairwise(needs))
        # Of tasks that overlap the longest so far holds the piece, not the last.
        if beside:
            until.update(zip(needs, accumulate((until[need] for need in needs), max), strict=True))
        held = [residency.load_start_us] + [until[need] for need in needs[:-1]]
        since.update(zip(needs, held, strict=True))
        room = choices.room_of_slot(residency.gpu, residency.slot)
        rooms.update(dict.fromkeys(needs, room))
        there.add((residency.model, residency.gpu, room))
        first[residency.model, residency.gpu, room] = residency.load_start_us
    where = [int(timeline.place[task]) for task, _ in choices.needs]
    for pair, literal in v.hit.items():
        yield literal, int(pair in hits)
    for literals, initial in ((v.miss, False), (v.initial, True)):
        for (need, gpu), literal in literals.items():
            yield literal, int((need, initial) in opened and where[need] == gpu)
    for need in since:
        yield v.hold[need], since[need]
        yield v.span[need], until[need] - since[need]
        if isinstance(held_until := v.until[need], cp_model.IntVar):
            yield held_until, until[need]
    for (need, gpu, room), literal in v.place.items():
        if len(choices.rooms_of(choices.needs[need][1], gpu)) > 1:
            yield literal, int(where[need] == gpu and rooms[need] == room)
    for place, literal in v.resident.items():
        yield literal, int(place in there)
    for place, (begins, lasts, _) in v.stay.items():
        yield begins, first.get(place, 0)
        yield lasts, choices.last_us(place[1]) - first.get(place, 0)


def _hint_costs(formulation: CpSatFormulation, timeline: Timeline) -> Assignment:
    """Yield the values of completions, terms and the worst term, where they are variables."""
    v, scaled, instance = formulation.variables, formulation.objective, formulation.choices.instance
    completion = completion_us(instance, timeline)
    terms = scaled.terms(instance, completion)
    for variable, value in zip([*v.completion, *v.term], [*completion.tolist(), *terms], strict=True):
        if isinstance(variable, cp_model.IntVar):
            yield variable, value
    if v.worst is not None:
        yield v.worst, scaled.combine(terms)


def _hint_surcharges(formulation: CpSatFormulation, timeline: Timeline) -> Assignment:
    """Yield what the jobs pay above the bound that the model was given, and the steps that their tasks are on."""
    v, surcharges, starts = formulation.variables, formulation.surcharges, timeline.start_us.tolist()
    if surcharges is not None:
        for job, surcharge in v.surcharge.items():
            yield surcharge, surcharges.of_job(job, starts)
        for step, literal in v.step.items():
            yield literal, int(step.taken(starts[step.task]))


def read_timeline(formulation: CpSatFormulation, values: Sequence[int]) -> Timeline:
    """Return the timeline of a solution, the values of all variables, in normal form."""
    v, choices = formulation.variables, formulation.choices
    gpu = {task: g for (task, g), literal in v.assign.items() if values[literal.index]}
    start = [values[variable.index] for variable in v.start]
    ends = [variable if isinstance(variable, cp_model.IntVar) else None for variable in v.end]
    end = [
        start[task] + choices.instance.run_time(task, gpu[task]) if variable is None else values[variable.index]
        for task, variable in enumerate(ends)
    ]
    placements = [Placement(task, gpu[task], start[task], end[task]) for task in range(len(start))]
    follower = {before: after for (before, after), hit in v.hit.items() if values[hit.index]}
    room = {need: k for (need, _, k), place in v.place.items() if values[place.index]}
    chains = []
    # Every chain begins with what opens it, and is followed by its hits.
    for literals, initial in ((v.miss, False), (v.initial, True)):
        for need, g in [key for key, literal in literals.items() if values[literal.index]]:
            last, until = need, end[choices.needs[need][0]]
            while last in follower:
                last = follower[last]
                until = max(until, end[choices.needs[last][0]])
            slots, model = choices.rooms[g][room[need]].slots, choices.needs[need][1]
            chains.append(Chain(model, g, values[v.hold[need].index], initial, until, slots))
    return normal_form(choices.instance, placements, chains)
