"""Estimates request by request: what is told of each job of an imported log, while the log's run times hold.

The log has three jobs on both GPUs of a server: A of 10 s at 0 s, B of 40 s at 1 s, C of 5 s at 2 s. The estimates take
B for 5 s and C for 50 s. By true times the order A, C, B is best: latencies 10, 13 and 54 s. By what is told it is
A, B, C: 10, 49 and 53 s; a plan, which knows the arrivals, waits for B then: B, A, C, which takes 51, 40 and 54 s.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import truenorth as tn
from tests.command import app, run
from tests.gangs import draw
from truenorth.executor import parse_policy, simulate
from truenorth.models import check
from truenorth.models.scenario import InputError, Scenario, load_scenario, scenario_from
from truenorth.planner.inputs.told import read_told, stretch

LOG = "submit,user,gpus,runtime\n0,a,2,10\n1,b,2,40\n2,c,2,5\n"
TABLE = "table:release=submit,model=,gpus=gpus,runtime=runtime"
BY_TRUTH, BY_ESTIMATES, PLANNED = 77 / 3, 112 / 3, 145 / 3
TOLD = "2:10 4:50 3:5"


def imported(folder: Path, *logs: str) -> Scenario:
    """Return the scenario of logs, from its files, on one server of two GPUs."""
    paths = [folder / f"log{number}.csv" for number in range(len(logs))]
    for path, log in zip(paths, logs, strict=True):
        path.write_text(log)
    made = tn.import_trace(TABLE, paths, override=lambda hardware: replace(hardware, servers=1, gpus_per_server=2))
    return load_scenario(made.save(folder / "trace.yaml")[0])


def estimates(folder: Path, rows: str, column: str = "line") -> Path:
    """Write a file of estimates: numbers, each with its median."""
    path, lines = folder / "est.csv", [row.split(":") for row in rows.split()]
    told = "".join(f"{number},{float(s) / 2},{s},{float(s) * 2},median\n" for number, s in lines)
    path.write_text(f"{column},p10_s,p50_s,p90_s,source\n{told}")
    return path


@pytest.mark.parametrize(
    ("policy", "by_truth", "by_estimates"),
    [("fifo", BY_ESTIMATES, BY_ESTIMATES), ("sjf", BY_TRUTH, BY_ESTIMATES), ("qssf", BY_TRUTH, BY_ESTIMATES)],
)
def test_policies_are_told_the_estimates_and_the_log_holds(
    tmp_path: Path, policy: str, by_truth: float, by_estimates: float
) -> None:
    scenario, path = imported(tmp_path, LOG), estimates(tmp_path, TOLD)
    assert tn.simulate(scenario, policy).value == pytest.approx(by_truth)
    told = tn.simulate(scenario, policy, estimates=path)
    assert told.value == pytest.approx(by_estimates)
    assert sorted((told.timeline.end_us - told.timeline.start_us).tolist()) == [5_000_000, 10_000_000, 40_000_000]


def test_jobs_on_one_gpu_are_told_alike(tmp_path: Path) -> None:
    # The same on one GPU each, one of them taken away: a policy of servings is told its estimates as well.
    log = LOG.replace(",2,", ",1,")
    scenario = imported(tmp_path, log).changed({"cluster.gpus_per_server": 1})
    path = estimates(tmp_path, TOLD)
    assert str(scenario.objective) == "mean_latency"
    assert tn.simulate(scenario, "srpt").value == pytest.approx(BY_TRUTH)
    assert tn.simulate(scenario, "srpt", estimates=path).value == pytest.approx(BY_ESTIMATES)


def test_a_plan_for_estimates_is_carried_out_with_the_true_times(tmp_path: Path) -> None:
    scenario, path = imported(tmp_path, LOG), estimates(tmp_path, TOLD)
    assert tn.plan(scenario, time_limit=5).value == pytest.approx(BY_TRUTH)
    made = tn.plan_uncertain(scenario, path, time_limit=3)
    assert made.plan.value == pytest.approx(PLANNED)
    assert made.plan.lower_bound is not None
    assert made.plan.lower_bound <= BY_TRUTH
    assert tn.simulate(scenario, "offline:moves=200", estimates=path).value == pytest.approx(PLANNED)


def test_from_a_history_to_a_table_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(tmp_path, LOG)
    past = "".join(f"{at},{user},2,{s}\n" for at in range(12) for user, s in (("a", 10), ("b", 5), ("c", 50)))
    (tmp_path / "past.csv").write_text(f"submit,user,gpus,runtime\n{past}")
    out, trace = tmp_path / "est.csv", tmp_path / "trace.yaml"
    columns = ["--runtime", "runtime", "--key", "user", "-o", str(out), "--json"]
    assert run(app, ["estimate", str(tmp_path / "past.csv"), str(tmp_path / "log0.csv"), *columns]) == 0
    capsys.readouterr()
    asked = ["--estimates", str(out), "--policies", "fifo,sjf,offline:moves=200", "--time-limit", "4", "--json"]
    assert run(app, ["compare", str(trace), *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    values = {row["policy"]: row["objective"] for row in found["rows"]}
    online = dict.fromkeys(("fifo", "sjf"), pytest.approx(BY_ESTIMATES))
    assert values == {"plan": pytest.approx(BY_TRUTH), "offline:moves=200": pytest.approx(PLANNED)} | online
    assert f"told wrong run times (told={out})" in found["note"]
    assert run(app, ["simulate", str(trace), "--policy", "sjf", "--estimates", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"]["value"] == pytest.approx(BY_ESTIMATES)
    assert run(app, ["plan", str(trace), "--estimates", str(out), "--time-limit", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"]["value"] == pytest.approx(PLANNED)
    # On two servers only C waits, for A: 10, 40 and 13 s.
    enough = [
        "servers",
        str(trace),
        "--slo",
        "mean latency <= 30 s",
        "--policies",
        "sjf",
        "--time-limit",
        "9",
        "--json",
    ]
    for told, servers in (([], 1), (["--estimates", str(out)], 2)):
        assert run(app, [*enough, *told]) == 0
        assert json.loads(capsys.readouterr().out)["policies"]["sjf"]["servers"] == servers


LATE = "submit,user,gpus,runtime\n0,a,1,100\n1,b,2,5\n2,c,1,20\n"
HELD, PASSED = (100 + 104 + 123) / 3, (100 + 104 + 28) / 3
"""Told 10 s of its 100, A holds C back behind B: until 105 s, or until a tenth is done and its end shows, at 10 s."""


def test_progress_sharpens_the_estimates_of_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, path = imported(tmp_path, LATE), estimates(tmp_path, "2:10 3:5 4:20")
    assert tn.simulate(scenario, "easy", estimates=path).value == pytest.approx(HELD)
    assert tn.simulate(scenario, "easy", estimates=path, progress=0.1).value == pytest.approx(PASSED)
    assert tn.simulate(scenario, "easy", noise=f"told={path},progress=1/10").value == pytest.approx(PASSED)
    asked = ["--estimates", str(path), "--progress", "0.1", "--json"]
    assert run(app, ["simulate", str(tmp_path / "trace.yaml"), "--policy", "conservative", *asked]) == 0
    assert json.loads(capsys.readouterr().out)["objective"]["value"] == pytest.approx(PASSED)
    compared = tn.compare(scenario, estimates=path, progress=0.1, time_limit=2)
    values = {ran.policy: ran.value for ran in compared.simulations}
    assert values["easy"] == pytest.approx(PASSED)
    assert "offline" in compared.left_out
    assert "--noise" in compared.origin.command
    assert f"told={path},progress=0.1" in compared.origin.command


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--progress", "0.1"], "progress sharpens what is told of run times, which is exact; add --estimates FILE"),
        (["--progress", "1"], "--progress: '1' is no share; allowed is a number of at least 0 and below 1"),
        (["--noise", "told=mean,progress=2"], "progress=2: allowed is a share of a run of at least 0 and below 1"),
        (["--noise", "told=mean,progress=0.1", "--progress", "0.2"], "'progress=0.2' is no noise"),
    ],
)
def test_what_is_no_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    imported(tmp_path, LATE)
    assert run(app, ["simulate", str(tmp_path / "trace.yaml"), "--policy", "easy", *words]) == 2
    assert message in capsys.readouterr().err


def test_who_repeats_a_comparison_names_the_estimates(tmp_path: Path) -> None:
    path = estimates(tmp_path, TOLD)
    made = tn.compare(imported(tmp_path, LOG), ["sjf"], estimates=path, time_limit=2)
    assert f"--noise told={path}" in made.origin.command
    assert "offline" in {s.policy for s in tn.compare(made.scenario, estimates=path, time_limit=2).simulations}


def test_lines_survive_files_windows_and_plain_data(tmp_path: Path) -> None:
    made = tn.import_trace(TABLE, [_written(tmp_path, LOG)], window=("1 s", "3 s"))
    assert [job.line for job in made.scenario.instance.jobs] == [3, 4]
    assert [job.line for job in load_scenario(made.save(tmp_path / "late.yaml")[0]).instance.jobs] == [3, 4]
    listed = {"release": "0 s", "workflow": "w", "line": 2_500_000}
    assert scenario_from(_plain([listed])).instance.jobs[0].line == 2_500_000
    named = LOG.replace("a,", "=a,").replace("b,", '"b, the second",')
    by_user = TABLE.replace("model=", "model=user")
    users = tn.import_trace(by_user, [_written(tmp_path, named)]).save(tmp_path / "u.yaml")
    assert [job.label for job in load_scenario(users[0]).instance.jobs] == ["=a", "b, the second", "c"]
    # Two files have the same lines: none of them says which request is meant.
    assert [job.line for job in imported(tmp_path, LOG, LOG).instance.jobs] == [None] * 6


def _written(folder: Path, log: str) -> Path:
    path = folder / "log.csv"
    path.write_text(log)
    return path


def _plain(jobs: list[dict[str, object]], tasks: int = 1) -> dict[str, object]:
    return {
        "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}},
        "workflows": {"w": {"tasks": {f"t{number}": {"runtime": "8 s"} for number in range(tasks)}}},
        "workload": {"jobs": jobs},
    }


def test_jobs_are_numbered_by_release(tmp_path: Path) -> None:
    scenario = imported(tmp_path, LOG)
    by_line = read_told(estimates(tmp_path, TOLD), scenario)
    by_job = read_told(estimates(tmp_path, "0:10 2:50 1:5", "job"), scenario)
    assert by_job.instance == by_line.instance
    assert by_line.instance.run_us[by_line.instance.task_template].max(axis=1).tolist() == [10**7, 5 * 10**6, 5 * 10**7]
    assert (by_line.low.tolist(), by_line.high.tolist()) == ([0.5] * 3, [2.0] * 3)


@pytest.mark.parametrize(
    ("rows", "column", "message"),
    [
        ("2:10 3:5", "line", "line: job 2 of the scenario, line 4 of its log, has no row; write an estimate for each"),
        ("0:10 1:5", "job", "job: job 2 of the scenario has no row; write an estimate for each of the 3 jobs"),
        ("0:10 1:5 2:6 3:7", "job", "job: 3 is no job of the scenario; write those from 0 to 2"),
        ("2:10 3:5 3:6", "line", "4: line: 3 has a row already; write one per request"),
        ("2:10 3:5 4:6", "id", "1: header: does not say whose run times it has; write columns workflow and task, or"),
        ("2:10 x:5", "line", "3: line: 'x' is no number; write a whole one, from 0"),
    ],
)
def test_what_cannot_be_told(tmp_path: Path, rows: str, column: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read_told(estimates(tmp_path, rows, column), imported(tmp_path, LOG))
    assert message in str(refused.value)


def test_scenarios_that_no_request_can_be_told_of(tmp_path: Path) -> None:
    job: dict[str, object] = {"release": "0 s", "workflow": "w"}
    with pytest.raises(InputError, match="1: line: the scenario does not say which lines of a log its jobs come from"):
        read_told(estimates(tmp_path, "2:10"), scenario_from(_plain([job])))
    with pytest.raises(InputError, match="job: 0 is a job of several tasks, or of a batch class"):
        read_told(estimates(tmp_path, "0:10", "job"), scenario_from(_plain([job], tasks=2)))


def test_runs_that_outlast_their_estimates_keep_the_rules() -> None:
    # Policies that reserve by what they are told, while runs end earlier or later: every run happens, and keeps the
    # rules of the instance that holds.
    for seed in range(60):
        truth = draw(random.Random(seed))
        factors = np.random.default_rng(seed).choice([0.1, 0.5, 1.0, 3.0, 20.0], truth.n_tasks)
        for policy in ("fifo", "easy", "conservative", "sjf:reserve_after=2us", "qssf:blocking=on"):
            ran = simulate(stretch(truth, factors), parse_policy(policy), truth=truth)
            assert check(truth, ran) == [], (seed, policy)
            assert ran.end_us.min() > 0


def test_a_copy_of_the_log_in_parquet_has_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, log = imported(tmp_path, LOG), tmp_path / "log0.csv"
    pd.read_csv(log).to_parquet(tmp_path / "log.parquet")
    for name, requests in (("one", log), ("other", tmp_path / "log.parquet")):
        words = ["estimate", str(log), str(requests), "--runtime", "runtime", "--key", "user"]
        assert run(app, [*words, "-o", str(tmp_path / f"{name}.csv")]) == 0
    capsys.readouterr()
    one, other = (read_told(tmp_path / f"{name}.csv", scenario).instance for name in ("one", "other"))
    assert one == other


def test_an_imported_log_estimates_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Logs that no table reader knows, such as Philly's, are imported: what came before a moment is the history.
    run_of = {"detail": [{"gpus": ["a", "b"]}]}
    jobs = []
    for number, (user, minutes) in enumerate([("ann", 10), ("bob", 60)] * 9 + [("bob", 20), ("ann", 30)]):
        day = f"2017-10-{1 + number:02} 10"
        attempt = run_of | {
            "start_time": f"{day}:00:00",
            "end_time": f"{day}:{minutes % 60:02}:01" if minutes < 60 else "",
        }
        attempt["end_time"] = attempt["end_time"] or f"2017-10-{1 + number:02} 11:00:01"
        jobs.append({
            "jobid": str(number), "status": "Pass", "vc": "v", "user": user,
            "submitted_time": f"{day}:00:00", "attempts": [attempt],
        })  # fmt: skip
    log = tmp_path / "cluster_job_log"
    log.write_text(json.dumps(jobs))
    windows = {"past": ("2017-10-01 00:00", "2017-10-19 00:00"), "trace": ("2017-10-19 00:00", "2017-10-30 00:00")}
    for name, window in windows.items():
        tn.import_trace("philly", [log], window=window).save(tmp_path / f"{name}.yaml")
    out = tmp_path / "est.csv"
    assert run(app, ["estimate", str(tmp_path / "past.yaml"), str(tmp_path / "trace.yaml"), "-o", str(out)]) == 0
    capsys.readouterr()
    told = pd.read_csv(out)
    assert told[["job", "model", "gpus"]].to_numpy().tolist() == [[0, "bob", 2], [1, "ann", 2]]
    assert told["p50_s"].tolist() == [3601, 601]
    # The last of the history began at its last release: it was over only before the 19th.
    for starts, left_out in (([], 1), (["--starts", "2000000 s"], 0)):
        words = [str(tmp_path / "past.yaml"), str(tmp_path / "trace.yaml"), *starts, "--json"]
        assert run(app, ["estimate", *words]) == 0
        assert sum(json.loads(capsys.readouterr().out)["left_out"].values()) == left_out
    medians = read_told(out, load_scenario(tmp_path / "trace.yaml")).instance
    assert [job.workflow.critical_path_us for job in medians.jobs] == [3_601_000_000, 601_000_000]


LEAK = "submit,user,gpus,runtime_s\n0,ann,1,100\n10,bob,1,100\n3500,zed,1,36000\n3600,zed,1,30000\n"


def imported_windows(folder: Path) -> list[str]:
    """Import the first hour of a log and the second; return their paths."""
    (folder / "leak.csv").write_text(LEAK)
    reader = "table:release=submit,runtime=runtime_s,model=user,gpus=gpus"
    for name, window in (("past", ("0 s", "3600 s")), ("now", ("3600 s", "7200 s"))):
        tn.import_trace(reader, [folder / "leak.csv"], window=window).save(folder / f"{name}.yaml")
    return [str(folder / "past.yaml"), str(folder / "now.yaml")]


@pytest.mark.parametrize(
    ("starts", "past_tasks", "left_out"),
    [
        ([], 2, {"not over at 3500 s, its last release (--starts says when the requests begin on its clock)": 1}),
        (["--starts", "1 h"], 2, {"not over at 3600 s": 1}),
        (["--starts", "39500 s"], 3, {}),
        (["--starts", "100 s"], 1, {"not over at 100 s": 2}),
    ],
)
def test_run_times_of_a_history_count_once_they_are_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], starts: list[str], past_tasks: int, left_out: dict[str, int]
) -> None:
    assert run(app, ["estimate", *imported_windows(tmp_path), *starts, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["past_tasks"], found["left_out"]) == (past_tasks, left_out)
    # Of zed nothing is known before his first run has ended, at 39,500 s.
    assert (found["estimates"][0]["p50_s"], "zed" in found["unseen"]) == (
        (36_000, False) if past_tasks == 3 else (100, True)
    )


@pytest.mark.parametrize(
    ("history", "starts", "message"),
    [
        ("past.yaml", "99 s", "past.yaml: workload: no job was over at 99 s; the first ends at 100 s; allowed is"),
        ("past.yaml", "noon", "--starts: 'noon' is no time"),
        ("leak.csv", "1 h", "starts: is about a history that is an import"),
    ],
)
def test_what_no_history_begins_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], history: str, starts: str, message: str
) -> None:
    now = imported_windows(tmp_path)[1]
    assert run(app, ["estimate", str(tmp_path / history), now, "--starts", starts]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("options", ["status=state,end=end,failed=run,retries=10 min", "split=on"])
def test_jobs_of_several_tasks_have_no_estimates_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    rows = "0,ann,1,100,FAILED,100\n110,ann,1,100,COMPLETED,210\n300,bob,2,50,COMPLETED,350\n"
    (tmp_path / "log.csv").write_text(f"submit,user,gpus,runtime,state,end\n{rows}")
    reader = "table:unit=s,release=submit,runtime=runtime,model=user,user=user,gpus=gpus"
    tn.import_trace(f"{reader},{options}", [tmp_path / "log.csv"]).save(tmp_path / "several.yaml")
    assert run(app, ["estimate", imported_windows(tmp_path)[0], str(tmp_path / "several.yaml")]) == 2
    assert "several.yaml: workload: has jobs of several tasks (retries=, gpus=split)" in capsys.readouterr().err


def test_what_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(tmp_path, LOG)
    (tmp_path / "plain.yaml").write_text(json.dumps(_plain([{"release": "0 s", "workflow": "w"}])))
    trace = str(tmp_path / "trace.yaml")
    assert run(app, ["estimate", str(tmp_path / "plain.yaml"), trace]) == 2
    assert "is no import of a log with jobs of one task each" in capsys.readouterr().err
    assert run(app, ["estimate", trace, trace, "--only", "gpus=2"]) == 2
    assert "the history is a scenario, whose jobs stand by release" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--progress", "0,1"), "--progress: '0,1' is no share; write 0.1, with a point"),
        (("--progress", "of,jobs"), "--progress: './of,jobs' has a comma, which no file or folder here may have"),
        (("--estimates", "a,b.csv"), "--estimates: 'a,b.csv' has a comma, which no file or folder here may have"),
        (("--noise", "run=lognormal:0,2"), "'2' stands alone behind a comma; write numbers with a point, as in 0.1"),
    ],
)
def test_commas_where_a_point_belongs_are_answered_with_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, str], said: str
) -> None:
    imported(tmp_path, LOG)
    assert run(app, ["simulate", str(tmp_path / "trace.yaml"), "--policy", "srpt", *options]) == 2
    assert said in capsys.readouterr().err
