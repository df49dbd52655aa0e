"""What fails takes its job with it and nothing else; whatever happens, a run comes to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.executor.devices.faulty import (
    In,
    Raise,
    Slowly,
    assert_on_device,
    be_killed,
    exhaust_memory,
    failing_loads,
    failing_transfers,
    hang,
    leave,
    segmentation_fault,
    slow_to_tell,
    small,
    spin,
    without_answers,
    without_warm_up,
)
from tests.executor.devices.small import BYTES, Small, gpus, instance
from tests.executor.scripted import Listed
from tests.instances import chain, task
from tests.night import by_day
from truenorth.executor import parse_policy
from truenorth.executor import replay as replay_of
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.crew import assign
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.records import SET_ASIDE, STARTED_AGAIN, Fault
from truenorth.executor.devices.run import LiveRun, LiveSettings, live_crew, run_live, run_on
from truenorth.executor.devices.runner import MakeRunner, RunnerCall
from truenorth.executor.errors import DeviceError
from truenorth.executor.simulation import simulate
from truenorth.models import Instance, MLModel, Restrictions, check

FORK = chain(
    task("a", 100, ["m0"]),
    task("b", 100, ["m1"], {"a": 64}),
    task("c", 100, ["m0"], {"a": 64}),
    task("d", 100, ["m1"], {"b": 64, "c": 64}),
)
PATIENT = LiveSettings(keep_outputs=True)
SHORT = LiveSettings(limit_s=0.6, keep_outputs=True)


@pytest.fixture(params=by_day(["compass", "replay", "jit", "srpt", "static"], 2))
def play(request: pytest.FixtureRequest) -> Callable[..., LiveRun]:
    """Carry out an online policy, or a replay of what compass plans."""

    def carried_out(on: Instance, runner: MakeRunner, settings: LiveSettings = PATIENT) -> LiveRun:
        if request.param == "replay":
            plan = simulate(on, parse_policy("compass"))
            return run_live(on, replay_of(on, plan), runner, settings, plan=plan)
        return run_live(on, parse_policy(request.param), runner, settings)

    return carried_out


def forks(jobs: int, memory: int = 2 * BYTES, count: int = 2) -> Instance:
    return instance([FORK] * jobs, ["m0", "m1"], gpus(count, memory))


def faulty(do: Callable[[], object], **where: object) -> MakeRunner:
    """Return what makes a runner that does something in some runs."""
    return partial(small, In(do, **where))  # type: ignore[arg-type]


def ran(run: LiveRun) -> set[int]:
    return {record.subject for record in run.records.runs if record.error is None}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("CUDA error: unspecified launch failure\nmore"),
            "RuntimeError: CUDA error: unspecified launch failure",
        ),
        (torch.OutOfMemoryError("tried to allocate 3 GiB"), "OutOfMemoryError: tried to allocate 3 GiB"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_runner_that_raises_fails_its_job_alone(
    play: Callable[..., LiveRun], error: BaseException, said: str
) -> None:
    """Job 1 fails in b: its a ran, its d cannot; c may have run beside b. Jobs 0 and 2 run whole."""
    on = forks(3)
    run = play(on, faulty(Raise(error), job=1, task="b"))
    assert [(f.job, f.task, f.message) for f in run.records.failures] == [(1, 5, said)]
    assert ran(run) - {6} == {0, 1, 2, 3, 4, 8, 9, 10, 11}
    assert check(on, run.timeline) == []


class Returning(Small):
    """Puts out something else."""

    def __init__(self, returned: Tensor | None) -> None:
        super().__init__()
        self.returned = returned

    def run(self, call: RunnerCall) -> Tensor:
        return self.returned  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("returned", "said"), [(None, "a NoneType"), (torch.ones(1, device="meta"), "a tensor on meta")]
)
def test_what_is_no_tensor_on_the_device_fails_the_task(returned: Tensor | None, said: str) -> None:
    run = run_live(instance([X], ["m0"], gpus(1, BYTES)), parse_policy("jit"), partial(Returning, returned), PATIENT)
    allowed = "allowed is a tensor on cpu"
    assert [f.message for f in run.records.failures] == [f"TypeError: the runner returned {said}; {allowed}"]


def test_every_job_may_fail(play: Callable[..., LiveRun]) -> None:
    run = play(forks(3), faulty(Raise(ValueError("no")), task="a"))
    assert sorted((f.job, f.message) for f in run.records.failures) == [(j, "ValueError: no") for j in range(3)]
    assert ran(run) == set()


STUCK = "was stuck for more than 0.6 s"
ENDS = {
    "killed": (be_killed, "its process was killed by SIGKILL"),
    "segmentation fault": (segmentation_fault, "its process was killed by SIGSEGV"),
    "exit": (leave, "its process ended with exit code 3"),
    "hang": (hang, STUCK),
    "spin": (spin, STUCK),
}


@pytest.mark.parametrize(("do", "said"), by_day(ENDS.values(), 3), ids=ENDS)
@pytest.mark.parametrize("count", by_day([2, 1], 1))
def test_what_ends_a_process_costs_the_job_that_it_was_at(
    play: Callable[..., LiveRun], count: int, do: Callable[[], None], said: str
) -> None:
    """Its GPU is started again with what was resident, and goes on with the other jobs, and so does the only one."""
    on = forks(3, count=count)
    run = play(on, faulty(do, job=1, task="b"), SHORT)
    (failed,) = run.records.failures
    assert (failed.job, failed.task) == (1, 5)
    assert failed.message.endswith(said)
    assert [(fault.what, fault.message) for fault in run.records.faults] == [(STARTED_AGAIN, failed.message)]
    assert ran(run) - {6} == {0, 1, 2, 3, 4, 8, 9, 10, 11}
    assert check(on, run.timeline) == []
    assert different_outputs(on, Small, "cpu", run.outputs, 30) == []


@pytest.mark.parametrize(("do", "said"), by_day(ENDS.values(), 2), ids=ENDS)
def test_what_a_process_had_yet_to_tell_is_not_what_ended_it(do: Callable[[], None], said: str) -> None:
    """Every x is queued behind the one before it, which has ended, untold, when job 1 ends the process; it runs again.

    So does job 0, and the jobs behind run once; nobody's output lies where another's does.
    """
    on = instance([X] * 5, ["m0"], gpus(1, BYTES))
    plan = simulate(on, parse_policy("jit"))
    runner = partial(slow_to_tell, partial(small, Slowly(In(do, job=1))))
    run = run_live(on, replay_of(on, plan), runner, SHORT, plan=plan)
    (failed,) = run.records.failures
    assert failed.job == 1
    assert failed.message.endswith(said)
    assert [fault.what for fault in run.records.faults] == [STARTED_AGAIN]
    assert ran(run) == {0, 2, 3, 4}
    assert check(on, run.timeline) == []
    assert different_outputs(on, Small, "cpu", run.outputs, 30) == []


def test_exhausted_memory_costs_its_job_alone(play: Callable[..., LiveRun]) -> None:
    run = play(forks(3), faulty(exhaust_memory, job=1, task="b"))
    assert [(failure.job, failure.task) for failure in run.records.failures] == [(1, 5)]
    assert run.records.failures[0].message.startswith("RuntimeError: [enforce fail at alloc_cpu.cpp")
    assert run.records.faults == []


def test_what_ends_a_process_leaves_later_runs_alone(tmp_path: Path) -> None:
    """Three runs on one crew; the first loses a job, the others nothing, and their outputs are the same bit for bit."""
    on, make = forks(3), faulty(be_killed, job=1, task="b", once=tmp_path / "killed")
    with live_crew(on, make, PATIENT) as crew:
        runs = [run_on(crew, on, parse_policy("jit"), PATIENT) for _ in range(3)]
    assert [[failure.job for failure in run.records.failures] for run in runs] == [[1], [], []]
    assert [len(run.records.faults) for run in runs] == [1, 0, 0]
    assert [len(run.outputs) for run in runs[1:]] == [12, 12]
    assert all(torch.equal(output, runs[2].outputs[task]) for task, output in runs[1].outputs.items())


def test_a_process_that_ends_again_and_again_is_done_without() -> None:
    """On GPU 0 both tasks end it: the fourth time it is set aside, and what has not begun there moves to GPU 1."""
    on = instance([X, Y, X, Y, X, Y], ["m0", "m1"], gpus(2, 2 * BYTES))
    runner = partial(without_warm_up, faulty(be_killed, gpu="s0/g0"))
    run = run_live(on, lambda: Listed([0] * 6, prefetch=0), runner, PATIENT)
    assert sorted(failure.job for failure in run.records.failures) == [0, 1, 2, 3]
    assert [fault.what for fault in run.records.faults] == [STARTED_AGAIN] * 4 + [SET_ASIDE]
    assert ran(run) == {4, 5}
    assert run.timeline.place.tolist() == [0, 0, 0, 0, 1, 1]
    assert check(on, run.timeline) == []


def test_a_task_that_always_ends_its_process_costs_its_own_jobs_alone(play: Callable[..., LiveRun]) -> None:
    """No GPU is to blame for it, however often it comes."""
    on = instance([X, Y] * 6, ["m0", "m1"], gpus(2, 2 * BYTES))
    run = play(on, faulty(leave, task="x"), PATIENT)
    assert sorted(failure.job for failure in run.records.failures) == [0, 2, 4, 6, 8, 10]
    assert {fault.what for fault in run.records.faults} == {STARTED_AGAIN}
    assert ran(run) == {1, 3, 5, 7, 9, 11}


X, Y = chain(task("x", 100, ["m0"]), name="x"), chain(task("y", 100, ["m1"]), name="y")


def loads_of_m1_on_the_first_gpu(instead: Callable[[], object], tries: int) -> tuple[Instance, LiveRun]:
    """Run x, y, x on GPU 0, y on GPU 1, y on GPU 0; `instead` happens in the first tries to load m1 on GPU 0."""
    on = instance([X, Y, X, Y, Y], ["m0", "m1"], gpus(2, 2 * BYTES))
    runner = partial(failing_loads, instead, "s0/g0", 1, tries)
    return on, run_live(on, lambda: Listed([0, 0, 0, 1, 0], prefetch=0), runner, SHORT)


def test_nobody_waits_for_a_model_that_a_stuck_run_uses(tmp_path: Path) -> None:
    """One GPU has room for one model; job 0 hangs with m0, y takes its place, and m0 has to come again for job 2."""
    on = instance([X, Y, X, Y], ["m0", "m1"], gpus(1, BYTES))
    runner = partial(without_warm_up, faulty(hang, job=0, task="x"))
    run = run_live(on, lambda: Listed([0, 0, 0, 0], prefetch=0), runner, SHORT)
    assert [(failure.job, failure.gpu) for failure in run.records.failures] == [(0, 0)]
    assert ran(run) == {1, 2, 3}
    assert [load.subject for load in run.records.loads] == [0, 1, 0, 1]
    assert check(on, run.timeline) == []


def test_what_was_resident_is_loaded_anew() -> None:
    """The run before the last ends the process; the last one uses the same model, and no load is ordered for it."""
    on = instance([X, X, X], ["m0"], gpus(1, BYTES))
    run = run_live(on, parse_policy("jit"), faulty(be_killed, job=1), PATIENT)
    assert [load.subject for load in run.records.loads] == [0]
    assert ran(run) == {0, 2}
    assert different_outputs(on, Small, "cpu", run.outputs, 30) == []


def refuse() -> None:
    raise RuntimeError("CUDA error: invalid argument")


def test_a_load_that_fails_is_tried_again() -> None:
    on, run = loads_of_m1_on_the_first_gpu(refuse, 2)
    said = Fault("load of m1", 0, 0, "RuntimeError: CUDA error: invalid argument")
    assert [replace(fault, at_us=0) for fault in run.records.faults] == [said, said]
    assert run.records.failures == []
    assert ran(run) == {0, 1, 2, 3, 4}
    assert run.timeline.place.tolist() == [0, 0, 0, 1, 0]
    assert check(on, run.timeline) == []


@pytest.mark.parametrize("stalls", [False, True])
def test_a_gpu_that_cannot_load_is_set_aside_and_its_work_moved(stalls: bool) -> None:
    """Three tries that fail, or one that never ends: every job still runs, those with y on the other GPU."""
    on, run = loads_of_m1_on_the_first_gpu(hang if stalls else refuse, 3)
    before = [STARTED_AGAIN] * 4 if stalls else ["load of m1"] * 3
    assert [fault.what for fault in run.records.faults] == [*before, SET_ASIDE]
    assert run.records.failures == []
    assert ran(run) == {0, 1, 2, 3, 4}
    assert run.timeline.place[[1, 3, 4]].tolist() == [1, 1, 1]
    assert [stay.gpu for stay in run.timeline.residencies if stay.model == 1] == [1]
    assert check(on, run.timeline) == []


def test_without_another_gpu_jobs_fail_and_the_run_ends() -> None:
    """Two jobs come while m1 cannot be loaded, one after the GPU was set aside."""
    on = instance([X, Y, Y], ["m0", "m1"], gpus(1, BYTES))
    on = replace(on, jobs=(*on.jobs[:2], replace(on.jobs[2], release_us=100_000)))
    run = run_live(on, parse_policy("jit"), partial(failing_loads, refuse), PATIENT)
    assert ran(run) == set()
    assert sorted((f.job, f.gpu) for f in run.records.failures) == [(0, None), (1, None), (2, None)]


def test_an_error_of_cuda_that_leaves_the_device_well_is_its_task_s_own() -> None:
    """Task x fails wherever it runs, as with a launch of too many threads: no GPU is to blame, and y runs."""

    on = instance([X, X, X, Y, Y, Y], ["m0", "m1"], gpus(2, 2 * BYTES))
    run = run_live(on, parse_policy("jit"), faulty(assert_on_device, task="x"), PATIENT)
    assert sorted(failure.job for failure in run.records.failures) == [0, 1, 2]
    assert (run.records.faults, ran(run)) == ([], {3, 4, 5})


def test_an_assertion_in_a_kernel_costs_one_job() -> None:
    """CUDA answers every call with it from then on; the process of GPU 0 ends, and another has a device that works."""
    on = instance([X, X, X, Y], ["m0", "m1"], gpus(2, 2 * BYTES))
    runner = partial(without_answers, faulty(assert_on_device, job=1, gpu="s0/g0"))
    run = run_live(on, lambda: Listed([0, 0, 1, 0], prefetch=0), runner, SHORT)
    said = "AcceleratorError: CUDA error: device-side assert triggered"
    assert [(failure.job, failure.message) for failure in run.records.failures] == [(1, said)]
    assert [(fault.what, fault.gpu, fault.message) for fault in run.records.faults] == [(STARTED_AGAIN, 0, said)]
    assert ran(run) == {0, 2, 3}


@pytest.mark.parametrize(
    ("restrictions", "lost"),
    [
        (Restrictions(no_swaps=True), [3]),
        (Restrictions(max_replicas={"m0": 1}), [3]),
        (Restrictions(no_swaps=True, max_replicas={"m0": 1}), [3]),
    ],
    ids=["no swaps", "one replica", "both"],
)
def test_restrictions_hold_after_a_loss(restrictions: Restrictions, lost: list[int]) -> None:
    """A plan has m0 on GPU 0 for jobs 0 to 2 and m1 on GPU 1 for job 4; nothing can be loaded on GPU 0.

    GPU 1 has room for two models. m0 finds a home there for jobs 1 and 2, and m2 (job 3) none any more, since nothing
    leaves. Where m0 may be on one GPU alone, and may not leave the lost one, m2 finds a home in its stead.
    """
    tasks = [X, X, X, chain(task("z", 10, ["m2"])), Y]
    on = instance(tasks, ["m0", "m1", "m2"], gpus(2, 2 * BYTES), restrictions=restrictions)
    plan = simulate(replace(on, restrictions=Restrictions()), lambda: Listed([0, 0, 0, 0, 1], prefetch=0))
    assert check(on, plan) == []

    run = run_live(on, replay_of(on, plan), partial(failing_loads, refuse, "s0/g0"), SHORT, plan=plan)
    failed = [failure.job for failure in run.records.failures]
    assert sorted(failed) == lost
    assert [v for v in check(on, run.timeline) if not v.subject.startswith(tuple(f"job {job} " for job in lost))] == []


def test_runs_that_fail_in_a_row_set_a_gpu_aside_unless_the_task_is_at_fault() -> None:
    """On GPU 0 every run fails: x, x, y, so it goes; x, x, x and all others are the task's own fault."""

    runner = partial(without_warm_up, faulty(Raise(RuntimeError("no")), gpu="s0/g0"))
    for jobs, failed in (([X, X, Y, X, Y, Y], 3), ([X] * 6, 6)):
        on = instance(jobs, ["m0", "m1"], gpus(2, 2 * BYTES))
        run = run_live(on, lambda: Listed([0] * 6, prefetch=0), runner, PATIENT)
        assert [f.job for f in run.records.failures] == list(range(failed))
        assert run.timeline.place.tolist() == [0] * failed + [1] * (6 - failed)
        assert check(on, run.timeline) == []


