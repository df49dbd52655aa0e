"""What is to come next is ready on the device before the engine knows that its turn has come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue

from tests.executor.devices.small import BYTES, Small, gpus, instance
from tests.instances import chain, task
from truenorth.executor import Policy, parse_policy, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.lane import Lane, Order, let_be
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
    return [*check(on, run.timeline), *different_outputs(on, Small(), "cpu", run.outputs, 30)]


def test_a_plan_goes_on_before_the_engine_takes_note_of_an_end() -> None:
    """Whenever a task has ended the policy holds the engine up until the next one runs, which needs its output."""
    tasks = [task("x", 10, ["m"]), task("y", 10, ["m"], {"x": 64}), task("z", 10, ["m"], {"y": 64})]
    on, began, seen = instance([chain(*tasks)], ["m"], gpus(1, BYTES)), threading.Semaphore(0), list[bool]()

    class Held(Replay):
        def begin(self, site: Site) -> None:
            while began.acquire(blocking=False):  # the warm-up ran them too
                pass
            super().begin(site)

        def finished(self, ended: int, gpu: int) -> None:
            if ended < 2:
                seen.append(began.acquire(timeout=10))
            super().finished(ended, gpu)

    plan = simulate(on, parse_policy("jit"))
    runner = Small(lambda call: began.release() if call.task != "x" else None)
    run = run_live(on, lambda: Held(on, plan), runner, ALONE, plan=plan)
    assert seen == [True, True]
    assert [record.start_us >= record.ordered_us for record in run.records.runs] == [True] * 3
    assert wrong(on, run) == []


def test_what_is_ready_for_a_failed_job_comes_to_nothing() -> None:
    on, ran = two_chains(), list[tuple[int, str]]()
    warm = 2

    def fail_first(call: RunnerCall) -> None:
        ran.append((call.job, call.task))
        if call.job == 0 and call.task == "x" and len(ran) > warm:
            raise RuntimeError("spilt")

    plan = simulate(on, parse_policy("jit"))
    run = run_live(on, lambda: Replay(on, plan), Small(fail_first), ALONE, plan=plan)
    assert [(failure.job, failure.message) for failure in run.records.failures] == [(0, "RuntimeError: spilt")]
    assert sorted(ran[warm:]) == [(0, "x"), (1, "x"), (1, "y")]
    assert wrong(on, run) == []


def test_another_order_than_was_announced_holds() -> None:
    """b is ready behind a; c is started instead, then b."""
    on = instance([chain(task(name, 10, ["m"])) for name in "abc"], ["m"], gpus(1, BYTES))

    class Fickle(Policy):
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
                site.start(job)
                if job == 0:
                    site.queue(1)

    run = run_live(on, Fickle, Small(), ALONE)
    assert [record.subject for record in run.records.runs] == [0, 2, 1]
    assert wrong(on, run) == []


def test_what_is_done_holds_nothing_of_what_was_done_before() -> None:
    """The work of a run behind another holds that one's order; were it kept, every order would hold the first."""
    reports: SimpleQueue[Order] = SimpleQueue()
    lane = Lane("lane", reports)
    lane.submit(Order(lambda: 7, 1.0, let_be))
    order = reports.get(timeout=10)
    lane.close()
    assert (order.result, order.work) == (7, let_be)
