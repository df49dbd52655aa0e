"""Servers that come and go: the scenario, the checker on both sides of the fence, and what metrics count."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.instances import chain, cluster, instance, random_instance, task
from tests.models.brute_force import broken_rules
from tests.random_instances import with_absences
from truenorth.models import Instance, Job, Placement, Residency, Restrictions, Timeline, check, measure, scenario_hash
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.objective import Objective
from truenorth.models.scenario import InputError, load_scenario, scenario_from
from truenorth.solvers.exact import exhaustive

SCENARIO = """
cluster:
  groups:
    - {count: 1, gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}}
    - count: 1
      gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}
      available: INTERVALS
  network: {bandwidth: 12 GB/s}
models: {a: {weights: 5 GB}}
workflows: {w: {tasks: {one: {models: [a], runtime: 500 ms}}}}
workload: {jobs: [{release: 0 s, workflow: w}]}
options: {initial_residency: INITIAL}
"""


def read(tmp_path: Path, intervals: str, initial: str = "[]") -> Instance:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("INTERVALS", intervals).replace("INITIAL", initial).lstrip())
    return load_scenario(path).instance


def test_a_scenario_says_when_servers_are_there(tmp_path: Path) -> None:
    built = read(tmp_path, "[[0 s, 2 s], [2 s, 4 s], [10 s, end]]")
    always, comes = (gpu.available for gpu in built.cluster.gpus)
    assert always.always
    assert comes.intervals == ((0, 4_000_000), (10_000_000, FOREVER))
    assert built.gpu_class.tolist() == [0, 1]


def test_always_there_is_as_if_nothing_was_said(tmp_path: Path) -> None:
    said, merged = read(tmp_path, "[[0 s, end]]"), read(tmp_path, "[[0 s, 1 h], [1 h, end]]")
    (tmp_path / "plain").mkdir()
    plain = tmp_path / "plain/scenario.yaml"
    text = SCENARIO.replace("      available: INTERVALS\n", "").replace("INITIAL", "[]").lstrip()
    plain.write_text(text)
    assert len({scenario_hash(built) for built in (said, merged, load_scenario(plain).instance)}) == 1
    assert scenario_hash(read(tmp_path, "[[0 s, 5 s]]")) != scenario_hash(said)


@pytest.mark.parametrize(
    ("intervals", "where", "problem"),
    [
        ("[]", "available", "is empty; allowed is at least one interval"),
        ("[[3 s]]", "available[0]", "is no interval; allowed is a list of two times such as [0 s, 600 s]"),
        ("[[3 s, 3 s]]", "available[0]", "is an empty interval, from 3000000 us to 3000000 us"),
        ("[[end, 3 s]]", "available[0]", "'end' is no time"),
        ("[[0 s, 3 s], [2 s, 5 s]]", "available[1]", "begins at 2000000 us, and the one before lasts until 3000000 us"),
        ("[[0 s, end], [9 s, end]]", "available[1]", "begins at 9000000 us, and the one before lasts until end"),
    ],
)
def test_bad_intervals_are_refused_by_line(tmp_path: Path, intervals: str, where: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, intervals)
    assert str(refused.value).startswith(f"{tmp_path}/scenario.yaml:6: cluster.groups[1].{where}: {problem}")


def test_what_is_resident_at_first_needs_its_gpu(tmp_path: Path) -> None:
    resident = "[{gpu: s1/g0, model: a}]"
    assert read(tmp_path, "[[0 s, 2 s]]", resident).initial[0].gpu == 1
    with pytest.raises(InputError, match="initial residency: s1/g0 is not there at time 0"):
        read(tmp_path, "[[1 s, 2 s]]", resident)


def coming(*intervals: tuple[int, int], tasks: int = 1, **options: Any) -> Instance:
    """Return single tasks of 3 us with a model that loads in 4, on one GPU that is there in these intervals."""
    on = cluster(1, available=Availability.of(intervals))
    return instance([Job(chain(task("t", 3, ["m"])), 0) for _ in range(tasks)], {"m": 4}, on, **options)


def broken(built: Instance, starts: Sequence[int], stays: Sequence[Residency]) -> list[str]:
    timeline = Timeline.build(built.n_tasks, [Placement(t, 0, at, at + 3) for t, at in enumerate(starts)], stays)
    violations = check(built, timeline)
    assert {violation.rule for violation in violations} == broken_rules(built, timeline)
    return [str(violation) for violation in violations]


def test_a1_runs_loads_and_residencies_lie_inside_one_interval() -> None:
    there = coming((2, 9), (12, FOREVER))
    assert broken(there, [6], [Residency(0, 0, 2, 6, 9)]) == []
    assert broken(there, [16], [Residency(0, 0, 12, 16)]) == []
    # A microsecond early, and one too late.
    assert broken(there, [6], [Residency(0, 0, 1, 5, 9)]) == [
        "A1 m on s0/g0 from 1 us: s0/g0 is not there all the time (found [1, 9), allowed inside [2, 9))"
    ]
    assert broken(there, [7], [Residency(0, 0, 2, 6, 10)]) == [
        "A1 job 0 task t: s0/g0 is not there all the time (found [7, 10), allowed inside [2, 9))",
        "A1 m on s0/g0 from 2 us: s0/g0 is not there all the time (found [2, 10), allowed inside [2, 9))",
    ]
    # Memory is empty when an interval begins, and a residency without an end has none.
    assert broken(there, [13], [Residency(0, 0, 2, 6)]) == [
        "A1 m on s0/g0 from 2 us: s0/g0 is not there all the time (found [2, end), allowed inside [2, 9))"
    ]


def test_a1_under_noise_the_given_time_counts() -> None:
    there = coming((0, 9), (20, FOREVER))

    def realised(ready: int, start: int, end: int, stays_until: int | None) -> list[str]:
        stays = [Residency(0, 0, 0, ready, stays_until)]
        timeline = Timeline.build(1, [Placement(0, 0, start, end)], stays, realised=True)
        return [violation.rule for violation in check(there, timeline)]

    assert realised(5, 6, 11, 11) == []  # begun at 6, it should have ended at 9
    assert realised(5, 7, 9, 9) == ["A1"]  # begun at 7, it should have ended at 10
    assert realised(5, 6, 11, 12) == ["A1"]  # nothing holds the model after 11


def test_who_stays_until_the_gpu_goes_is_not_evicted() -> None:
    there = coming((0, 9), (12, FOREVER), restrictions=Restrictions(no_swaps=True))
    assert broken(there, [4], [Residency(0, 0, 0, 4, 9)]) == []
    assert broken(there, [4], [Residency(0, 0, 0, 4, 8)]) == [
        "X m on s0/g0 from 0 us: is evicted (found 8, allowed never)"
    ]
    runs = [Placement(0, 0, 4, 7), Placement(1, 0, 16, 19)]
    both = coming((0, 9), (12, FOREVER), tasks=2)
    metrics = measure(both, Timeline.build(2, runs, [Residency(0, 0, 0, 4, 9), Residency(0, 0, 12, 16)]))
    # There for 9 + 7 of 19 us, computing for 6, copying for 8.
    assert (metrics.evictions, metrics.compute_busy, metrics.copy_busy) == (0, 6 / 16, 8 / 16)
    assert measure(both, Timeline.build(2, runs, [Residency(0, 0, 0, 4, 8), Residency(0, 0, 12, 16)])).evictions == 1


@pytest.mark.parametrize("seed", range(12))
def test_random_plans_agree_with_the_naive_checker(seed: int) -> None:
    rng = random.Random(seed)
    built = random_instance(rng, 3)
    plan = exhaustive.solve(built, Objective.MAKESPAN).timeline
    absent = with_absences(rng, built)
    assert plan is not None
    kept = [r for r in plan.residencies if not r.initial or absent.cluster.gpus[r.gpu].available.at(0)]
    there = Timeline.build(built.n_tasks, plan.placements, kept)
    assert {violation.rule for violation in check(absent, there)} == broken_rules(absent, there)


def test_groups_alone_come_and_go() -> None:
    data = {
        "cluster": {
            "servers": 1,
            "gpu": {"kind": "T4", "memory": "1 GB", "load_bandwidth": "1 GB/s"},
            "available": [["0 s", "1 s"]],
        },
        "workflows": {"w": {"tasks": {"one": {"runtime": "1 s"}}}},
        "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
    }
    with pytest.raises(InputError, match=r"cluster\.available: unknown key"):
        scenario_from(data)


def test_available_time_is_counted_exactly() -> None:
    there = Availability.of([(0, 10), (20, 30), (50, FOREVER)])
    assert [there.available_us(*span) for span in ((0, 60), (5, 25), (10, 20), (55, 56))] == [30, 10, 0, 1]
    assert Fraction(there.available_us(0, 60), 60) == Fraction(1, 2)
