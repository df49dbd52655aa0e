"""The engine: the order of events, the recording, and the refusal of every illegal action."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from tests.executor.scripted import Listed, Script, loads, runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import (
    IllegalActionError,
    Policy,
    PolicyError,
    QueuePolicy,
    Site,
    StalledError,
    StoppedError,
    parse_policy,
    simulate,
)
from truenorth.executor.device import VirtualDevice
from truenorth.executor.engine import Engine
from truenorth.models import InitialResidency, Job, Restrictions, check

Step = tuple[int, Callable[[Site], None]]


def test_import_is_light() -> None:
    code = (
        "import sys, executor; print([m for m in ('ortools', 'pulp', 'torch', 'pandas', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"


def test_a_script_is_carried_out_and_recorded() -> None:
    # g0 loads m (4 bytes) over [1, 5), runs t there [5, 8), loads n (7 bytes) in its place over [9, 16).
    on = instance([Job(chain(task("t", 3, ["m"]), task("u", 1, ["n"])), 1)], {"m": 4, "n": 7})
    steps: list[Step] = [
        (1, lambda site: site.assign(0, 0)),
        (1, lambda site: site.assign(1, 0)),
        (1, lambda site: site.load(0, 0)),
        (5, lambda site: site.start(0)),
        (9, lambda site: site.load(0, 1, evict=[0])),
        (16, lambda site: site.start(1)),
    ]
    timeline = simulate(on, lambda: Script(*steps))
    assert runs(timeline) == [(0, 5, 8), (0, 16, 17)]
    assert loads(on, timeline) == [("m", 0, 1, 5, 9), ("n", 0, 9, 16, None)]
    assert not timeline.realised
    assert check(on, timeline) == []


def test_what_ends_at_an_instant_is_over_for_what_starts_then() -> None:
    # a (g0) and b (g1) end at 4, and a third job is released at 4: act sees both GPUs idle and the job known.
    seen: list[tuple[int, list[int], int]] = []

    class Watching(QueuePolicy):
        def runnable(self, task: int, server: int) -> None:
            self.place(task, task % 2)

        def act(self, gpus: Sequence[int]) -> None:
            seen.append((self.site.now, [len(state.runs) for state in self.site.state], len(self.site.job_workflow)))
            super().act(gpus)

    jobs = [Job(chain(task("t", 4)), 0), Job(chain(task("t", 4)), 0), Job(chain(task("t", 1)), 4)]
    simulate(instance(jobs, on=cluster(2)), Watching)
    assert seen == [(0, [0, 0], 0), (0, [0, 0], 2), (4, [0, 0], 3), (5, [0, 0], 3)]


def test_outputs_leave_when_the_receiver_is_known() -> None:
    # a ends at 2 on g0; b is sent to g1 only at 6, so its 3 bytes arrive at 6 + 1 + 3 = 10.
    on = instance([Job(chain(task("a", 2), task("b", 1, after={"a": 3})), 0)], on=cluster(2))
    steps: list[Step] = [
        (0, lambda site: site.assign(0, 0)),
        (0, lambda site: site.start(0)),
        (6, lambda site: site.assign(1, 1)),
        (10, lambda site: site.start(1)),
    ]
    assert runs(simulate(on, lambda: Script(*steps))) == [(0, 0, 2), (1, 10, 11)]


def test_a_moved_task_waits_for_its_inputs_again() -> None:
    # Sent to g1 at 2 (there at 6), then to g2 at 5: there at 9. What arrives at g1 at 6 counts for nothing.
    on = instance([Job(chain(task("a", 2), task("b", 1, after={"a": 3})), 0)], on=cluster(3))
    steps: list[Step] = [
        (0, lambda site: site.assign(0, 0)),
        (0, lambda site: site.assign(1, 1)),
        (0, lambda site: site.start(0)),
        (5, lambda site: site.assign(1, 2)),
        (9, lambda site: site.start(1)),
    ]
    assert runs(simulate(on, lambda: Script(*steps))) == [(0, 0, 2), (2, 9, 10)]
    early = [*steps[:-1], (8, steps[-1][1])]
    with pytest.raises(IllegalActionError, match="T2 task 1: 1 inputs"):
        simulate(on, lambda: Script(*early))


def place_all(site: Site) -> None:
    """Put both tasks on g0."""
    site.assign(0, 0)
    site.assign(1, 0)


REFUSED: dict[str, tuple[dict[str, object], list[Step]]] = {
    r"task 2 is not released": ({}, [(0, lambda site: site.assign(2, 0))]),
    r"T1 task 0: GPU 1 is not eligible": ({}, [(0, lambda site: site.assign(0, 1))]),
    r"T1 task 0: GPU 2 is not eligible": ({}, [(0, lambda site: site.assign(0, 2))]),
    r"T1 task 0: has no GPU yet": ({}, [(0, lambda site: site.start(0))]),
    r"R3 s0/g0: model 0 is not ready": ({}, [(0, place_all), (0, lambda site: site.start(0))]),
    r"T2 task 1: 1 inputs": ({}, [(0, place_all), (0, lambda site: site.start(1))]),
    r"R1 s0/g0: is loading model 0": ({}, [(0, lambda site: site.load(0, 0)), (3, lambda site: site.load(0, 1))]),
    r"R4 s0/g0: model 0 is there": ({}, [(0, lambda site: site.load(0, 0)), (4, lambda site: site.load(0, 0))]),
    r"R2 s0/g0: model 1 needs 7 bytes, 6 are free": (
        {},
        [(0, lambda site: site.load(0, 0)), (4, lambda site: site.load(0, 1))],
    ),
    r"R4 s0/g0: model 0 is not ready there": ({}, [(0, lambda site: site.load(0, 1, evict=[0]))]),
    r"R2 s0/g0: has no slots": ({}, [(0, lambda site: site.load(0, 1, slot=0))]),
    r"R3 s0/g0: a running task uses model 0": (
        {},
        [
            (0, place_all),
            (0, lambda site: site.load(0, 0)),
            (4, lambda site: site.start(0)),
            (5, lambda site: site.evict(0, 0)),
        ],
    ),
    r"T3 s0/g0: runs tasks 2": (
        {"extra": True, "initial": (InitialResidency(0, 0),)},
        [
            (0, lambda site: site.assign(2, 0)),
            (0, lambda site: site.assign(0, 0)),
            (0, lambda site: site.start(2)),
            (1, lambda site: site.start(0)),
        ],
    ),
    r"has started already": (
        {"extra": True},
        [(0, lambda site: site.assign(2, 0)), (0, lambda site: site.start(2)), (1, lambda site: site.start(2))],
    ),
    r"has started and cannot move": (
        {"extra": True},
        [(0, lambda site: site.assign(2, 0)), (0, lambda site: site.start(2)), (1, lambda site: site.assign(2, 0))],
    ),
    r"R5 s0/g0: runs task 2": (
        {"extra": True, "overlap_loads": False},
        [(0, lambda site: site.assign(2, 0)), (0, lambda site: site.start(2)), (1, lambda site: site.load(0, 0))],
    ),
    r"R5 s0/g0: is loading": (
        {"extra": True, "overlap_loads": False},
        [(0, lambda site: site.assign(2, 0)), (0, lambda site: site.load(0, 0)), (1, lambda site: site.start(2))],
    ),
    r"X GPU 1: model 0 may not be there": ({}, [(0, lambda site: site.load(1, 0))]),
    r"X GPU 0: model 0 may not be evicted": (
        {"restrictions": Restrictions({"m": frozenset({0})}, {"w": frozenset({0})}, {}, no_swaps=True)},
        [(0, lambda site: site.load(0, 0)), (4, lambda site: site.load(0, 1, evict=[0]))],
    ),
    r"X model 1: 1 replicas are there": (
        {"restrictions": Restrictions({"m": frozenset({0})}, {"w": frozenset({0})}, {"n": 1})},
        [(0, lambda site: site.load(0, 1)), (1, lambda site: site.load(1, 1))],
    ),
    r"time 1 has passed": ({}, [(2, lambda site: site.wake(1))]),
    r"R7 GPU 0: model 0 is no initial residency": ({}, [(0, lambda site: site.leave_out(0, 0))]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_illegal_actions_are_refused(message: str) -> None:
    # Tasks 0 (needs m, 4 bytes) and 1 after it (n, 7 bytes) may run on g0 only, m may be there only; task 2 needs none.
    options, steps = REFUSED[message]
    options = dict(options)
    first = chain(task("a", 5, ["m"]), task("b", 5, after={"a": 0}))
    jobs = [Job(first, 0), *([Job(chain(task("c", 5), name="v"), 0)] if options.pop("extra", False) else [])]
    options.setdefault("restrictions", Restrictions({"m": frozenset({0})}, {"w": frozenset({0})}))
    on = instance(jobs, {"m": 4, "n": 7}, cluster(2), **options)
    with pytest.raises(IllegalActionError, match=re.escape(message) if "(" in message else message):
        simulate(on, lambda: Script(*steps))


@pytest.mark.parametrize(("slot", "problem"), [(1, "is taken or too small"), (2, "no empty slot"), (0, "is taken")])
def test_slots_are_checked(slot: int, problem: str) -> None:
    # Slots of 6 and 4; x (6 bytes) lies in slot 0, y has 5: slot 1 is too small, slot 2 unknown, slot 0 taken.
    on = instance(
        [Job(chain(task("t", 1, ["y"])), 0)],
        {"x": 6, "y": 5},
        cluster(1, slots=(6, 4)),
        initial=(InitialResidency(0, 0, 0),),
    )
    with pytest.raises(IllegalActionError, match=f"R2 s0/g0: .*{problem}"):
        simulate(on, lambda: Script((0, lambda site: site.load(0, 1, slot=slot))))


def test_a_policy_that_leaves_tasks_is_told() -> None:
    with pytest.raises(StalledError, match="2 tasks were never started"):
        simulate(instance([Job(chain(task("a", 1), task("b", 1)), 0)]), Policy)


def test_a_simulation_gives_up_when_told_to() -> None:
    # Two jobs of 3 us on one GPU: releases at 0, an end at 3; asked before the end at 6, it stops.
    on = instance([Job(chain(task("t", 3)), 0)] * 2)
    asked = iter((False, False, True))
    with pytest.raises(StoppedError, match="1 tasks had not ended"):
        simulate(on, parse_policy("srpt"), stop=lambda: next(asked))


def test_loads_under_way_at_the_end_are_finished() -> None:
    # The only task ends at 1, while m is being loaded over [0, 4).
    on = instance([Job(chain(task("t", 1)), 0)], {"m": 4})
    steps: list[Step] = [
        (0, lambda site: site.assign(0, 0)),
        (0, lambda site: site.start(0)),
        (0, lambda site: site.load(0, 0)),
    ]
    timeline = simulate(on, lambda: Script(*steps))
    assert loads(on, timeline) == [("m", 0, 0, 4, None)]
    assert check(on, timeline) == []


def test_the_future_is_absent() -> None:
    # At 0 only the first job's tables exist.
    seen: list[tuple[int, int, int]] = []

    class Looking(QueuePolicy):
        def runnable(self, task: int, server: int) -> None:
            seen.append((self.site.now, len(self.site.template), len(self.site.jobs)))
            self.place(task, 0)

    work = chain(task("a", 1), task("b", 1))
    simulate(instance([Job(work, 0), Job(work, 7)]), Looking)
    assert seen == [(0, 2, 1), (0, 2, 1), (7, 4, 2), (7, 4, 2)]


def test_ingress_is_given_or_drawn_by_the_seed() -> None:
    drawn: list[int] = []

    class Noting(QueuePolicy):
        def runnable(self, task: int, server: int) -> None:
            drawn.append(server)
            self.place(task, 0)

    work = chain(task("a", 1))
    on = instance([Job(work, release, ingress=2 if release == 5 else None) for release in range(40)], on=cluster(3))
    simulate(on, Noting, seed=1)
    first = list(drawn)
    drawn.clear()
    simulate(on, Noting, seed=1)
    assert drawn == first
    assert first[5] == 2
    assert set(first) == {0, 1, 2}
    drawn.clear()
    simulate(on, Noting, seed=2)
    assert drawn != first


def test_policies_that_evict_at_will_refuse_what_they_cannot_keep() -> None:
    on = instance([Job(chain(task("t", 1)), 0)], restrictions=Restrictions(no_swaps=True))
    with pytest.raises(PolicyError, match="queuepolicy evicts at will"):
        simulate(on, QueuePolicy)
    released = parse_policy("compass-released:shared=on")
    with pytest.raises(PolicyError, match="policy compass-released evicts at will"):
        simulate(on, released)


def test_the_clock_starts_when_the_policy_has_begun() -> None:
    """What a policy works out beforehand, such as a plan, is no part of the first job's latency."""
    order: list[str] = []

    class Clock(VirtualDevice):
        def begin(self) -> None:
            order.append("clock")

    class Planner(Listed):
        def begin(self, site: Site) -> None:
            super().begin(site)
            order.append("policy")

    Engine(instance([Job(chain(task("x", 1)), 0)]), Planner([0]), Clock()).run()
    assert order == ["policy", "clock"]
