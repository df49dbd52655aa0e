"""Policies for tests: one that places tasks by a list, and one that carries out a script of actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from truenorth.executor import Policy, QueuePolicy, Site
from truenorth.executor.policies.options import QueueOptions
from truenorth.models import Instance, Timeline


class Listed(QueuePolicy):
    """Places task t on `where[t]`; the common worker does the rest."""

    def __init__(self, where: Sequence[int], **options: object) -> None:
        super().__init__(QueueOptions(**options))  # type: ignore[arg-type]
        self.where = where

    def released(self, job: int) -> None:
        for task in self.site.job_tasks[job]:
            self.place(task, self.where[task])


class Script(Policy):
    """Carries out each step (time, action) at its time, after everything else that happens then."""

    def __init__(self, *steps: tuple[int, Callable[[Site], None]]) -> None:
        self.steps = list(steps)
        self.begun = False

    def begin(self, site: Site) -> None:
        super().begin(site)
        for time_us, _ in self.steps:
            site.wake(time_us)

    def act(self, gpus: Sequence[int]) -> None:
        if not self.begun:  # the engine's first call comes before any release
            self.begun = True
            return
        while self.steps and self.steps[0][0] <= self.site.now:
            self.steps.pop(0)[1](self.site)


def runs(timeline: Timeline) -> list[tuple[int, int, int]]:
    """Return (GPU, start, end) of every task."""
    return list(zip(timeline.place.tolist(), timeline.start_us.tolist(), timeline.end_us.tolist(), strict=True))


def loads(instance: Instance, timeline: Timeline) -> list[tuple[str, int, int, int, int | None]]:
    """Return (model, GPU, load start, ready, end) of every residency that was loaded."""
    return [
        (instance.models[r.model].name, r.gpu, r.load_start_us, r.ready_us, r.end_us)
        for r in timeline.residencies
        if not r.initial
    ]
