"""``python -m experiments.faults``: inject faults into runs on cores, and print what was lost by policy."""

from __future__ import annotations

import random
import resource
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from experiments.bench import ask, bench
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station
from truenorth.models import GPU, Cluster, Edge, Instance, Job, Link, MLModel, Network, Task, Workflow, check

KINDS = ("load", "run", "transfer", "lost")
"""What is injected: a load, a run or a transfer that fails once, or a GPU of which everything fails from then on."""
_BYTES = 1088
_WIDTH = 16


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


@dataclass(slots=True)
class Injected:
    """Faults that are to come, and what they have hit.

    Parameters
    ----------
    at
        Kind of fault by number of the operation, counted over loads, runs and transfers since the warm-up; it strikes
        the next operation of its kind.
    """

    at: Mapping[int, str]
    armed: bool = False
    operations: int = 0
    jobs_hit: set[int] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    pending: list[str] = field(default_factory=list)
    faults: int = 0
    _counting: Any = field(default_factory=threading.Lock)

    def strike(self, station: Station, kind: str, jobs: Sequence[int] = ()) -> None:
        """Raise if a fault is due for this operation; note which jobs were on it."""
        if not self.armed:
            return
        with self._counting:
            due = self.at.get(self.operations)
            self.operations += 1
            if due == "lost":
                self.dead.add(station.id)
            elif due is not None:
                self.pending.append(due)
            if station.id not in self.dead:
                if kind not in self.pending:
                    return
                self.pending.remove(kind)
            self.faults += 1
            self.jobs_hit.update(jobs)
        raise RuntimeError(f"injected: {kind} on {station.id}")


@contextmanager
def faulty_stations(injected: Injected) -> Iterator[None]:
    """Let stations fail where faults are due."""
    load_after, run, receive = Station.load_after, Station.run, Station.receive

    def failing_load(station: Station, *given: Any, **anew: Any) -> Any:
        injected.strike(station, "load")
        return load_after(station, *given, **anew)

    def failing_run(station: Station, works: Any, *given: Any) -> Any:
        injected.strike(station, "run", [work.job for work in works])
        return run(station, works, *given)

    def failing_receive(station: Station, *given: Any) -> Any:
        injected.strike(station, "transfer")
        return receive(station, *given)

    with ExitStack() as patched:
        for name, failing in (("load_after", failing_load), ("run", failing_run), ("receive", failing_receive)):
            patched.enter_context(patch.object(Station, name, failing))
        yield


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


@dataclass(frozen=True, slots=True)
class FaultsOutcome:
    """What one run with faults came to.

    Parameters
    ----------
    faults
        Operations that failed.
    lost
        Jobs that failed.
    undeserved
        Jobs that failed though no run of theirs did, and no rule says that they do.
    wrong
        Outputs that differ from those of models loaded alone, and rules that were broken.
    """

    faults: int
    lost: int
    undeserved: int
    wrong: int


def run_with_faults(on: Instance, policy: str, seed: int, most: int = 3) -> FaultsOutcome:
    """Carry out an instance while up to so many faults of random kinds strike at random moments.

    Parameters
    ----------
    policy
        An online policy, or ``plan``: what Compass makes of it, replayed.
    """
    draw = random.Random(seed)  # noqa: S311
    at = {draw.randrange(on.n_tasks): draw.choice(KINDS) for _ in range(draw.randint(1, most))}
    deaths = [place for place, kind in at.items() if kind == "lost"]
    for place in deaths[on.n_gpus - 1 :]:
        at[place] = "run"  # one GPU stays alive
    injected = Injected(at)
    run = _carry_out(on, policy, injected)
    failed = {failure.job for failure in run.records.failures}
    with_inputs_lost = {f.job for f in run.records.failures if f.message.startswith("its input did not arrive")}
    wrong = len(different_outputs(on, Layers(), "cpu", run.outputs, 30))
    return FaultsOutcome(
        injected.faults,
        len(failed),
        len(failed - injected.jobs_hit - with_inputs_lost),
        wrong + len(check(on, run.timeline)),
    )


def _carry_out(on: Instance, policy: str, injected: Injected) -> LiveRun:
    """Run with faults that begin with the clock."""
    plan = simulate(on, parse_policy("compass")) if policy == "plan" else None
    chosen = parse_policy(policy) if plan is None else replay(on, plan)

    def begin() -> Any:
        """Make the policy; faults begin with its first decision."""
        made = chosen()
        start = made.begin

        def armed(site: Any) -> None:
            injected.armed = True
            start(site)

        made.begin = armed  # type: ignore[method-assign]
        return made

    with faulty_stations(injected):
        return run_live(on, begin, Layers(), LiveSettings(sharing="serial", keep_outputs=True), plan=plan)


POLICIES = ("plan", "jit", "compass", "srpt")


def faults(runs: Annotated[int, "over all policies"] = 1000, jobs: int = 10, gpus: int = 3) -> None:
    """Print a row per policy; exit with 1 if a job was lost that was not on a fault, or something came out wrong."""
    on = forks(jobs, gpus)

    def injected(place: int) -> dict[str, Any]:
        found = [run_with_faults(on, POLICIES[place], seed) for seed in range(place, runs, len(POLICIES))]
        names = ("faults", "lost", "undeserved", "wrong")
        return {name: sum(getattr(outcome, name) for outcome in found) for name in names} | {
            "runs": len(found),
            "jobs": len(found) * jobs,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    rows = bench(
        ((policy, place) for place, policy in enumerate(POLICIES)),
        injected,
        "{name:<10}{runs:>6}{jobs:>8}{faults:>8}{lost:>6}{undeserved:>12}{wrong:>7}{peak:>9.0f}",
        f"{'policy':<10}{'runs':>6}{'jobs':>8}{'faults':>8}{'lost':>6}{'undeserved':>12}{'wrong':>7}{'peak MB':>9}",
    )
    raise SystemExit(1 if sum(row["undeserved"] + row["wrong"] for row in rows) else 0)


if __name__ == "__main__":
    ask(faults)
