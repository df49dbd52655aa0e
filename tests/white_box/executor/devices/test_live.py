"""Every policy and every replay keeps the rules on a clock that runs by itself; a plan keeps order and placement."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.executor.devices.small import BYTES, Small, gpus, instance
from tests.executor.scripted import Listed
from tests.instances import chain, random_instance, task
from tests.night import by_day
from truenorth.executor import Policy, PolicyError, parse_policy, replay, simulate
from truenorth.executor.devices.live import LiveDevice
from truenorth.executor.devices.run import LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.models import InitialResidency, Instance, MLModel, Timeline, check

SHARED = LiveSettings(sharing="serial")
POLICIES = ("compass:adjust=on", "srpt", "static", "compass", "jit", "ahead", "heft", "hash")


class Bytes:
    """Every model is one byte; a task puts out the sum of what it gets and of its models' bytes."""

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        return {"byte": torch.tensor([len(model.name)], dtype=torch.uint8)}

    def module(self, model: MLModel) -> nn.Module:
        module = nn.Module()
        module.register_buffer("byte", torch.zeros(1, dtype=torch.uint8))
        return module

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        return [self.run(call) for call in calls]

    def run(self, call: RunnerCall) -> Tensor:
        parts = [*call.inputs.values(), *(module.get_buffer("byte") for module in call.modules.values())]
        return torch.stack([part.sum() for part in parts]).sum() if parts else torch.tensor(call.job)


def orders(timeline: Timeline, n_gpus: int) -> list[list[int]]:
    by_start = sorted(range(len(timeline.place)), key=lambda t: (timeline.start_us[t], timeline.end_us[t]))
    return [[t for t in by_start if timeline.place[t] == gpu] for gpu in range(n_gpus)]


def loads(timeline: Timeline, n_gpus: int) -> list[list[int]]:
    ordered = sorted((r for r in timeline.residencies if not r.initial), key=lambda r: r.load_start_us)
    return [[r.model for r in ordered if r.gpu == gpu] for gpu in range(n_gpus)]


@pytest.mark.parametrize("seed", by_day(range(25), 2))
def test_random_plans_keep_rules_order_and_placement(seed: int) -> None:
    """Slots and bytes, overlap on and off, initial residencies, several models per task, restrictions."""
    made = random_instance(random.Random(seed), restricted=seed % 2 == 1)
    plan = _any_plan(made)
    if plan is None:
        return  # no online policy keeps to its restrictions
    run = run_live(made, replay(made, plan), Bytes, SHARED, plan=plan)
    assert run.records.failures == []
    assert check(made, run.timeline) == []
    assert run.timeline.place.tolist() == plan.place.tolist()
    assert orders(run.timeline, made.n_gpus) == orders(plan, made.n_gpus)
    assert loads(run.timeline, made.n_gpus) == loads(plan, made.n_gpus)


def _any_plan(made: Instance) -> Timeline | None:
    for policy in ("compass", "static"):
        with suppress(PolicyError):
            return simulate(made, parse_policy(policy))
    return None


@pytest.mark.parametrize("policy", by_day(POLICIES, 2))
@pytest.mark.parametrize("seed", by_day(range(3), 1))
def test_policies_keep_the_rules_live(policy: str, seed: int) -> None:
    made = random_instance(random.Random(seed + 100))
    run = run_live(made, parse_policy(policy), Bytes, SHARED)
    assert run.records.failures == []
    assert check(made, run.timeline) == []
    assert run.timeline.realised


class Received(Small):
    """Puts out how many bytes it got, and those behind the 64th; without any, 16 ones."""

    def run(self, call: RunnerCall) -> Tensor:
        for payload in call.inputs.values():
            return torch.tensor([len(payload), *payload[64:].tolist()])
        return torch.ones(16)


def test_an_edge_carries_the_output_cut_or_padded_to_its_bytes() -> None:
    """x puts out 16 numbers (64 bytes); y gets 80 bytes on its own GPU, z 8 bytes on another, w nothing."""
    tasks = [task("x", 10), *(task(name, 10, (), {"x": size}) for name, size in (("y", 80), ("z", 8), ("w", 0)))]
    settings = replace(SHARED, keep_outputs=True)
    run = run_live(instance([chain(*tasks)], [], gpus(2, BYTES)), lambda: Listed([0, 0, 1, 1]), Received, settings)
    assert run.records.failures == []
    assert [run.outputs[task].tolist() for task in (1, 2, 3)] == [[80] + [0] * 16, [8], [0]]
    assert sorted((sent.size_bytes, sent.gpu) for sent in run.records.transfers) == [(0, 1), (8, 1)]


def test_transfers_take_at_least_the_given_time() -> None:
    """The network between the scenario's servers is not in this machine, and rule T2 counts with it: 1 ms + 64 us."""
    on = instance([chain(task("x", 10), task("y", 10, (), {"x": 64}))], [], gpus(2, BYTES))
    run = run_live(on, lambda: Listed([0, 1]), Small, SHARED)
    assert run.timeline.start_us[1] >= run.timeline.end_us[0] + 1064


def test_initial_residencies_are_there_when_the_clock_starts() -> None:
    on = instance([chain(task("x", 10, ["m0"]))], ["m0"], gpus(1, BYTES))
    warm = replace(on, initial=(InitialResidency(0, 0),))
    run = run_live(warm, parse_policy("jit"), Small, LiveSettings())
    assert (run.records.loads, run.records.failures) == ([], [])
    assert check(warm, run.timeline) == []


