"""Measure a scenario's tasks, loads and transfers on this machine, and write the scenario that these figures make."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median_high
from typing import Any

import numpy as np

from truenorth.executor.devices.decoding import served_model
from truenorth.executor.devices.machine import measured_on
from truenorth.executor.devices.nodes import Nodes
from truenorth.executor.devices.profiling import (
    LiveTimes,
    Measurements,
    RoundSamples,
    TypicalRequest,
    measure,
    measure_live,
    round_together,
)
from truenorth.executor.devices.run import LiveSettings, live_crew
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.errors import DeviceError, StoppedError
from truenorth.executor.runners.factory import default_runner, runner_named
from truenorth.executor.samples import FittedLine, Spread
from truenorth.models.instance import Instance
from truenorth.models.record import ABSENT
from truenorth.models.scenario import InputError, Scenario, ScenarioDocument, build, write_atomically
from truenorth.models.scenario.section import validate
from truenorth.models.scenario.work import build_workflows
from truenorth.models.scenario.writing import write_scenario
from truenorth.models.units import say_bandwidth
from truenorth.planner.answers.kept import KeptRuns, identity, keeping
from truenorth.planner.answers.pool.on_ray import nodes_at
from truenorth.planner.answers.profile_document import (
    BatchProfiled,
    DispatchProfiled,
    LoadLine,
    ModelProfiled,
    ProfileRecord,
    StreamProfiled,
    TaskProfiled,
    TransferLine,
    measured_document,
)
from truenorth.planner.answers.shown import Answer
from truenorth.planner.inputs.samples import samples_path, samples_text
from truenorth.planner.questions.devices import ProfileQuestion
from truenorth.solvers.budget import Budget, tell_nobody


@dataclass(frozen=True, slots=True)
class Profile(Answer):
    """What was measured, and the scenario with these figures in place of its own.

    Parameters
    ----------
    scenario
        What was profiled.
    measurements
        Samples of every run, batch, load and transfer, and lines through loads and transfers.
    document
        The scenario file's content with measured figures; quantities are text with units.
    measured
        The scenario that this makes.
    kind, runner, rounds, beside
        How it was measured: the device, who computed, how often, and how many more GPUs did the same meanwhile.
    ended
        Why it ended before everything was measured, or None.
    """

    scenario: Scenario
    measurements: Measurements
    document: Mapping[str, Any]
    measured: Scenario
    kind: str
    runner: str
    rounds: int
    beside: int = 0
    ended: str | None = None

    def __repr__(self) -> str:
        return f"<Profile of {self.scenario.name!r} on {self.kind}: {self.rounds} rounds>"

    def record(self, path: Path | None = None) -> ProfileRecord:
        """Return the figures with the keys of ``profile --json``; `path` is where the scenario was written."""
        found = self.measurements
        loads = {name: _times(found.loads.get(name)) for name in found.weight_bytes}
        copied = found.load
        return ProfileRecord(
            found.device,
            self.kind,
            self.runner,
            self.rounds,
            self.beside,
            {name: ModelProfiled(size, *loads[name]) for name, size in found.weight_bytes.items()},
            [TaskProfiled(*key, *_times(spread), found.memory_bytes.get(key)) for key, spread in found.runs.items()]
            + [TaskProfiled(*key[:2], *_times(spread), None, key[2]) for key, spread in found.together.items()],
            [
                BatchProfiled(name, size, *_times(spread))
                for name, sizes in found.batches.items()
                for size, spread in sizes.items()
            ],
            None if copied is None else LoadLine(*_line(copied), found.copy_peak),
            None if found.transfer is None else TransferLine(*_line(found.transfer)),
            {sort: DispatchProfiled(*_times(spread)) for sort, spread in found.live.dispatch.items()},
            [
                StreamProfiled(
                    name,
                    times.prefill_rate,
                    times.kv_bytes,
                    {k: _times(of) for k, of in times.steps.items()},
                    *((times.context_us, times.mixed_us) if times.asked.apart else ()),
                )
                for name, times in found.streams.items()
            ],
            None if path is None else str(path),
            None if path is None else str(samples_path(path)),
        )

    def save(self, path: Path) -> list[Path]:
        """Write the measured scenario as YAML, and every sample as JSON beside it; return both paths.

        Raises
        ------
        InputError
            If a file cannot be written.
        """
        document = dict(self.document)
        # The file goes elsewhere, and names its trace relative to itself.
        trace = document["workload"].get("trace")
        if trace is not None:
            there = os.path.relpath(self.scenario.source.folder / trace["file"], path.parent)
            document["workload"] = {"trace": {**trace, "file": there}}
        samples = samples_path(path)
        write_scenario(path, document, self._told(samples.name))
        write_atomically(samples, samples_text(self._samples()))
        return [path, samples]

    def _samples(self) -> dict[str, Any]:
        """Return everything that was measured."""
        found = self.measurements
        return {
            "device": found.device,
            "kind": self.kind,
            "runner": self.runner,
            "rounds": self.rounds,
            "beside": self.beside,
            "runs": _by_workflow(found.runs),
            "batches": {
                name: {str(size): _rounded(spread) for size, spread in sizes.items()}
                for name, sizes in found.batches.items()
            },
            "loads": {name: _rounded(spread) for name, spread in found.loads.items()},
            "transfers": {str(size): _rounded(spread) for size, spread in found.transfers.items()},
            "live": _by_workflow(found.live.runs),
            **({"together": _by_number(found.together)} if found.together else {}),
            "dispatch": {sort: _rounded(spread) for sort, spread in found.live.dispatch.items()},
            "streams": {
                name: {"prompt": times.asked.prompt, "prefill": _rounded(times.prompt)}
                | {"steps": {str(k): _rounded(spread) for k, spread in times.steps.items()}}
                | ({"short": {str(k): _rounded(spread) for k, spread in times.short.items()}} if times.short else {})
                | ({} if times.mixed is None else {"mixed": [_rounded(spread) for spread in times.mixed]})
                for name, times in found.streams.items()
            },
        }

    def _told(self, samples: str) -> list[str]:
        """Return how it was measured, in words."""
        found = self.measurements
        beside = f" beside {self.beside} GPUs that did the same" if self.beside else ""
        lines = [
            f"Measured by truenorth profile on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {found.device}, "
            f"{platform.machine()}, torch {version('torch')}, runner {self.runner},",
            f"medians of {self.rounds} rounds{beside}; every sample is in {samples}.",
        ]
        if found.copy_peak is not None:
            lines.append(f"Best bare copy of the largest model: {say_bandwidth(found.copy_peak)}.")
        return lines


def answer_profile(asked: ProfileQuestion, scenario: Scenario, budget: Budget) -> Profile:
    """Measure a scenario's run times; measuring takes the time that it takes, whatever the budget is."""
    name = asked.runner or default_runner(scenario.instance)
    return profile(replace(asked, runner=name), scenario, runner_named(name))


