"""Plans in and out of the CP-SAT model: a complete hint from a timeline, a timeline from a solution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from models.formulations.cp_sat import Formulation
from models.formulations.normal_form import Chain, normal_form, serving_chains
from models.formulations.symmetry import renumber
from models.objective import completion_us
from models.timeline import Placement, Timeline

Assignment = Iterator[tuple[cp_model.IntVar, int]]


def add_hint(formulation: Formulation, timeline: Timeline) -> None:
    """Hint every variable with a feasible timeline that is no worse than the one the model was built with."""
    timeline = renumber(timeline, formulation.choices.equal_gpus)
    values = (_hint_tasks, _hint_residencies, _hint_costs, _hint_surcharges)
    # A start can also be a job's term; CP-SAT wants every variable hinted once.
    hint = {variable.index: (variable, value) for part in values for variable, value in part(formulation, timeline)}
    for variable, value in hint.values():
        formulation.model.add_hint(variable, value)


def _hint_tasks(formulation: Formulation, timeline: Timeline) -> Assignment:
    """Yield the values of assignment, start, end and GPU use."""
    v = formulation.variables
    for (task, gpu), literal in v.assign.items():
        yield literal, int(timeline.gpu[task] == gpu)
    for task, (start, end) in enumerate(zip(v.start, v.end, strict=True)):
        yield start, int(timeline.start_us[task])
        if isinstance(end, cp_model.IntVar):
            yield end, int(timeline.end_us[task])
    first = {gpu: task for task, gpu in reversed([*enumerate(timeline.gpu.tolist())])}
    for (task, gpu), literal in v.used.items():
        yield literal, int(first.get(gpu, len(v.start)) <= task)


def _hint_residencies(formulation: Formulation, timeline: Timeline) -> Assignment:
    """Yield the values of everything about needs, from the chains that the timeline's residencies form."""
    v, choices = formulation.variables, formulation.choices
    opened: set[tuple[int, bool]] = set()
    hits: set[tuple[int, int]] = set()
    there: set[tuple[int, int, int]] = set()
    since: dict[int, int] = {}
    rooms: dict[int, int] = {}
    for residency, needs in serving_chains(choices.instance, timeline):
        opened.add((needs[0], residency.initial))
        hits.update(pairwise(needs))
        held = [residency.load_start_us] + [int(timeline.end_us[choices.needs[need][0]]) for need in needs[:-1]]
        since.update(zip(needs, held, strict=True))
        room = choices.room_of_slot(residency.gpu, residency.slot)
        rooms.update(dict.fromkeys(needs, room))
        there.add((residency.model, residency.gpu, room))
    where = [int(timeline.gpu[task]) for task, _ in choices.needs]
    for pair, literal in v.hit.items():
        yield literal, int(pair in hits)
    for literals, initial in ((v.miss, False), (v.initial, True)):
        for (need, gpu), literal in literals.items():
            yield literal, int((need, initial) in opened and where[need] == gpu)
    for need, (task, _) in enumerate(choices.needs):
        yield v.hold[need], since[need]
        yield v.span[need], int(timeline.end_us[task]) - since[need]
    for (need, gpu, room), literal in v.place.items():
        if len(choices.rooms_of(choices.needs[need][1], gpu)) > 1:
            yield literal, int(where[need] == gpu and rooms[need] == room)
    for place, literal in v.resident.items():
        yield literal, int(place in there)


def _hint_costs(formulation: Formulation, timeline: Timeline) -> Assignment:
    """Yield the values of completions, terms and the worst term, where they are variables."""
    v, scaled, instance = formulation.variables, formulation.objective, formulation.choices.instance
    completion = completion_us(instance, timeline)
    terms = scaled.terms(instance, completion)
    for variable, value in zip([*v.completion, *v.term], [*completion.tolist(), *terms], strict=True):
        if isinstance(variable, cp_model.IntVar):
            yield variable, value
    if v.worst is not None:
        yield v.worst, scaled.combine(terms)


def _hint_surcharges(formulation: Formulation, timeline: Timeline) -> Assignment:
    """Yield what the jobs pay above the bound that the model was given, and the steps that their tasks are on."""
    v, surcharges, starts = formulation.variables, formulation.surcharges, timeline.start_us.tolist()
    if surcharges is not None:
        for job, surcharge in v.surcharge.items():
            yield surcharge, surcharges.of_job(job, starts)
        for step, literal in v.step.items():
            yield literal, int(step.taken(starts[step.task]))


def read_timeline(formulation: Formulation, values: Sequence[int]) -> Timeline:
    """Return the timeline of a solution, the values of all variables, in normal form."""
    v, choices = formulation.variables, formulation.choices
    gpu = {task: g for (task, g), literal in v.assign.items() if values[literal.index]}
    start = [values[variable.index] for variable in v.start]
    end = [start[task] + choices.instance.run_time(task, gpu[task]) for task in range(len(start))]
    placements = [Placement(task, gpu[task], start[task], end[task]) for task in range(len(start))]
    follower = {before: after for (before, after), hit in v.hit.items() if values[hit.index]}
    room = {need: k for (need, _, k), place in v.place.items() if values[place.index]}
    chains = []
    for literals, initial in ((v.miss, False), (v.initial, True)):
        for need, g in [key for key, literal in literals.items() if values[literal.index]]:
            last = need
            while last in follower:
                last = follower[last]
            slots = choices.rooms[g][room[need]].slots
            model, last_task = choices.needs[need][1], choices.needs[last][0]
            chains.append(Chain(model, g, values[v.hold[need].index], initial, end[last_task], slots))
    return normal_form(choices.instance, placements, chains)
