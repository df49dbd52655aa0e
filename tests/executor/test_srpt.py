"""The rule of shortest remaining work, on cases derived by hand."""

from __future__ import annotations

import pytest

from experiments.authors import ARRIVALS, recorded
from experiments.authors import instance as authors_instance
from tests.executor.scripted import loads, runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import parse_policy, simulate
from truenorth.models import InitialResidency, Instance, Job, Objective, check, timeline_value


def test_short_jobs_overtake_long_ones() -> None:
    # One GPU. a (10 us) runs from 0; b (5) comes at 1, c (1) at 2. At 10 c goes first: [10, 11), then b [11, 16).
    # Latencies 10, 15, 9: 34. In order of arrival: 10, 14, 14: 38.
    jobs = [
        Job(chain(task("t", us), name=name), release) for name, us, release in (("a", 10, 0), ("b", 5, 1), ("c", 1, 2))
    ]
    on = instance(jobs)
    timeline = simulate(on, parse_policy("srpt"))
    assert runs(timeline) == [(0, 0, 10), (0, 11, 16), (0, 10, 11)]
    assert timeline_value(Objective.MEAN_LATENCY, on, timeline) * 3 == 34
    assert timeline_value(Objective.MEAN_LATENCY, on, simulate(on, parse_policy("jit"))) * 3 == 38


def two_and_one() -> Instance:
    """Return a job that blocks the GPU until 2, one of 3 + 3 us in parallel (P = 3), and one of 5 us (P = 5)."""
    wide, long = chain(task("x", 3), task("y", 3), name="wide"), chain(task("t", 5), name="long")
    return instance([Job(chain(task("t", 2)), 0), Job(wide, 1), Job(long, 1)])


def test_work_times_path_serves_slowdown_and_work_alone_serves_latency() -> None:
    # At 2: wide has 6 us left, times P = 3 is 18; long 5 us, times 5 is 25. Wide first: it ends at 8, long at 13.
    assert runs(simulate(two_and_one(), parse_policy("srpt"))) == [(0, 0, 2), (0, 2, 5), (0, 5, 8), (0, 8, 13)]
    latency = simulate(two_and_one(), parse_policy("srpt:order=latency"))
    assert runs(latency) == [(0, 0, 2), (0, 7, 10), (0, 10, 13), (0, 2, 7)]


def test_a_started_job_has_less_left() -> None:
    # At 4 the first job has 5 of its 9 us left, the second 6: the first goes on. (By full work 9 > 6.)
    first = chain(task("x", 4), task("y", 5, after={"x": 0}), name="first")
    on = instance([Job(first, 0), Job(chain(task("t", 6), name="second"), 1)])
    assert runs(simulate(on, parse_policy("srpt:order=latency"))) == [(0, 0, 4), (0, 4, 9), (0, 9, 15)]


@pytest.mark.parametrize(("weights", "where"), [(4, 1), (2, 0)])
def test_a_task_waits_for_a_model_or_loads_it(weights: int, where: int) -> None:
    # m is on g1 only, where a task runs until 3. The second one, at 0, would wait 3 us there or load for `weights` us
    # on the idle g0: it waits if that takes longer.
    work = chain(task("t", 3, ["m"]))
    on = instance([Job(work, 0), Job(work, 0)], {"m": weights}, cluster(2), initial=(InitialResidency(1, 0),))
    timeline = simulate(on, parse_policy("srpt"))
    assert timeline.place.tolist() == [1, where]
    assert len(loads(on, timeline)) == (where == 0)
    assert int(timeline.start_us[1]) == (3 if where == 1 else 2)


@pytest.mark.skipif(not ARRIVALS.is_dir(), reason="the recorded arrivals are not beside the repository")
@pytest.mark.parametrize(("rate", "at_most"), [(2, 0.9), (3, 0.8), (4, 0.4)])
def test_on_the_recorded_arrivals_it_beats_compass(rate: int, at_most: float) -> None:
    on = authors_instance(recorded(rate, from_zero=False))
    ours, compass = (simulate(on, parse_policy(name)) for name in ("srpt", "compass"))
    assert check(on, ours) == []
    value = [timeline_value(Objective.MEAN_SLOWDOWN, on, timeline) for timeline in (ours, compass)]
    assert value[0] <= at_most * value[1]
