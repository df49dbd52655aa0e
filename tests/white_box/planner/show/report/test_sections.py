from __future__ import annotations

import json
from pathlib import Path

import truenorth as tn
from tests.by_hand import TEXT
from truenorth.models.identity import scenario_hash
from truenorth.models.objective import Objective
from truenorth.models.record import decode, encode
from truenorth.models.scenario import Scenario, load_scenario, scenario_from
from truenorth.planner.answers.ask import ask
from truenorth.planner.answers.replay_report import (
    Both,
    CopyReached,
    DispatchSpread,
    DurationsTogether,
    ObjectiveBoth,
    ReplayRecord,
)
from truenorth.planner.answers.servers.scheduled import write_schedule
from truenorth.planner.answers.shown import Shown
from truenorth.planner.answers.versions import Origin, ScenarioNamed
from truenorth.planner.questions.sizes import ScheduleQuestion
from truenorth.planner.show import timelines


def test_servers_are_counted_and_the_plan_is_drawn(tmp_path: Path) -> None:
    # On one GPU m is ready at 4: job 0 runs in [4, 9), slowdown 9/5; job 1, released at 4, in [9, 14): exactly 2.
    source = tmp_path / "by_hand.yaml"
    source.write_text(TEXT)
    answer = tn.servers(load_scenario(source), policies=["jit"], max=3, time_limit=20)
    tn.save(answer, tmp_path / "servers")
    (section,) = tn.report([tmp_path / "servers"]).sections
    assert section.question == "by-hand: how many servers are enough for p99 slowdown <= 2?"
    said = "With the future known, 1 server is enough, and no cheaper size is, which is proved"
    assert section.answer.startswith(said)
    assert section.tables[0].cells()[0] == ["plan (offline optimum)", "clairvoyant", "1", "a plan; the smallest"]
    # What is drawn is the p99 slowdown: the plan's and jit's at 1 server, beside the most allowed.
    assert [curve.name for curve in section.figures[0].curves] == [
        "p99 slowdown <= 2",
        "plan (knows the future)",
        "jit",
    ]
    assert section.figures[0].curves[1].words[0] == "plan (knows the future): 2 at 1"
    assert section.timelines is not None
    assert [gpu.id for gpu in section.timelines.instances[0].gpus] == ["s0/g0"]
    assert section.reproduce["command"] == (
        f"truenorth servers {source} --slo 'p99 slowdown <= 2' --policies jit --max 3 --time-limit 20 "
        "--workers 2 --seed 0"
    )


def test_servers_by_the_interval_are_a_chart_and_a_table(tmp_path: Path) -> None:
    # Two frames of 300 ms within 400 ms at 7 s take two servers, and one at any other time; from 5 s to 10 s, that is.
    # For 15 s in all one is there, for 5 s two: 20 s, 1/180 hour; two that stay are there for 30 s.
    source = tmp_path / "day.yaml"
    releases = "".join(f"  - {{release: {at} s, workflow: w, deadline: 400 ms}}\n" for at in (1, 7, 7, 12))
    source.write_text(DAY + releases + "slo: no late jobs\n")
    answer = ask(ScheduleQuestion(by_us=5_000_000, policies=["srpt", "jit"], time_limit_s=20), load_scenario(source))
    write_schedule(answer, tmp_path / "out")
    (section,) = tn.report([tmp_path / "out"]).sections
    assert section.question == "day: how many servers in every 5 s are enough for no late jobs?"
    assert section.answer == (
        "Order by the interval for jit (information used: queue lengths): "
        "0.005556 server-hours at 0.002778, a fleet that stays 0.008333 at 0.004167."
    )
    headings = [column.heading for column in section.tables[0].columns]
    assert headings[:6] == [
        "from",
        "jobs",
        "floor",
        "plan",
        "srpt",
        "jit",
    ]
    assert [row[:6] for row in section.tables[0].cells()] == [
        ["0 s", "1", "1", "1", "1", "1"],
        ["5 s", "2", "2", "2", "2", "2"],
        ["10 s", "1", "1", "1", "1", "1"],
    ]
    curve = next(curve for curve in section.figures[0].curves if curve.name == "jit")
    assert curve.points == [(0.0, 1.0), (5.0, 2.0), (10.0, 1.0), (15.0, 1.0)]
    assert section.reproduce["command"].endswith("--time-limit 20 --workers 2 --seed 0 --by '5 s'")


DAY = """\
name: day
cluster:
  groups: [{count: 4, gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}, price_per_hour: 0.5}]
  network: {bandwidth: 12 GB/s}
workflows:
  w: {tasks: {detect: {runtime: 300 ms}}}
workload:
  jobs:
"""


