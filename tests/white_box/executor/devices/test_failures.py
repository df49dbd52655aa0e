"""What fails takes its job with it and nothing else; whatever happens, a run comes to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.executor.devices.small import BYTES, Small, gpus, instance
from tests.executor.scripted import Listed
from tests.instances import chain, task
from truenorth.executor import parse_policy
from truenorth.executor import replay as replay_of
from truenorth.executor.devices.addresses import Move
from truenorth.executor.devices.crew import assign
from truenorth.executor.devices.physical import Physical, physical_devices
from truenorth.executor.devices.records import SET_ASIDE, STUCK, Fault
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station
from truenorth.executor.devices.streams import Span
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


@pytest.fixture(params=["compass", "jit", "srpt", "static", "replay"])
def play(request: pytest.FixtureRequest) -> Callable[..., LiveRun]:
    """Carry out an online policy, or a replay of what compass plans."""

    def carried_out(on: Instance, runner: Small, settings: LiveSettings = PATIENT) -> LiveRun:
        if request.param == "replay":
            plan = simulate(on, parse_policy("compass"))
            return run_live(on, replay_of(on, plan), runner, settings, plan=plan)
        return run_live(on, parse_policy(request.param), runner, settings)

    return carried_out


def forks(jobs: int, memory: int = 2 * BYTES, count: int = 2) -> Instance:
    return instance([FORK] * jobs, ["m0", "m1"], gpus(count, memory))


def raising(error: BaseException, job: int, name: str) -> Small:
    """Return a runner that raises in one task of one job."""

    def before(call: RunnerCall) -> None:
        if (call.job, call.task) == (job, name):
            raise error

    return Small(before)


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
    run = play(on, raising(error, 1, "b"))
    assert [(f.job, f.task, f.message) for f in run.records.failures] == [(1, 5, said)]
    assert ran(run) - {6} == {0, 1, 2, 3, 4, 8, 9, 10, 11}
    assert check(on, run.timeline) == []


@pytest.mark.parametrize(
    ("returned", "said"), [(None, "a NoneType"), (torch.ones(1, device="meta"), "a tensor on meta")]
)
def test_what_is_no_tensor_on_the_device_fails_the_task(returned: Tensor | None, said: str) -> None:
    class Other(Small):
        def run(self, call: RunnerCall) -> Tensor:
            return returned  # type: ignore[return-value]

    run = run_live(instance([X], ["m0"], gpus(1, BYTES)), parse_policy("jit"), Other(), PATIENT)
    allowed = "allowed is a tensor on cpu"
    assert [f.message for f in run.records.failures] == [f"TypeError: the runner returned {said}; {allowed}"]


def test_every_job_may_fail(play: Callable[..., LiveRun]) -> None:
    def before(call: RunnerCall) -> None:
        raise ValueError(call.task)

    run = play(forks(3), Small(before))
    assert sorted((f.job, f.message) for f in run.records.failures) == [(j, "ValueError: a") for j in range(3)]
    assert ran(run) == set()


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_that_never_ends_costs_its_job_alone(play: Callable[..., LiveRun], count: int) -> None:
    """Its GPU, which answers, goes on with the other jobs, and so does the only one."""
    gate = threading.Event()

    def before(call: RunnerCall) -> None:
        if (call.job, call.task) == (1, "b"):
            gate.wait(30)

    on = forks(3, count=count)
    run = play(on, Small(before), SHORT)
    gate.set()
    (stuck,) = run.records.failures
    assert (stuck.job, stuck.task) == (1, 5)
    assert stuck.message.endswith(" compute engine was stuck for more than 0.6 s")
    assert [fault.what for fault in run.records.faults] == [STUCK]
    assert ran(run) - {6} == {0, 1, 2, 3, 4, 8, 9, 10, 11}
    assert check(on, run.timeline) == []


X, Y = chain(task("x", 100, ["m0"]), name="x"), chain(task("y", 100, ["m1"]), name="y")


def loads_of_m1_on_the_first_gpu(
    monkeypatch: pytest.MonkeyPatch, instead: Callable[[], object], tries: int
) -> tuple[Instance, LiveRun]:
    """Run x, y, x on GPU 0, y on GPU 1, y on GPU 0; `instead` happens in the first tries to load m1 on GPU 0."""
    original, seen = Station.load_after, list[int]()

    def load_after(
        station: Station, moves: list[Move], model: int, address: int, asked_ns: int, **anew: bool
    ) -> tuple[Span, int]:
        if station.id == "s0/g0" and model == 1 and len(seen) < tries:
            seen.append(model)
            instead()
        return original(station, moves, model, address, asked_ns, **anew)

    monkeypatch.setattr(Station, "load_after", load_after)
    on = instance([X, Y, X, Y, Y], ["m0", "m1"], gpus(2, 2 * BYTES))
    return on, run_live(on, lambda: Listed([0, 0, 0, 1, 0], prefetch=0), Small(), SHORT)


def test_nobody_waits_for_a_model_that_a_stuck_run_uses() -> None:
    """One GPU has room for one model; job 0 hangs with m0, y takes its place, and m0 has to come again for job 2."""
    gate = threading.Event()

    def before(call: RunnerCall) -> None:
        if (call.job, call.task) == (0, "x") and warm.is_set():
            gate.wait(30)

    class Warm(Small):
        """Hangs in the run proper, not while it is warmed up."""

        def run(self, call: RunnerCall) -> Tensor:
            try:
                return super().run(call)
            finally:
                if call.task == "y":
                    warm.set()

    warm = threading.Event()
    on = instance([X, Y, X, Y], ["m0", "m1"], gpus(1, BYTES))
    run = run_live(on, lambda: Listed([0, 0, 0, 0], prefetch=0), Warm(before), SHORT)
    gate.set()
    assert [(failure.job, failure.gpu) for failure in run.records.failures] == [(0, 0)]
    assert ran(run) == {1, 2, 3}
    assert [load.subject for load in run.records.loads] == [0, 1, 0, 1]
    assert check(on, run.timeline) == []


def refuse() -> None:
    raise RuntimeError("CUDA error: invalid argument")


def test_a_load_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    on, run = loads_of_m1_on_the_first_gpu(monkeypatch, refuse, 2)
    said = Fault("load of m1", 0, 0, "RuntimeError: CUDA error: invalid argument")
    assert [replace(fault, at_us=0) for fault in run.records.faults] == [said, said]
    assert run.records.failures == []
    assert ran(run) == {0, 1, 2, 3, 4}
    assert run.timeline.gpu.tolist() == [0, 0, 0, 1, 0]
    assert check(on, run.timeline) == []


@pytest.mark.parametrize("stalls", [False, True])
def test_a_gpu_that_cannot_load_is_set_aside_and_its_work_moved(monkeypatch: pytest.MonkeyPatch, stalls: bool) -> None:
    """Three tries that fail, or one that never ends: every job still runs, those with y on the other GPU."""
    gate = threading.Event()
    on, run = loads_of_m1_on_the_first_gpu(monkeypatch, (lambda: gate.wait(30)) if stalls else refuse, 3)
    gate.set()
    assert [fault.what for fault in run.records.faults] == ["load of m1"] * (1 if stalls else 3) + [SET_ASIDE]
    assert run.records.failures == []
    assert ran(run) == {0, 1, 2, 3, 4}
    assert run.timeline.gpu[[1, 3, 4]].tolist() == [1, 1, 1]
    assert [stay.gpu for stay in run.timeline.residencies if stay.model == 1] == [1]
    assert check(on, run.timeline) == []


def test_without_another_gpu_jobs_fail_and_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs come while m1 cannot be loaded, one after the GPU was set aside."""

    def load_after(
        station: Station, moves: list[Move], model: int, address: int, asked_ns: int, **anew: bool
    ) -> tuple[Span, int]:
        raise RuntimeError("no")

    on = instance([X, Y, Y], ["m0", "m1"], gpus(1, BYTES))
    on = replace(on, jobs=(*on.jobs[:2], replace(on.jobs[2], release_us=100_000)))
    monkeypatch.setattr(Station, "load_after", load_after)
    run = run_live(on, parse_policy("jit"), Small(), PATIENT)
    assert ran(run) == set()
    assert sorted((f.job, f.gpu) for f in run.records.failures) == [(0, None), (1, None), (2, None)]


