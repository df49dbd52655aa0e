"""Policies for runs on several GPUs: what each does of one window by hand, and properties of all."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.gangs import draw, job, servers, window
from tests.instances import instance
from truenorth.executor import PolicyError, parse_policy, simulate
from truenorth.executor.policies.bound_to_places import HadarOnPlaces
from truenorth.executor.policies.hadar import HadarOptions
from truenorth.executor.policies.replay import replay
from truenorth.executor.simulation import change_future, first_difference, past
from truenorth.models import Instance, check

POLICIES = (
    "fifo", "easy", "conservative", "sjf", "qssf", "sjf:blocking=on", "qssf:reserve_after=2us",
    "compass", "dally", "dally:tau=3us", "rltune", "srpt", "ahead", "hadar", "hadar:window=2us,windows=5",
)  # fmt: skip


def _starts(instance: Instance, policy: str) -> list[int]:
    timeline = simulate(instance, parse_policy(policy))
    assert check(instance, timeline) == []
    return [int(start_us) for start_us in timeline.start_us]


def _four() -> Instance:
    # One server of 4: long takes 3 GPUs until 10; wide wants all 4; short (4 us) and late (20 us) want one each.
    return window(job(3, 10, 0), job(4, 5, 1), job(1, 4, 2), job(1, 20, 3), on=servers(1, 4, "any"))


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # Nobody passes the wide one, which starts when long ends.
        ("fifo", [0, 10, 15, 15]),
        # Short ends at 6, before long does; late would delay the wide one.
        ("easy", [0, 10, 2, 15]),
        ("conservative", [0, 10, 2, 15]),
        # Whoever fits starts, so that late holds the wide one back until 26.
        ("sjf", [0, 26, 2, 6]),
        ("qssf", [0, 26, 2, 6]),
        ("sjf:blocking=on", [0, 10, 2, 15]),
        # The wide one has waited for 4 us at 5: from then on late may not delay it.
        ("sjf:reserve_after=4us", [0, 10, 2, 15]),
        ("srpt", [0, 26, 2, 6]),
        ("ahead", [0, 10, 2, 15]),
        # Windows are 5 us, two thirds of the median. The wide one books [10, 15), short the free GPU at 2; before 15 no
        # GPU has four windows in a row for late.
        ("hadar", [0, 10, 2, 15]),
        # Every place is of level 0: whoever fits, in order of arrival.
        ("dally", [0, 26, 2, 6]),
        # Bound on arrival to where each ends first: the wide one keeps all GPUs until 15.
        ("compass", [0, 10, 15, 15]),
        # At 2 the wide one, 25 / (1 + 1 / 0.5), goes before short, 16 / 1, and is bound; nobody passes it on a GPU.
        ("rltune", [0, 10, 15, 15]),
    ],
)
def test_the_window_by_hand(policy: str, starts: list[int]) -> None:
    assert _starts(_four(), policy) == starts


def _with_an_urgent_one() -> Instance:
    # As above, and late is urgent.
    four = _four()
    return instance([*four.jobs[:3], replace(four.jobs[3], priority=1)], on=four.cluster)


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # Short waits behind the wide one, so that at 3 a GPU is free for late until 23; then both in order.
        ("fifo", [0, 23, 28, 3]),
        # Short has passed the wide one; when it ends, late comes before that, which waits until 26.
        ("easy", [0, 26, 2, 6]),
        ("sjf", [0, 26, 2, 6]),
        ("dally", [0, 26, 2, 6]),
    ],
)
def test_who_is_urgent_comes_first(policy: str, starts: list[int]) -> None:
    assert _starts(_with_an_urgent_one(), policy) == starts


@pytest.mark.parametrize("policy", ["conservative", "compass", "rltune"])
def test_who_binds_or_books_on_arrival_refuses_urgency(policy: str) -> None:
    with pytest.raises(PolicyError, match=f"policy {policy} has no support for priorities"):
        _starts(_with_an_urgent_one(), policy)


def test_least_gpu_time_goes_first() -> None:
    # Both fit one after the other; 2 GPUs x 3 us are more than 1 GPU x 5 us, though shorter.
    made = window(job(2, 1, 0), job(2, 3, 0), job(1, 5, 0), on=servers(1, 2))
    assert _starts(made, "sjf") == [0, 1, 4]
    assert _starts(made, "qssf") == [0, 6, 1]


def test_conservative_backfill_delays_nobody_before() -> None:
    # Of 2 GPUs one runs until 4. First waits for both, [4, 6); second for both, [6, 8). Third (1 GPU, 4 us) ends at 5
    # at the earliest: easy and conservative have it wait for the first, and conservative also for the second.
    made = window(job(1, 4, 0), job(2, 2, 0), job(2, 2, 0), job(1, 4, 1), on=servers(1, 2))
    assert _starts(made, "conservative") == [0, 4, 6, 8]
    # With one GPU more the third has its own.
    wider = window(job(1, 4, 0), job(2, 2, 0), job(2, 2, 0), job(1, 4, 1), on=servers(1, 3, "any"))
    assert _starts(wider, "conservative") == [0, 0, 2, 4]
    assert _starts(wider, "easy") == [0, 0, 2, 4]


def test_the_fullest_server_with_room_is_taken() -> None:
    made = window(job(1, 9, 0), job(1, 9, 1), job(4, 9, 2), on=servers(2, 4, "any"))
    timeline = simulate(made, parse_policy("fifo"))
    places = [made.places.gpus[place] for place in timeline.place.tolist()]
    assert places == [(0,), (1,), (4, 5, 6, 7)]
    assert timeline.start_us.tolist() == [0, 1, 2]


def test_runs_beyond_a_server_take_whole_aligned_servers() -> None:
    made = window(job(1, 9, 0), job(4, 5, 1), on=servers(4, 2))
    timeline = simulate(made, parse_policy("fifo"))
    # Servers 0 and 1 are no pair while s0/g0 runs.
    assert made.places.gpus[int(timeline.place[1])] == (4, 5, 6, 7)


@pytest.mark.parametrize(("tau", "start_us", "gpus"), [("0us", 1, (1, 3)), ("4us", 3, (1, 3)), ("inf", 8, (2, 3))])
def test_dally_declines_places_that_are_spread_for_a_while(tau: str, start_us: int, gpus: tuple[int, ...]) -> None:
    # At 1 only g1 and g3 are free, of two servers: taken after half of tau; g2 and g3, of one server, are free at 8.
    places = ((0, 1), (1, 3), (2, 3))
    made = window(job(1, 10), job(1, 1), job(1, 8), job(2, 5, 1), on=servers(2, 2, places))
    timeline = simulate(made, parse_policy(f"dally:tau={tau}"))
    assert timeline.start_us.tolist() == [0, 0, 0, start_us]
    assert made.places.gpus[int(timeline.place[3])] == gpus


def test_patience_follows_the_waits_of_as_many_gpus() -> None:
    # The first pair waits for 4 us and gets one server: the second, which finds g1 and g3 at 6, declines them for 4 us.
    ones = [job(1, 4), job(1, 4), job(1, 4), job(1, 4), job(1, 50, 5), job(1, 1, 5), job(1, 50, 5)]
    made = window(*ones, job(2, 1, 0), job(2, 5, 6), on=servers(2, 2, ((0, 1), (1, 3), (2, 3))))
    first, second = (int(at) for at in np.flatnonzero(made.template_gpus[made.task_template] == 2))
    timeline = simulate(made, parse_policy("dally"))
    assert timeline.start_us[[first, second]].tolist() == [4, 10]


def test_compass_binds_a_run_to_where_it_would_end_first() -> None:
    # A place is available when the last of its GPUs is: 9 on the first server, 6 on the second, which is slower by 2.
    ones = [job(1, {"A": 9, "B": 99}), job(1, {"A": 5, "B": 99}), job(1, {"A": 99, "B": 6}), job(1, {"A": 99, "B": 4})]
    for slower, kind in ((2, "B"), (4, "A")):
        pair = job(2, {"A": 5, "B": 5 + slower}, 1)
        made = window(*ones, pair, on=servers(2, 2, kinds="AB"))
        timeline = simulate(made, parse_policy("compass"))
        assert made.places.gpus[int(timeline.place[4])] == ((2, 3) if kind == "B" else (0, 1))
        assert timeline.start_us.tolist() == [0, 0, 0, 0, 6 if kind == "B" else 9]


def test_ahead_reserves_for_the_shortest_first() -> None:
    # One of 2 GPUs runs until 10. Listed by length the second pair comes at 10 and the first at 12; the single of 9 us
    # would delay them. In shortest-first it starts at 3, and both wait.
    made = window(job(1, 10), job(2, 8, 1), job(2, 2, 2), job(1, 9, 3), on=servers(1, 2))
    assert _starts(made, "ahead") == [0, 12, 10, 20]
    assert _starts(made, "conservative") == [0, 10, 18, 20]
    assert _starts(made, "sjf") == [0, 14, 12, 3]


def test_ahead_looks_at_so_many_runs_per_gpu() -> None:
    # At 1 both pairs are listed; with more runs per GPU also the single, which ends before the first pair begins.
    made = window(job(1, 9), job(2, 4, 1), job(2, 5, 1), job(1, 6, 1), on=servers(1, 2))
    assert _starts(made, "ahead") == [0, 9, 13, 1]
    assert _starts(made, "ahead:window=1") == [0, 9, 13, 18]


def test_to_hadar_a_place_costs_what_its_gpus_cost_together() -> None:
    # Of a window of 10 us 4 are booked on g0 and on g1. The pair can start at 4 on g0, g1 or on g1, g2; there only one
    # of two GPUs is dearer.
    made = window(job(1, 4), job(1, 4), job(2, 2), on=servers(1, 3, ((0, 1), (1, 2))))
    timeline = simulate(made, parse_policy("hadar:window=10us"))
    assert [made.places.gpus[place] for place in timeline.place.tolist()] == [(0,), (1,), (1, 2)]
    assert timeline.start_us.tolist() == [0, 0, 4]


@pytest.mark.parametrize("readings", ["hadar", "hadar:window=7us,windows=30"])
def test_on_places_of_one_gpu_hadar_is_hadar(readings: str) -> None:
    given = parse_policy(readings).options or HadarOptions()
    assert isinstance(given, HadarOptions)
    for seed in range(40):
        rng = random.Random(seed)
        jobs = [job(1, rng.randint(1, 60), rng.randint(0, 200)) for _ in range(rng.randint(2, 60))]
        made = window(*jobs, on=servers(1, rng.randint(1, 4)))
        one, other = simulate(made, parse_policy(readings)), simulate(made, partial(HadarOnPlaces, given))
        assert one.start_us.tolist() == other.start_us.tolist()
        assert one.place.tolist() == other.place.tolist()


def test_a_run_that_ends_early_moves_up_what_is_bound_behind_it() -> None:
    # Told 10, the first ends at 2: the pair bound behind it starts then, and the last, which comes at 3, sees it end.
    told = window(job(1, 10), job(2, 5), job(1, 3, 3), on=servers(1, 2))
    truth = window(job(1, 2), job(2, 5), job(1, 3, 3), on=servers(1, 2))
    timeline = simulate(told, parse_policy("compass"), truth=truth)
    assert timeline.start_us.tolist() == [0, 2, 7]


def test_a_policy_without_such_runs_refuses_them_and_names_those_with() -> None:
    named = "compass, srpt, ahead, dally, hadar, rltune, fifo, easy, conservative, sjf, qssf$"
    with pytest.raises(PolicyError, match=f"no support for runs on several GPUs; allowed are policies such as {named}"):
        simulate(_four(), parse_policy("jit"))
    with pytest.raises(PolicyError, match=r"for priorities; .* such as srpt, dally, fifo, easy, sjf, qssf$"):
        simulate(_with_an_urgent_one(), parse_policy("compass"))


def test_policies_for_such_runs_load_models_of_runs_on_one_gpu_too() -> None:
    from tests.instances import instance, task
    from truenorth.models import Job, Workflow

    loaded = instance([Job(Workflow("w", (task("run", 5, ["m"]),)), 0)], {"m": 1})
    assert simulate(loaded, parse_policy("easy")).start_us.tolist() == [1]
    assert simulate(loaded, parse_policy("conservative")).start_us.tolist() == [1]


@pytest.mark.parametrize("seed", range(25))
def test_every_policy_keeps_the_rules_and_its_plan_replays(seed: int) -> None:
    made = draw(random.Random(seed))
    for policy in POLICIES:
        timeline = simulate(made, parse_policy(policy))
        assert check(made, timeline) == [], policy
        again = simulate(made, replay(made, timeline))
        # No sooner than released, no later than planned: fifo leaves GPUs idle that a replay need not.
        assert (again.start_us <= timeline.start_us).all(), policy
        assert np.array_equal(again.place, timeline.place), policy


@pytest.mark.parametrize("policy", POLICIES)
def test_the_future_changes_no_past_action(policy: str) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        made = draw(rng)
        changed = change_future(made, rng)
        pasts = [
            past(each, simulate(each, parse_policy(policy)), changed.before_us) for each in (made, changed.instance)
        ]
        assert first_difference(*pasts) is None