def test_a_sweep_is_a_table_and_a_line_per_policy(tmp_path: Path) -> None:
    source = tmp_path / "by_hand.yaml"
    source.write_text(TEXT)
    made = tn.whatif(
        source, {"cluster.servers": [1, 2], "policy": ["jit", "hash"]}, folder=tmp_path / "sweep", workers=1
    )
    assert made.complete
    (section,) = tn.report([tmp_path / "sweep"]).sections
    (table,), (figure,) = section.tables, section.figures
    assert [row[:2] for row in table.cells()] == [["1", "jit"], ["1", "hash"], ["2", "jit"], ["2", "hash"]]
    assert section.question == "by-hand: what if servers, policy changes?"
    values = {(row["cluster.servers"], row["policy"]): float(str(row["value"])) for row in made.rows}
    least, most = (choose(values, key=lambda key: values[key]) for choose in (min, max))
    assert section.answer == (
        f"The mean slowdown goes from {values[least]:.4g} with servers {least[0]}, policy {least[1]} "
        f"to {values[most]:.4g} with servers {most[0]}, policy {most[1]} (4 answers)."
    )
    assert section.reproduce["command"] == "truenorth.planner.answers.whatif.whatif(...)"
    assert section.reproduce["scenario hash (sha256), before changes"] == scenario_hash(load_scenario(source).instance)
    assert section.reproduce["versions"].startswith("truenorth ")
    one = tn.simulate(scenario_at(source, 1), "jit").metrics.mean_slowdown
    assert table.cells()[0][2] == f"{one:.5g}"
    assert [curve.name for curve in figure.curves] == ["jit", "hash"]
    assert figure.curves[0].words[0] == f"jit: {one:.5g} at 1"


def test_a_replicated_comparison_shows_its_intervals(tmp_path: Path) -> None:
    source = tmp_path / "by_hand.yaml"
    jobs = TEXT[TEXT.index("  jobs:") : TEXT.index("objective")]
    source.write_text(TEXT.replace(jobs, "  poisson: {rate: 200000 /s, jobs: 3, seed: 4}\n"))
    made = tn.replicate(load_scenario(source), 2, ["jit", "hash"], time_limit=0.3, workers=1, folder=tmp_path / "out")
    tn.save(made, tmp_path / "out")
    (section,) = tn.report([tmp_path / "out"]).sections
    rows = {row.policy: row for row in made.rows}
    assert section.tables[0].title.startswith("Means over 2 arrival seeds")
    shown = {row[0]: row for row in section.tables[0].cells()}
    assert {name.removesuffix(" (unconverged)") for name in shown} == {"plan", "jit", "hash", "lower bound"}
    jit = rows["jit"]
    ends = f"[{jit.objective.low:.4g}, {jit.objective.high:.4g}]"
    assert shown["jit"][2] == f"{jit.objective.mean:.4g} {ends}"
    assert section.answer.startswith(f"The best online policy, {made.against}, is at ")
    assert len(section.tables) == 2  # the table of the replications one by one follows


def scenario_at(source: Path, count: int) -> Scenario:
    source.with_name("changed.yaml").write_text(source.read_text().replace("servers: 2", f"servers: {count}"))
    return load_scenario(source.with_name("changed.yaml"))


def test_a_run_on_devices_is_set_beside_its_prediction(tmp_path: Path) -> None:
    both = Both(2.0, 2.5, 0.25)
    took = DurationsTogether(1, 2.0, 2.5, 0.25)
    record = ReplayRecord(
        policy="out/plan.json",
        runner="synthetic",
        device="cpu",
        devices=["core 0"],
        virtual=None,
        valid=True,
        violations=[],
        tolerance_us=0,
        same_placement=True,
        same_order=True,
        objective=ObjectiveBoth(Objective.MEAN_LATENCY, both),
        makespan_s=both,
        mean_latency_s=Both(2.0, None, None),
        latency_error=0.25,
        causes_s=None,
        run_times=took,
        load_times=took,
        transfer_times=took,
        dispatch_us=DispatchSpread(None, None, None, None),
        copy=CopyReached(None, None, None),
        energy_j=None,
        cards=None,
        unpacked_gpus=[],
        not_finite_outputs=[],
        moves_s=0.0,
        moves=[],
        forecast=None,
        outputs=None,
        faults=[],
        failures=[],
        metrics=None,
        jobs=[],
        tasks=[],
        loads=[],
    )
    origin = Origin(ScenarioNamed("tiny", "tiny.yaml", "0" * 64), "truenorth replay tiny.yaml out/plan.json", {})
    (tmp_path / "replay.json").write_text(json.dumps(encode(record) | encode(origin)))
    assert decode(ReplayRecord, encode(record)) == record
    scenario = scenario_from(json.loads(json.dumps(PLAIN)))
    ran = tn.simulate(scenario, "jit")
    timelines.write(tmp_path, [Shown("measured", False, ran.instance, ran.timeline)])
    (section,) = tn.report([tmp_path]).sections
    assert section.question == "tiny: does plan.json hold on cpu?"
    assert section.answer == (
        "Job latency was off by 25.0% of its predicted mean; every rule held, placement and order were as predicted."
    )
    assert section.tables[0].cells()[1] == ["mean latency in s", "2", "-", "-"]
    assert section.timelines is not None


PLAIN = {
    "cluster": {
        "servers": 1,
        "gpu": {"kind": "A", "memory": "10 B", "load_bandwidth": "1 MB/s"},
        "network": {"bandwidth": "1 MB/s", "latency": "1 us"},
    },
    "workflows": {"w": {"tasks": {"a": {"runtime": "3 us"}}}},
    "workload": {"jobs": [{"release": "0 us", "workflow": "w"}]},
}
