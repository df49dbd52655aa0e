"""A trial: several contenders on the same devices, set up and calibrated once, again and again in random order.

What one run of each says of two contenders is mostly chance. Here every repeat runs all of them, so that differences
are taken within a repeat and come with an interval.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from truenorth.executor import Policy, StoppedError, instance_for, replay, simulate
from truenorth.executor.devices.machine import describe_machine
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.run import LiveRun, live_crew, run_on
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.factory import default_runner, runner_named
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, completion_us, reported_bound, reported_value, timeline_value
from truenorth.models.record import ABSENT
from truenorth.models.scenario import InputError, Scenario, TimelineHeader, write_timeline
from truenorth.models.timeline import Timeline
from truenorth.models.torn import torn
from truenorth.planner.answers.check import feasible_timeline
from truenorth.planner.answers.forecast import Forecast, forecast, measured_latencies
from truenorth.planner.answers.intervals import NO_INTERVAL, Interval, interval_of
from truenorth.planner.answers.kept import KeptRuns, identity, keeping
from truenorth.planner.answers.policies.parse import parse
from truenorth.planner.answers.pool.on_ray import nodes_at
from truenorth.planner.answers.replay import live_settings
from truenorth.planner.answers.replayed import Replayed, compare_clocks, measured_memory
from truenorth.planner.answers.shown import Shown, WithRows, WithTimelines
from truenorth.planner.answers.simulate import is_file
from truenorth.planner.answers.trial_report import ContenderRow, JobLatencies, TrialOrigin, TrialRecord
from truenorth.planner.answers.trial_runs import PLAN, read_run, run_document, what_is_measured
from truenorth.planner.answers.versions import ScenarioNamed, named, provenance
from truenorth.planner.inputs.samples import Samples, read_samples
from truenorth.planner.inputs.told import stretch
from truenorth.planner.questions.devices import TrialQuestion
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.budget import Budget


@dataclass(frozen=True, slots=True)
class Contender:
    """Who takes part.

    Parameters
    ----------
    name
        As it was given.
    plan
        What it carries out, unless it decides online.
    policy
        Makes its policy.
    predicted
        What it makes of the scenario where everything takes the given time.
    forecast
        What it makes of it where runs and loads take what they took in a profile; None without one.
    """

    name: str
    plan: Timeline | None
    policy: Callable[[], Policy]
    predicted: Timeline
    forecast: Forecast | None


@dataclass(frozen=True)
class Trial(WithTimelines, WithRows):
    """What devices made of several contenders.

    Parameters
    ----------
    asked
        The question that repeats it.
    scenario
        What ran.
    contenders
        In the order in which they were named; differences are to the first.
    order
        Per repeat, the contenders as they took their turns.
    runs
        By contender, one per repeat.
    machine
        What the machine says of itself before and after all runs.
    ended
        Why it ended before all runs were made, or None.
    """

    asked: TrialQuestion
    scenario: Scenario
    contenders: Sequence[Contender]
    order: Sequence[Sequence[str]]
    runs: Mapping[str, Sequence[Replayed]]
    machine: Sequence[Mapping[str, Any]]
    ended: str | None = None

    def __repr__(self) -> str:
        contenders = ", ".join(each.name for each in self.contenders)
        return f"<Trial of {contenders} on {self.scenario.name!r}: {len(self.order)} repeats>"

    @property
    def achieved(self) -> bool:
        """Whether all runs were made, and in every one every job ran and every rule held."""
        return self.ended is None and all(run.achieved for runs in self.runs.values() for run in runs)

    def counted(self, name: str) -> list[Replayed]:
        """Return the runs of a contender that count in its means: every job ran and, unless faults count, none rose."""
        return [run for run in self.runs[name] if self._counts(run)]

    def _counts(self, run: Replayed) -> bool:
        records = run.live.records
        return not records.failures and (self.asked.count_faults or not records.faults)

    @cached_property
    def rows(self) -> list[ContenderRow]:
        """A row per contender."""
        first = self._values(self.contenders[0].name)
        return [self._row(contender, first) for contender in self.contenders]

    @property
    def record(self) -> TrialRecord:
        """The trial with the keys of ``trial --json``."""
        ran = [run for runs in self.runs.values() for run in runs]
        return TrialRecord(
            self.scenario.objective,
            self.asked.device,
            self.asked.virtual,
            self.asked.runner or "",
            len(self.order),
            self.asked.count_faults,
            self.ended,
            self.order,
            self.rows,
            {"before": self.machine[0], "after": self.machine[1]},
            compare_clocks(clock for run in ran for clock in run.live.clocks) or ABSENT,
            measured_memory(ran),
        )

    @property
    def origin(self) -> TrialOrigin:
        """Of what it is, how to repeat it, and the latencies job by job."""
        return TrialOrigin(
            ScenarioNamed(*named(self.scenario)),
            self.asked.command(self.scenario.source.file),
            provenance() | {"torch": version("torch")},
            {
                contender.name: JobLatencies(
                    self._latency_s(contender.predicted),
                    [self._latency_s(run.timeline) for run in self.counted(contender.name)],
                )
                for contender in self.contenders
            },
        )

    @property
    def shown(self) -> Iterator[Shown]:
        """Of every contender what was measured first, and what was predicted."""
        for contender in self.contenders:
            clairvoyant, instance = contender.plan is not None, self.scenario.instance
            for first in self.runs[contender.name][:1]:
                yield Shown(f"{contender.name}, measured", clairvoyant, instance, first.timeline)
            yield Shown(f"{contender.name}, predicted", clairvoyant, instance, contender.predicted)

    def _latency_s(self, timeline: Timeline) -> list[float]:
        instance = self.scenario.instance
        latency_us = completion_us(instance, timeline) - instance.job_release_us
        return [us / MICROSECONDS_PER_SECOND for us in latency_us.tolist()]

    def _values(self, name: str) -> list[float | None]:
        """Return the objective of each run, None for one that does not count."""
        return [_value(self.scenario, run.timeline) if self._counts(run) else None for run in self.runs[name]]

    def _row(self, contender: Contender, first: Sequence[float | None]) -> ContenderRow:
        scenario, runs, values = self.scenario, self.runs[contender.name], self._values(contender.name)
        predicted = _value(scenario, contender.predicted)
        known = [value for value in values if value is not None]
        # Within a repeat, so that what the machine did meanwhile cancels out.
        paired = [value - other for value, other in zip(values, first, strict=False) if None not in (value, other)]  # type: ignore[operator]
        counted = self.counted(contender.name)
        bounds = [bound for run in counted if (bound := realised_bound_s(run)) is not None]
        latency_us = [run.latency_us[1] for run in counted]
        late_us = [record.dispatch_us for run in counted for record in run.live.records.runs]
        jobs, foretold = len(scenario.instance.jobs), contender.forecast
        return ContenderRow(
            policy=contender.name,
            clairvoyant=contender.plan is not None,
            objective=_interval(known),
            predicted=predicted,
            error=mean(known) / predicted - 1 if known and predicted else None,
            difference=_interval(paired),
            mean_latency_s=mean(us.mean() for us in latency_us) / MICROSECONDS_PER_SECOND if counted else None,
            realised_bound_s=mean(bounds) if bounds else None,
            latency_error=mean(run.latency_error or 0.0 for run in counted) if counted else None,
            dispatch_us=median(late_us) if late_us else None,
            same_order=sum(run.same_placement and run.same_order for run in runs),
            different_outputs=_total([run.different for run in runs]),
            not_finite_outputs=sum(len(run.live.not_finite) for run in runs),
            failed_jobs=sum(len(run.live.records.failures) for run in runs),
            faults=sum(len(run.live.records.faults) for run in runs),
            runs=len(runs),
            counted=len(counted),
            forecast=None if foretold is None else foretold.compare(measured_latencies(latency_us, jobs)),
        )


def answer_trial(asked: TrialQuestion, scenario: Scenario, budget: Budget) -> Trial:
    """Run contenders on devices; the question says how long the plan among them may take."""
    name = asked.runner or default_runner(scenario.instance)
    return trial(replace(asked, runner=name), scenario, runner_named(name))


def trial(asked: TrialQuestion, scenario: Scenario, runner: MakeRunner) -> Trial:
    """Run contenders on devices, all of them in every repeat, in random order.

    What was measured before it is stopped, or before devices serve no longer or nothing more can be kept, is returned
    all the same.

    Parameters
    ----------
    runner
        Makes the runner that computes the tasks; what it calibrates holds for all runs.

    Raises
    ------
    QuestionError, PolicyError, DeviceError, InputError
        If a contender, the devices, the runner or a file cannot be used, or the folder holds runs of another question.
    StoppedError
        If it was stopped before any run had ended.
    """
    policies, seed, settings = asked.policies, asked.seed, live_settings(asked)
    if asked.repeats < 1 or not policies or len(set(policies)) < len(policies):
        raise QuestionError("allowed are at least one repeat and one contender, each named once", "policies")
    stop, instance = asked.stop or threading.Event(), scenario.instance
    samples = None if asked.samples is None else read_samples(asked.samples)
    with ExitStack() as opened:
        nodes = opened.enter_context(nodes_at(settings.ray, settings.device))
        kept = opened.enter_context(keeping(asked.folder, identity(scenario) | what_is_measured(asked, nodes)))
        contenders = [_contender(scenario, name, asked.time_limit_s, samples, seed, stop, kept) for name in policies]
        draw, ended = random.Random(seed), None  # noqa: S311
        # Random within each repeat: who runs after whom, and on how warm a machine, is left to chance.
        turns = [one for _ in range(asked.repeats) for one in draw.sample(contenders, len(contenders))]
        named = asked.runner or ""
        runs_of = [partial(Replayed, scenario, one.name, one.plan, named, settings, one.predicted) for one in turns]
        outputs = _RunOutputs(instance)
        ran = [] if kept is None else _read_runs(kept, runs_of, outputs)
        devices = [] if nodes is not None else physical_devices(settings.device)
        machine = [describe_machine(devices)]
        try:
            if len(ran) < len(turns):
                # One crew for all runs: set up and calibrated once, so that contenders differ by what they decide.
                with live_crew(instance, runner, settings, nodes) as crew:
                    for one, run_of in list(zip(turns, runs_of, strict=True))[len(ran) :]:
                        live = run_on(crew, instance, one.policy, settings, seed=seed, plan=one.plan, stop=stop.is_set)
                        different, fresh = outputs.compare(live)
                        ran.append(run_of(live, None, different))
                        if kept is not None:
                            kept.keep(len(ran), run_document(ran[-1], fresh))
                        if asked.watch is not None:
                            asked.watch(len(ran))
        except (StoppedError, DeviceError, InputError) as error:
            # What was measured is told, however it ended; without any run there is nothing to tell.
            if not ran:
                raise
            ended = "interrupted" if isinstance(error, StoppedError) else str(error)
        machine.append(describe_machine(devices))
    names = [run.policy for run in ran]
    order = [names[first : first + len(policies)] for first in range(0, len(names), len(policies))]
    runs = {name: [run for run in ran if run.policy == name] for name in policies}
    return Trial(asked.alone(), scenario, contenders, order, runs, machine, ended)


def _read_runs(kept: KeptRuns, runs_of: Sequence[Callable[..., Replayed]], outputs: _RunOutputs) -> list[Replayed]:
    """Return the runs that had ended before, up to the first that is missing or damaged."""
    found: list[Replayed] = []
    for number, run_of in enumerate(runs_of, 1):
        try:
            run, fresh = read_run(kept.read(number) or {}, run_of)
        except (KeyError, ValueError):  # pydantic's is one
            break
        outputs.first.update(fresh)
        found.append(run)
    return found


class _RunOutputs:
    """A hash of what every task put out in the first run in which it ran."""

    def __init__(self, instance: Instance) -> None:
        self.first: dict[int, str] = {}
        self._comparable = not instance.batches

    def compare(self, live: LiveRun) -> tuple[list[int] | None, dict[int, str]]:
        """Return the tasks of a run that put out something else (None where batches round), and what is new of it."""
        found = {task: digest.bits for task, digest in sorted(live.digests.items())}
        fresh = {task: bits for task, bits in found.items() if task not in self.first}
        self.first.update(fresh)
        different = [task for task, bits in found.items() if bits != self.first[task]]
        return different if self._comparable else None, fresh


def realised_bound_s(run: Replayed) -> float | None:
    """Return a mean latency that no schedule lies below whose runs take what they took in this one.

    None for batches and requests of streams: what they took beside others says nothing of them beside fewer or more.
    Every kind of GPU, and every number of them, is taken to be off by the same factor, and loads to be as fast as the
    fastest that was measured. None, too, where runs take longer across servers: that would be rounded once more.
    """
    instance, records = run.instance, run.live.records
    tasks = (task for workflow in instance.workflows for task in workflow.tasks)
    if instance.batches or instance.streams is not None or any(mode.across != 1 for of in tasks for mode in of.choices):
        return None
    factor = np.ones(instance.n_tasks)
    for record in records.runs:
        # Per task, since a bound may take each at the time that it took.
        factor[record.subject] = max(1, record.took_us) / record.expected_us
    stretched = torn(_with_fastest_loads(stretch(instance, factor), run))
    bound = closed_form.best(stretched, Objective.MEAN_LATENCY)[0]
    return reported_bound(Objective.MEAN_LATENCY, bound)


def _with_fastest_loads(instance: Instance, run: Replayed) -> Instance:
    loads = [load for load in run.live.records.loads if load.took_us]
    fastest = max((Fraction(load.size_bytes * MICROSECONDS_PER_SECOND, load.took_us) for load in loads), default=None)
    if fastest is None:
        return instance
    gpus = tuple(
        # Overheads are in the measured times already.
        replace(gpu, load_bandwidth=max(gpu.load_bandwidth, fastest), load_overhead_us=0)
        for gpu in instance.cluster.gpus
    )
    return replace(instance, cluster=replace(instance.cluster, gpus=gpus))


def _contender(
    scenario: Scenario,
    name: str,
    time_limit_s: float,
    samples: Samples | None,
    seed: int,
    stop: threading.Event,
    kept: KeptRuns | None,
) -> Contender:
    instance = scenario.instance
    plan = None
    if name == PLAN:
        plan = _plan(scenario, time_limit_s, seed, stop, kept)
    elif is_file(name):
        plan = feasible_timeline(instance, Path(name))
    policy: Callable[[], Policy] = parse(name, scenario) if plan is None else replay(instance, plan)
    if instance_for(instance, policy) is not instance:
        raise DeviceError(f"policy {name} runs on a twin of the instance, whose models no device has; use another")
    foreseen = None if samples is None else forecast(instance, policy, samples, packed=plan is not None, seed=seed)
    return Contender(name, plan, policy, simulate(instance, policy, seed), foreseen)


def _plan(scenario: Scenario, time_limit_s: float, seed: int, stop: threading.Event, kept: KeptRuns | None) -> Timeline:
    """Return the plan that is kept, or make one and keep it: all runs of a trial carry out the same."""
    from truenorth.planner.answers import plan as planning  # a GPU host that is given plan files needs no solver
    from truenorth.solvers.first_use import compile_once

    instance, path = scenario.instance, None if kept is None else kept.folder / "plan.json"
    if path is not None and path.exists():
        return feasible_timeline(instance, path)
    compile_once(instance)  # no time limit allows for it
    plan = planning.solve(instance, scenario.objective, Budget(time_limit_s, seed=seed, stop=stop)).timeline
    if plan is None:
        raise QuestionError(f"no plan was found in {time_limit_s:g} s; allowed is more time", "time_limit_s")
    if kept is not None and path is not None and not stop.is_set():  # one that was cut short is made again
        header = TimelineHeader(objective=str(scenario.objective), seed=seed)
        kept.write_first(partial(write_timeline, path, instance, plan, header))
    return plan


def _value(scenario: Scenario, timeline: Timeline) -> float:
    objective = scenario.objective
    return float(reported_value(objective, timeline_value(objective, scenario.instance, timeline)))


def _total(found: Sequence[Sequence[int] | None]) -> int | None:
    known = [each for each in found if each is not None]
    return sum(map(len, known)) if known else None


def _interval(values: Sequence[float]) -> Interval:
    return interval_of(values) if values else NO_INTERVAL
