"""Batches and shares on devices: a pass per batch, several runs at a time on a GPU, rules kept, outputs the same."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.executor.devices.small import BYTES, Small, gpus
from tests.instances import chain, random_serving_instance, task
from tests.night import by_day
from tests.white_box.executor.devices.test_live import SHARED, Bytes
from truenorth.executor import PolicyError, parse_policy
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.run import LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.runners.factory import FactoryRunner
from truenorth.models import WHOLE, BatchClass, Edge, Instance, Job, MLModel, Task, check
from truenorth.planner.answers.replayed import batched_tasks

PAIRS = BatchClass("pairs", {"*": {1: 400, 2: 600}}, ("m",))
KEPT = LiveSettings(keep_outputs=True)


def of(tasks: Sequence[Task], overlap: bool = True) -> Instance:
    """Return a job per task, all released at 0, on one GPU with a model m."""
    jobs = tuple(Job(chain(task, name=f"w{index}"), 0) for index, task in enumerate(tasks))
    return Instance(gpus(1, 10 * BYTES), (MLModel("m", BYTES),), jobs, overlap)


class Scale(nn.Module):
    """A layer of ones over the first 16 bytes; how many tasks it was given at a time is written down."""

    def __init__(self, sizes: Path, name: str) -> None:
        super().__init__()
        self.weight, self.sizes = nn.Parameter(torch.rand(16, 16)), sizes

    def forward(self, data: Tensor) -> Tensor:
        note(self.sizes, len(data) if data.dim() > 1 else 1)
        return data[..., :16].float() @ self.weight


def note(path: Path, number: int) -> None:
    with path.open("a") as file:
        file.write(f"{number}\n")


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()]


def test_a_batch_is_one_pass_and_agrees_with_its_tasks_alone(tmp_path: Path) -> None:
    on, runner = of([Task.of_class("t", PAIRS)] * 4), partial(FactoryRunner, partial(Scale, tmp_path / "sizes"))
    run = run_live(on, parse_policy("jit"), runner, KEPT)
    sizes = noted(tmp_path / "sizes")
    # The warm-up runs sizes 1 and 2 of each of four workflows; greedy batches then take two at a time, one first.
    assert sizes[:8] == [1, 2] * 4
    together = batched_tasks(on, run.timeline)
    assert sum(sizes[8:]) == 4
    assert sizes[8:].count(2) * 2 == len(together) >= 2
    assert check(on, run.timeline) == []
    assert different_outputs(on, runner, "cpu", run.outputs, 30, together) == []
    # Rounding is allowed where tasks ran together, and nothing more.
    off = {**run.outputs, together[0]: run.outputs[together[0]] + 5e-4}
    assert different_outputs(on, runner, "cpu", off, 30, together) == []
    assert together[0] in different_outputs(on, runner, "cpu", off, 30)
    off[together[0]] = run.outputs[together[0]] + 1
    assert different_outputs(on, runner, "cpu", off, 30, together) == [together[0]]


class Meeting(Small):
    """Every run but the first four waits for three others."""

    def __init__(self) -> None:
        super().__init__(self.meet)
        self._calls, self._together = itertools.count(), threading.Barrier(4)

    def meet(self, call: RunnerCall) -> None:
        if next(self._calls) >= 4:
            self._together.wait(10)


def test_shares_run_at_the_same_time_with_one_model() -> None:
    """Four quarters of a GPU: after the warm-up each waits until all four are there."""
    on = of([Task("q", {"*": 500}, ("m",), (), WHOLE // 4)] * 4)
    run = run_live(on, parse_policy("jit"), Meeting, LiveSettings())
    assert run.records.failures == []
    assert check(on, run.timeline) == []


@pytest.mark.parametrize("seed", by_day(range(12), 2))
def test_random_serving_keeps_the_rules(seed: int) -> None:
    made = random_serving_instance(random.Random(seed), max_tasks=9)
    try:
        run = run_live(made, parse_policy("jit"), Bytes, SHARED)
    except PolicyError:
        return  # jit swaps, and this instance forbids it
    assert run.records.failures == []
    assert check(made, run.timeline) == []


class Failing(Small):
    """Fails in task a of the first workflow, and writes the sizes of batches down."""

    def __init__(self, sizes: Path) -> None:
        super().__init__(self.refuse)
        self._sizes = sizes

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        note(self._sizes, len(calls))
        return super().run_batch(calls)

    def refuse(self, call: RunnerCall) -> None:
        if (call.workflow, call.task, call.run_us) == ("w0", "a", 100):
            raise ValueError("no")


def test_a_batch_goes_on_without_a_member_whose_job_has_failed(tmp_path: Path) -> None:
    """Both jobs run a, then b in one class; a of job 0 fails, so b of job 1 runs alone in their batch."""
    after_a = Task.of_class("b", PAIRS, (Edge("a", 64),))
    jobs = tuple(Job(chain(task("a", 100), after_a, name=f"w{index}"), 0) for index in range(2))
    on = Instance(gpus(1, 10 * BYTES), (MLModel("m", BYTES),), jobs)
    run = run_live(on, parse_policy("jit:batch=delay:1s"), partial(Failing, tmp_path / "sizes"), LiveSettings())
    assert [(failure.job, failure.message) for failure in run.records.failures] == [(0, "ValueError: no")]
    assert noted(tmp_path / "sizes") == [
        2,
        2,
    ]  # the warm-up of both workflows; in the run one task was left of the batch
    assert {run.subject: run.error for run in run.records.runs if run.subject in (1, 3)} == {
        1: "job 0 had failed",
        3: None,
    }
    assert run.timeline.start_us[1] == run.timeline.start_us[3]
    assert check(on, run.timeline) == []
