"""Policies for runs on several GPUs where servers come and go: by hand, and properties of all."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from tests.executor.scripted import Script
from tests.executor.test_gangs import POLICIES
from tests.gangs import draw_away, job, servers, window
from tests.night import by_day
from tests.solvers.test_gangs_away import there
from truenorth.executor import IllegalActionError, PolicyError, Site, parse_policy, simulate
from truenorth.executor.errors import StalledError
from truenorth.executor.noise import parse_noise
from truenorth.executor.policies.replay import replay
from truenorth.models import Instance, check
from truenorth.models.cluster import FOREVER
from truenorth.models.features import TOGETHER, Features

CHOOSING = ("fifo", "easy", "conservative", "sjf", "qssf:reserve_after=2us", "srpt", "compass")


def _starts(made: Instance, policy: str) -> list[int]:
    timeline = simulate(made, parse_policy(policy))
    assert check(made, timeline) == []
    return [int(start_us) for start_us in timeline.start_us]


def _maintained() -> Instance:
    # One server of 2 that is away in [10, 20): both GPUs for 6 us, then one each for 7 and 3 us, both for 2 us.
    on = there(servers(1, 2), s0=[(0, 10), (20, FOREVER)])
    return window(job(2, 6, 0), job(1, 7, 1), job(1, 3, 2), job(2, 2, 3), on=on)


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # At 6 the one of 7 us would last until 13: it waits, and all behind it.
        ("fifo", [0, 20, 20, 27]),
        # Who ends by 10 may pass: nobody knows when the server is back, so that nobody has a reservation.
        ("easy", [0, 20, 6, 27]),
        ("conservative", [0, 20, 6, 27]),
        ("dally", [0, 20, 6, 27]),
        ("compass", [0, 20, 6, 27]),
        ("hadar", [0, 20, 6, 27]),
        # Shortest first: both for 2 us at 6, then 3 us would last until 11.
        ("sjf", [0, 20, 20, 6]),
        ("srpt", [0, 20, 20, 6]),
        ("ahead", [0, 20, 20, 6]),
    ],
)
def test_who_would_not_end_in_time_waits_until_the_server_is_back(policy: str, starts: list[int]) -> None:
    assert _starts(_maintained(), policy) == starts


def test_a_reservation_knows_when_servers_go() -> None:
    # Two servers of 2; s0 goes at 12 for good. Long runs on s1 until 15. Wide (2 GPUs, 8 us) is free to run on s0 from
    # 6 on by what runs there, and would end at 14: so it reserves s1 at 15, and short may use s0 until 12.
    on = there(servers(2, 2), s0=[(0, 12)])
    made = window(job(2, 6, 0), job(2, 15, 0), job(2, 8, 1), job(1, 6, 2), on=on)
    assert _starts(made, "easy") == [0, 0, 15, 6]
    assert _starts(made, "conservative") == [0, 0, 15, 6]


def test_a_place_across_servers_needs_all_of_them_in_time() -> None:
    on = there(servers(2, 2), s1=[(3, 9), (11, FOREVER)])
    made = window(job(4, 7, 0), job(2, 5, 0), on=on)
    for policy in ("fifo", "easy", "conservative", "compass", "dally", "rltune", "hadar"):
        starts = _starts(made, policy)
        assert starts[0] == 11, policy
        assert starts[1] == (18 if policy == "fifo" else 0), policy


def test_the_engine_refuses_runs_that_would_outlast_a_gpu_of_their_place() -> None:
    made = window(job(2, 6, 0), on=there(servers(1, 2), s0=[(3, 8), (9, FOREVER)]))
    pair = made.places.number[0, 1]

    class OnPlaces(Script):
        supports: ClassVar[Features] = TOGETHER

    def act(at_us: int) -> None:
        def carry_out(site: Site) -> None:
            site.assign(0, pair)
            site.start(0)

        simulate(made, lambda: OnPlaces((at_us, carry_out)))

    with pytest.raises(IllegalActionError, match="T1 task 0: GPU 2 is not eligible"):
        act(1)
    with pytest.raises(IllegalActionError, match="A1 task 0: would end at 10 us, and GPU 0 goes at 8 us"):
        act(4)


def test_who_outlasts_its_server_ends_where_it_is_and_nobody_follows_before() -> None:
    told = window(job(2, 6, 0), job(2, 3, 1), on=there(servers(1, 2), s0=[(0, 7), (9, FOREVER)]))
    truth = window(job(2, 12, 0), job(2, 3, 1), on=told.cluster)
    for policy in ("easy", "conservative", "compass", "rltune", "hadar", "ahead"):
        timeline = simulate(told, parse_policy(policy), truth=truth)
        assert timeline.start_us.tolist() == [0, 12], policy
        assert timeline.end_us.tolist() == [12, 15], policy


def test_what_is_bound_to_a_server_that_goes_finds_another_place() -> None:
    # Told 4, the first runs for 9 on s0, which goes at 10: the second, bound behind it, has no time left there. At 9 it
    # is bound to s1, where a run of 20 us has begun at 1.
    on = there(servers(2, 2), s0=[(0, 10)])
    told = window(job(2, 4, 0), job(2, 20, 1), job(2, 5, 2), on=on)
    truth = window(job(2, 9, 0), job(2, 20, 1), job(2, 5, 2), on=on)
    timeline = simulate(told, parse_policy("compass"), truth=truth)
    assert timeline.start_us.tolist() == [0, 1, 21]


@pytest.mark.parametrize("policy", ["easy", "compass", "hadar", "conservative"])
def test_absences_that_are_still_to_come_change_nothing_before(policy: str) -> None:
    jobs = [job(2, 3, at) for at in (0, 1, 2, 6, 7, 14)]
    pasts = []
    for more in ([], [(15, 30)]):
        made = window(*jobs, on=there(servers(2, 2), s0=[(2, 12), *more]))
        timeline = simulate(made, parse_policy(policy))
        pasts.append([at for at in zip(timeline.place.tolist(), timeline.start_us.tolist(), strict=True) if at[1] < 15])
    assert pasts[0][:5] == pasts[1][:5]


def _comes_to_stay(made: Instance) -> bool:
    """Say whether every task has a place that is there for ever in the end."""
    last = [gpu.available.intervals[-1][1] for gpu in made.cluster.gpus]
    return all(
        any(all(last[gpu] == FOREVER for gpu in made.places.gpus[place]) for place in made.eligible_places(task))
        for task in range(made.n_tasks)
    )


@pytest.mark.parametrize("seed", by_day(range(300), 10))
def test_every_policy_keeps_the_rules_ends_and_its_plan_replays(seed: int) -> None:
    made = draw_away(random.Random(seed), seed % 2 == 1, seed % 3 == 1)
    noise = parse_noise("run=lognormal:0.5")
    for policy in CHOOSING if seed % 2 else POLICIES:
        for given in (None, noise):
            try:
                timeline = simulate(made, parse_policy(policy), seed=seed, noise=given)
            except StalledError:
                assert not _comes_to_stay(made), policy
                continue
            assert check(made, timeline) == [], policy
            if given is None:
                again = simulate(made, replay(made, timeline))
                assert check(made, again) == []
                assert (again.start_us <= timeline.start_us).all(), policy


def test_a_plan_whose_server_has_gone_cannot_be_carried_out() -> None:
    made = window(job(2, 6, 0), job(2, 3, 0), on=there(servers(1, 2), s0=[(0, 10), (12, FOREVER)]))
    plan = simulate(made, parse_policy("fifo"))
    assert plan.start_us.tolist() == [0, 6]
    truth = window(job(2, 11, 0), job(2, 3, 0), on=made.cluster)
    with pytest.raises(PolicyError, match="GPU 0 went before what was planned at 6 us"):
        simulate(made, replay(made, plan), truth=truth)
