"""Shares of a GPU as GPUs of their own."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.instances import chain, cluster, instance, task
from truenorth.models import WHOLE, Instance, Job, Objective, Task, check
from truenorth.solvers import portfolio
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.exact import exhaustive
from truenorth.solvers.portfolio import solve
from truenorth.solvers.reductions import lanes_of


def drawn(seed: int, share: int, gpus: int = 1, **also: object) -> Instance:
    """Return two jobs of two tasks and two of one."""
    rng, jobs = random.Random(seed), []
    for index in range(4):
        first = Task("a", {"*": rng.randint(1, 9)}, share=share, **also)  # type: ignore[arg-type]
        second = Task("b", {"*": rng.randint(1, 9)}, (), task("b", 1, after={"a": 5}).inputs, share)
        jobs.append(Job(chain(first, *[second][: index % 2], name=f"w{index}"), rng.randint(0, 6)))
    return instance(sorted(jobs, key=lambda job: job.release_us), on=cluster(gpus))


@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_that_of_the_shares(seed: int) -> None:
    # Of 3,500 two run at once as of 5,000, whatever else.
    of, objective = drawn(seed, (3500, 5000)[seed % 2]), list(Objective)[seed]
    best, found = exhaustive.solve(of, objective), solve(of, objective, Budget(60))
    assert (found.value, found.status) == (best.value, "OPTIMAL")
    assert found.timeline is not None
    assert check(of, found.timeline) == []


def test_a_plan_is_spread_and_gathered_again() -> None:
    of = drawn(1, 2500)
    lanes, best = lanes_of(of), exhaustive.solve(of, Objective.MEAN_LATENCY).timeline
    assert lanes is not None
    assert best is not None
    spread = lanes.to_twin(best)
    assert check(lanes.twin, spread) == []
    again = lanes.back(spread)
    assert [part.tolist() for part in (again.place, again.start_us)] == [best.place.tolist(), best.start_us.tolist()]


def test_where_shares_are_no_lanes() -> None:
    assert lanes_of(drawn(0, WHOLE)) is None
    assert lanes_of(drawn(0, 2500, memory_bytes=1)) is None
    assert lanes_of(drawn(0, 2500)) is not None
    assert lanes_of(drawn(0, 2500, gpus=2)) is None  # an output pays a transfer from one to the other
    mixed = instance([Job(chain(Task("a", {"*": 3}, share=share), name=f"{share}"), 0) for share in (2500, 5000)])
    assert lanes_of(mixed) is None


def test_a_bound_tells_of_faults_on_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    of = drawn(0, 2500)
    found = replace(solve(of, Objective.MAKESPAN, Budget(5, Method.SEARCH)), faults=("it contradicts itself",))
    monkeypatch.setattr(portfolio, "solve", lambda *_, **__: found)
    assert portfolio.bound(of, Objective.MAKESPAN, Budget(5)).found.faults == ("it contradicts itself",)
