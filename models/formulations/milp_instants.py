"""The MILP where GPUs serve several tasks at a time: batches, shares and memory of tasks, instant by instant.

Orders of pairs, as in `milp`, say little about what runs beside what; here time is a grid instead, as fine as every
time that the instance knows is a multiple of, so that the earliest starts of any decisions lie on it. That is for
small windows: the number of variables grows with the number of instants.

Letters: z_tgun, task t starts on GPU g at instant u in a batch of n; b_kgun, so does a batch of class k; l_mgsu, a
load of model m into slot s starts; r_mgsu, m holds memory there in [u, u + 1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from math import gcd

import numpy as np
import pulp

from truenorth.models.cluster import FOREVER
from truenorth.models.formulations.allowance import UNLIMITED, Allowance, GivenUpError
from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.equal_jobs import ordered_tasks, sort_equal_jobs
from truenorth.models.formulations.milp_problem import (
    TERM_BYTES,
    TERM_S,
    MilpCosts,
    complete_jobs,
    minimise,
    new_problem,
    start_costs,
)
from truenorth.models.formulations.normal_form import restrict
from truenorth.models.formulations.orders import batch_of, batch_times, memory_of, share_of
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import horizon_us, time_windows, transfer_matrix
from truenorth.models.instance import NEVER, NONE, Instance
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.timeline import Placement, Residency, Timeline, batch_leaders
from truenorth.models.workload import WHOLE

MOST_VARIABLES = 50_000
"""Of a window that is still small."""

Start = tuple[int, int, int, int]
"""Task (or batch class, or model), GPU, instant and size of the batch (or slot)."""


@dataclass(frozen=True, slots=True)
class InstantGrid:
    """The instants 0 to `count`, `step_us` apart."""

    step_us: int
    count: int

    @classmethod
    def of(cls, choices: Choices) -> InstantGrid:
        """Return the coarsest grid that holds every earliest start.

        Notes
        -----
        Invariant: the earliest starts that any decisions allow are multiples of the step.
        Because: each is a release, or the coming or going of a GPU, plus runs, loads and transfers, and the step
            divides them all; batches of a class that keep apart by a microsecond (T3b) need the microsecond itself.
        Cost: as many variables per task and GPU as there are instants, which is why there is a limit to them.
        If wrong: unsound, since plans off the grid are not in the model.
        """
        instance = choices.instance
        times = [table[table != NEVER] for table in (instance.run_us, instance.load_us, instance.batch_us)]
        travels = instance.transfer_us.ravel(), instance.input_us
        there = np.array([gpu.available.intervals for gpu in instance.cluster.gpus], np.int64)
        known = np.concatenate([instance.job_release_us, there[there < FOREVER], *travels, *(t.ravel() for t in times)])
        apart = any(2 * batch.share <= WHOLE for batch in instance.batches)  # T3b: by 1 us
        step = 1 if apart else gcd(*known.tolist()) or 1
        return cls(step, -(-int(choices.windows.latest_end_us.max()) // step))

    def span(self, time_us: int) -> int:
        """Return a duration in instants."""
        return time_us // self.step_us


class InstantVariables(MilpCosts):
    """The decisions: z, b, l and r of the module, and those about costs, as in the MILP of orders."""

    def __init__(
        self,
        problem: pulp.LpProblem,
        choices: Choices,
        scaled: ScaledObjective,
        grid: InstantGrid,
        starts: list[Starts],
        places: list[tuple[int, int, int]],
    ) -> None:
        super().__init__(problem, choices, scaled)
        keys = ((s.task, s.gpu, u, s.size) for s in starts for u in range(s.first, s.first + s.count))
        self.start = self._binaries("start", keys)
        members = dict.fromkeys((batch_of(choices.instance, t), g, u, n) for t, g, u, n in self.start)
        self.batch = self._binaries("batch", (key for key in members if key[0] != NONE))
        sitting = [(m, g, u, s) for m, g, s in places for u in range(grid.count)]
        self.load = self._binaries("load", sitting)
        self.resident = self._binaries("resident", sitting)
        ends: list[list[pulp.LpAffineExpression]] = [[] for _ in choices.gpus]
        for (t, g, u, n), literal in self.start.items():
            ends[t].append(self.units.time(u * grid.step_us + _lasts(choices, t, g, n)) * literal)
        self._declare_costs(choices, scaled)
        self.end = [pulp.lpSum(row) for row in ends]

    def _binaries(self, name: str, keys: Iterable[Start]) -> dict[Start, pulp.LpVariable]:
        return {key: self._binary(f"{name}[{','.join(map(str, key))}]") for key in keys}


@dataclass(frozen=True, slots=True)
class InstantFormulation:
    """A built problem with what is needed to start it and to read its solutions."""

    problem: pulp.LpProblem
    variables: InstantVariables
    choices: Choices
    objective: ScaledObjective
    grid: InstantGrid


def formulate(
    instance: Instance,
    objective: Objective,
    known: Timeline | None = None,
    allowance: Allowance = UNLIMITED,
    most: Fraction | None = None,
) -> InstantFormulation:
    """Return the problem of an instance.

    Parameters
    ----------
    known, most
        As in the MILP of orders.

    Raises
    ------
    GivenUpError
        If it has too many variables for a small window, or too many terms for the memory or the time.
    """
    horizon = max(horizon_us(instance), 0 if known is None else int(known.end_us.max()))
    scaled = ScaledObjective.of(objective, instance, horizon)
    within = None if most is None else scaled.floor(most)
    limit = within if known is None else scaled.floor(timeline_value(objective, instance, known))
    choices = Choices.of(instance, time_windows(instance, scaled, limit, horizon), allowance)
    grid = InstantGrid.of(choices)
    starts, places = starts_of(choices, grid), _places(instance)
    n_variables = 2 * sum(s.count for s in starts) + 2 * len(places) * grid.count
    # Counted before any of them is made: a window of hours in microseconds would take days to build.
    if n_variables > MOST_VARIABLES:
        raise GivenUpError(f"{n_variables:.1e} variables at {grid.count:.1e} instants; it is for {MOST_VARIABLES:,}")
    allowance.fit(count_terms(choices, grid, starts, places), TERM_BYTES, TERM_S)
    problem = new_problem(allowance)
    variables = InstantVariables(problem, choices, scaled, grid, starts, places)
    for constrain in CONSTRAINTS:
        constrain(problem, variables, choices, grid)
    complete_jobs(problem, variables, choices)
    order_equal_jobs(problem, variables, instance, objective)
    minimise(problem, variables, choices, scaled, within)
    return InstantFormulation(problem, variables, choices, scaled, grid)


def _lasts(choices: Choices, task: int, gpu: int, size: int) -> int:
    return batch_times(choices.instance, task, gpu, size)[size - 1]


def _places(instance: Instance) -> list[tuple[int, int, int]]:
    """Return the triples (model, GPU, slot) in which models may sit."""
    on = range(instance.n_gpus)
    return [(m, g, s) for m in range(len(instance.models)) for g in on for s in _slots(instance, m, g)]


def _slots(instance: Instance, model: int, gpu: int) -> range | list[int]:
    """Return the slots that a model may take on a GPU; 0 stands for memory shared by bytes."""
    if instance.load_time(model, gpu) == NEVER:
        return []
    weight, slots = int(instance.weight_bytes[model]), instance.cluster.gpus[gpu].slots
    return [s for s, size in enumerate(slots) if weight <= size] if slots else range(1)


def run_each_task_once(problem: pulp.LpProblem, v: InstantVariables, choices: Choices, grid: InstantGrid) -> None:
    """T1: sum_gun z_tgun = 1."""
    once: list[list[pulp.LpVariable]] = [[] for _ in choices.gpus]
    for (t, *_), literal in v.start.items():
        once[t].append(literal)
    for t, literals in enumerate(once):
        problem.addConstraint(pulp.lpSum(literals) == 1, f"one_start[{t}]")


def run_in_batches(problem: pulp.LpProblem, v: InstantVariables, choices: Choices, grid: InstantGrid) -> None:
    """T3b: sum_t z_tgun = n b_kgun;  sum_n b_kgun <= 1."""
    members: dict[Start, list[pulp.LpVariable]] = {}
    at: dict[tuple[int, int, int], list[pulp.LpVariable]] = {}
    for (t, g, u, n), literal in v.start.items():
        members.setdefault((batch_of(choices.instance, t), g, u, n), []).append(literal)
    for (k, g, u, n), batch in v.batch.items():
        problem.addConstraint(pulp.lpSum(members[k, g, u, n]) == n * batch, f"members[{k},{g},{u},{n}]")
        at.setdefault((k, g, u), []).append(batch)
    for (k, g, u), batches in at.items():
        problem.addConstraint(pulp.lpSum(batches) <= 1, f"one_batch[{k},{g},{u}]")


def wait_for_inputs(problem: pulp.LpProblem, v: InstantVariables, choices: Choices, grid: InstantGrid) -> None:
    """T2: s_t >= e_p + transfer_gh - M (2 - x_pg - x_th), x being sums of z."""
    instance = choices.instance
    where: dict[tuple[int, int], list[pulp.LpVariable]] = {}
    begins: dict[int, list[pulp.LpAffineExpression]] = {}
    for (t, g, u, _), literal in v.start.items():
        where.setdefault((t, g), []).append(literal)
        begins.setdefault(t, []).append(v.units.time(u * grid.step_us) * literal)
    # No input arrives later than the last instant and its own way.
    far = v.units.time(grid.count * grid.step_us)
    for t, targets in enumerate(choices.gpus):
        for before, edge in instance.task_inputs(t):
            transfer = transfer_matrix(instance, edge)
            for g in choices.gpus[before]:
                for h in targets:
                    moved = v.units.time(int(transfer[g, h]))
                    apart = 2 - pulp.lpSum(where.get((before, g), [])) - pulp.lpSum(where.get((t, h), []))
                    earliest = v.end[before] + moved - (far + moved) * apart
                    problem.addConstraint(pulp.lpSum(begins[t]) >= earliest, f"transfer[{before},{t},{g},{h}]")


def order_equal_jobs(problem: pulp.LpProblem, v: InstantVariables, instance: Instance, objective: Objective) -> None:
    """Symmetry: sum_gun u z_tgun <= sum_gun u z_vgun for the first tasks t, v of two equal jobs."""
    starts: dict[int, list[pulp.LpAffineExpression]] = {}
    for (task, _, u, _), literal in v.start.items():
        starts.setdefault(task, []).append(u * literal)
    for earlier, later in ordered_tasks(instance, objective):
        in_order = pulp.lpSum(starts[earlier]) <= pulp.lpSum(starts[later])
        problem.addConstraint(in_order, f"equal_jobs[{earlier},{later}]")


def share_compute(problem: pulp.LpProblem, v: InstantVariables, choices: Choices, grid: InstantGrid) -> None:
    """T3c, R5: shares of tasks without a class, of batches, and of loads that block compute, are at most 1 at u."""
    instance, taken = choices.instance, _Sums()
    for (t, g, u, n), literal in v.start.items():
        if batch_of(instance, t) == NONE:
            taken.add(g, u, grid.span(_lasts(choices, t, g, n)), share_of(instance, t) * literal)
    for (k, g, u, n), literal in v.batch.items():
        taken.add(g, u, grid.span(instance.batch_time(k, g, n)), instance.batches[k].share * literal)
    for (m, g, u, _), literal in v.load.items() if not instance.overlap_loads else ():
        taken.add(g, u, grid.span(instance.load_time(m, g)), WHOLE * literal)
    for (g, u), terms in taken.terms.items():
        problem.addConstraint(pulp.lpSum(terms) <= WHOLE, f"compute_engine[{g},{u}]")


def load_models(problem: pulp.LpProblem, v: InstantVariables, choices: Choices, grid: InstantGrid) -> None:
    """R1, R4, R6: loads of a GPU do not overlap; r_mgsu <= r_mgs(u-1) + l_mgsu <= 1, r >= loads under way; one copy.

    A1: r = 0 where g is away.
    """
    instance, engine, copies = choices.instance, _Sums(), _Sums()
    given = {(r.model, r.gpu, r.slot or 0) for r in instance.initial}
    for (m, g, u, s), literal in v.load.items():
        engine.add(g, u, grid.span(instance.load_time(m, g)), literal)
        before = v.resident[m, g, u - 1, s] if u else int((m, g, s) in given)
        problem.addConstraint(v.resident[m, g, u, s] <= before + literal, f"stays[{m},{g},{u},{s}]")
        problem.addConstraint(literal + before <= 1, f"loads_anew[{m},{g},{u},{s}]")
        # Memory is given up when a GPU goes, and not taken before it comes.
        there = instance.cluster.gpus[g].available.at(u * grid.step_us) is not None
        if not there:
            problem.addConstraint(v.resident[m, g, u, s] == 0, f"away[{m},{g},{u},{s}]")
        elif instance.restrictions.no_swaps and u:
            problem.addConstraint(v.resident[m, g, u, s] >= before, f"for_ever[{m},{g},{u},{s}]")
        under_way = pulp.lpSum(_under_way(v, instance, grid, m, g, u, s))
        problem.addConstraint(v.resident[m, g, u, s] >= under_way, f"held[{m},{g},{u},{s}]")
        copies.add(m * instance.n_gpus + g, u, 1, v.resident[m, g, u, s])
    for name, sums in (("copy_engine", engine), ("one_copy", copies)):
        for (index, u), terms in sums.terms.items():
            problem.addConstraint(pulp.lpSum(terms) <= 1, f"{name}[{index},{u}]")


def _under_way(
    v: InstantVariables, instance: Instance, grid: InstantGrid, model: int, gpu: int, u: int, slot: int
) -> list[pulp.LpVariable]:
    """Return the loads into a slot that have started by an instant and not ended."""
    first = max(0, u - grid.span(instance.load_time(model, gpu)) + 1)
    return [v.load[model, gpu, begun, slot] for begun in range(first, u + 1)]


def use_ready_models(problem: pulp.LpProblem, v: InstantVariables, choices: Choices, grid: InstantGrid) -> None:
    """R3: while task t runs on g, each of its models is resident there and not being loaded."""
    instance = choices.instance
    running: dict[int, _Sums] = {}
    for (t, g, u, n), literal in v.start.items():
        if instance.task_needs(t):
            running.setdefault(t, _Sums()).add(g, u, grid.span(_lasts(choices, t, g, n)), literal)
    for t, sums in running.items():
        for (g, u), terms in sums.terms.items():
            for m in instance.task_needs(t):
                slots = _slots(instance, m, g)
                loading = [load for s in slots for load in _under_way(v, instance, grid, m, g, u, s)]
                ready = pulp.lpSum(v.resident[m, g, u, s] for s in slots) - pulp.lpSum(loading)
                problem.addConstraint(pulp.lpSum(terms) <= ready, f"ready[{t},{m},{g},{u}]")


def fit_memory(problem: pulp.LpProblem, v: InstantVariables, choices: Choices, grid: InstantGrid) -> None:
    """R2, X: models and what running tasks hold fit by bytes, one model fits a slot; replicas are limited."""
    instance, held, replicas = choices.instance, _Sums(), _Sums()
    in_slot: dict[tuple[int, int, int], list[pulp.LpVariable]] = {}
    for (m, g, u, s), literal in v.resident.items():
        if instance.cluster.gpus[g].slots:
            in_slot.setdefault((g, s, u), []).append(literal)
        else:
            held.add(g, u, 1, choices.rooms[g][0].demand[m] * literal)
        replicas.add(m, u, 1, literal)
    for (t, g, u, n), literal in v.start.items():
        if memory_of(instance, t):
            part = memory_of(instance, t) // choices.rooms[g][0].unit
            held.add(g, u, grid.span(_lasts(choices, t, g, n)), part * literal)
    for (g, u), terms in held.terms.items():
        problem.addConstraint(pulp.lpSum(terms) <= choices.rooms[g][0].capacity, f"memory[{g},{u}]")
    for (g, s, u), sitting in in_slot.items():
        problem.addConstraint(pulp.lpSum(sitting) <= 1, f"slot[{g},{s},{u}]")
    for (m, u), terms in replicas.terms.items():
        most = instance.restrictions.max_replicas.get(instance.models[m].name)
        if most is not None:
            problem.addConstraint(pulp.lpSum(terms) <= most, f"replicas[{m},{u}]")


CONSTRAINTS: tuple[Callable[[pulp.LpProblem, InstantVariables, Choices, InstantGrid], None], ...] = (
    run_each_task_once,
    run_in_batches,
    wait_for_inputs,
    share_compute,
    load_models,
    use_ready_models,
    fit_memory,
)


class _Sums:
    """What is taken of something at every instant."""

    def __init__(self) -> None:
        self.terms: dict[tuple[int, int], list[pulp.LpAffineExpression]] = {}

    def add(self, index: int, begin: int, span: int, term: pulp.LpAffineExpression) -> None:
        """Add a term to the instants from `begin` on."""
        for u in range(begin, begin + span):
            self.terms.setdefault((index, u), []).append(term)


def start_values(formulation: InstantFormulation, timeline: Timeline) -> dict[str, float]:
    """Return a value for every variable, by name, from a feasible timeline; none for one off the grid."""
    v, instance, step = formulation.variables, formulation.choices.instance, formulation.grid.step_us
    # Values off the grid would be no solution, and half a start is worth nothing.
    times = [*timeline.start_us.tolist(), *(r.load_start_us for r in timeline.residencies)]
    times += [r.end_us for r in timeline.residencies if r.end_us is not None]
    if any(time % step for time in times):
        return {}
    timeline = sort_equal_jobs(instance, formulation.objective.objective, timeline)
    leader = batch_leaders(instance, timeline)
    size = np.bincount(leader, minlength=instance.n_tasks)[leader]
    runs = {(t, int(timeline.gpu[t]), int(timeline.start_us[t]) // step, int(size[t])) for t in range(instance.n_tasks)}
    batches = {(batch_of(instance, t), g, u, n) for t, g, u, n in runs}
    loads, stays = set[Start](), set[Start]()
    for r in timeline.residencies:
        begin, slot = r.load_start_us // step, r.slot or 0
        end = formulation.grid.count if r.end_us is None else r.end_us // step
        loads |= set() if r.initial else {(r.model, r.gpu, begin, slot)}
        stays |= {(r.model, r.gpu, u, slot) for u in range(begin, end)}
    chosen = ((v.start, runs), (v.batch, batches), (v.load, loads), (v.resident, stays))
    values = {literal.name: float(key in keys) for literals, keys in chosen for key, literal in literals.items()}
    costs = start_costs(v, formulation.objective, instance, timeline)
    return values | {variable.name: value for variable, value in costs}


def read_timeline(formulation: InstantFormulation, value: Callable[[pulp.LpVariable], float]) -> Timeline:
    """Return the timeline of a solution in normal form."""
    v, choices, step = formulation.variables, formulation.choices, formulation.grid.step_us
    instance = choices.instance
    placements = [
        Placement(t, g, u * step, u * step + _lasts(choices, t, g, n))
        for (t, g, u, n), literal in v.start.items()
        if value(literal) > 0.5
    ]
    residencies = []
    for m, g, s in dict.fromkeys((m, g, s) for m, g, _, s in v.resident):
        held = [value(v.resident[m, g, u, s]) > 0.5 for u in range(formulation.grid.count)] + [False]
        begins = [u for u, now in enumerate(held) if now and not (u and held[u - 1])]
        slot = s if instance.cluster.gpus[g].slots else None
        for begin in begins:
            # What lies there at 0 without a load was there before.
            end, initial = held.index(False, begin), not begin and value(v.load[m, g, 0, s]) <= 0.5
            ready = 0 if initial else begin * step + instance.load_time(m, g)
            until = None if end == formulation.grid.count else end * step
            residencies.append(Residency(m, g, begin * step, ready, until, slot, initial))
    return restrict(instance, Timeline.build(instance.n_tasks, placements, residencies), instance)


@dataclass(frozen=True, slots=True)
class Starts:
    """The starts of a task on a GPU in batches of one size: so many instants from the first on, for so many."""

    task: int
    gpu: int
    size: int
    first: int
    count: int
    span: int


def starts_of(choices: Choices, grid: InstantGrid) -> list[Starts]:
    """Return the starts that lie inside the windows."""
    windows, found = choices.windows, list[Starts]()
    # A batch may have lower tasks as well, so all of the class count.
    company = Counter(chain.from_iterable(choices.joins))
    for t, gpus in enumerate(choices.gpus):
        for g in gpus:
            for n, lasts in enumerate(batch_times(choices.instance, t, g, company[t] + 1), 1):
                first = -(-int(windows.earliest_start_us[t, g]) // grid.step_us)
                last = (int(windows.latest_end_us[t, g]) - lasts) // grid.step_us
                found.append(Starts(t, g, n, first, max(0, last + 1 - first), grid.span(lasts)))
    return found


def count_terms(choices: Choices, grid: InstantGrid, starts: list[Starts], places: list[tuple[int, int, int]]) -> int:
    """Return about how many terms the rows will have, variables included.

    Parameters
    ----------
    places
        Triples (model, GPU, slot) in which models may sit.
    """
    instance = choices.instance
    loading = {(m, g): grid.span(instance.load_time(m, g)) for m, g, _ in places}
    # Each residency has a variable and some rows at every instant, and one of them lists the loads under way.
    terms = sum(grid.count * (12 + 2 * loading[m, g]) for m, g, _ in places)
    slots = Counter((m, g) for m, g, _ in places)
    of_task = Counter[int]()
    ready = dict[tuple[int, int], int]()
    for s in starts:
        of_task[s.task] += s.count
        ready[s.task, s.gpu] = max(ready.get((s.task, s.gpu), 0), s.first + s.count + s.span) - s.first
        rows = 1 + len(instance.task_needs(s.task)) + bool(memory_of(instance, s.task))
        terms += s.count * (4 + rows * s.span)
    for (t, g), instants in ready.items():
        terms += sum(instants * slots[m, g] * (1 + loading.get((m, g), 0)) for m in instance.task_needs(t))
    for t, targets in enumerate(choices.gpus):
        for before, _ in instance.task_inputs(t):
            terms += len(choices.gpus[before]) * len(targets) * (2 * of_task[before] + 2 * of_task[t])
    return terms
