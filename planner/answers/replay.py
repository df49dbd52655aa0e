"""Run a plan or an online policy on devices, in real time, and set what was measured beside what was predicted."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truenorth.executor import Policy, instance_for, replay, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.records import Records
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.errors import DeviceError
from truenorth.executor.simulation import Durations, simulate_recorded
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.feasibility import check, exceeded_memory
from truenorth.models.instance import Instance, Ints
from truenorth.models.metrics import Metrics, measure
from truenorth.models.objective import Objective, completion_us, reported_value, timeline_value
from truenorth.models.scenario import Scenario, TimelineHeader, write_timeline
from truenorth.models.timeline import UNPLACED, Timeline, Violation, file_order
from truenorth.planner.answers.check import feasible_timeline
from truenorth.planner.answers.forecast import Forecast, forecast
from truenorth.planner.answers.policies.parse import parse
from truenorth.planner.answers.pool.on_ray import nodes_at
from truenorth.planner.answers.replay_report import CausesAdded, ReplayRecord, batched_tasks, replay_record
from truenorth.planner.answers.shown import Shown, WithTimelines
from truenorth.planner.answers.simulate import is_file
from truenorth.planner.answers.versions import Origin, ScenarioNamed, named, provenance
from truenorth.planner.inputs.samples import Samples

if TYPE_CHECKING:
    from truenorth.planner.answers.questions import ReplayQuestion


@dataclass(frozen=True)
class Replayed(WithTimelines):
    """What was predicted and what devices made of it.

    Parameters
    ----------
    scenario, policy, runner, settings
        What ran, on what; policy and runner as they were named.
    plan
        What was carried out, unless it was an online policy.
    predicted
        What the same policy makes of the scenario on the virtual clock, where everything takes the given time.
    live
        What was measured.
    causes
        Where the difference comes from; None if a job failed.
    different
        Tasks whose output is not that of their models loaded alone; None if that was not asked.
    forecast
        What the same policy makes of runs and loads as in a profile; None without one.
    asked
        The question that repeats it; None if it was put in another way.
    """

    scenario: Scenario
    policy: str
    plan: Timeline | None
    runner: str
    settings: LiveSettings
    predicted: Timeline
    live: LiveRun
    causes: CausesAdded | None
    different: Sequence[int] | None
    forecast: Forecast | None = None
    asked: ReplayQuestion | None = None

    @property
    def instance(self) -> Instance:
        """The scenario's instance."""
        return self.scenario.instance

    @property
    def timeline(self) -> Timeline:
        """What was measured."""
        return self.live.timeline

    @cached_property
    def violations(self) -> list[Violation]:
        """Rules that the measured timeline breaks, without any tolerance, by jobs that did not fail."""
        # What a failed job left half done breaks rules that say nothing of the rest.
        failed = tuple(f"job {failure.job} " for failure in self.live.records.failures)
        found = check(self.instance, self.timeline)
        # Where no task names any, a GPU's memory is that for weights, and what runs take lies beside it.
        found += self.memory_exceeded if self.instance.template_memory.any() else []
        return [violation for violation in found if not (failed and violation.subject.startswith(failed))]

    @cached_property
    def memory_exceeded(self) -> list[Violation]:
        """Starts of runs and loads at which models, and what tasks were measured to hold, had no room on their GPU."""
        named, measured = self.instance.template_memory, self.live.held_bytes
        held = np.array([measured.get(template, bytes_) for template, bytes_ in enumerate(named.tolist())], np.int64)
        found = exceeded_memory(self.instance, self.timeline, held) if measured else ()
        return [replace(one, problem="memory is exceeded by what tasks were measured to hold") for one in found]

    @property
    def achieved(self) -> bool:
        """Whether every job ran, every rule held, no output differed, and none holds what is not a number."""
        return not (self.live.records.failures or self.violations or self.different or self.live.not_numbers)

    @property
    def same_placement(self) -> bool:
        """Whether every task ran on the GPU that was predicted."""
        return bool((self.timeline.gpu == self.predicted.gpu).all())

    @property
    def same_order(self) -> bool:
        """Whether every GPU carried out its runs, and its loads, in the order that was predicted."""
        return _orders(self.instance, self.timeline) == _orders(self.instance, self.predicted)

    @property
    def metrics(self) -> Metrics | None:
        """Metrics of the measured timeline; None if a job failed."""
        return None if self.live.records.failures else measure(self.instance, self.timeline, self.scenario.slo)

    @property
    def complete(self) -> Ints:
        """Jobs that did not fail."""
        failed = {failure.job for failure in self.live.records.failures}
        return np.array([job for job in range(len(self.instance.jobs)) if job not in failed], np.int64)

    @property
    def latency_us(self) -> tuple[Ints, Ints]:
        """Predicted and measured latency of the jobs that did not fail."""
        release, kept = self.instance.job_release_us, self.complete
        predicted, measured = (completion_us(self.instance, t) - release for t in (self.predicted, self.timeline))
        return predicted[kept], measured[kept]

    @property
    def latency_error(self) -> float | None:
        """Mean absolute error of job latency as a share of the predicted mean; None if every job failed."""
        predicted, measured = self.latency_us
        return float(np.abs(measured - predicted).sum() / predicted.sum()) if len(predicted) else None

    @property
    def shown(self) -> tuple[Shown, ...]:
        """What was measured, and what was predicted."""
        clairvoyant = self.plan is not None
        return (
            Shown(f"{self.policy}, measured", clairvoyant, self.instance, self.timeline),
            Shown(f"{self.policy}, predicted", clairvoyant, self.instance, self.predicted),
        )

    @property
    def record(self) -> ReplayRecord:
        """The report with the keys of ``replay --json``."""
        return replay_record(self)

    @property
    def origin(self) -> Origin:
        """Of what it is, and how to repeat it."""
        what = ["--policy", self.policy] if self.plan is None else [self.policy]
        what += [] if self.asked is None else self.asked.typed()
        command = shlex.join(["truenorth", "replay", self.scenario.source.file, *what])
        return Origin(ScenarioNamed(*named(self.scenario)), command, provenance() | {"torch": version("torch")})

    def save_measured(self, path: Path) -> None:
        """Write the measured timeline; tasks of failed jobs that did not run are left out."""
        objective = self.scenario.objective
        value = None
        if not self.live.records.failures:
            value = reported_value(objective, timeline_value(objective, self.instance, self.timeline))
        gpu = np.array(self.timeline.gpu)
        # A run that failed did not take place.
        gpu[[run.subject for run in self.live.records.runs if run.error is not None]] = UNPLACED
        kept = replace(self.timeline, gpu=gpu)
        options = {"device": self.settings.device, "runner": self.runner, "virtual": self.settings.sharing}
        header = TimelineHeader(objective=str(objective), value=value, policy=self.policy, options=options)
        write_timeline(path, self.instance, kept, header)