def test_serialised_runs_never_overlap() -> None:
    on = instance([chain(task("x", 10)) for _ in range(12)], [], gpus(4, BYTES))
    run = run_live(on, lambda: Listed([k % 4 for k in range(12)]), Small, SHARED)
    spans = sorted((run.start_us, run.end_us) for run in run.records.runs)
    assert len(spans) == 12
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_a_policy_that_runs_on_a_twin_is_refused() -> None:
    on = instance([chain(task("x", 10, ["m0"]))], ["m0"], gpus(1, BYTES))
    with pytest.raises(PolicyError, match="runs on a twin of the instance"):
        run_live(on, parse_policy("compass-released"), Small, SHARED)


def test_the_machine_is_left_as_it_was() -> None:
    """No thread, no descriptor, no process but the one that waits for the next crew, and nothing in shared memory."""
    on = instance([chain(task("x", 10))], [], gpus(1, BYTES))

    def state() -> object:
        threads = torch.get_num_threads(), sys.getswitchinterval(), threading.active_count()
        return threads, len(os.listdir("/proc/self/fd")), sorted(os.listdir("/dev/shm")), children(os.getpid())  # noqa: S108

    run_live(on, parse_policy("jit"), Small, SHARED)
    before = state()
    run_live(on, parse_policy("jit"), Small, SHARED)
    assert state() == before


def children(process: int) -> list[int]:
    """Return the children of a process that are not its nursery's templates; those end on their own, a moment later."""
    return [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


HEAD = """
import sys, time
from pathlib import Path
from functools import partial
from tests.executor.devices.faulty import In, small, {do}
from tests.executor.devices.small import BYTES, gpus, instance
from tests.instances import chain, task
from truenorth.executor import parse_policy
from truenorth.executor.devices.run import LiveSettings, run_live
on = instance([chain(task("x", 10))] * 2, [], gpus(2, BYTES))
run_live(on, parse_policy("jit"), partial(small, In({do}, job=1, once=Path(sys.argv[1]))), LiveSettings())
"""


@pytest.mark.parametrize("do", by_day(["spin", "hang"], 1))
def test_nobody_is_left_behind_a_head_that_is_killed(do: str, tmp_path: Path) -> None:
    """It is killed while a run hangs, or holds Python's lock: all that it has started ends with it."""
    begun = tmp_path / "begun"
    head = subprocess.Popen([sys.executable, "-c", HEAD.format(do=do), str(begun)])  # noqa: S603
    wait_for(begun.exists)
    family = descendants(head.pid)
    assert len(family) == 4  # nursery, template and two devices
    head.kill()
    head.wait()
    wait_for(lambda: not any(Path(f"/proc/{process}").exists() for process in family))


IMPORTING = """
import sys, time
from truenorth.executor.devices.processes import start_nursery
sys.path.insert(0, sys.argv[1])
start_nursery()
time.sleep(600)
"""


def test_what_is_still_importing_ends_with_a_head_that_is_killed(tmp_path: Path) -> None:
    """What it imports in place of PyTorch never comes to an end."""
    begun = tmp_path / "begun"
    (tmp_path / "torch.py").write_text(f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)")
    head = subprocess.Popen([sys.executable, "-c", IMPORTING, str(tmp_path)])  # noqa: S603
    wait_for(begun.exists)
    (nursery,) = descendants(head.pid)
    head.kill()
    head.wait()
    wait_for(lambda: not Path(f"/proc/{nursery}").exists())


def descendants(process: int) -> list[int]:
    found = children(process)
    return found + [further for child in found for further in descendants(child)]


def wait_for(happens: Callable[[], bool]) -> None:
    """Wait until something happens; if it never does the test's own limit ends this."""
    while not happens():
        time.sleep(0.01)


def test_inputs_sent_to_a_gpu_that_the_task_has_left_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """x runs on GPU 0 and y is sent to GPU 1; before its input is there, y moves back and runs where x did."""
    devices: list[LiveDevice] = []
    make = LiveDevice.__init__

    def remember(device: LiveDevice, *given: object) -> None:
        devices.append(device)
        make(device, *given)  # type: ignore[arg-type]

    class Mover(Policy):
        def released(self, job: int) -> None:
            self.site.assign(0, 0)
            self.site.assign(1, 1)
            self.site.assign(2, 1)

        def act(self, gpus: Sequence[int]) -> None:
            site = self.site
            if site.jobs and site.ended_us[0] >= 0 and site.gpu[1] == 1:
                site.assign(1, 0)
            for ready in range(len(site.gpu)):
                if site.started_us[ready] < 0 and not site.inputs_missing[ready]:
                    site.start(ready)

    monkeypatch.setattr(LiveDevice, "__init__", remember)
    tasks = [task("x", 10), task("y", 10, (), {"x": 64}), task("z", 10, (), {"y": 64, "x": 64})]
    run = run_live(instance([chain(*tasks)], [], gpus(2, BYTES)), Mover, Small, SHARED)
    assert run.timeline.place.tolist() == [0, 0, 1]
    assert [(sent.subject, sent.target) for sent in run.records.transfers].count((0, 1)) == 1
    assert devices[0].outputs._received == {}
