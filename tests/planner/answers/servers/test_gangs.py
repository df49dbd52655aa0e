"""How many servers are enough for jobs on several GPUs: by hand, beside an oracle that tries all; what is refused."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.command import app
from tests.gangs import optimum
from tests.night import by_day
from truenorth.models import InstanceError
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.planner.answers.servers import hunt
from truenorth.planner.answers.servers.answer import ServersAnswer
from truenorth.planner.answers.servers.goal import goals
from truenorth.planner.answers.servers.sizes import Mix, remainders
from truenorth.planner.command.manners import DONE, run

GPU = {"kind": "A", "memory": "16 GB", "load_bandwidth": "10 GB/s"}
NETWORK = {"bandwidth": "1 GB/s"}


def written(jobs: list[tuple[int, int, int]], servers: int = 2, **cluster: Any) -> dict[str, Any]:
    """Return jobs (GPUs, seconds, release in seconds) on servers of two GPUs, as in a file."""
    kinds = {
        f"w{at}": {"tasks": {"run": {"runtime": f"{run_s} s", "gpus": gpus}}}
        for at, (gpus, run_s, _) in enumerate(jobs)
    }
    listed = [{"release": f"{release_s} s", "workflow": f"w{at}"} for at, (_, _, release_s) in enumerate(jobs)]
    return {
        "cluster": {"servers": servers, "gpus_per_server": 2, "gpu": GPU, "network": NETWORK} | cluster,
        "workflows": kinds,
        "workload": {"jobs": listed},
    }


def training(jobs: list[tuple[int, int, int]], **cluster: Any) -> Scenario:
    """Return the same as a scenario."""
    return scenario_from(written(jobs, **cluster))


def test_area_refutes_and_its_certificate_verifies(tmp_path: Path) -> None:
    """Six jobs of 2 GPUs for 10 s in 20 s: 120 GPU-seconds, of which two servers give 80 and three 120."""
    answer = tn.servers(training([(2, 10, 0)] * 6), slo="p100 latency <= 20 s", time_limit=10)
    assert (answer.servers, answer.proved, answer.lower_bound) == (3, True, 3)
    assert {row.policy: row.mix for row in answer.policies} == dict.fromkeys(
        ("sjf", "easy", "dally", "qssf", "fifo"), (3,)
    )
    path, out = tmp_path / "six.json", tmp_path / "out"
    path.write_text(json.dumps(written([(2, 10, 0)] * 6)))
    asked = ["servers", str(path), "--slo", "p100 latency <= 20 s", "--time-limit", "10", "-o", str(out)]
    assert run(app, asked) == DONE
    assert run(app, ["verify", str(out / "too_few.json"), str(out / "certificate.json")]) == DONE
    assert run(app, ["check", str(out / "enough.json"), str(out / "plan.json")]) == DONE


def test_a_run_on_two_servers_needs_two() -> None:
    """No place of 4 GPUs on one server."""
    answer = tn.servers(training([(4, 10, 0)]), slo="p100 latency <= 10 s")
    assert (answer.servers, answer.proved) == (2, True)
    assert {(done.mix, done.method) for done in answer.refutations} == {((1,), "eligibility")}


def test_what_forces_the_peak_is_said_of_whole_servers_also_on_fewer_than_a_job_takes() -> None:
    """60 GPU-seconds in 10 s take three servers of two GPUs; 15 take two, and no server has fewer."""
    answer = tn.servers_by(training([(4, 10, 0), (2, 10, 0)]), by="10 s", slo="p100 latency <= 10 s", max=4)
    assert answer.optimum.schedule == ((3,),)
    assert answer.forces(0) == (
        "Between 0 s and 10 s jobs within 10 s need 60 GPU-seconds of compute, but 4 GPUs give 40: "
        "at least 1 job is not within 10 s"
    )
    small = tn.servers_by(training([(1, 10, 0), (1, 5, 0)]), by="10 s", slo="p100 latency <= 10 s")
    assert (small.optimum.schedule, small.forces(0)) == (((1,),), None)


def test_what_can_run_nowhere_is_known_at_once() -> None:
    """Places of 8 GPUs begin at four servers; there is no time for anything else."""
    jobs = [(8, 10, 0), *((1, 1 + at % 7, at) for at in range(150))]
    answer = tn.servers(training(jobs, servers=4), slo="mean latency <= 1000 s", policies=["fifo"], time_limit=0.1)
    assert (answer.lower_bound, [done.mix for done in answer.refutations]) == (4, [(1,), (2,), (3,)])


def _is_enough(answer: ServersAnswer, mix: Mix) -> bool:
    """Say whether the best plan of all, at a size, meets the levels of an answer."""
    try:
        instance = answer.sizes.at(mix).instance
    except InstanceError:
        return False
    goal = goals(instance, answer.levels)[0]
    assert goal.suffices
    return optimum(goal.instance, goal.objective) <= goal.most


@pytest.mark.parametrize("seed", by_day(range(60), 8))
def test_no_size_is_refuted_that_has_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [
        (rng.choice((1, 1, 2, 2, 4)), rng.randint(1, 9), rng.choice((0, 0, 2, 5))) for _ in range(rng.randint(3, 4))
    ]
    longest = max(run_s for _, run_s, _ in jobs)
    slo = rng.choice(
        (
            f"mean latency <= {rng.randint(longest // 2 + 1, 2 * longest)} s",
            f"p100 latency <= {rng.randint(longest, 3 * longest)} s",
            f"p60 latency <= {rng.randint(longest // 2 + 1, 2 * longest)} s",
            f"mean slowdown <= {rng.choice((1.1, 1.5, 2))}",
        )
    )
    answer = tn.servers(training(sorted(jobs, key=lambda job: job[2])), slo=slo, max=3, time_limit=4)
    _hold_against_the_oracle(answer)


def _hold_against_the_oracle(answer: ServersAnswer) -> None:
    slo = str(answer.levels)
    enough: dict[Mix, bool] = {(count,): _is_enough(answer, (count,)) for count in (1, 2, 3)}
    assert not any(enough[done.mix] for done in answer.refutations if done.mix in enough), slo
    assert answer.mix is None or enough[answer.mix]
    assert all(not any(enough.values()) for done in answer.refutations if done.however_many)
    assert all(row.mix is None or enough[row.mix] for row in answer.policies)


@pytest.mark.parametrize("seed", by_day(range(60), 2))
def test_no_size_is_refuted_that_has_a_plan_of_tasks_that_wait_for_others(seed: int) -> None:
    """Gigabytes take seconds between servers, half of that inside one."""
    rng = random.Random(seed)
    network = {"bandwidth": "1 GB/s", "within_server": {"bandwidth": "2 GB/s"}}
    made = written(
        [(1, 1, rng.choice((0, 0, 2))) for _ in range(2)], network=network, places=rng.choice(("any", "aligned"))
    )
    sent = [f"{rng.choice((0, 2, 4))} GB" for _ in range(2)]
    first = {"runtime": f"{rng.randint(1, 4)} s", "gpus": rng.choice((1, 2)), "output": sent[0]}
    second = {"runtime": f"{rng.randint(2, 8)} s", "gpus": rng.choice((1, 2, 4)), "output": sent[1], "after": ["first"]}
    third = {"runtime": f"{rng.randint(1, 3)} s", "gpus": rng.choice((1, 2)), "after": {"second": {"delay": "1 s"}}}
    made["workflows"] = {
        "w0": {"tasks": {"first": first, "second": second, "third": third}},
        "w1": {"tasks": {"first": first, "second": second}},
    }
    made["workload"]["jobs"].sort(key=lambda job: int(job["release"].split()[0]))
    slo = rng.choice((f"p100 latency <= {rng.randint(8, 25)} s", f"mean latency <= {rng.randint(6, 20)} s"))
    _hold_against_the_oracle(tn.servers(scenario_from(made), slo=slo, max=3, time_limit=4))


@pytest.mark.parametrize(
    ("cluster", "asked", "named"),
    [
        ({"places": [["s0/g0", "s0/g1"]]}, {}, "listed places; ask with aligned ones"),
        ({"places": "any"}, {"max": 20_000}, "have 20000 places; allowed are 10000.* up to 20000 servers"),
    ],
)
def test_what_is_not_known_is_refused(cluster: dict[str, Any], asked: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        tn.servers(training([(2, 10, 0)], **cluster), slo="p100 latency <= 20 s", **asked)


def mixed(jobs: list[dict[str, Any]], *groups: tuple[str, int, int], count: int = 2, **cluster: Any) -> Scenario:
    """Return tasks, each as in a file, on groups of servers: kind, GPUs each, price of one for an hour."""
    return scenario_from(
        {
            "cluster": {
                "groups": [
                    {"count": count, "gpus_per_server": held, "gpu": GPU | {"kind": kind}, "price_per_hour": price}
                    for kind, held, price in groups
                ],
                "network": NETWORK,
            }
            | cluster,
            "workflows": {f"w{at}": {"tasks": {"run": run}} for at, run in enumerate(jobs)},
            "workload": {"jobs": [{"release": "0 s", "workflow": f"w{at}"} for at in range(len(jobs))]},
        }
    )


def test_the_cheapest_mix_of_groups() -> None:
    """Of A two GPUs for 1, of B four for 3, where all runs take half as long.

    Runs on two GPUs for 10 s on A: within 10 s one server of A does one of them, one of B four, two at a time. A run on
    four GPUs needs two servers of A (for 2), or one of B (for 3).
    """
    two = {"runtime": {"A": "10 s", "B": "5 s"}, "gpus": 2}
    four = {"runtime": {"A": "10 s", "B": "5 s"}, "gpus": 4}
    slo = "p100 latency <= 10 s"
    groups = (("A", 2, 1), ("B", 4, 3))
    for jobs, cost in (([two] * 2, 2), ([two] * 3, 3), ([two] * 4, 3), ([four], 2), ([four] * 2, 3)):
        answer = tn.servers(mixed(jobs, *groups, count=3), slo=slo, time_limit=10)
        assert answer.mix is not None
        assert answer.proved
        assert answer.sizes.cost(answer.mix) == cost


def test_the_number_of_gpus_is_chosen_at_every_size() -> None:
    """Two jobs take 8 s on 1 GPU or 5 s on 2: one server of two does both within 8 s, within 7 s it takes two."""
    run = {"modes": [{"gpus": 1, "runtime": "8 s"}, {"gpus": 2, "runtime": "5 s"}]}
    made = written([(1, 8, 0)] * 2)
    made["workflows"] = {f"w{at}": {"tasks": {"run": run}} for at in range(2)}
    for limit_s, least in ((8, 1), (7, 2)):
        answer = tn.servers(scenario_from(made), slo=f"p100 latency <= {limit_s} s", time_limit=10)
        assert (answer.servers, answer.proved) == (least, True)
    assert {row.policy: row.mix for row in answer.policies} == dict.fromkeys(
        ("sjf", "easy", "dally", "qssf", "fifo"), (2,)
    )


def chosen(modes: dict[int, int], jobs: int) -> Scenario:
    """Return equal jobs on a server of one GPU, with seconds by number of GPUs."""
    run = {"modes": [{"gpus": gpus, "runtime": f"{run_s} s"} for gpus, run_s in modes.items()]}
    made = written([(1, 1, 0)] * jobs, servers=1, gpus_per_server=1)
    made["workflows"] = {f"w{at}": {"tasks": {"run": run}} for at in range(jobs)}
    return scenario_from(made)


def test_what_begins_to_fit_on_more_servers_is_not_refuted_beforehand() -> None:
    """Sixteen servers have a place for the mode that ends in time; what few of them say holds for no more."""
    one = chosen({1: 100, 16: 10}, 1)
    few = tn.servers(one, slo="p100 latency <= 20 s", max=3, time_limit=5)
    assert (few.servers, few.impossible, few.lower_bound) == (None, False, 4)
    assert tn.servers(one, slo="p100 latency <= 20 s", time_limit=10).servers == 16
    # On one GPU eight jobs take 320 GPU-seconds, on four 256: all that these give in 64 s.
    assert tn.servers(chosen({1: 40, 4: 8}, 8), slo="p100 latency <= 64 s", time_limit=10).servers == 4


def test_a_floor_knows_kinds_that_have_no_place_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four runs on two GPUs, of A for 5 s, of B for 50 s: two servers of A do them within 60 s, the file has one."""
    made = mixed([{"runtime": {"A": "5 s", "B": "50 s"}, "gpus": 2}] * 4, ("A", 1, 2), ("B", 1, 1))
    made = made.changed({"cluster.groups[0].count": 1})
    for longest in (hunt.LONG_TRACE, 1):
        monkeypatch.setattr(hunt, "LONG_TRACE", longest)
        answer = tn.servers(made, slo="p100 latency <= 60 s", max=4, time_limit=10)
        assert answer.mix == (2, 0)
        assert not any(done.mix[0] >= 2 for done in answer.refutations)