@pytest.mark.parametrize("tries", [2, 3])
def test_an_input_that_does_not_arrive_is_sent_again_and_then_fails_the_job(tries: int) -> None:
    pair = chain(task("x", 100), task("y", 100, (), {"x": 64}))
    on = instance([pair, pair], [], gpus(2, BYTES))
    runner = partial(failing_transfers, Raise(RuntimeError("CUDA error: peer access")), 64, tries)
    run = run_live(on, lambda: Listed([0, 1, 0, 0]), runner, PATIENT)
    assert [fault.what for fault in run.records.faults] == ["transfer to y"] * tries
    if tries == 2:
        assert ran(run) == {0, 1, 2, 3}
    else:
        assert [(f.job, f.task) for f in run.records.failures] == [(0, 1)]
        assert run.records.failures[0].message == "its input did not arrive: RuntimeError: CUDA error: peer access"
        assert ran(run) == {0, 2, 3}


def test_weights_larger_than_the_scenario_says_are_refused() -> None:
    on = instance([X], ["m0"], gpus(1, BYTES))
    smaller = replace(on, models=(MLModel("m0", BYTES - 1),))
    with pytest.raises(DeviceError, match=r"model m0: its weights take 1088 bytes, the scenario says 1087; write"):
        run_live(smaller, parse_policy("jit"), Small, PATIENT)


class WithoutBias(Small):
    def module(self, model: MLModel) -> nn.Module:
        return nn.Linear(16, 16, bias=False, device="meta")


def test_weights_that_the_module_lacks_are_refused() -> None:
    on = instance([X], ["m0"], gpus(1, BYTES))
    with pytest.raises(DeviceError, match=r"model m0: the runner's module and its weights do not agree on bias"):
        run_live(on, parse_policy("jit"), WithoutBias, PATIENT)


def test_too_few_devices_are_refused_with_the_remedy() -> None:
    cores = physical_devices("cpu")
    for sharing in (None, "parallel"):
        with pytest.raises(DeviceError, match=r"has 3 GPUs, this machine has 1 cores of the CPU; use --virtual serial"):
            assign(3, cores[:1], sharing)
    assert assign(3, cores[:1], "serial") == cores[:1] * 3


def test_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(
        DeviceError, match=r"no memory for GPUs and weights: 1000000000001088 bytes of this machine's memory are"
    ):
        run_live(instance([X], ["m0"], gpus(1, 10**15)), parse_policy("jit"), Small, PATIENT)


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(DeviceError, match="device 'tpu' is unknown; allowed are cpu, cuda"):
        physical_devices("tpu")
