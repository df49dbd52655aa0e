"""Which mixes are in question, what each can serve, and what a bound on their price covers."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import truenorth as tn
from tests.planner.answers.servers.scenarios import rows
from truenorth.models import Instance, InstanceError, ServiceLevels
from truenorth.models.record import encode
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.goal import tolerances
from truenorth.planner.answers.servers.sizes import Mix, Sizes, is_within
from truenorth.planner.show.servers_words import answer_in_words, order_in_words
from truenorth.solvers.exact import exhaustive

NETWORK = {"latency": "0 s", "bandwidth": "1 MB/s"}


def _groups(*groups: tuple[int, str, float]) -> dict[str, Any]:
    listed = [
        {"count": n, "gpu": {"kind": kind, "memory": "4 GB", "load_bandwidth": "1 GB/s"}, "price_per_hour": price}
        for n, kind, price in groups
    ]
    return {"groups": listed, "network": NETWORK}


def _scenario(cluster: dict[str, Any], task: dict[str, Any], jobs: list[dict[str, Any]], **more: Any) -> Scenario:
    workflows = {"w": {"tasks": {"t": task}}} | more.pop("workflows", {})
    return scenario_from({"cluster": cluster, "workflows": workflows, "workload": {"jobs": jobs}} | more)


def _ask(built: Scenario, level: str, **options: Any) -> ServersAnswer:
    asked: dict[str, Any] = {"policies": (), "time_limit": 20.0}
    return tn.servers(built, ServiceLevels.parse(level), **asked | options)


def _jobs(*ingress: str) -> list[dict[str, Any]]:
    return [{"release": "0 s", "workflow": "w", "ingress": server} for server in ingress]


def test_a_job_needs_the_server_where_its_input_lies() -> None:
    # 100 MB take 100 s to any server but s2: only s2 serves the job within 1 s, and only one of two.
    cluster = {"servers": 3, "gpu": {"kind": "A", "memory": "4 GB", "load_bandwidth": "1 GB/s"}, "network": NETWORK}
    task = {"runtime": "1 s", "input": "100 MB"}
    answer = _ask(_scenario(cluster, task, _jobs("s2")), "p100 latency <= 1 s")
    assert (answer.servers, answer.proved, answer.lower_bound) == (3, True, 3)
    assert answer.refutation is not None
    assert "the input of a job of w lies at s2, not there" in answer.refutation.forces
    answer = _ask(_scenario(cluster, task, _jobs("s2", "s2")), "p100 latency <= 1 s", max=4)
    assert (answer.servers, answer.undecided, answer.lower_bound) == (None, (), 5)
    # An ingress without input names who plans the job, and no more.
    assert _ask(_scenario(cluster, {"runtime": "1 s"}, _jobs("s2")), "p100 latency <= 1 s").servers == 1


def test_an_ingress_keeps_its_server_whatever_stands_before_it() -> None:
    # s0 is slow, s1 and s2 are fast. More or fewer slow ones change the numbers of the fast, not where the input lies.
    task = {"runtime": {"slow": "10 s", "fast": "1 s"}, "input": "100 MB"}
    sizes = Sizes(_scenario(_groups((1, "slow", 5), (2, "fast", 1)), task, _jobs("s1")))
    at = {mix: sizes.at(mix).instance.jobs[0].ingress for mix in ((0, 1), (1, 1), (1, 2), (3, 1))}
    assert at == {(0, 1): 0, (1, 1): 1, (1, 2): 1, (3, 1): 3}
    with pytest.raises(InstanceError, match="lies at s1, not there"):
        sizes.at((2, 0))
    answer = _ask(sizes.scenario, "p100 latency <= 1 s")
    assert (answer.mix, answer.proved) == ((0, 1), True)
    with pytest.raises(InputError, match="input bytes at the ingress that a job names, and any server may be gone"):
        Sizes(sizes.scenario, any_gone=True)


@pytest.mark.parametrize("seed", range(12))
def test_random_inputs_agree_with_every_mix_solved_exhaustively(seed: int) -> None:
    rng = random.Random(seed)
    cluster = _groups((rng.randint(1, 2), "a", rng.choice([2, 3])), (rng.randint(1, 2), "b", rng.choice([3, 5])))
    count = sum(group["count"] for group in cluster["groups"])
    task = {"runtime": {"a": "2 s", "b": "1 s"}, "input": rng.choice(["1 MB", "2 MB", "100 MB"])}
    jobs = _jobs(*(f"s{rng.randrange(count)}" for _ in range(3)))
    for job in rng.sample(jobs, rng.randint(0, 3)):
        del job["ingress"]
    built = _scenario(cluster, task, jobs)
    level = ServiceLevels.parse(f"p{rng.choice([60, 100])} latency <= {rng.choice([2, 3, 4])} s")
    answer, most = tn.servers(built, level, policies=("jit",), time_limit=20), 3
    every = {mix: _serves(answer.sizes, mix, level) for mix in product(range(most + 1), repeat=2) if sum(mix)}
    assert all(good <= every[large] for mix, good in every.items() for large in every if is_within(mix, large))
    assert answer.policies[0].mix is None or every[answer.policies[0].mix]
    inside = [mix for mix, good in every.items() if good and is_within(mix, answer.sizes.counts)]
    least = min(map(answer.cost, inside), default=None)
    assert (None if answer.mix is None else answer.cost(answer.mix)) == least
    assert answer.proved == (least is not None)
    anywhere = min((answer.cost(mix) for mix, good in every.items() if good), default=None)
    assert answer.impossible or anywhere is None or (answer.lower_bound_price_of_any or 0) <= anywhere


def _serves(sizes: Sizes, mix: Mix, level: ServiceLevels) -> bool:
    """Say whether some plan on a mix meets a level about late jobs, by going through all plans."""
    try:
        instance: Instance = sizes.at(mix).instance
    except InstanceError:
        return False
    goal = tolerances(level)[0].goal(instance)
    value = exhaustive.solve(goal.instance, goal.objective).value
    return value is not None and value <= goal.most


def test_a_price_is_the_least_of_the_counts_looked_at_and_says_so() -> None:
    # Two tasks within 2 s: one big GPU runs them in turn, two small ones side by side. One big and one small may be
    # had: 10. With two of each, two small ones for 6, and nothing for less: one small one has half the time needed.
    built = _scenario(
        _groups((1, "big", 10), (1, "small", 3)),
        {"runtime": {"big": "1 s", "small": "2 s"}},
        [{"release": "0 s", "workflow": "w"}] * 2,
    )
    answer = _ask(built, "p100 latency <= 2 s", policies=("jit",))
    found = answer.record()
    assert (answer.mix, answer.proved) == ((1, 0), True)
    minimum = found.minimum
    assert (minimum.lower_bound_price_per_hour, minimum.lower_bound_price_of_any_counts) == (10, 6)
    assert answer_in_words(found).startswith(
        "jit (information used: queue lengths) needs 1 big at 10 per hour; "
        "no schedule meets the target below 10 per hour on at most 1 big + 1 small, or with "
        "more servers below 6 (proved). "
    )
    assert "and no cheaper size of at most 1 big + 1 small is, which is proved" in answer_in_words(found)
    assert "; lower bound 10 on at most 1 big + 1 small. Policy: jit (" in order_in_words(found)
    assert rows(answer)[0][3] == "proved: a plan at this size, every cheaper one of at most 1 big + 1 small refuted"
    more = _ask(built, "p100 latency <= 2 s", max=2)
    assert (more.mix, more.proved) == ((0, 2), True)
    assert more.lower_bound_price_of_any == 6
    assert "at most" not in rows(more)[0][3]


def test_the_fluid_bound_holds_whatever_the_counts() -> None:
    # Five tasks of 1 s within 1 s take five GPUs, of which no more than one of each sort may be had: nothing serves
    # them, the cheapest mix with two of a sort costs 2, and five GPUs 5.
    task = {"runtime": "1 s"}
    built = _scenario(_groups((1, "a", 1), (1, "b", 4)), task, [{"release": "0 s", "workflow": "w"}] * 5)
    answer = _ask(built, "p100 latency <= 1 s")
    assert (answer.mix, answer.lower_bound_price) == (None, None)
    assert answer.lower_bound_price_of_any == 5
    assert answer.record().minimum.lower_bound_price_of_any_counts == 5


def test_one_group_has_its_count_and_its_price() -> None:
    # Three tasks at once within their run time take three servers; there are two of the group, at 0.8 each.
    jobs = [{"release": "0 s", "workflow": "w"}] * 3
    built = _scenario(_groups((2, "A", 0.8)), {"runtime": "1 s"}, jobs)
    answer = _ask(built, "p100 latency <= 1 s", policies=("srpt",))
    assert (answer.largest, answer.mix, answer.undecided) == ((2,), None, ())
    minimum = answer.record().minimum
    assert (minimum.lower_bound, minimum.lower_bound_price_of_any_counts) == (3, 2.4)
    more = _ask(built, "p100 latency <= 1 s", policies=("srpt",), max=5)
    found = more.record()
    assert (more.mix, found.minimum.size.price_per_hour, found.minimum.lower_bound) == ((3,), 2.4, 3)
    said = "srpt (information used: run times) needs 3 A at 2.4 per hour; no schedule meets the target below "
    assert answer_in_words(found).startswith(said)
    # Mere servers have no count but the scenario's size, and no price.
    bare = {"servers": 2, "gpu": {"kind": "A", "memory": "4 GB", "load_bandwidth": "1 GB/s"}, "network": NETWORK}
    mere = _ask(_scenario(bare, {"runtime": "1 s"}, jobs), "p100 latency <= 1 s")
    assert (mere.mix, "price_per_hour" in encode(mere.record())["minimum"]) == ((3,), False)


def test_a_free_group_is_counted_all_the_same() -> None:
    built = _scenario(_groups((5, "A", 0)), {"runtime": "1 s"}, [{"release": "0 s", "workflow": "w"}] * 2)
    answer = _ask(built, "p100 latency <= 1 s")
    assert (answer.mix, answer.proved, answer.lower_bound_price) == ((2,), True, Fraction(0))


IDLE = {"v": {"tasks": {"t": {"runtime": {"b": "1 s"}, "models": ["large"]}}}}


@pytest.mark.parametrize(
    "restrictions",
    [
        {},
        {"pin": [{"workflow": "v", "on": ["group 2"]}]},
        {"pin": [{"model": "large", "on": ["group 2"]}], "max_replicas": {"large": 1}},
        {"forbid": [{"workflow": "v", "on": ["group 1"]}]},
    ],
)
def test_what_no_job_takes_refutes_no_mix(restrictions: dict[str, Any]) -> None:
    # No job takes v, whose model fits on b alone, so that the cheaper a is enough for w.
    cluster = _groups((1, "a", 1), (1, "b", 3))
    cluster["groups"][1]["gpu"]["memory"] = "8 GB"
    task, jobs = {"runtime": "1 s"}, [{"release": "0 s", "workflow": "w"}]
    more = {"models": {"large": {"weights": "6 GB"}}, "restrictions": restrictions, "workflows": IDLE}
    answer = _ask(_scenario(cluster, task, jobs, **more), "p100 latency <= 1 s", policies=("jit",))
    assert (answer.mix, answer.proved, answer.policies[0].mix) == ((1, 0), True, (1, 0))
    # With a job of v both are needed, whatever is restricted: a has no room for the model.
    jobs.append({"release": "0 s", "workflow": "v"})
    answer = _ask(_scenario(cluster, task, jobs, **more), "p100 latency <= 8 s")
    assert (answer.mix, answer.proved) == ((0, 1), True)
