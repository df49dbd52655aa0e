"""Least numbers of servers, each derived by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import pytest

import truenorth as tn
from tests.planner.answers.servers.scenarios import NO_LATE_JOBS, scenario
from truenorth.models import ServiceLevels
from truenorth.models.record import encode
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.decide import meets

SHORT = {"run": {"runtime": "400 ms"}}


def ask(*arguments: object, **options: object) -> ServersAnswer:
    return tn.servers(*arguments, **({"policies": (), "time_limit": 20.0} | options))  # type: ignore[arg-type]


def test_no_two_tasks_of_400_ms_share_a_gpu_within_500_ms() -> None:
    # 3 x 400 ms within 500 ms: two on one GPU end at 800 ms, so every task needs its own.
    answer = ask(scenario(SHORT, [(0, "run", 500)] * 3), NO_LATE_JOBS)
    assert (answer.servers, answer.proved, answer.lower_bound) == (3, True, 3)
    assert answer.timeline is not None
    assert meets(answer.sizes.at((3,)).instance, answer.timeline, NO_LATE_JOBS)


def test_a_share_lets_jobs_be_late() -> None:
    # Of 4 tasks of 400 ms within 500 ms, half may be late: two GPUs serve two tasks in time, one GPU only one.
    answer = ask(scenario(SHORT, [(0, "run", 500)] * 4), ServiceLevels.parse("50 % within deadline"))
    assert (answer.servers, answer.proved) == (2, True)


def test_slowdown_and_latency_set_the_same_limit_as_a_deadline() -> None:
    # P = 400 ms: slowdown 1.25 is a latency of 500 ms.
    for level in ("p100 slowdown <= 1.25", "p100 latency <= 500 ms"):
        assert ask(scenario(SHORT, [(0, "run", 9000)] * 3), ServiceLevels.parse(level)).servers == 3


def test_mean_latency() -> None:
    # 4 tasks of 400 ms. 1 GPU: (400 + 800 + 1200 + 1600) / 4 = 1000 ms; 2 GPUs: (2 x 400 + 2 x 800) / 4 = 600 ms.
    window = scenario(SHORT, [(0, "run", 9000)] * 4)
    for limit, least in ((1000, 1), (999, 2), (600, 2), (599, 3)):
        answer = ask(window, ServiceLevels.parse(f"mean latency <= {limit} ms"))
        assert (answer.servers, answer.proved) == (least, True), limit


def test_levels_of_two_workflows_hold_together() -> None:
    # Two tasks of 400 ms and two of 100 ms at once. The short ones within 200 ms: one GPU, 100 and 200 ms, if the long
    # ones wait. The long ones within 800 ms: one GPU, if the short ones wait. Both: 1 s of work in 800 ms is too much
    # for one GPU, and two serve everybody within 500 ms; 190 ms for the short ones takes a GPU for each.
    window = scenario(SHORT | {"short": {"runtime": "100 ms"}}, [(0, "run", 9000)] * 2 + [(0, "short", 9000)] * 2)
    short, long = "p100 latency of short <= 200 ms", "p100 latency of run <= 800 ms"
    for texts, least in (([short], 1), ([long], 1), ([short, long], 2), ([short, "p100 latency of run <= 1 s"], 1)):
        answer = ask(window, ServiceLevels.parse(*texts))
        assert (answer.servers, answer.proved) == (least, True), texts
    # Means: the short ones first take 150 ms on average, and the long ones 600 and 1000: 800 ms, hence one GPU.
    # Any other order costs the short ones more than it spares the long ones: the sum is least, 950 ms.
    for limit, least in ((800, 1), (799, 2)):
        levels = ServiceLevels.parse("mean latency of short <= 150 ms", f"mean latency of run <= {limit} ms")
        answer = ask(window, levels)
        assert (answer.servers, answer.proved) == (least, True), limit


def test_memory_forces_a_server() -> None:
    # Models of 6 GB load in 6 s; 10 GB hold only one. a runs at 6 s to 7 s; b's load cannot begin before 7 s and would
    # be ready at 13 s: with a deadline of 12 s one of the two is late, though 2 s of work in 12 s are little.
    window = {"a": {"models": ["ma"], "runtime": "1 s"}, "b": {"models": ["mb"], "runtime": "1 s"}}
    jobs = [(0, "a", 12_000), (0, "b", 12_000)]
    answer = ask(scenario(window, jobs, {"ma": "6 GB", "mb": "6 GB"}), NO_LATE_JOBS)
    assert (answer.servers, answer.proved) == (2, True)
    # With 12 GB the loads follow each other: b is ready at 12 s, so 13 s suffice on one.
    gpu = {"kind": "A", "memory": "12 GB", "load_bandwidth": "1 GB/s"}
    roomy = {"servers": 1, "gpu": gpu, "network": {"bandwidth": "1 GB/s"}}
    late = [(0, "a", 13_000), (0, "b", 13_000)]
    assert ask(scenario(window, late, {"ma": "6 GB", "mb": "6 GB"}, cluster=roomy), NO_LATE_JOBS).servers == 1


def test_the_copy_engine_forces_a_server() -> None:
    # Two models of 4 GB fit together, and 2 x 100 ms of work are little; but one copy engine has loaded both only at
    # 8 s, and the jobs are due at 5 s. Two engines have them at 4 s.
    window = {"a": {"models": ["ma"], "runtime": "100 ms"}, "b": {"models": ["mb"], "runtime": "100 ms"}}
    answer = ask(scenario(window, [(0, "a", 5000), (0, "b", 5000)], {"ma": "4 GB", "mb": "4 GB"}), NO_LATE_JOBS)
    assert (answer.servers, answer.proved) == (2, True)
    assert answer.refutation is not None
    assert "copy engines of 1 GPU give 5 s" in answer.refutation.forces


def test_a_level_beyond_every_size() -> None:
    # A cold model of 4 GB is ready at 4 s at the earliest, on however many servers: "at least 4" would be no answer.
    window = {"a": {"models": ["ma"], "runtime": "1 s"}}
    answer = ask(scenario(window, [(0, "a", 4999)], {"ma": "4 GB"}), NO_LATE_JOBS, max=3)
    assert (answer.servers, answer.proved, answer.lower_bound, answer.undecided) == (None, False, None, ())
    assert answer.impossible
    assert ask(scenario(window, [(0, "a", 5000)], {"ma": "4 GB"}), NO_LATE_JOBS, max=3).servers == 1


def test_a_packing_is_proved() -> None:
    # Items of 6, 6, 4, 4, 4 into bins of 10, 24 in all: the volume asks for 3, and 6 + 4, 6 + 4, 4 are 3.
    # Items of 6, 6, 6, 4 into bins of 11: 22 in all asks for 2, but no two sixes share a bin: 3.
    packing = {f"i{size}": {"runtime": f"{size} ms"} for size in (4, 6)}
    for sizes, due, least in (((6, 6, 4, 4, 4), 10, 3), ((6, 6, 6, 4), 11, 3)):
        answer = ask(scenario(packing, [(0, f"i{size}", due) for size in sizes]), NO_LATE_JOBS)
        assert (answer.servers, answer.proved) == (least, True)


def test_a_level_beyond_the_largest_size_asked_about() -> None:
    # Three tasks of 400 ms within 500 ms need three servers: up to two there is none, and a third is not ruled out.
    answer = ask(scenario(SHORT, [(0, "run", 500)] * 3), NO_LATE_JOBS, max=2)
    assert (answer.servers, answer.lower_bound, answer.impossible) == (None, 3, False)


def test_a_longest_path_is_refuted_for_servers_that_the_scenario_does_not_name() -> None:
    # The task may not run on s0, where its model is resident, and elsewhere the model takes 4 s to load: 5 s in all on
    # two servers, or on any number.
    window = {"a": {"models": ["ma"], "runtime": "1 s"}}
    places = {
        "restrictions": {"forbid": [{"workflow": "a", "on": ["s0"]}]},
        "options": {"initial_residency": [{"gpu": "s0/g0", "model": "ma"}]},
    }
    answer = ask(scenario(window, [(0, "a", 4999)], {"ma": "4 GB"}, **_on_two(places)), NO_LATE_JOBS, max=2)
    assert (answer.impossible, answer.lower_bound) == (True, None)
    # Resident on s1, it runs there at once: two servers are enough, and one is not, since none is left for the task.
    places["options"] = {"initial_residency": [{"gpu": "s1/g0", "model": "ma"}]}
    answer = ask(scenario(window, [(0, "a", 1000)], {"ma": "4 GB"}, **_on_two(places)), NO_LATE_JOBS, max=2)
    assert (answer.servers, answer.proved, answer.lower_bound, answer.impossible) == (2, True, 2, False)


def _on_two(places: dict[str, Any]) -> dict[str, Any]:
    gpu = {"kind": "A", "memory": "10 GB", "load_bandwidth": "1 GB/s"}
    return places | {"cluster": {"servers": 2, "gpu": gpu, "network": {"bandwidth": "1 GB/s"}}}


def _groups(*groups: tuple[int, str, float]) -> dict[str, object]:
    def gpu(kind: str) -> dict[str, str]:
        return {"kind": kind, "memory": "10 GB", "load_bandwidth": "1 GB/s"}

    listed = [{"count": count, "gpu": gpu(kind), "price_per_hour": price} for count, kind, price in groups]
    return {"groups": listed, "network": {"bandwidth": "1 GB/s"}}


@pytest.mark.parametrize(("dear", "mix", "price"), [(5, (2, 0), 4), (3.5, (0, 1), Fraction("3.5"))])
def test_the_cheapest_mix(dear: float, mix: tuple[int, int], price: Fraction) -> None:
    # Two tasks due in 500 ms, 400 ms each on A and 200 ms each on B: two of A (2 + 2 = 4 per hour) or one of B.
    # A dear B costs 5: two cheap beat one dear; at 3.5 the dear one wins. One A (2 per hour) is refuted.
    window = {"run": {"runtime": {"A": "400 ms", "B": "200 ms"}}}
    cluster = _groups((3, "A", 2), (2, "B", dear))
    answer = ask(scenario(window, [(0, "run", 500)] * 2, cluster=cluster), NO_LATE_JOBS)
    assert (answer.mix, answer.proved) == (mix, True)
    assert answer.mix is not None
    assert answer.cost(answer.mix) == price
    document = encode(answer.record())["minimum"]
    assert (document["mix"], document["price_per_hour"]) == (list(mix), float(price))
    # One B may do where two A do not: only the price has a bound.
    assert (document["lower_bound"], document["lower_bound_price_per_hour"]) == (None, float(price))


def test_a_mix_without_an_eligible_gpu_is_refuted() -> None:
    # The only task runs on B alone, so that no number of cheap A serves it.
    cluster = _groups((4, "A", 1), (1, "B", 9))
    answer = ask(scenario({"run": {"runtime": {"B": "1 s"}}}, [(0, "run", 2000)], cluster=cluster), NO_LATE_JOBS)
    assert (answer.mix, answer.proved) == ((0, 1), True)


def test_policies_are_scanned_size_by_size() -> None:
    # Jobs of 400 ms every 200 ms, due 500 ms after their release: with two GPUs each is taken at once by the one that
    # is free, whatever the order, so that just-in-time placement needs no more than the plan.
    window = scenario(SHORT, [(200 * index, "run", 500) for index in range(6)])
    answer = ask(window, NO_LATE_JOBS, policies=("jit",))
    assert answer.servers == 2
    assert [(row.policy, row.mix) for row in answer.policies] == [("jit", (2,))]


def test_a_long_window_is_planned_by_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    # Jobs of 400 ms every 100 ms, due 450 ms after their release: four GPUs take them in turn, three leave the fourth
    # to wait for 100 ms. The fluid bound knows it, and the rule finds the plan for four without any policy or search.
    monkeypatch.setattr("truenorth.planner.answers.servers.answer.LONG_TRACE", 10)
    window = scenario(SHORT, [(100 * index, "run", 450) for index in range(20)])
    words = list[str]()
    answer = tn.servers(window, NO_LATE_JOBS, policies=(), time_limit=60, watch=words.append)
    assert (answer.servers, answer.proved) == (4, True)
    assert [said for said in words if not said.startswith("dispatch rule")] == ["fluid bound"]


def test_small_packings_agree_with_enumeration() -> None:
    # All multisets of four sizes from 3, 4, 5 into bins of 8, against first fit over every order.
    window = {f"i{size}": {"runtime": f"{size} ms"} for size in (3, 4, 5)}
    for sizes in combinations_with_replacement((3, 4, 5), 4):
        answer = ask(scenario(window, [(0, f"i{size}", 8) for size in sizes]), NO_LATE_JOBS)
        assert (answer.servers, answer.proved) == (_bins(sizes, 8), True), sizes


def _bins(sizes: tuple[int, ...], room: int) -> int:
    from itertools import permutations

    def first_fit(order: tuple[int, ...]) -> int:
        bins: list[int] = []
        for size in order:
            place = next((index for index, used in enumerate(bins) if used + size <= room), None)
            if place is None:
                bins.append(size)
            else:
                bins[place] += size
        return len(bins)

    return min(first_fit(order) for order in permutations(sizes))