def profile(asked: ProfileQuestion, scenario: Scenario, runner: MakeRunner) -> Profile:
    """Measure a scenario's tasks, loads and transfers on this machine, one at a time.

    Rounds that are found in the question's folder are not measured again.

    Parameters
    ----------
    runner
        Makes the runner that computes the tasks.

    Raises
    ------
    QuestionError
        If there is no cluster at the address, or the folder holds rounds of another question.
    DeviceError
        If the device or the runner cannot be used.
    StoppedError
        If it was told to end before anything had been measured.
    InputError
        If the scenario does not hold with what was measured, for instance because a model fits no GPU.
    """
    device, rounds, beside = asked.device, asked.rounds, asked.beside
    stop = (asked.stop or threading.Event()).is_set
    # From the document: an instance knows only the workflows that some job asks for.
    of_all = build_workflows(scenario.document).values()
    # Requests are measured as steps and prefills, not as runs.
    workflows = [of for of in of_all if all(task.stream is None for task in of.tasks)]
    requests = typical_requests(scenario.instance)
    needed = {name for of in workflows for task in of.tasks for name in task.models}
    needed.update(request.model for request in requests)
    models = [model for model in scenario.instance.models if model.name in needed]
    full: list[InputError] = []
    with ExitStack() as opened:
        nodes = opened.enter_context(nodes_at(asked.ray, device))
        measuring: Callable[..., Measurements]
        if nodes is None:
            measuring = partial(measure, models, workflows, runner(), device)
            if scenario.instance.gangs:
                crew = opened.enter_context(live_crew(scenario.instance, runner, LiveSettings(device)))
                measuring = partial(measuring, together=partial(round_together, crew, scenario.instance))
        elif scenario.instance.gangs:
            raise DeviceError("nodes of a Ray cluster run nothing on several GPUs yet; allowed is no --ray")
        else:
            from truenorth.executor.devices.far_profile import measure_on

            measuring = partial(measure_on, nodes, models, workflows, runner)
        machine = measured_on(device, nodes)
        kept = opened.enter_context(keeping(asked.folder, _what_is_measured(asked, scenario) | machine))

        def keep(number: int, samples: RoundSamples) -> None:
            """Write a round; where that cannot be done, it is the last one."""
            try:
                if kept is not None:
                    kept.keep(number, {"samples": [[list(key), times] for key, times in samples.items()]})
            except InputError as error:
                full.append(error)

        found = measuring(
            requests=requests,
            rounds=rounds,
            beside=beside,
            known=[] if kept is None else _read_rounds(kept, rounds),
            keep=keep,
            watch=asked.watch or tell_nobody,
            stop=lambda: bool(full) or stop(),
        )
        document = measured_document(scenario, found, asked.memory)
        measured = build(validate(ScenarioDocument, document, scenario.source), scenario.source)
        if found.rounds == rounds:
            found = replace(found, live=_live(measured.instance, runner, device, rounds, beside, nodes, stop))
    ended = str(full[0]) if full else "interrupted" if found.rounds < rounds or stop() else None
    return Profile(scenario, found, document, measured, device, asked.runner or "", found.rounds, beside, ended)


