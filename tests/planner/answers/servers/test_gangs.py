"""How many servers are enough for jobs on several GPUs: by hand, beside an oracle that tries all; what is refused."""

from __future__ import annotations

import json
import random
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
from truenorth.planner.answers.servers.goal import goals
from truenorth.planner.answers.servers.sizes import Mix
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


def test_what_can_run_nowhere_is_known_at_once() -> None:
    """Places of 8 GPUs begin at four servers; there is no time for anything else."""
    jobs = [(8, 10, 0), *((1, 1 + at % 7, at) for at in range(150))]
    answer = tn.servers(training(jobs, servers=4), slo="mean latency <= 1000 s", policies=["fifo"], time_limit=0.1)
    assert (answer.lower_bound, [done.mix for done in answer.refutations]) == (4, [(1,), (2,), (3,)])


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

    def is_enough(mix: Mix) -> bool:
        try:
            instance = answer.sizes.at(mix).instance
        except InstanceError:
            return False
        goal = goals(instance, answer.levels)[0]
        assert goal.suffices
        return optimum(goal.instance, goal.objective) <= goal.most

    enough: dict[Mix, bool] = {(count,): is_enough((count,)) for count in (1, 2, 3)}
    assert not any(enough[done.mix] for done in answer.refutations if done.mix in enough), slo
    assert answer.mix is None or enough[answer.mix]
    assert all(not any(enough.values()) for done in answer.refutations if done.however_many)
    assert all(row.mix is None or enough[row.mix] for row in answer.policies)


@pytest.mark.parametrize(
    ("cluster", "asked", "named"),
    [
        ({"places": [["s0/g0", "s0/g1"]]}, {}, "listed places; ask with aligned ones"),
        ({}, {"spare": 1}, "servers that may be gone"),
        ({"places": "any"}, {"max": 20_000}, "have 20000 places; allowed are 10000.* up to 20000 servers"),
    ],
)
def test_what_is_not_known_is_refused(cluster: dict[str, Any], asked: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        tn.servers(training([(2, 10, 0)], **cluster), slo="p100 latency <= 20 s", **asked)


def test_several_groups_and_intervals_are_refused() -> None:
    groups = [{"count": 1, "gpus_per_server": 2, "gpu": GPU, "price_per_hour": price} for price in (1, 2)]
    made = training([(2, 10, 0)])
    mixed = scenario_from(
        {
            "cluster": {"groups": groups, "network": NETWORK},
            "workflows": {"w": {"tasks": {"run": {"runtime": "1 s", "gpus": 2}}}},
            "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
        }
    )
    with pytest.raises(InputError, match="several groups of servers; ask about one group"):
        tn.servers(mixed, slo="p100 latency <= 20 s")
    with pytest.raises(QuestionError, match="has no support for runs on several GPUs"):
        tn.servers_by(made, "10 s", slo="p100 latency <= 20 s")
