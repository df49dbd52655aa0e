"""What a policy should make of a scenario on devices whose runs and loads take what they took in a profile.

One prediction from medians says neither how far a run may be from it nor where its mean lies. Here run times, loads and
how late they start are drawn from the samples of a profile, over and over; what devices then do is set beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from truenorth.executor import Policy
from truenorth.executor.samples import Spread
from truenorth.executor.simulation import Durations, simulate_recorded
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.features import PRESENT, Feature
from truenorth.models.instance import NONE, Instance
from truenorth.models.objective import completion_us
from truenorth.models.record import Spreading, spread
from truenorth.planner.answers.intervals import Interval
from truenorth.planner.inputs.samples import Dispatch, Samples

Latencies = NDArray[np.int64]
"""In microseconds, shape [runs, jobs]."""

DRAWS = 200
_LOADS_EACH = 64
"""Drawn loads of a model on a GPU; the last one holds for all further ones."""
_LOW, _HIGH = 0.05, 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Latency of every job in simulated runs; shape [draws, jobs]."""

    latency_us: Latencies

    def compare(self, measured_us: Latencies) -> ForecastComparison:
        """Return how measured latencies, a row per run, compare with it."""
        of_runs = self.latency_us.mean(axis=1) / MICROSECONDS_PER_SECOND
        low, high = np.quantile(of_runs, (_LOW, _HIGH))
        expected = self.latency_us.mean(axis=0)
        foretold = len(self.latency_us), Interval(float(of_runs.mean()), float(low), float(high))
        if not len(measured_us):
            return ForecastComparison(*foretold, None, None, None, None)
        # Job by job, across the draws.
        lows, highs = np.quantile(self.latency_us, (_LOW, _HIGH), axis=0)
        # As many simulated runs as were measured take their place: what chance alone makes of a mean.
        groups = len(self.latency_us) // len(measured_us)
        alike = self.latency_us[: groups * len(measured_us)].reshape(groups, len(measured_us), -1).mean(axis=1)
        return ForecastComparison(
            *foretold,
            float(measured_us.mean() / expected.mean() - 1),
            _astray(measured_us.mean(axis=0), expected),
            float(np.mean([_astray(each, expected) for each in alike])) if groups else None,
            float(((measured_us >= lows) & (measured_us <= highs)).mean()),
        )


@dataclass(frozen=True, slots=True)
class ForecastComparison(Spreading):
    """How measured latencies compare with simulated ones; without a run the last four are None.

    Parameters
    ----------
    mean_latency_s
        The mean, and the middle 90 % of simulated runs.
    error
        Of the mean latency.
    job_error, own_job_error
        The mean absolute error of a job's mean over the runs as a share of the mean latency, and the same where so many
        simulated runs take the place of the measured ones.
    inside
        The share of measured latencies in the middle 90 % of their job's.
    """

    draws: int
    mean_latency_s: Interval = field(metadata=spread(Interval, "mean_latency_s"))
    error: float | None
    job_error: float | None
    own_job_error: float | None
    inside: float | None

    def __str__(self) -> str:
        """Say it in a line."""
        latency = self.mean_latency_s
        said = f"mean latency {latency.mean:.4g} s, 90 % from {latency.low:.4g} to {latency.high:.4g}"
        if self.error is None:
            return said
        chance = "" if self.own_job_error is None else f", by chance alone {self.own_job_error:.1%}"
        return (
            f"{said}; measured {self.error:+.1%}; a job is off by {self.job_error:.1%}{chance}; "
            f"{self.inside:.0%} of latencies in their job's 90 %"
        )


def _astray(latency_us: NDArray[np.float64], expected_us: NDArray[np.float64]) -> float:
    return float(np.abs(latency_us - expected_us).sum() / expected_us.sum())


def forecast(
    instance: Instance,
    policy: Callable[[], Policy],
    samples: Samples,
    *,
    packed: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> Forecast:
    """Simulate a policy on run times, loads and lateness drawn from samples.

    Parameters
    ----------
    packed
        Whether addresses are planned, so that no model has to make way for another.
    draws
        How many runs are simulated. In the n-th of them a task takes the same whoever decides.

    Raises
    ------
    QuestionError
        If a task or a model has no samples, or tasks run in batches or choose their number of GPUs, of which samples
        say something only by size.
    """
    if instance.batches:
        raise QuestionError("cannot be predicted from samples: tasks run in batches; allowed are none", "samples")
    if PRESENT[Feature.MODES](instance):
        raise QuestionError("cannot be predicted from samples: tasks have modes; allowed are none", "samples")
    runs = [_runs_of(instance, samples, task) for task in range(instance.n_tasks)]
    loads = [samples.loads.get(model.name) for model in instance.models]
    if any(loads[model] is None for needs in instance.needs for model in needs):
        raise QuestionError(
            "hold no loads of a model that the scenario has; allowed are those of its profile", "samples"
        )
    late, late_tasks = samples.dispatch or Dispatch(), range(instance.n_tasks if samples.dispatch else 0)
    moves = None if packed else late.moves
    inputs = [instance.inputs[template] for template in instance.task_template.tolist()]
    edges = [(task + offset, task) for task in late_tasks for offset, _ in inputs[task]]
    found = []
    for number in range(draws):
        # A stream of its own for every draw: contenders meet the same luck, however many draws there are.
        luck = np.random.default_rng([seed, number])
        durations = Durations(
            {task: _draw(luck, spread) for task, spread in enumerate(runs)},
            {
                (gpu, model): [sum(_draw(luck, of) for of in (spread, late.load, moves)) for _ in range(_LOADS_EACH)]
                for model, spread in enumerate(loads)
                if spread is not None
                for gpu in range(instance.n_gpus)
            },
            # The way to the copy is as long as that to a run.
            {edge: _draw(luck, late.idle) for edge in edges},
            late={task: (_draw(luck, late.idle), _draw(luck, late.queued)) for task in late_tasks},
        )
        timeline = simulate_recorded(instance, policy, durations, seed)
        found.append(completion_us(instance, timeline) - instance.job_release_us)
    return Forecast(np.array(found, np.int64))


def measured_latencies(latencies: Sequence[NDArray[np.int64]], jobs: int) -> Latencies:
    """Return the latencies of runs in which every job ended, a row each."""
    whole = [latency for latency in latencies if len(latency) == jobs]
    return np.array(whole, np.int64).reshape(len(whole), jobs)


def _runs_of(instance: Instance, samples: Samples, task: int) -> Spread:
    template, name = int(instance.task_template[task]), instance.task_name(task)
    workflow = instance.jobs[int(instance.task_job[task])].workflow
    key = workflow.name, name
    spread = samples.live.get(key, samples.runs.get(key))
    if spread is None or int(instance.template_batch[template]) != NONE:
        raise QuestionError(f"hold no runs of {workflow.name}/{name}; allowed are those of its profile", "samples")
    return spread


def _draw(luck: np.random.Generator, spread: Spread | None) -> int:
    # Drawn as it was measured, not from a curve through the samples; what was not measured takes no time.
    if spread is None:
        return 0
    return max(1, round(spread.samples_us[int(luck.integers(len(spread.samples_us)))]))