def test_cp_sat_alone_refutes_no_size_but_two_solvers_do() -> None:
    """Two runs on 2 GPUs and one on 1, 6 s each, on servers of two: one takes 18 s, where the area says 15."""
    answer = tn.servers(training([(2, 6, 0), (2, 6, 0), (1, 6, 0)]), slo="p100 latency <= 17 s", time_limit=20)
    assert (answer.servers, answer.proved) == (2, True)
    assert [(done.mix, done.method) for done in answer.refutations] == [((1,), "cp-sat")]


def test_any_server_may_be_gone() -> None:
    """Two runs on both GPUs of a server within 10 s take two servers, so that three are ordered; across servers no."""
    two = training([(2, 10, 0), (2, 10, 0)])
    answer = tn.servers(two, slo="p100 latency <= 10 s", spare=1, time_limit=10)
    assert (answer.servers, answer.proved) == (3, True)
    with pytest.raises(QuestionError, match="3 spare servers of at most 3 leave none; allowed are fewer"):
        tn.servers(two, slo="p100 latency <= 10 s", spare=3, max=3)
    with pytest.raises(InputError, match="with runs on several servers, any of which may be gone"):
        tn.servers(training([(4, 10, 0)]), slo="p100 latency <= 10 s", spare=1)


@pytest.mark.parametrize(("seed", "choosing"), by_day([(seed, seed % 2 == 1) for seed in range(120)], 5))
def test_no_mix_of_groups_is_refuted_that_has_a_plan(seed: int, choosing: bool) -> None:
    rng = random.Random(seed)
    groups = [(kind, rng.choice((1, 2, 2)), rng.choice((1, 2, 3))) for kind in ("A", "B")]

    def times() -> dict[str, str]:
        return {kind: f"{rng.randint(1, 9)} s" for kind in ("A", "B")}

    def run() -> dict[str, Any]:
        if choosing and rng.random() < 0.6:
            return {"modes": [{"gpus": size, "runtime": times()} for size in rng.sample((1, 2, 4), 2)]}
        size = rng.choice((1, 1, 2, 2, 4))
        return {"runtime": times(), "gpus": size} | ({"across": 1.5} if size > 1 else {})

    slo = rng.choice(
        (
            f"mean latency <= {rng.randint(3, 12)} s",
            f"p100 latency <= {rng.randint(5, 20)} s",
            f"p60 latency <= {rng.randint(3, 14)} s",
            f"mean slowdown <= {rng.choice((1.1, 1.5, 2))}",
        )
    )
    places = rng.choice(("aligned", "any"))
    while True:
        jobs = [run() for _ in range(rng.randint(3, 4))]
        try:
            made = mixed(jobs, *groups, places=places)
            break
        except InputError:
            continue  # some run has no place anywhere
    # Of runs that take several servers none may be gone.
    widest, held = int(made.instance.template_gpus.max()), min(held for _, held, _ in groups)
    spare = rng.choice((0, 1)) if widest <= held else 0
    answer = tn.servers(made, slo=slo, max=2, spare=spare, time_limit=4)
    whole = {mix: _is_enough(answer, mix) for mix in product(range(3), repeat=2)}
    enough = {mix: all(whole[left] for left in remainders(mix, spare)) for mix in whole}
    assert not any(whole[done.mix] for done in answer.refutations if done.mix in whole), slo
    assert answer.mix is None or enough[answer.mix]
    assert all(row.mix is None or enough[row.mix] for row in answer.policies)
    least = min((answer.sizes.cost(mix) for mix in enough if enough[mix]), default=None)
    if answer.proved:
        assert (None if answer.mix is None else answer.sizes.cost(answer.mix)) == least
