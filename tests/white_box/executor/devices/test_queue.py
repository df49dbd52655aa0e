"""What is to come next is ready on the device before the engine knows that its turn has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.executor.devices.faulty import Raise, be_killed, leave, small, without_warm_up
from tests.executor.devices.small import BYTES, Small, gpus, instance
from tests.instances import chain, task
from truenorth.executor import Policy, parse_policy, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.live import LiveDevice
from truenorth.executor.devices.records import STARTED_AGAIN
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.policies.replay import Replay
from truenorth.executor.site import Site
from truenorth.models import Instance, check

ALONE = LiveSettings(keep_outputs=True)


def two_chains() -> Instance:
    """Return two jobs on one GPU, each x and then y, which works on what x puts out."""
    work = chain(task("x", 10, ["m"]), task("y", 10, ["m"], {"x": 64}))
    return instance([work, work], ["m"], gpus(1, BYTES))


def wrong(on: Instance, run: LiveRun) -> list[object]:
    return [*check(on, run.timeline), *different_outputs(on, Small, "cpu", run.outputs, 30)]


@dataclass(frozen=True)
class Begun:
    """Notes in a folder that a task has begun."""

    folder: Path

    def __call__(self, call: RunnerCall) -> None:
        (self.folder / f"{call.job}{call.task}").touch()


def test_a_plan_goes_on_before_the_engine_takes_note_of_an_end(tmp_path: Path) -> None:
    """Whenever a task has ended the policy holds the engine up until the next one runs, which needs its output."""
    tasks = [task("x", 10, ["m"]), task("y", 10, ["m"], {"x": 64}), task("z", 10, ["m"], {"y": 64})]
    on, seen = instance([chain(*tasks)], ["m"], gpus(1, BYTES)), list[bool]()

    class Held(Replay):
        def begin(self, site: Site) -> None:
            for noted in tmp_path.iterdir():  # the warm-up ran them too
                noted.unlink()
            super().begin(site)

        def finished(self, ended: int, gpu: int) -> None:
            if ended < 2:
                seen.append(_comes(tmp_path / f"0{'yz'[ended]}"))
            super().finished(ended, gpu)

    plan = simulate(on, parse_policy("jit"))
    run = run_live(on, lambda: Held(on, plan), partial(small, Begun(tmp_path)), ALONE, plan=plan)
    assert seen == [True, True]
    assert [record.start_us >= record.ordered_us for record in run.records.runs] == [True] * 3
    assert wrong(on, run) == []


def _comes(path: Path) -> bool:
    """Say whether a file comes in time."""
    for _ in range(10_000):
        if path.exists():
            return True
        time.sleep(0.001)
    return False


@dataclass(frozen=True)
class SpillFirst:
    """Notes what runs, and fails in the first task of job 0 once the warm-up of the other job is over."""

    folder: Path

    def __call__(self, call: RunnerCall) -> None:
        number = len(list(self.folder.iterdir()))
        (self.folder / f"{number}{call.job}{call.task}").touch()
        if (call.job, call.task) == (0, "x") and number >= 2:
            raise RuntimeError("spilt")


def test_what_is_ready_for_a_failed_job_comes_to_nothing(tmp_path: Path) -> None:
    on = two_chains()
    plan = simulate(on, parse_policy("jit"))
    run = run_live(on, lambda: Replay(on, plan), partial(small, SpillFirst(tmp_path)), ALONE, plan=plan)
    assert [(failure.job, failure.message) for failure in run.records.failures] == [(0, "RuntimeError: spilt")]
    assert sorted(noted.name for noted in tmp_path.iterdir()) == ["00x", "10y", "20x", "31x", "41y"]
    assert wrong(on, run) == []


class Fickle(Policy):
    """Has job 1 ready behind job 0, starts job 2 instead, then job 1."""

    def released(self, job: int) -> None:
        self.site.assign(job, 0)
        if job == 0:
            self.site.load(0, 0)

    def act(self, gpus: Sequence[int]) -> None:
        site = self.site
        if not site.jobs or site.state[0].runs or 0 not in site.memory[0].ready:
            return
        left = [job for job in (0, 2, 1) if site.started_us[job] < 0]
        for job in left[:1]:
            if job == 2:
                self.about_to_change()
            site.start(job)
            if job == 0:
                site.queue(1)

    def about_to_change(self) -> None:
        """Be told that the next start is not what was announced."""


ABC = [chain(task(name, 10, ["m"])) for name in "abc"]


def test_another_order_than_was_announced_holds() -> None:
    on = instance(ABC, ["m"], gpus(1, BYTES))
    run = run_live(on, Fickle, Small, ALONE)
    assert [record.subject for record in run.records.runs] == [0, 2, 1]
    assert wrong(on, run) == []


@dataclass(frozen=True)
class StruckInVain:
    """Does something in the first run of b, once that has been withdrawn; files say how far it has come."""

    do: Callable[[], object]
    begun: Path
    withdrawn: Path

    def __call__(self, call: RunnerCall) -> None:
        if call.task == "b" and not self.begun.exists():
            self.begun.touch()
            _comes(self.withdrawn)
            self.do()


@pytest.mark.parametrize(
    ("do", "again"), [(be_killed, 1), (leave, 1), (Raise(RuntimeError("no")), 0)], ids=["killed", "exit", "raise"]
)
def test_what_was_withdrawn_costs_nobody_a_job(
    do: Callable[[], object], again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b has begun when c is started in its place, and ends its process, with c behind it; then c runs, and b anew."""
    on, begun, withdrawn = instance(ABC, ["m"], gpus(1, BYTES)), tmp_path / "begun", tmp_path / "withdrawn"
    withdraw = LiveDevice._withdraw

    def tell(device: LiveDevice, *queued: Any) -> None:
        withdraw(device, *queued)
        withdrawn.touch()

    class Late(Fickle):
        def about_to_change(self) -> None:
            assert _comes(begun)

    monkeypatch.setattr(LiveDevice, "_withdraw", tell)
    runner = partial(without_warm_up, partial(small, StruckInVain(do, begun, withdrawn)))
    run = run_live(on, Late, runner, ALONE)
    assert run.records.failures == []
    assert [fault.what for fault in run.records.faults] == [STARTED_AGAIN] * again
    assert [record.subject for record in run.records.runs] == [0, 2, 1]
    assert wrong(on, run) == []
