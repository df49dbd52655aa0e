"""Run a plan or an online policy on devices, in real time, and set what was measured beside what was predicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from truenorth.executor import Policy, instance_for, replay, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.records import Records
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.factory import default_runner, runner_named
from truenorth.executor.simulation import Durations, simulate_recorded
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective, timeline_value
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.check import feasible_timeline
from truenorth.planner.answers.forecast import forecast
from truenorth.planner.answers.policies.parse import parse
from truenorth.planner.answers.pool.on_ray import nodes_at
from truenorth.planner.answers.replay_report import CausesAdded
from truenorth.planner.answers.replayed import Replayed, batched_tasks
from truenorth.planner.answers.simulate import is_file
from truenorth.planner.inputs.samples import read_samples
from truenorth.planner.questions.devices import ReplayQuestion, TrialQuestion
from truenorth.solvers.budget import Budget


def answer_replay(asked: ReplayQuestion, scenario: Scenario, budget: Budget) -> Replayed:
    """Carry out a plan or a policy; it takes the time that it takes, whatever the budget is."""
    name = asked.runner or default_runner(scenario.instance)
    return replay_on_devices(replace(asked, runner=name), scenario, runner_named(name))


def live_settings(asked: ReplayQuestion | TrialQuestion) -> LiveSettings:
    """Return how a question wants planned GPUs to become devices."""
    return LiveSettings(asked.device, asked.virtual, asked.limit_s, ray=asked.ray)  # type: ignore[arg-type]


def replay_on_devices(asked: ReplayQuestion, scenario: Scenario, runner: MakeRunner) -> Replayed:
    """Run a plan or a policy on devices and compare it with its prediction.

    Parameters
    ----------
    asked
        Where outputs are checked, every task is run again alone afterwards and its output compared: bit for bit, those
        of batches as numbers; and what tasks hold is measured on cores, too.
    runner
        Makes the runner that computes the tasks.

    Raises
    ------
    PolicyError, DeviceError, InputError, QuestionError
        If the samples, the policy, the devices, the runner or the file cannot be used.
    """
    policy, seed, check_outputs, settings = asked.policy, asked.seed, asked.check_outputs, live_settings(asked)
    samples = None if asked.samples is None else read_samples(asked.samples)
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
    return Replayed(
        scenario, named, plan, asked.runner or "", settings, predicted, live, causes, different, foreseen, asked
    )


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