def test_an_error_of_cuda_that_leaves_the_device_well_is_its_task_s_own() -> None:
    """Task x fails wherever it runs, as with a launch of too many threads: no GPU is to blame, and y runs."""

    class TooWide(Small):
        def run(self, call: RunnerCall) -> Tensor:
            if call.task == "x":
                raise torch.AcceleratorError("CUDA error: invalid configuration argument")
            return super().run(call)

    run = run_live(
        instance([X, X, X, Y, Y, Y], ["m0", "m1"], gpus(2, 2 * BYTES)), parse_policy("jit"), TooWide(), PATIENT
    )
    assert sorted(failure.job for failure in run.records.failures) == [0, 1, 2]
    assert (run.records.faults, ran(run)) == ([], {3, 4, 5})


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let devices answer no call after an error."""
    monkeypatch.setattr(Physical, "answers", lambda physical: False)


@pytest.mark.usefixtures("broken")
def test_a_gpu_that_answers_nothing_behind_a_stuck_run_is_set_aside() -> None:
    gate, warm = threading.Event(), threading.Event()

    def before(call: RunnerCall) -> None:
        if warm.is_set() and threading.current_thread().name.startswith("s0/g0"):
            gate.wait(30)
        if call.task == "y" and threading.current_thread().name.startswith("s1/g0"):
            warm.set()  # the last to be warmed up

    on = instance([X, X, X, Y], ["m0", "m1"], gpus(2, 2 * BYTES))
    run = run_live(on, lambda: Listed([0, 0, 1, 0], prefetch=0), Small(before), SHORT)
    gate.set()
    assert [failure.job for failure in run.records.failures] == [0]
    assert [(fault.what, fault.gpu) for fault in run.records.faults] == [(STUCK, 0), (SET_ASIDE, 0)]
    assert ran(run) == {1, 2, 3}


@pytest.mark.usefixtures("broken")
def test_an_assertion_in_a_kernel_costs_one_job_and_the_gpu() -> None:
    """CUDA answers every call with it from then on; so GPU 0 goes after one run, and its other tasks move."""

    class OnFirst(Small):
        def run(self, call: RunnerCall) -> Tensor:
            if threading.current_thread().name.startswith("s0/g0"):
                raise torch.AcceleratorError("CUDA error: device-side assert triggered")
            return super().run(call)

    on = instance([X, X, X, Y], ["m0", "m1"], gpus(2, 2 * BYTES))
    run = run_live(on, lambda: Listed([0, 0, 1, 0], prefetch=0), OnFirst(), SHORT)
    said = "AcceleratorError: CUDA error: device-side assert triggered"
    assert [(failure.job, failure.message) for failure in run.records.failures] == [(0, said)]
    assert [(fault.what, fault.gpu, fault.message) for fault in run.records.faults] == [(SET_ASIDE, 0, said)]
    assert ran(run) == {1, 2, 3}


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize(
    ("restrictions", "lost"),
    [
        (Restrictions(no_swaps=True), [0, 3]),
        (Restrictions(max_replicas={"m0": 1}), [0, 3]),
        (Restrictions(no_swaps=True, max_replicas={"m0": 1}), [0, 1, 2]),
    ],
    ids=["no swaps", "one replica", "both"],
)
def test_restrictions_hold_after_a_loss(restrictions: Restrictions, lost: list[int]) -> None:
    """A plan has m0 on GPU 0 for jobs 0 to 2 and m1 on GPU 1 for job 4; GPU 0 fails in job 0.

    GPU 1 has room for two models. m0 finds a home there for jobs 1 and 2, and m2 (job 3) none any more, since nothing
    leaves. Where m0 may be on one GPU alone, and may not leave the lost one, m2 finds a home in its stead.
    """
    tasks = [X, X, X, chain(task("z", 10, ["m2"])), Y]
    on = instance(tasks, ["m0", "m1", "m2"], gpus(2, 2 * BYTES), restrictions=restrictions)
    plan = simulate(replace(on, restrictions=Restrictions()), lambda: Listed([0, 0, 0, 0, 1], prefetch=0))
    assert check(on, plan) == []

    class OnFirst(Small):
        def run(self, call: RunnerCall) -> Tensor:
            if threading.current_thread().name.startswith("s0/g0"):
                raise torch.AcceleratorError("CUDA error: device-side assert triggered")
            return super().run(call)

    run = run_live(on, replay_of(on, plan), OnFirst(), SHORT, plan=plan)
    failed = [failure.job for failure in run.records.failures]
    assert sorted(failed) == lost
    assert [v for v in check(on, run.timeline) if not v.subject.startswith(tuple(f"job {job} " for job in lost))] == []


def test_runs_that_fail_in_a_row_set_a_gpu_aside_unless_the_task_is_at_fault() -> None:
    """On GPU 0 every run fails: x, x, y, so it goes; x, x, x and all others are the task's own fault."""

    class OnFirst(Small):
        def run(self, call: RunnerCall) -> Tensor:
            if threading.current_thread().name.startswith("s0/g0"):
                raise RuntimeError("device-side assert")
            return super().run(call)

    for jobs, failed in (([X, X, Y, X, Y, Y], 3), ([X] * 6, 6)):
        on = instance(jobs, ["m0", "m1"], gpus(2, 2 * BYTES))
        run = run_live(on, lambda: Listed([0] * 6, prefetch=0), OnFirst(), PATIENT)
        assert [f.job for f in run.records.failures] == list(range(failed))
        assert run.timeline.gpu.tolist() == [0] * failed + [1] * (6 - failed)
        assert check(on, run.timeline) == []


