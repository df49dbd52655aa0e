"""Runs on several GPUs: as many processes, whose parts add up; one that ends takes its run with it, nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.executor.devices.faulty import In, Raise, be_killed, failing_loads, hang
from tests.executor.devices.small import Small
from tests.executor.devices.together import LAYERS_BYTES, Layered, Summed
from tests.gangs import servers
from tests.night import by_day
from tests.split_models import draw_workflows, job, on_servers, window
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.devices import run as running
from truenorth.executor.devices.alone import different_outputs, outputs_alone
from truenorth.executor.devices.nodes import Nodes
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.records import STARTED_AGAIN
from truenorth.executor.devices.run import LiveRun, LiveSettings, live_crew, run_live, run_on
from truenorth.executor.devices.runner import MakeRunner, RunnerCall
from truenorth.executor.devices.team import Team
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.synthetic import SyntheticRunner, _folded_part, folded
from truenorth.models import Edge, Instance, Job, MLModel, Placement, Task, Timeline, Workflow, check

KEPT = LiveSettings(keep_outputs=True)


@pytest.fixture(autouse=True)
def _as_many_cores_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes may share a core here: what they compute and tell is tested, not how fast they are."""
    core = physical_devices("cpu")[0]
    monkeypatch.setattr(running, "physical_devices", lambda _: [replace(core, name=f"core {at}") for at in range(8)])


def played(made: Instance, runner: MakeRunner = Summed, settings: LiveSettings = KEPT) -> tuple[Timeline, LiveRun]:
    plan = simulate(made, parse_policy("fifo"))
    return plan, run_live(made, replay(made, plan), runner, settings, plan=plan)


def assert_as_planned(made: Instance, plan: Timeline, run: LiveRun) -> None:
    assert (run.records.failures, run.records.faults) == ([], [])
    assert check(made, run.timeline) == []
    assert run.timeline.place.tolist() == plan.place.tolist()
    loads = [[(stay.model, stay.gpu) for stay in each.residencies if not stay.initial] for each in (plan, run.timeline)]
    assert sorted(loads[0]) == sorted(loads[1])
    assert different_outputs(made, Summed, "cpu", run.outputs, 30) == []


@pytest.mark.parametrize("seed", by_day(range(12), 2))
def test_what_several_gpus_put_out_is_what_one_does(seed: int) -> None:
    """Random workflows with models, split and copied, modes and transfers; outputs bit for bit those of tasks alone."""
    made = draw_workflows(random.Random(seed), 5)
    plan, run = played(made)
    assert_as_planned(made, plan, run)


def test_outputs_travel_to_the_gpus_that_lack_them() -> None:
    """Of three GPUs a pair puts out, another pair and a single one get it, and all three what both make of it."""
    made = Workflow(
        "w",
        (
            Task("a", {"*": 10}, gpus=2),
            Task("b", {"*": 10}, inputs=(Edge("a", 8),), gpus=2),
            Task("c", {"*": 10}, inputs=(Edge("a", 8),)),
            Task("d", {"*": 10}, inputs=(Edge("b", 8), Edge("c", 8)), gpus=3),
            Task("e", {"*": 10}, inputs=(Edge("d", 8),)),
        ),
    )
    on = on_servers(servers(1, 3, "any"), [Job(made, 0)], {}, 10)
    pairs = {gpus: place for place, gpus in enumerate(on.places.gpus)}
    places = [pairs[0, 1], pairs[1, 2], 0, pairs[0, 1, 2], 2]
    starts = [0, 100_000, 100_000, 200_000, 300_000]
    placed = [
        Placement(task, place, start, start + 10)
        for task, (place, start) in enumerate(zip(places, starts, strict=True))
    ]
    plan = Timeline.build(5, placed, ())
    run = run_live(on, replay(on, plan), Summed, KEPT, plan=plan)
    assert_as_planned(on, plan, run)
    assert sorted((sent.subject, sent.gpu) for sent in run.records.transfers) == [
        (0, pairs[1, 2]),
        (1, pairs[0, 1, 2]),
        (2, pairs[0, 1, 2]),
    ]


