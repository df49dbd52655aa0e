"""Carry out a plan: whatever it has next begins as soon as the site allows it.

A plan that stays is carried out by `replay`, which says what waits for what. One that may be replaced at any time has
lanes: a GPU has one of runs and one of loads, a common one where loads block compute, and the head of a lane begins as
soon as it can. Everything in it waits only for what the plan begins before it, so nothing blocks for ever, and without
noise nothing begins later than planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from truenorth.executor.execution import NOWHERE
from truenorth.executor.site import Site
from truenorth.models.instance import Instance
from truenorth.models.timeline import Placement, Residency, Timeline, batch_leaders, leave_at


@dataclass(frozen=True, slots=True)
class Start:
    """Start a batch, lowest task first, in place of models that leave room for what it holds."""

    tasks: Sequence[int]
    evict: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Let a request of a stream join, in place of models that leave room for what it holds."""

    task: int
    evict: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model in place of others, once a run has begun behind which all of its room is free (None: at once)."""

    model: int
    slot: int | None
    evict: Sequence[int]
    after: int | None = None


Step = Start | Join | Load
Lane = list[Step]
"""What an engine does; the next comes last, so that it is taken off in no time."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of the plan."""

    start_us: int
    end_us: int
    tasks: tuple[int, ...]
    models: frozenset[int]
    memory_bytes: int


def lanes(instance: Instance, plan: Timeline, standing: Collection[int], number: Sequence[int]) -> list[list[Lane]]:
    """Return the lanes of every GPU.

    Parameters
    ----------
    instance, plan
        The work in hand and what is to become of it; residencies that stand are marked initial.
    standing
        The tasks that have started.
    number
        The numbers of the instance's tasks on the site.
    """
    runs: list[list[_Batch]] = [[] for _ in range(instance.n_gpus)]
    stays: list[list[Residency]] = [[] for _ in range(instance.n_gpus)]
    for gpu, batch in _batches(instance, plan, standing, number):
        runs[gpu].append(batch)
    for stay in plan.residencies:
        stays[stay.gpu].append(stay)
    made = []
    for here, models in zip(runs, stays, strict=True):
        here.sort(key=lambda batch: batch.start_us)
        starts, loads = _moves(here, models)
        engines = [starts, loads] if instance.overlap_loads else [[*starts, *loads]]
        made.append([[what for _, what in sorted(engine, key=lambda entry: entry[0])][::-1] for engine in engines])
    return made


def _batches(
    instance: Instance, plan: Timeline, standing: Collection[int], number: Sequence[int]
) -> Iterator[tuple[int, _Batch]]:
    """Yield GPU and batch of everything that is still to start."""
    members: dict[tuple[int, int], list[Placement]] = {}
    leaders = batch_leaders(instance, plan).tolist()
    for run in plan.placements:
        if run.task not in standing:
            members.setdefault((run.gpu, leaders[run.task]), []).append(run)
    for (gpu, leader), together in members.items():
        held = int(instance.template_memory[instance.task_template[leader]]) * len(together)
        tasks = tuple(number[run.task] for run in together)
        run = together[0]
        yield gpu, _Batch(run.start_us, run.end_us, tasks, frozenset(instance.task_needs(leader)), held)


def _moves(runs: Sequence[_Batch], stays: Sequence[Residency]) -> tuple[list[tuple[int, Step]], list[tuple[int, Step]]]:
    """Return runs and loads of a GPU with their planned starts.

    Each load, and each run that holds memory, evicts what the plan ends since the one of them before.
    """
    loads = sorted((stay for stay in stays if not stay.initial), key=lambda stay: stay.load_start_us)
    takers = sorted(
        [(run.start_us, 1, i) for i, run in enumerate(runs) if run.memory_bytes]
        + [(stay.load_start_us, 0, i) for i, stay in enumerate(loads)]
    )
    begin = [start_us for start_us, _, _ in takers]
    leaving: list[list[int]] = [[] for _ in range(len(takers) + 1)]
    for stay in stays:
        if stay.end_us is not None:
            leaving[leave_at(stay, begin)].append(stay.model)
    evicted = {(kind, index): tuple(models) for (_, kind, index), models in zip(takers, leaving, strict=False)}
    starts: list[tuple[int, Step]] = [
        (run.start_us, Start(run.tasks, evicted.get((1, index), ()))) for index, run in enumerate(runs)
    ]
    found: list[tuple[int, Step]] = []
    for index, stay in enumerate(loads):
        evict = evicted[0, index]
        before = [
            run.tasks[0]
            for run in runs
            if run.end_us <= stay.load_start_us and (run.memory_bytes or not run.models.isdisjoint(evict))
        ]
        found.append((stay.load_start_us, Load(stay.model, stay.slot, evict, before[-1] if before else None)))
    return starts, found