def replay_on_devices(
    scenario: Scenario,
    policy: str | Path,
    runner: MakeRunner,
    settings: LiveSettings,
    *,
    runner_name: str = "",
    seed: int = 0,
    check_outputs: bool = False,
    samples: Samples | None = None,
) -> Replayed:
    """Run a plan or a policy on devices and compare it with its prediction.

    Parameters
    ----------
    policy
        A policy's name with parameters, ``module:Class``, or the path of a plan or timeline file (as text: ``*.json``).
    runner
        Makes the runner that computes the tasks.
    runner_name
        As it was named, for the report.
    seed
        Of the ingress servers.
    check_outputs
        Whether every task is run again alone afterwards and its output compared: bit for bit, those of batches as
        numbers; and whether what tasks hold is measured on cores, too.
    samples
        What a profile of this scenario measured, to predict from.

    Raises
    ------
    PolicyError, DeviceError, InputError, QuestionError
        If the samples, the policy, the devices, the runner or the file cannot be used.
    """
    instance = scenario.instance
    named = str(policy)
    plan = feasible_timeline(instance, Path(policy)) if isinstance(policy, Path) or is_file(policy) else None
    chosen: Callable[[], Policy] = parse(named, scenario) if plan is None else replay(instance, plan)
    # Of the simulator's released twin, whose models are copies that no device can load.
    if instance_for(instance, chosen) is not instance:
        raise DeviceError(f"policy {policy} runs on a twin of the instance, whose models no device has; use another")
    predicted = simulate(instance, chosen, seed)
    # Before the devices run: a prediction that is made afterwards is none.
    packed = plan is not None
    foreseen = None if samples is None else forecast(instance, chosen, samples, packed=packed, seed=seed)
    kept = replace(settings, keep_outputs=settings.keep_outputs or check_outputs, weighs=check_outputs)
    if check_outputs and settings.ray is not None:
        physical_devices(settings.device)  # tasks alone run here, not on a node
    with nodes_at(settings.ray, settings.device) as nodes:
        live = run_live(instance, chosen, runner, kept, seed=seed, plan=plan, nodes=nodes)
    causes = None if live.records.failures else causes_of_error(instance, chosen, predicted, live, seed)
    different = None
    if check_outputs:
        together = batched_tasks(instance, live.timeline)
        different = different_outputs(instance, runner, settings.device, live.outputs, settings.limit_s, together)
    return Replayed(scenario, named, plan, runner_name, settings, predicted, live, causes, different, foreseen)


def _orders(instance: Instance, timeline: Timeline) -> list[list[int]]:
    """Return, per GPU, its tasks and the models it loads, each in order of start."""
    # Runs that start together are told apart by their ends, lest their order looks changed.
    by_start = np.lexsort((timeline.end_us, timeline.start_us))
    if instance.streams is not None:
        by_start = file_order(instance, timeline)
    runs = [by_start[timeline.gpu[by_start] == gpu].tolist() for gpu in range(instance.n_gpus)]
    loads: list[list[int]] = [[] for _ in range(instance.n_gpus)]
    for residency in sorted(timeline.residencies, key=lambda r: r.load_start_us):
        if not residency.initial:
            loads[residency.gpu].append(residency.model)
    return runs + loads


CAUSES = ("run_time", "load", "moves", "transfer", "dispatch")
"""In the order in which measured times take the place of given ones; dispatch is what then remains."""


def causes_of_error(
    instance: Instance, policy: Callable[[], Policy], predicted: Timeline, live: LiveRun, seed: int
) -> CausesAdded:
    """Return what measured run times, loads, models that make way, transfers and the rest add to a prediction.

    Each sums to measured - predicted. The last one, dispatch, holds the time between the instant at which something was
    possible and its start, waiting for a device that is shared, and, for an online policy, decisions that came out
    otherwise.

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
        seconds = ((after - before) / MICROSECONDS_PER_SECOND for before, after in pairwise(values))
        return dict(zip(CAUSES, seconds, strict=True))

    return CausesAdded(added(Objective.MEAN_LATENCY), added(Objective.MAKESPAN))


def _loads(records: Records, moved: bool) -> dict[tuple[int, int], list[int]]:
    """Return how long loads took on each GPU, with or without the time that models took to make way."""
    taken: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for load in records.loads:
        taken[load.gpu, load.subject].append(load.took_us if moved else load.took_us - load.moves_us)
    return dict(taken)
