"""Servers by the interval: the cheapest schedule, its floor, and the fleet that stays as a special case."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorth as tn
from tests.command import app, run
from truenorth.models import InstanceError, ServiceLevels, check
from truenorth.models.cluster import FOREVER
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.ask import ask
from truenorth.planner.answers.servers.day import Day, attained, autoscale
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.goal import tolerances
from truenorth.planner.answers.servers.schedule import cheapest_counts
from truenorth.planner.answers.servers.sizes import Sizes
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.questions.sizes import ScheduleQuestion
from truenorth.planner.show.servers import intervals_table
from truenorth.planner.show.servers import schedule_sentences as sentences
from truenorth.solvers.bounds import fluid
from truenorth.solvers.exact import cp_sat

SECOND = 1_000_000
LEVEL = ServiceLevels.parse("no late jobs")


def frames(*releases_ms: int, count: int = 3, run_ms: int = 300, deadline_ms: int = 300, **group: Any) -> Scenario:
    """Return jobs of one run each that must end in time."""
    gpu = {"kind": "T4", "memory": "14 GB", "load_bandwidth": "10 GB/s"}
    jobs = [{"release": f"{at} ms", "workflow": "frame", "deadline": f"{deadline_ms} ms"} for at in releases_ms]
    return scenario_from(
        {
            "name": "frames",
            "cluster": {"groups": [{"count": count, "gpu": gpu, **group}], "network": {"bandwidth": "12 GB/s"}},
            "workflows": {"frame": {"tasks": {"detect": {"runtime": f"{run_ms} ms"}}}},
            "workload": {"jobs": jobs},
            "slo": "no late jobs",
        }
    )


def test_a_peak_takes_more_servers_for_its_own_interval() -> None:
    # One job in the first five seconds, three at once in the next, one at the end; each must start at its release.
    built = frames(1000, 6000, 6000, 6000, 12_000, price_per_hour=0.36)
    answer = ask(ScheduleQuestion(by_us=5 * SECOND, policies=("srpt",), time_limit_s=60, workers=1), built)
    assert answer.optimum.schedule == answer.policies["srpt"].schedule == ((1,), (3,), (1,))
    assert answer.proved
    told = encode(answer.record)
    assert [row["minimum"]["lower_bound"] for row in told["intervals"]] == [1, 3, 1]
    assert [row["jobs"] for row in told["intervals"]] == [1, 3, 1]
    # 5 servers for 5 s are 25 / 3600 hours, three for all of it 45 / 3600.
    optimum = told["schedule"]["optimum"]
    assert (optimum["server_hours"], optimum["fixed_server_hours"]) == (25 / 3600, 45 / 3600)
    assert (optimum["price"], optimum["price_lower_bound"]) == pytest.approx((0.36 * 25 / 3600,) * 2)
    assert "1 GPU gives" in (told["intervals"][1]["forces"] or "") or "2 GPUs give" in told["intervals"][1]["forces"]


def test_work_behind_the_last_interval_is_told_and_not_counted() -> None:
    # One server runs the job of 0 s until 3 s. Those of 6 s take two, as each must start at once, until 16 s: 6 s more
    # than the intervals of 5 s until 10 s, for both.
    built = frames(0, 6000, 6000, run_ms=10_000, deadline_ms=10_000)
    answer = ask(ScheduleQuestion(by_us=5 * SECOND, policies=("srpt",), time_limit_s=60, workers=1), built)
    schedule = answer.policies["srpt"].schedule
    assert schedule is not None
    assert schedule[-1] == (3,)
    told = encode(answer.record)["schedule"]
    assert told["policies"]["srpt"]["unpaid_server_hours"] == told["optimum"]["unpaid_server_hours"] == 18 / 3600
    assert any(
        said.endswith("(not counted: 0.005 server-hours of work after the last interval)")
        for said in sentences(answer.record)
    )
    ends = ask(ScheduleQuestion(by_us=8 * SECOND, policies=("srpt",), time_limit_s=60, workers=1), frames(0, 6000))
    assert "unpaid_server_hours" not in encode(ends.record)["schedule"]["optimum"]


@pytest.mark.parametrize(
    ("level", "column"),
    [
        ("mean latency <= 450 ms", "level under srpt"),
        ("p50 latency <= 400 ms", "srpt within the limit"),
        ("50 % within deadline", "srpt in time"),
    ],
)
def test_what_an_interval_misses_is_said_in_the_words_of_the_level(level: str, column: str) -> None:
    # Three jobs of 300 ms at 6 s on one server end after 300, 600 and 900 ms; the three before them are alone.
    asked = ScheduleQuestion(
        by_us=5 * SECOND, policies=("srpt",), time_limit_s=60, workers=1, slo=ServiceLevels.parse(level)
    )
    found = ask(asked, frames(0, 1000, 2000, 6000, 6000, 6000, count=1)).record
    assert [each.name for each in intervals_table(found, "").columns][-1] == column


def test_one_interval_is_a_fleet_that_stays() -> None:
    built = frames(0, 0, 100, 900, deadline_ms=700)
    answer = ask(ScheduleQuestion(by_us=60 * SECOND, policies=("jit", "srpt"), time_limit_s=60, workers=1), built)
    assert answer.optimum.schedule == (answer.fixed.mix,) == ((2,),)
    assert answer.day.at(answer.day.constant((2,))) is not built
    assert answer.day.at(answer.day.constant(answer.fixed.sizes.counts)) is built
    for row in answer.fixed.policies:
        assert answer.policies[row.policy].schedule == (row.mix,)


def test_a_server_is_paid_before_it_is_there() -> None:
    day = Day(Sizes(frames(0, 6000, 12_000, start_up="1 s")), 5 * SECOND)
    there = [gpu.available.intervals for gpu in day.at(((1,), (2,), (1,))).instance.cluster.gpus]
    assert there == [((0, FOREVER),), ((6 * SECOND, 10 * SECOND),)]
    there = [gpu.available.intervals for gpu in day.at(((2,), (0,), (2,))).instance.cluster.gpus]
    assert there == [((0, 5 * SECOND), (11 * SECOND, FOREVER))] * 2
    assert day.server_hours(((1,), (2,), (1,))) == Fraction(20, 3600)
    slow = Day(Sizes(frames(0, 6000, 12_000, start_up="5 s")), 5 * SECOND)
    with pytest.raises(InstanceError, match="before it has started"):
        slow.at(((1,), (2,), (1,)))


def test_no_schedule_lies_below_the_floor_and_all_found_are_met() -> None:
    built = frames(0, 0, 400, 1000, 1000, 1100, 2500, deadline_ms=650)
    level = ServiceLevels.parse("80 % within deadline")  # one of seven may be late
    day = Day(Sizes(built), SECOND)
    least = min(
        (
            day.cost(found)
            for found in product(((0,), (1,), (2,)), repeat=3)
            if any(count for (count,) in found) and _has_plan(day.at(found), level)
        ),
    )
    answer = ask(ScheduleQuestion(level, by_us=SECOND, policies=("jit",), time_limit_s=20, workers=1), built)
    assert answer.lower_bound <= least
    found = answer.optimum.schedule
    assert found is not None
    assert day.cost(found) >= least
    ran = tn.simulate(day.at(answer.policies["jit"].schedule or ()), "jit")
    assert check(ran.instance, ran.timeline) == []
    assert meets(ran.instance, ran.timeline, level)


def _has_plan(scenario: Scenario, level: ServiceLevels) -> bool:
    tolerance = tolerances(level)[0]
    goal = tolerance.goal(scenario.instance)
    value = cp_sat.solve(goal.instance, goal.objective, 20, workers=1).value
    return value is not None and value <= goal.most


def test_late_jobs_of_all_intervals_count_together() -> None:
    # Three runs of 300 ms at once, due at once: with c GPUs 3 - c are late, in either of two intervals.
    instance = frames(0, 0, 0, 5000, 5000, 5000).instance
    due = fluid.due_us(instance)
    demands = [fluid.demands_within(instance, due, *span) for span in ((0, 5 * SECOND), (5 * SECOND, FOREVER))]
    least = [cheapest_counts(demands, [0, 0], late, Fraction) for late in range(7)]
    assert least == [6, 5, 4, 3, 2, 1, 0]


def test_an_autoscaler_follows_the_load_one_interval_late() -> None:
    # Busy for 0.3, 0.9, 0, 0 of four seconds. From one server on it wants 1, ceil(0.9 / 0.6) = 2, 1, 1, and orders the
    # higher of the last two.
    built = frames(0, 1000, 1300, 1600, 4900, run_ms=300, deadline_ms=2000)
    day = Day(Sizes(built), SECOND)
    made = autoscale(day, "srpt", (1,), (3,), LEVEL, 0, lambda: False)
    assert made is not None
    assert (made.schedule, made.met) == (((1,), (1,), (2,), (2,), (1,)), True)
    assert autoscale(day, "srpt", (1,), (3,), LEVEL, 0, lambda: True) is None
    capped = autoscale(day, "srpt", (1,), (1,), LEVEL, 0, lambda: False)  # no more than there are
    assert capped is not None
    assert capped.schedule == ((1,),) * 5


def test_a_share_of_a_gpu_is_busy_by_its_share() -> None:
    # Ten jobs at a time, each with a tenth of a GPU: one GPU of work, of which 60 % are to be busy: two servers.
    built = frames(*range(0, 4000, 100), count=4, run_ms=1000, deadline_ms=9000)
    day = Day(Sizes(_with_share(built, "0.1")), SECOND)
    made = autoscale(day, "jit", (1,), (4,), LEVEL, 0, lambda: False)
    assert made is not None
    assert made.schedule == ((1,), (1,), (2,), (2,))  # in the first second they still come: 0.55 are busy


def test_of_engines_an_autoscaler_counts_requests_against_seats_and_kv() -> None:
    """An answer of 100 tokens takes 1 s, four at once or alone: a node is busy all the time, whatever it could take.

    Eight come at 0. In the first second four run and four wait on one node with four seats: 8 / 4 = 2 nodes are taken
    up, and 2 / 0.6 = 3.3 wanted. With KV for two requests on a node each takes up half of one: 4 / 0.6 = 6.7 wanted.
    """
    for kv, schedule in (("1 KB", (1, 4, 4)), ("1 MB", (1, 7, 7))):
        day = Day(Sizes(_answers(kv)), SECOND)
        made = autoscale(day, "least_requests", (1,), (9,), LEVEL, 0, lambda: False)
        assert made is not None
        assert tuple(count for (count,) in made.schedule[:3]) == schedule


def _answers(kv: str) -> Scenario:
    """Return answers of 100 tokens and prompts of 1 on nodes with four seats and 202 MB for KV."""
    gpu = {"kind": "A", "memory": "202 MB", "load_bandwidth": "10 GB/s"}
    stream = {"prefill": "1000000 /s", "chunk": 1000, "concurrency": 4, "step": {1: "10 ms", 4: "10 ms"}}
    releases = [0] * 8 + [1000, 2000, 3000]
    jobs = [{"release": f"{at} ms", "workflow": "w", "deadline": "9 s"} for at in releases]
    return scenario_from(
        {
            "cluster": {"groups": [{"count": 9, "gpu": gpu}], "network": {"bandwidth": "12 GB/s"}},
            "streams": {"s": stream | {"kv_per_token": kv}},
            "workflows": {"w": {"tasks": {"r": {"stream": "s", "prompt": 1, "output_tokens": 100}}}},
            "workload": {"jobs": jobs},
            "slo": "no late jobs",
        }
    )


def _with_share(built: Scenario, share: str) -> Scenario:
    task = {"runtime": "1 s", "share": float(share)}
    jobs = [{"release": f"{job.release_us} us", "workflow": "w", "deadline": "9 s"} for job in built.instance.jobs]
    gpu = {"kind": "T4", "memory": "14 GB", "load_bandwidth": "10 GB/s"}
    cluster = {"groups": [{"count": 4, "gpu": gpu}], "network": {"bandwidth": "12 GB/s"}}
    return scenario_from({"cluster": cluster, "workflows": {"w": {"tasks": {"t": task}}}, "workload": {"jobs": jobs}})


def test_an_interval_that_misses_what_all_together_meet_says_so() -> None:
    # On one server the second of two frames at once waits: one of two in time in the first interval, all three in the
    # next, none is released in the third; of all six five, and 80 % are asked for.
    built = frames(0, 0, 5000, 6000, 7000, 15_000)
    level = ServiceLevels.parse("80 % within deadline")
    answer = ask(ScheduleQuestion(level, by_us=5 * SECOND, policies=("srpt",), time_limit_s=30, workers=1), built)
    assert answer.policies["srpt"].schedule == ((1,), (1,), (0,), (1,))
    found = answer.record
    told = encode(found)
    alone = [(row["policies"]["srpt"]["attainment"], row["policies"]["srpt"]["met_alone"]) for row in told["intervals"]]
    assert alone == [(0.5, False), (1.0, True), (None, None), (1.0, True)]
    assert [row["minimum"]["attainment"] for row in told["intervals"]] == [0.5, 1.0, None, 1.0]
    said = "misses it in 1 of 4 intervals taken alone, most from 0 s on, 50.0% of its jobs in time."
    assert f"srpt meets the level over all jobs together, but {said}" in sentences(found)


def test_a_mean_is_met_alone_or_not() -> None:
    # Latencies of 1 and 3 s, then 2 s: means of 2 and 2 s; without the level's jobs an interval says nothing.
    instance = frames(0, 0, 5000).instance
    latency = np.array([SECOND, 3 * SECOND, 2 * SECOND], np.int64)
    for limit, met in (("2 s", True), ("1999 ms", False)):
        level = ServiceLevels.parse(f"mean latency <= {limit}")
        found = attained(instance, latency, level, 5 * SECOND, 2)
        assert [None if each is None else (each.share, each.met) for each in found] == [(Fraction(met), met)] * 2


def test_what_was_found_out_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = frames(1000, 6000, 6000, 12_000)
    ask = partial(tn.servers_by, built, policies=("srpt",), time_limit=60, workers=1, folder=tmp_path)
    whole = ask(by=5)
    kept = (tmp_path / "tried.jsonl").read_text()
    assert len(kept.splitlines()) == 1 + whole.policies["srpt"].tried + whole.optimum.tried
    (tmp_path / "tried.jsonl").write_text(kept[:-5])  # killed while it wrote
    again = ask(by=5)
    assert (again.optimum, again.policies) == (whole.optimum, whole.policies)
    assert (tmp_path / "tried.jsonl").read_text() == kept

    ran: list[Any] = []

    def simulated(scenario: Scenario, *given: Any, **options: Any) -> Any:
        ran.append(scenario)
        return simulate(scenario, *given, **options)

    monkeypatch.setattr("truenorth.planner.answers.servers.schedule.simulate", simulated)
    assert ask(by=5).policies == whole.policies
    assert len(ran) == 1  # the schedule that was found, for what its intervals attain
    ask(by=4)
    assert len(ran) > 2


TEXT = """\
cluster:
  groups: [{count: 2, gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}}]
  network: {bandwidth: 12 GB/s}