class CarryingOut:
    """The plan in force.

    Attributes
    ----------
    lanes
        Per GPU and engine: what is left to do; replaced whenever there is a new plan.
    given_us
        How long each task was to run that has started.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self.lanes: list[list[Lane]] = [[] for _ in range(site.n_gpus)]
        self.given_us: dict[int, int] = {}

    def go_on(self, gpus: Collection[int]) -> None:
        """Begin whatever can begin on these GPUs."""
        for gpu in gpus:
            for lane in self.lanes[gpu]:
                while lane and self.begin(lane[-1], gpu):
                    lane.pop()

    def begin(self, what: Step, gpu: int) -> bool:
        """Begin a step if the site allows it now; say whether it has begun."""
        site = self._site
        if isinstance(what, Join):
            return self._join(what, gpu)
        if isinstance(what, Load):
            possible = self._may_load(what, gpu)
            if possible:
                site.load(gpu, what.model, what.evict, what.slot)
            return possible
        possible = all(self._may_run(what, each) for each in site.places[gpu])
        if possible:
            for model in what.evict:
                site.evict(gpu, model)
            site.start(*what.tasks)
            self.given_us.update(dict.fromkeys(what.tasks, site.run_end_us[site.places[gpu][0]] - site.now))
        return possible

    def _join(self, what: Join, gpu: int) -> bool:
        site, here = self._site, self._site.state[gpu].memory.residents
        leaving = [model for model in what.evict if model in here]  # gone already where only a boundary was missing
        lacking = site.lacks_room(what.task)
        if lacking > sum(site.weight_bytes[model] for model in leaving):
            return False
        if not lacking and not site.may_join(what.task):
            return False
        for model in leaving:
            site.evict(gpu, model)
        if not site.may_join(what.task):
            return False
        site.join(what.task)
        return True

    def _may_run(self, run: Start, gpu: int) -> bool:
        site, state = self._site, self._site.state[gpu]
        if any(task >= len(site.gpu) or site.inputs_missing[task] for task in run.tasks):
            return False
        template = site.template[run.tasks[0]]
        if site.share[template] > state.free_share or not state.memory.ready.issuperset(site.needs[template]):
            return False
        if not site.overlap_loads and state.loading != NOWHERE:
            return False
        if state.begins(site.batch[template], site.now):
            site.wake(site.now + 1)  # two batches of one class start apart
            return False
        return self._may_leave(run.evict, gpu, site.task_bytes[template] * len(run.tasks))

    def _may_load(self, load: Load, gpu: int) -> bool:
        site, state = self._site, self._site.state[gpu]
        if state.refuse_copying() is not None or load.model in state.memory.residents.keys() - load.evict:
            return False
        if load.after is not None and (load.after >= len(site.gpu) or site.started_us[load.after] < 0):
            return False
        return self._may_leave(load.evict, gpu, 0 if state.memory.slots else site.weight_bytes[load.model])

    def _may_leave(self, models: Sequence[int], gpu: int, room_bytes: int) -> bool:
        """Say whether models can be evicted now, and leave so much room."""
        state, size = self._site.state[gpu], self._site.weight_bytes
        if any(model not in state.memory.ready or state.uses(model) for model in models):
            return False
        return state.memory.free_bytes + sum(size[model] for model in models) >= room_bytes


def leave_out_unused(site: Site, plan: Timeline) -> None:
    """Do without the initial residencies that a plan leaves out."""
    kept = {(stay.gpu, stay.model) for stay in plan.residencies if stay.initial}
    for gpu, memory in enumerate(site.memory):
        for model in [model for model in memory.residents if (gpu, model) not in kept]:
            site.leave_out(gpu, model)