@pytest.mark.parametrize("size", by_day([3, 2, 4], 1))
def test_layers_on_several_gpus_put_out_what_they_do_on_one(size: int) -> None:
    bytes_ = LAYERS_BYTES + 256
    made = window(job(size, 10, "m", "mm"), models={"m": bytes_, "mm": bytes_}, held=4, memory=2 * bytes_)
    _, run = played(made, Layered)
    (alone,) = (output for _, output in outputs_alone(made, Layered, "cpu", [0], 30))
    assert alone.abs().max() > 1
    torch.testing.assert_close(run.outputs[0], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("of", [2, 3, 7])
def test_parts_are_folded_to_what_the_whole_is(of: int) -> None:
    """Of sizes about whole rows of 1,024 bytes, and about multiples of the number of GPUs."""
    for size in (1, 5, 1023, 1024, 1025, 3 * 1024, of * 1024, of * 1024 + 1, of * 5000 - 1, 100_003):
        runner, model = SyntheticRunner(), MLModel("m", size)
        parts = [part["content"].clone() for part in runner.parts(model, of)]
        assert {len(part) for part in parts} == {-(-size // of)}
        added = sum(_folded_part(part, rank) for rank, part in enumerate(parts))
        assert torch.equal(torch.as_tensor(added), folded(runner.weights(model)["content"]))


def test_synthetic_work_puts_out_the_same() -> None:
    jobs = job(2, 30_000, "m"), job(2, 20_000, "m", "n", copies=True, release_us=1), job(1, 10_000, "n", release_us=2)
    made = window(*jobs, models={"m": 5001, "n": 3002}, memory=9000)
    plan, run = played(made, SyntheticRunner)
    assert (run.records.failures, check(made, run.timeline)) == ([], [])
    assert run.timeline.place.tolist() == plan.place.tolist() == [2, 2, 0]
    assert different_outputs(made, SyntheticRunner, "cpu", run.outputs, 30) == []


class _Alone:
    """Stands for a team of two of which the other one has nothing."""

    rank, size = 1, 2

    def add_up(self, tensor: Tensor) -> Tensor:
        return tensor


def test_work_fills_what_folding_and_adding_up_leave_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,180 us folding takes 100, each of two sums 50 and each way through both layers 10: it goes 98 times."""
    runner, team, asked = SyntheticRunner(), _Alone(), list[int]()
    runner._calibration._times["cpu"] = {"both layers on 2": 10.0, "w/run on 2": 100.0}
    runner._adding_us[team] = 50.0  # type: ignore[index]
    through = runner._through_layers

    def through_layers(device: torch.device, times: int, team: Team) -> Tensor:
        asked.append(times)
        return through(device, times, team)

    monkeypatch.setattr(runner, "_through_layers", through_layers)
    module = runner.part(MLModel("m", 4000), 2).to_empty(device="cpu")
    call = RunnerCall(0, "w", "run", {"m": module}, {}, torch.device("cpu"), 1_180, team, True)  # type: ignore[arg-type]
    runner.run(call)
    assert asked == [98]


FOUR = (job(2, 1000, "m"), job(2, 1000, "m", release_us=1), job(1, 1000, release_us=2), job(2, 1000, "m", release_us=3))


@pytest.mark.parametrize(
    ("do", "said", "again"),
    by_day(
        [
            (be_killed, "its process was killed by SIGKILL", 1),
            (hang, "was stuck for more than", 2),
            (Raise(ValueError("no")), "ValueError: no", 0),
        ],
        3,
    ),
    ids=["killed", "hangs", "raises"],
)
@pytest.mark.parametrize("gpu", by_day(["s0/g1", "s0/g0"], 1))
def test_what_fails_on_one_gpu_of_a_run_loses_the_run_alone(
    do: Callable[[], object], said: str, again: int, gpu: str
) -> None:
    """Job 1 fails on one of its two GPUs; the jobs behind it, on both and on one, run, and with what was resident."""
    made = window(*FOUR, models={"m": 9})
    runner = partial(Summed, In(do, job=1, gpu=gpu))
    _, run = played(made, runner, LiveSettings(limit_s=1.0, keep_outputs=True))
    (failed,) = run.records.failures
    assert (failed.job, failed.task, failed.gpu) == (1, 1, 2)
    assert said in failed.message
    assert [fault.what for fault in run.records.faults] == [STARTED_AGAIN] * again
    assert sorted(run.outputs) == [0, 2, 3]
    assert check(made, run.timeline) == []
    assert different_outputs(made, Summed, "cpu", run.outputs, 30) == []


def test_a_run_after_one_that_was_lost_is_as_any_other(tmp_path: Path) -> None:
    made = window(*FOUR, models={"m": 9})
    make = partial(Summed, In(be_killed, job=1, gpu="s0/g1", once=tmp_path / "killed"))
    with live_crew(made, make, KEPT) as crew:
        runs = [run_on(crew, made, parse_policy(policy), KEPT) for policy in ("fifo", "srpt")]
    assert [[failure.job for failure in run.records.failures] for run in runs] == [[1], []]
    assert [len(run.records.faults) for run in runs] == [1, 0]
    assert different_outputs(made, Summed, "cpu", runs[1].outputs, 30) == []


@pytest.mark.parametrize("policy", by_day(["easy", "compass", "sjf", "qssf", "fifo", "srpt"], 1))
def test_policies_keep_the_rules_live(policy: str) -> None:
    made = draw_workflows(random.Random(5), 6)
    run = run_live(made, parse_policy(policy), Summed, KEPT)
    assert (run.records.failures, check(made, run.timeline)) == ([], [])
    assert different_outputs(made, Summed, "cpu", run.outputs, 30) == []


def test_what_runs_nothing_on_several_gpus_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = window(job(2, 10), models={})
    with pytest.raises(DeviceError, match="Small computes on one GPU at a time; allowed for runs on several GPUs is"):
        run_live(made, parse_policy("fifo"), Small, KEPT)
    with pytest.raises(DeviceError, match="take a device for each: the scenario has 2 GPUs, and these are 1; allowed"):
        run_live(made, parse_policy("fifo"), Summed, LiveSettings(sharing="serial"))
    with pytest.raises(DeviceError, match="nodes of a Ray cluster run nothing on several GPUs yet"):
        run_live(made, parse_policy("fifo"), Summed, KEPT, nodes=Nodes(None, "cpu", []))


def _refusing_loads(gpu: str) -> Summed:
    failing_loads(Raise(RuntimeError("no")), gpu)
    return Summed()


def test_a_gpu_that_cannot_load_ends_the_run() -> None:
    made = window(*FOUR, models={"m": 9})
    with pytest.raises(DeviceError, match="s0/g1 serves no longer, and where runs take several GPUs none is set aside"):
        played(made, partial(_refusing_loads, "s0/g1"))