@pytest.mark.parametrize("tries", [2, 3])
def test_an_input_that_does_not_arrive_is_sent_again_and_then_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    original, left = Station.receive, [tries]

    def receive(station: Station, output: Tensor, size_bytes: int, staged: bool) -> tuple[Tensor, Span]:
        left[0] -= size_bytes == 64  # others warm the way up
        if left[0] >= 0 and size_bytes == 64:
            raise RuntimeError("CUDA error: peer access")
        return original(station, output, size_bytes, staged)

    monkeypatch.setattr(Station, "receive", receive)
    pair = chain(task("x", 100), task("y", 100, (), {"x": 64}))
    on = instance([pair, pair], [], gpus(2, BYTES))
    run = run_live(on, lambda: Listed([0, 1, 0, 0]), Small(), PATIENT)
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
        run_live(smaller, parse_policy("jit"), Small(), PATIENT)


def test_weights_that_the_module_lacks_are_refused() -> None:
    class Other(Small):
        def module(self, model: MLModel) -> nn.Module:
            return nn.Linear(16, 16, bias=False, device="meta")

    on = instance([X], ["m0"], gpus(1, BYTES))
    with pytest.raises(DeviceError, match=r"model m0: the runner's module and its weights do not agree on bias"):
        run_live(on, parse_policy("jit"), Other(), PATIENT)


def test_too_few_devices_are_refused_with_the_remedy() -> None:
    cores = physical_devices("cpu")
    for sharing in (None, "parallel"):
        with pytest.raises(DeviceError, match=r"has 3 GPUs, this machine has 1 cores of the CPU; use --virtual serial"):
            assign(3, cores[:1], sharing)
    assert assign(3, cores[:1], "serial") == cores[:1] * 3


def test_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"take 1000000000001088 bytes of this machine's memory"):
        run_live(instance([X], ["m0"], gpus(1, 10**15)), parse_policy("jit"), Small(), PATIENT)


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(DeviceError, match="device 'tpu' is unknown; allowed are cpu, cuda"):
        physical_devices("tpu")
