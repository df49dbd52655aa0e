"""Carry out a plan that may be replaced at any time: what every engine does next, in the planned order.

A GPU has a lane of runs and a lane of loads, one common lane where loads block compute. The head of a lane begins as
soon as the site allows it. Everything waits only for what the plan ends before it, so nothing blocks for ever, and
without noise nothing begins later than planned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from executor import Site
from executor.site import NOWHERE
from models.instance import Instance
from models.timeline import Placement, Residency, Timeline


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Start a task."""

    task: int


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model in place of others, once the last task that is to use them here has ended (None: at once)."""

    model: int
    slot: int | None
    evict: tuple[int, ...]
    after: int | None


Lane = list[PlannedRun | Load]
"""What an engine does; the next comes last, so that it is taken off in no time."""


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
    runs: list[list[Placement]] = [[] for _ in range(instance.n_gpus)]
    stays: list[list[Residency]] = [[] for _ in range(instance.n_gpus)]
    for run in plan.placements:
        if run.task not in standing:
            runs[run.gpu].append(run)
    for stay in plan.residencies:
        stays[stay.gpu].append(stay)
    made = []
    for here, models in zip(runs, stays, strict=True):
        here.sort(key=lambda run: run.start_us)
        loads = _loads(instance, here, models, number)
        starts: list[tuple[int, PlannedRun | Load]] = [(run.start_us, PlannedRun(number[run.task])) for run in here]
        engines = [starts, loads] if instance.overlap_loads else [[*starts, *loads]]
        made.append([[what for _, what in sorted(engine, key=lambda entry: -entry[0])] for engine in engines])
    return made


def _loads(
    instance: Instance, runs: Sequence[Placement], stays: Sequence[Residency], number: Sequence[int]
) -> list[tuple[int, PlannedRun | Load]]:
    """Return the loads of a GPU with their planned starts; each evicts what the plan ends since the one before."""
    loads = sorted((stay for stay in stays if not stay.initial), key=lambda stay: stay.load_start_us)
    begin = [stay.load_start_us for stay in loads]
    leaving: list[list[int]] = [[] for _ in range(len(loads) + 1)]
    for stay in stays:
        if stay.end_us is not None:
            leaving[bisect_left(begin, stay.end_us)].append(stay.model)
    found: list[tuple[int, PlannedRun | Load]] = []
    for stay, evict in zip(loads, leaving, strict=False):
        users = [
            number[run.task]
            for run in runs
            if run.start_us < stay.load_start_us and not set(evict).isdisjoint(instance.task_needs(run.task))
        ]
        load = Load(stay.model, stay.slot, tuple(evict), users[-1] if users else None)
        found.append((stay.load_start_us, load))
    return found


class CarryingOut:
    """The plan in force.

    Attributes
    ----------
    lanes
        Per GPU and engine: what is left to do; replaced whenever there is a new plan.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self.lanes: list[list[Lane]] = [[] for _ in range(site.n_gpus)]

    def go_on(self, gpus: Collection[int]) -> None:
        """Begin whatever can begin on these GPUs."""
        for gpu in gpus:
            for lane in self.lanes[gpu]:
                while lane and self._begin(lane[-1], gpu):
                    lane.pop()

    def _begin(self, what: PlannedRun | Load, gpu: int) -> bool:
        """Begin a run or a load; say whether that was possible."""
        site = self._site
        blocked = not site.overlap_loads and (site.running[gpu] != NOWHERE or site.state[gpu].loading != NOWHERE)
        if isinstance(what, PlannedRun):
            possible = not blocked and self._may_run(what.task, gpu)
            if possible:
                site.start(what.task)
        else:
            possible = not blocked and self._may_load(what, gpu)
            if possible:
                site.load(gpu, what.model, what.evict, what.slot)
        return possible

    def _may_run(self, task: int, gpu: int) -> bool:
        site = self._site
        if task >= len(site.gpu) or site.running[gpu] != NOWHERE or site.inputs_missing[task]:
            return False
        return site.memory[gpu].ready.issuperset(site.needs[site.template[task]])

    def _may_load(self, load: Load, gpu: int) -> bool:
        site = self._site
        if site.state[gpu].loading != NOWHERE:
            return False
        if load.after is not None and (load.after >= len(site.gpu) or site.ended_us[load.after] < 0):
            return False
        running = site.running[gpu]
        return running == NOWHERE or set(load.evict).isdisjoint(site.needs[site.template[running]])