workflows: {w: {tasks: {a: {runtime: 300 ms}}}}
workload:
  jobs:
  - {release: 1 s, workflow: w, deadline: 300 ms}
  - {release: 6 s, workflow: w, deadline: 300 ms}
  - {release: 6 s, workflow: w, deadline: 300 ms}
slo: no late jobs
"""


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(TEXT)
    asked = ["servers", str(path), "--policies", "jit", "--time-limit", "30", "--workers", "1"]
    assert run(app, [*asked, "--by", "5 s", "-o", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["policies"]["jit"]["mix"] for row in told["intervals"]] == [[1], [2]]
    assert told["minimum"]["servers"] == 2
    assert told["schedule"]["optimum"]["proved"]
    written = json.loads((tmp_path / "out/schedule.json").read_text())
    assert written | told == written
    for given, problem in (
        (["--by", "soon"], "--by: 'soon' is no time"),
        (["--by", "0 s"], "--by: '0 s' is no length of an interval; allowed is at least 1 us"),
        (["--by", "1 us"], "by: makes 6000001 intervals; allowed are 10000"),
        (["--by", "1 s", "--replications", "2"], "--by: is given with --replications, --spare or --split; allowed is"),
    ):
        assert run(app, [*asked, *given]) == 2
        assert problem in capsys.readouterr().err
