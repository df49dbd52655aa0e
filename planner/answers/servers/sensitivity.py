"""What the answer hangs on: the deployable answer once more, with one model larger or slower than it was said to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from truenorth.executor import PolicyError, StoppedError
from truenorth.models import BatchClass, Instance, InstanceError, ServiceLevels, Task
from truenorth.models.streams import StreamSpeed
from truenorth.planner.answers.servers.decide import Reached, meets, reached_by
from truenorth.planner.answers.servers.deployable import Alternative
from truenorth.planner.answers.servers.hunt import Hunt
from truenorth.planner.answers.servers.question import remainders
from truenorth.planner.answers.simulate import simulate

FACTOR = Fraction(6, 5)
"""Each model in turn is so many times as large, or its tasks run so many times as long."""


class ChangedFigure(StrEnum):
    """What is said of a model, and may be wrong."""

    RUN_TIME = "run time"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class Strain:
    """What the best answer of a policy reaches with one figure of one model `FACTOR` times as large.

    Parameters
    ----------
    reached
        None if it cannot be served there at all.
    met
        Whether the levels still hold.
    share
        The greatest share of its limit that any level's figure takes up; of jobs on time, the share asked for by that
        reached. None without one.
    """

    model: str
    figure: ChangedFigure
    reached: Reached | None
    met: bool
    share: Fraction | None


def strain(hunt: Hunt, best: Alternative, share: float) -> tuple[Strain, ...]:
    """Simulate the best answer with each model larger and slower, in a share of the time left; the worst come first.

    What there is no time for is left out.
    """
    ask = hunt.question
    reserve_s, found = (1 - share) * ask.left_s, list[Strain]()
    for model, figure in _figures(ask.scenario(best.mix).instance):
        ask.budget.watch(f"{best.policy} with {model} of more {figure}")
        try:
            found.append(_strain(hunt, best, model, figure, reserve_s))
        except StoppedError:
            break
    return tuple(sorted(found, key=lambda each: (each.met, each.share is not None, -(each.share or 0))))


def _strain(hunt: Hunt, best: Alternative, model: str, figure: ChangedFigure, reserve_s: float) -> Strain:
    """Return what is reached whole and with all that is spare gone, where that is worst.

    Raises
    ------
    StoppedError
        If time is up before.
    """
    ask, made = hunt.question, list[Strain]()
    for left in (left for gone in range(ask.spare + 1) for left in remainders(best.mix, gone)):
        if ask.left_s <= reserve_s:
            raise StoppedError
        scenario = ask.scenario(left)
        try:
            worse = replace(scenario, instance=_worse(scenario.instance, model, figure))
            ran = simulate(
                worse, best.policy, seed=ask.budget.seed, noise=ask.noise, stop=lambda: ask.left_s <= reserve_s
            )
        except (InstanceError, PolicyError):
            return Strain(model, figure, None, False, None)
        reached = reached_by(ran.truth, ran.timeline, ask.levels)
        met = meets(ran.truth, ran.timeline, ask.levels)
        made.append(Strain(model, figure, reached, met, _share_of_limit(ask.levels, reached)))
    return max(made, key=lambda each: (not each.met, each.share or 0))


def _figures(instance: Instance) -> Iterator[tuple[str, ChangedFigure]]:
    """Yield both figures of every model that some task needs."""
    used = {name for workflow in instance.catalogue for task in workflow.tasks for name in task.models}
    for model in instance.models:
        if model.name in used:
            yield from ((model.name, figure) for figure in ChangedFigure)


def _worse(instance: Instance, model: str, figure: ChangedFigure) -> Instance:
    if figure is ChangedFigure.SIZE:
        models = tuple(
            replace(each, weight_bytes=int(each.weight_bytes * FACTOR)) if each.name == model else each
            for each in instance.models
        )
        return replace(instance, models=models)
    return instance.with_tasks(lambda task: _slower(task) if model in task.models else task)


def _slower(task: Task) -> Task:
    if task.stream is not None:
        speeds = {kind: _slower_steps(speed) for kind, speed in task.stream.speeds.items()}
        slow = replace(task.stream, speeds=speeds)
        return replace(task, stream=slow, runtime_us=slow.least_us)
    if task.batch is None:
        return replace(task, runtime_us={kind: int(us * FACTOR) for kind, us in task.runtime_us.items()})
    tables = {
        kind: {size: int(us * FACTOR) for size, us in table.items()} for kind, table in task.batch.runtime_us.items()
    }
    slower: BatchClass = replace(task.batch, runtime_us=tables)
    return Task.of_class(task.name, slower, task.inputs, task.input_bytes)


def _slower_steps(speed: StreamSpeed) -> StreamSpeed:
    steps = {count: int(us * FACTOR) for count, us in speed.step_us.items()}
    return replace(speed, prefill_rate=speed.prefill_rate / FACTOR, step_us=steps)


def _share_of_limit(levels: ServiceLevels, reached: Reached) -> Fraction | None:
    shares = [
        (level.share or Fraction(1)) / max(value, Fraction(1, 10**9))
        if level.measure == "lateness"
        else value / level.limit
        for level, value in zip(levels, reached, strict=True)
        if value is not None
    ]
    return max(shares, default=None)
