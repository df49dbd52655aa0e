"""Faults in the processes of devices: a run, a load or a transfer is struck, and what came of it is counted."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import comb
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from truenorth.executor import Policy, parse_policy, replay, simulate
from truenorth.executor.devices.crew import Crew
from truenorth.executor.devices.physical import Physical
from truenorth.executor.devices.records import STARTED_AGAIN
from truenorth.executor.devices.run import LiveRun, LiveSettings, live_crew, run_on
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station
from truenorth.models import GPU, Cluster, Edge, Instance, Job, Link, MLModel, Network, Task, Timeline, Workflow, check
from truenorth.models.objective import completion_us

POLICIES = ("plan", "jit", "compass", "srpt")
_BYTES = 1088
_WIDTH = 16
_LONG_S = 600.0


class Layers:
    """Every model is one linear layer of 16; a task applies its models to the sum of its inputs."""

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return weights drawn by the model's name."""
        source = torch.Generator().manual_seed(sum(map(ord, model.name)))
        return {"weight": torch.randn(_WIDTH, _WIDTH, generator=source), "bias": torch.randn(_WIDTH, generator=source)}

    def module(self, model: MLModel) -> nn.Module:
        """Return a layer without weights."""
        return nn.Linear(_WIDTH, _WIDTH, device="meta").eval()

    def run(self, call: RunnerCall) -> Tensor:
        """Compute a task."""
        values = torch.full((_WIDTH,), float(call.job + 1), device=call.device)
        for name in sorted(call.inputs):
            values = values + call.inputs[name].clone().view(torch.float32)
        for name in sorted(call.modules):
            values = torch.tanh(call.modules[name](values))
        return values

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Compute tasks one after the other, so that outputs stay the same bit for bit."""
        return [self.run(call) for call in calls]


def _raise() -> None:
    raise RuntimeError("injected")


def _spin() -> None:
    sum(iter(int, 1))  # the interpreter never lets go of its lock


def _exhaust() -> None:
    torch.empty(1 << 60, dtype=torch.uint8)


def _assert() -> None:
    raise torch.AcceleratorError("CUDA error: device-side assert triggered")


def _assert_for_good() -> None:
    patch.object(Physical, "answers", lambda physical: False).start()
    _assert()


IN_RUNS: Mapping[str, Callable[[], object]] = {
    "raise": _raise,
    "nan": lambda: None,
    "hang": partial(time.sleep, _LONG_S),
    "spin": _spin,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segmentation": partial(ctypes.string_at, 0),
    "exit": partial(os._exit, 3),
    "memory": _exhaust,
    "assert once": _assert,
    "assert": _assert_for_good,
}
"""What a run does on which a fault strikes; ``nan`` is what it puts out then."""
KINDS = (*IN_RUNS, "load", "transfer")
"""All that is injected into the processes of devices; a load or a transfer fails once."""
KEEPS = ("nan", "load", "transfer")
"""Those that cost no job."""


class Faulty(Layers):
    """Layers on which the fault strikes that a file names: kind, job and task. Whoever takes the file away is struck.

    Parameters
    ----------
    due
        The file; there is none while nothing is due.
    """

    def __init__(self, due: Path) -> None:
        self._due = due
        for name, kind in (("load_after", "load"), ("receive", "transfer")):
            patch.object(Station, name, self._failing(getattr(Station, name), kind)).start()

    def run(self, call: RunnerCall) -> Tensor:
        """Compute a task, or fail."""
        kind = self._strike(call.job, call.task)
        if kind in IN_RUNS:
            IN_RUNS[kind]()
        output = super().run(call)
        return output * torch.nan if kind == "nan" else output

    def _strike(self, *where: object) -> str:
        """Return the kind of fault that strikes here, empty without one."""
        with suppress(FileNotFoundError):
            kind, job, task = self._due.read_text().split(",")
            if where in ((int(job), task), (kind,)):
                self._due.unlink()  # where several are there at once one of them takes it
                return kind
        return ""

    def _failing(self, original: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def fail_once(station: Station, *given: Any) -> Any:
            """Do it, unless a fault is due."""
            if self._strike(kind):
                _raise()
            return original(station, *given)

        return fail_once


def forks(jobs: int, gpus: int) -> Instance:
    """Return forks and joins over three models, two of which fit a GPU, released 2 ms after each other."""
    edge = 4 * _WIDTH
    runtime = {"*": 200}
    workflow = Workflow(
        "fork",
        (
            Task("a", runtime, ("m0",)),
            Task("b", runtime, ("m1",), (Edge("a", edge),)),
            Task("c", runtime, ("m2",), (Edge("a", edge),)),
            Task("d", runtime, ("m0",), (Edge("b", edge), Edge("c", edge))),
        ),
    )
    cluster = Cluster(
        tuple(GPU(f"s{g}/g0", g, "core", 2 * _BYTES, Fraction(10**8)) for g in range(gpus)),
        Network(Link(200, Fraction(10**8)), Link(200, Fraction(10**8))),
    )
    models = tuple(MLModel(f"m{index}", _BYTES) for index in range(3))
    return Instance(cluster, models, tuple(Job(workflow, 2000 * job) for job in range(jobs)), catalogue=(workflow,))


@dataclass(slots=True)
class FaultsOutcome:
    """What runs with faults of a kind came to.

    Parameters
    ----------
    struck
        Runs in which the fault struck.
    lost, undeserved
        Jobs that failed; those that were not on the fault.
    spared
        Jobs that the fault struck in a run that was begun ahead and was wanted no more: their tasks ran again.
    wrong
        Outputs that are missing or differ from those of runs without a fault, rules that were broken, outputs that are
        no numbers and were not reported as such.
    again
        Processes that were started again.
    later
        Mean latency of the run after each, over that of one after a run without a fault, in turns.
    """

    runs: int = 0
    struck: int = 0
    lost: int = 0
    undeserved: int = 0
    spared: int = 0
    wrong: int = 0
    again: int = 0
    later: list[float] = field(default_factory=list)


class Injection:
    """Runs on one crew, with faults and without.

    Parameters
    ----------
    on
        What is run.
    due
        The file that says which fault is due.
    seed
        Of the jobs and tasks on which faults strike.
    """

    def __init__(self, on: Instance, crew: Crew, due: Path, seed: int) -> None:
        self._on, self._crew, self._due, self._draw = on, crew, due, random.Random(seed)  # noqa: S311
        self._settings = LiveSettings(limit_s=crew.limit_s)
        self._right = self._run("jit").digests

    def inject(self, kind: str, runs: int) -> FaultsOutcome:
        """Return what so many runs with a fault of a kind come to."""
        found = FaultsOutcome()
        for number in range(runs):
            policy = POLICIES[number % len(POLICIES)]
            turns = [self._draw_fault(kind), None]
            self._draw.shuffle(turns)
            latency_us: dict[bool, float] = {}
            for fault in turns:
                self._count(found, policy, kind, fault)
                latency_us[fault is not None] = self._latency_us(self._run(policy))
            found.later.append(latency_us[True] / latency_us[False])
        return found

    def _draw_fault(self, kind: str) -> tuple[str, int, str]:
        job = self._draw.randrange(1, len(self._on.jobs))  # the warm-up is job 0
        return kind, job, self._draw.choice("abcd")

    def _count(self, found: FaultsOutcome, policy: str, kind: str, fault: tuple[str, int, str] | None) -> None:
        """Make a run, and add what came of it."""
        if fault is not None:
            self._due.write_text(",".join(map(str, fault)))
        run = self._run(policy)
        struck = fault is not None and not self._due.exists()
        self._due.unlink(missing_ok=True)
        on_it = {fault[1]} if fault is not None and struck and kind not in KEEPS else set()
        failed = {failure.job for failure in run.records.failures}
        odd = {fault[1]} if fault is not None and struck and kind == "nan" else set()
        jobs = self._on.task_job.tolist()
        other = [
            task
            for task, bits in self._right.items()
            if jobs[task] not in odd | failed and run.digests.get(task) != bits
        ]
        broken = [
            each for each in check(self._on, run.timeline) if not any(f"job {job} " in each.subject for job in failed)
        ]
        found.runs += fault is not None
        found.struck += struck
        found.lost += len(failed)
        found.undeserved += len(failed - on_it)
        found.spared += len(on_it - failed)
        found.wrong += len(other) + len(broken) + ({jobs[task] for task in run.not_finite} != odd)
        found.again += sum(fault.what == STARTED_AGAIN for fault in run.records.faults)

    def _latency_us(self, run: LiveRun) -> float:
        return float((completion_us(self._on, run.timeline) - self._on.job_release_us).mean())

    def _run(self, policy: str) -> LiveRun:
        plan: Timeline | None = simulate(self._on, parse_policy("compass")) if policy == "plan" else None
        chosen: Callable[[], Policy] = parse_policy(policy) if plan is None else replay(self._on, plan)
        return run_on(self._crew, self._on, chosen, self._settings, plan=plan)


@contextmanager
def injection(on: Instance, limit_s: float = 2.0, seed: int = 0) -> Iterator[Injection]:
    """Set devices up, one per planned GPU."""
    cores = [Physical(torch.device("cpu"), f"virtual GPU {gpu}") for gpu in range(on.n_gpus)]
    with tempfile.TemporaryDirectory() as folder:
        due = Path(folder) / "due"
        with (
            patch("truenorth.executor.devices.run.physical_devices", lambda kind: cores),
            live_crew(on, partial(Faulty, due), LiveSettings(limit_s=limit_s)) as crew,
        ):
            yield Injection(on, crew, due, seed)


def middle(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the median of draws and the ends of an interval that holds that of all draws 95 times of 100, or more.

    The ends are draws: it counts how likely so many lie on one side of what half of all lie on. None: too few draws.

    >>> middle([5, 1, 2, 4, 3, 6]), middle([1, 2, 3])
    ((3.5, 1, 6), (2, None, None))
    """
    ordered, likely, rank = sorted(values), 0, 0
    while (likely := likely + comb(len(ordered), rank)) <= 2 ** len(ordered) / 40:
        rank += 1
    if rank == 0:
        return median(ordered), None, None
    return median(ordered), ordered[rank - 1], ordered[-rank]