def _live(
    instance: Instance,
    runner: MakeRunner,
    device: str,
    rounds: int,
    beside: int,
    nodes: Nodes | None,
    stop: Callable[[], bool],
) -> LiveTimes:
    """Return what live runs show; nothing where none could be made, or it was to end."""
    with suppress(DeviceError, StoppedError):
        settings = LiveSettings(device)
        return measure_live(instance, runner, settings, rounds=rounds, beside=beside, nodes=nodes, stop=stop)
    return LiveTimes()


def _what_is_measured(asked: ProfileQuestion, scenario: Scenario) -> dict[str, Any]:
    """Return what decides what a round measures, besides the machine."""
    return identity(scenario) | {
        "document": hashlib.sha256(json.dumps(scenario.source.data(), default=str).encode()).hexdigest(),
        "device": asked.device,
        "runner": asked.runner or "",
        "beside": asked.beside,
    }


def _read_rounds(kept: KeptRuns, rounds: int) -> list[RoundSamples]:
    """Return the rounds that had ended before, up to the first that is missing or damaged."""
    found: list[RoundSamples] = []
    for number in range(1, rounds + 1):
        document = kept.read(number)
        if document is None:
            break
        found.append({tuple(key): times for key, times in document["samples"]})
    return found


def typical_requests(instance: Instance) -> list[TypicalRequest]:
    """Return what is to be measured of every stream class: a prompt, and steps half-way through an answer, at medians.

    Raises
    ------
    DeviceError
        If a class has no model, or several.
    """
    streams, found = instance.streams, []
    if streams is None:
        return []
    kinds = {gpu.kind for gpu in instance.cluster.gpus}
    of_task = streams.template[instance.task_template]
    for index, stream in enumerate(streams.classes):
        speeds = [speed for speed in map(stream.speed_on, sorted(kinds)) if speed is not None]
        requests = [streams.tokens(task) for task in np.flatnonzero(of_task == index).tolist()]
        # The higher median: a prompt that occurs, not a mean of two.
        prompt = median_high([tokens.uncached for tokens in requests if tokens.uncached] or [1])
        # Half-way through its answer a request has its mean context.
        context = median_high([tokens.prompt + tokens.output // 2 for tokens in requests])
        concurrency = sorted({k for speed in speeds for k in speed.step_us})
        chunk, apart = max(speed.chunk for speed in speeds), any(speed.context_ps or speed.mixed_us for speed in speeds)
        found.append(TypicalRequest(stream.name, served_model(stream), chunk, prompt, context, concurrency, apart))
    return found


def _by_workflow(runs: Mapping[tuple[str, str], Spread]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {}
    for (workflow, task), spread in runs.items():
        found.setdefault(workflow, {})[task] = _rounded(spread)
    return found


def _by_number(runs: Mapping[tuple[str, str, int], Spread]) -> dict[str, dict[str, dict[str, list[float]]]]:
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (workflow, task, gpus), spread in runs.items():
        found.setdefault(workflow, {}).setdefault(task, {})[str(gpus)] = _rounded(spread)
    return found


def _rounded(spread: Spread) -> list[float]:
    # Tenths of a microsecond; what would round to 0 keeps a digit, since samples are above 0.
    return [round(us, 1) or spread.samples_us[0] for us in spread.samples_us]


def _times(spread: Spread | None) -> tuple[float, float]:
    """Return median and 95 % quantile, in microseconds; absent where nothing was measured."""
    return (ABSENT, ABSENT) if spread is None else (round(spread.median_us, 1), round(spread.p95_us, 1))


def _line(line: FittedLine) -> tuple[int, float]:
    return round(line.bandwidth), round(line.overhead_us, 1)
