"""``python -m experiments soak reloads|live``: reload models thousands of times, or let a policy plan live for long."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Annotated

import numpy as np
from torch import Tensor

from experiments.bench import ask
from truenorth.executor import Policy, parse_policy
from truenorth.executor.devices.alone import different_outputs, have_same_bits
from truenorth.executor.devices.run import LiveRun, LiveSettings, live_crew, run_on
from truenorth.executor.runners.synthetic import SyntheticRunner
from truenorth.models import GPU, Cluster, Edge, Instance, Job, Link, MLModel, Network, Task, Workflow, check
from truenorth.planner.answers.policies.receding_horizon import RecedingHorizon, RecedingOptions

_MB = 1_000_000
_US_PER_S = 1_000_000
_MODELS = 4
_EVERY = 1000
"""Reloads per run."""


def reloads(reloads: int = 10_000) -> None:
    """Reload four models of 1 MB in turn, two of which fit; exit with 1 if anything came out wrong."""
    raise SystemExit(1 if reload_often(reloads) else 0)


def live(minutes: float = 60.0, rate: Annotated[float, "jobs per second"] = 4.0, gpus: int = 1) -> None:
    """Let the policy receding plan live on chains of three tasks and four models; exit with 1 if it goes wrong."""
    raise SystemExit(1 if plan_live(minutes, rate, gpus) else 0)


def reload_often(reloads: int) -> int:
    """Load in runs of a thousand, all on one set-up; return how many outputs differ or rules are broken."""
    workflows = [Workflow(f"w{place}", (Task("t", {"*": 1}, (f"m{place}",)),)) for place in range(_MODELS)]
    jobs = tuple(Job(workflows[job % _MODELS], 0) for job in range(_EVERY))
    on = Instance(_cluster(1), _models(), jobs, catalogue=tuple(workflows))
    settings, runner = LiveSettings(keep_outputs=True), SyntheticRunner
    first: dict[int, Tensor] = {}
    done = wrong = 0
    print(f"{'reloads':>8}{'memory MB':>11}{'wrong':>7}")
    with live_crew(on, runner, settings) as crew:
        while done < reloads:
            # Least recently used of four in turn is always the next one needed: every task reloads.
            run = run_on(crew, on, parse_policy("lru"), settings)
            if not first:
                wrong += len(different_outputs(on, runner, "cpu", run.outputs, settings.limit_s))
                first = dict(run.outputs)
            wrong += sum(not have_same_bits(first[task], output) for task, output in run.outputs.items())
            wrong += len(run.records.failures) + len(check(on, run.timeline))
            done += len(run.records.loads)
            print(f"{done:>8}{_memory_mb():>11.1f}{wrong:>7}", flush=True)
    return wrong


def plan_live(minutes: float, rate: float, gpus: int) -> int:
    """Run the receding horizon for so long; return how many jobs fail or rules are broken."""
    on = _chains(minutes, rate, gpus)
    made: list[RecedingHorizon] = []

    def receding() -> Policy:
        made.append(RecedingHorizon(RecedingOptions()))
        return made[-1]

    with _memory_shown(max(10.0, minutes * 60 / 20), lambda: len(made[-1].decision_s) if made else 0):
        run = _run(on, receding)
    decisions = made[-1].decision_s
    wrong = len(run.records.failures) + len(check(on, run.timeline))
    cuts = quantiles(decisions, n=100, method="inclusive")
    late = quantiles([record.dispatch_us for record in run.records.runs], n=100, method="inclusive")
    print(f"{len(on.jobs)} jobs, {on.n_tasks} tasks, {len(run.records.loads)} loads, {wrong} wrong")
    print(f"{len(decisions)} decisions: median {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms", end=", ")
    print(f"longest {max(decisions) * 1e3:.1f} ms; dispatch median {late[49]:.0f} us, p99 {late[98]:.0f} us")
    return wrong


def _run(on: Instance, policy: Callable[[], Policy]) -> LiveRun:
    settings, runner = LiveSettings(), SyntheticRunner
    with live_crew(on, runner, settings) as crew:
        return run_on(crew, on, policy, settings)


def _chains(minutes: float, rate: float, gpus: int) -> Instance:
    """Return chains over models that do not all fit, 100 ms of work each, whose arrivals are a Poisson process."""
    draws = np.random.default_rng(0)
    workflows = tuple(_chain(place) for place in range(_MODELS))
    gaps = draws.exponential(1 / rate, max(2, round(minutes * 60 * rate)))
    released = (np.cumsum(gaps) * _US_PER_S).astype(int).tolist()
    kinds = draws.integers(_MODELS, size=len(released)).tolist()
    jobs = tuple(Job(workflows[kind], time_us) for kind, time_us in zip(kinds, released, strict=True))
    return Instance(_cluster(gpus), _models(), jobs, catalogue=workflows)


def _chain(place: int) -> Workflow:
    """Return three tasks over two models."""
    one, other = f"m{place}", f"m{(place + 1) % _MODELS}"
    tasks = [("a", 20_000, one), ("b", 60_000, other), ("c", 20_000, one)]
    before: Sequence[str] = ["", "a", "b"]
    return Workflow(
        f"chain{place}",
        tuple(
            Task(name, {"*": run_us}, (model,), (Edge(source, 1024),) if source else ())
            for (name, run_us, model), source in zip(tasks, before, strict=True)
        ),
    )


def _models() -> tuple[MLModel, ...]:
    return tuple(MLModel(f"m{place}", _MB) for place in range(_MODELS))


def _cluster(gpus: int) -> Cluster:
    """Return GPUs that hold two models each."""
    link = Link(200, Fraction(10**9))
    made = tuple(GPU(f"s{place}/g0", place, "core", 2 * _MB, Fraction(2 * 10**9)) for place in range(gpus))
    return Cluster(made, Network(link, link))


@contextmanager
def _memory_shown(every_s: float, decisions: Callable[[], int]) -> Iterator[None]:
    """Print the memory of the process now and then."""
    over = threading.Event()

    def show() -> None:
        print(f"{'s':>6}{'decisions':>11}{'memory MB':>11}", flush=True)
        seconds = 0.0
        while not over.wait(every_s):
            seconds += every_s
            print(f"{seconds:>6.0f}{decisions():>11}{_memory_mb():>11.1f}", flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _memory_mb() -> float:
    """Return what the process holds in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


main = partial(ask, {"reloads": reloads, "live": live})
