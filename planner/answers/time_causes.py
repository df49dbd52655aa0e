"""Where measurement and prediction part: simulate again with measured times in place of given ones, kind by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from truenorth.executor import Policy
from truenorth.executor.devices.records import Records
from truenorth.executor.devices.run import LiveRun
from truenorth.executor.simulation import Durations, simulate_recorded
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.timeline import Timeline

CAUSES = ("run_time", "load", "moves", "transfer", "dispatch")
"""In the order in which measured times take the place of given ones; dispatch is what then remains."""


@dataclass(frozen=True, slots=True)
class Causes:
    """What each cause adds, in microseconds; each sums to measured - predicted.

    Parameters
    ----------
    mean_latency_us, makespan_us
        By cause. The last one, dispatch, holds the time between the instant at which something was possible and its
        start, waiting for a device that is shared, and, for an online policy, decisions that came out otherwise.
    """

    mean_latency_us: Mapping[str, float]
    makespan_us: Mapping[str, float]


def causes_of_error(
    instance: Instance, policy: Callable[[], Policy], predicted: Timeline, live: LiveRun, seed: int
) -> Causes:
    """Return what measured run times, loads, models that make way, transfers and the rest add to a prediction.

    Parameters
    ----------
    policy
        Made the prediction, and ran.
    """
    iterations: defaultdict[int, list[int]] = defaultdict(list)
    for iteration in live.records.iterations:
        iterations[iteration.gpu].append(iteration.took_us)
    runs = Durations(runs={run.subject: run.took_us for run in live.records.runs}, iterations=iterations)
    loads, moves = (replace(runs, loads=_loads(live.records, moved)) for moved in (False, True))
    transfers = {
        (sent.subject, sent.target): sent.took_us for sent in live.records.transfers if sent.target is not None
    }
    steps = [runs, loads, moves, replace(moves, transfers=transfers)]
    timelines = [predicted, *(simulate_recorded(instance, policy, step, seed) for step in steps), live.timeline]

    def added(objective: Objective) -> dict[str, float]:
        values = [float(timeline_value(objective, instance, timeline)) for timeline in timelines]
        return {cause: after - before for cause, (before, after) in zip(CAUSES, pairwise(values), strict=True)}

    return Causes(added(Objective.MEAN_LATENCY), added(Objective.MAKESPAN))


def _loads(records: Records, moved: bool) -> dict[tuple[int, int], list[int]]:
    """Return how long loads took on each GPU, with or without the time that models took to make way."""
    taken: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for load in records.loads:
        taken[load.gpu, load.subject].append(load.took_us if moved else load.took_us - load.moves_us)
    return dict(taken)
