"""What logs show of the ends of jobs while these run: by hand, and by reading each log as far as it had come."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

import truenorth as tn
from tests.command import app, run
from tests.gangs import job, servers, window
from truenorth.executor import NoiseError, parse_policy, simulate
from truenorth.models import check
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.planner.inputs.estimate.logs import read_log
from truenorth.planner.inputs.progress import follow, read_progress

SECOND = 1_000_000
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def stamped(*lines: tuple[int, str]) -> str:
    """Return lines with the second of each in front."""
    return "".join(f"2026-11-21 10:{second // 60:02d}:{second % 60:02d} {text}\n" for second, text in lines)


def steps(seconds: list[int], total: int) -> str:
    """Return a log that ends its steps, from 0 on, at these seconds."""
    return stamped(*((second, f"step {step}/{total}") for step, second in enumerate(seconds)))


def shown(path: Path, log: str) -> list[tuple[int, int]]:
    """Return what a log shows, in whole seconds."""
    path.write_text(log)
    return [(at // SECOND, run // SECOND) for at, run in follow(path).shows]


def test_an_end_is_told_anew_when_it_moves_by_a_tenth_of_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    # Ten steps of 10 s: known from the first on, and never again, since nothing changes; at the last it ends as told.
    assert shown(path, steps(list(range(0, 101, 10)), 10)) == [(10, 100)]
    # From the sixth on 20 s each. Half or more of the steps so far took 10 s until the tenth has ended, so that the
    # median stays: 110 s in all at 70 s with 40 left, then 120, 130 and 140. At 150 it has ended, past all of these.
    slower = [0, 10, 20, 30, 40, 50, 70, 90, 110, 130, 150]
    assert shown(path, steps(slower, 10)) == [(10, 100), (70, 110), (90, 120), (110, 130), (130, 140)]
    # 100 steps: 10 s each, then one of 12: at 102 s the end moves by 2 s with 900 left, which is not worth a word.
    assert shown(path, steps([*range(0, 91, 10), 102], 100)) == [(10, 1000)]


def test_what_says_that_it_has_ended_or_failed_ends_there_and_then(tmp_path: Path) -> None:
    path, begun = tmp_path / "job.log", [(0, "step 0/10"), (10, "step 1/10"), (20, "step 2/10")]
    assert shown(path, stamped(*begun, (25, "Training completed."), (60, "bye"))) == [(10, 100), (25, 25)]
    assert shown(path, stamped(*begun, (25, OUT_OF_MEMORY), (30, OUT_OF_MEMORY))) == [(10, 100), (25, 25)]
    # Whoever gets on for three steps has survived it.
    survived = [(30, "step 3/10"), (40, "step 4/10"), (50, "step 5/10")]
    assert shown(path, stamped(*begun, (25, OUT_OF_MEMORY), *survived)) == [(10, 100), (25, 25), (50, 100)]


def test_lines_without_a_stamp_are_heard_with_the_next_that_has_one(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    log = stamped((0, "step 0/10"), (10, "step 1/10")) + OUT_OF_MEMORY + "\n"
    assert shown(path, log) == [(10, 100)]
    assert shown(path, log + stamped((45, "bye"))) == [(10, 100), (45, 45)]
    # No total is no end, and the start is the first stamp, whatever it says.
    assert shown(path, stamped((5, "loading"), (10, "step 3"), (20, "step 4"))) == []
    assert shown(path, stamped((5, "loading"), (15, "step 0/2"), (25, "step 1/2"))) == [(20, 30)]


def _log(rng: random.Random) -> str:
    """Return a random log: steps at an uneven pace, lines without a stamp, clocks that go back, failures."""
    second, done, total, lines = 0, 0, rng.randint(3, 30), []
    while done < total and rng.random() < 0.97:
        second += rng.choice((0, 1, 5, 5, 5, 30))
        done += rng.random() < 0.8
        said = rng.choice((*[f"step {done}/{total}"] * 5, "saved", "3.5 it/s", *[OUT_OF_MEMORY] * (rng.random() < 0.1)))
        lines.append(stamped((max(0, second - rng.choice((0, 0, 0, 2))), said)))
        lines += [f"step {done}/{total}\n"] if rng.random() < 0.1 else []
    return "".join([*lines, *([stamped((second + 9, "Training completed."))] if rng.random() < 0.3 else [])])


@pytest.mark.parametrize("seed", range(40))
def test_each_moment_is_what_reading_the_log_up_to_then_says(tmp_path: Path, seed: int) -> None:
    path, prefix = tmp_path / "job.log", tmp_path / "prefix.log"
    log = _log(random.Random(seed))
    path.write_text(f"{stamped((0, 'begins'))}{log}")
    lines = path.read_text().splitlines(keepends=True)
    expected: list[tuple[int, int]] = []
    now = counted = looked = 0
    ends: int | None = None
    new, unheard = [], ""
    for last, line in enumerate(lines):
        new.append(line)
        if not line.startswith("2026"):
            continue
        now = max(now, int(line[14:16]) * 60 + int(line[17:19]))
        counted = now if any("step" in each for each in new) else counted
        unheard += "".join(new)
        new.clear()
        # Of lines of one second the first is heard, and what fails or ends; the others with the next second.
        heard = any(word in unheard for word in ("step", "it/s", "memory", "completed"))
        if heard and (now > looked or "memory" in unheard or "completed" in unheard):
            prefix.write_text("".join(lines[: last + 1]))
            looked, reading = now, read_log(prefix)
            over = reading.failure is not None or reading.finished
            left = None if reading.remaining is None else reading.remaining.expected_us
            ends = now * SECOND if over else None if left is None else counted * SECOND + left
            unheard = ""
        if ends is None:
            continue
        ends = max(now * SECOND, ends)
        moved = not expected or abs(ends - expected[-1][1]) > (ends - now * SECOND) / 10
        if moved and not (expected and ends == now * SECOND >= expected[-1][1]):
            expected.append((now * SECOND, ends))
    assert list(follow(path).shows) == expected


LATE = "submit,user,gpus,runtime\n0,a,1,100\n1,b,2,5\n2,c,1,20\n"
TABLE = "table:release=submit,runtime=runtime,model=,gpus=gpus"
TOLD = "line,p10_s,p50_s,p90_s\n2,5,10,20\n3,2,3,4\n4,15,20,30\n"
HELD, PASSED = (100 + 104 + 123) / 3, (100 + 104 + 28) / 3
"""Told 10 s of its 100, A holds C back behind B; from 10 s on its log shows 100 s, and C passes."""


def imported(folder: Path, logs: Mapping[str, str]) -> tuple[Scenario, Path, Path]:
    """Return the jobs, a file of estimates and a folder of logs."""
    (folder / "log.csv").write_text(LATE)
    (folder / "est.csv").write_text(TOLD)
    (folder / "logs").mkdir()
    for name, log in logs.items():
        (folder / "logs" / name).write_text(log)
    made = tn.import_trace(TABLE, [folder / "log.csv"], servers=1, gpus_per_server=2)
    made.save(folder / "trace.yaml")
    return tn.load(folder / "trace.yaml"), folder / "est.csv", folder / "logs"


EVERY_TEN = steps(list(range(0, 101, 10)), 10)


@pytest.mark.parametrize("name", ["line2.log", "job0.log", "job0.run.log"])
def test_policies_hear_what_logs_show(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    # C is released at 2, behind B, which waits from 1: until 10 s A is told to end then, at which B would start.
    scenario, told, logs = imported(tmp_path, {name: EVERY_TEN, ".hidden": "", "line9.log": "of no job here"})
    assert tn.simulate(scenario, "easy", estimates=told).value == pytest.approx(HELD)
    for policy in ("easy", "conservative"):
        assert tn.simulate(scenario, policy, estimates=told, progress=logs).value == pytest.approx(PASSED)
        assert tn.simulate(scenario, policy, estimates=told, progress=str(logs)).value == pytest.approx(PASSED)
    asked = ["--estimates", str(told), "--progress", str(logs), "--json"]
    assert run(app, ["simulate", str(tmp_path / "trace.yaml"), "--policy", "easy", *asked]) == 0
    assert json.loads(capsys.readouterr().out)["objective"]["value"] == pytest.approx(PASSED)
    compared = tn.compare(scenario, ["easy", "sjf"], estimates=told, progress=logs, time_limit=2)
    assert {ran.policy: ran.value for ran in compared.simulations}["easy"] == pytest.approx(PASSED)
    assert f"progress={logs}" in compared.origin.command


def test_logs_that_err_are_believed_until_they_show_otherwise(tmp_path: Path) -> None:
    # A's first step takes 2 s of 10: told 20 s at 2 s, C (20 s) would delay B, which waits for A. Its second ends at
    # 50 s, when the median of 2 and 48 shows 50 + 8 x 25 = 250 s: C starts at 50 and ends at 70, B follows at 100.
    scenario, told, logs = imported(tmp_path, {"job0.log": steps([0, 2, 50], 10)})
    assert tn.simulate(scenario, "easy", estimates=told, progress=logs).value == pytest.approx((100 + 104 + 68) / 3)
    # It says at 30 s that it has failed, and holds its GPU until 100: expected to end at once, it keeps C waiting.
    (logs / "job0.log").write_text(stamped((0, "starts"), (30, OUT_OF_MEMORY)))
    assert tn.simulate(scenario, "easy", estimates=told, progress=logs).value == pytest.approx(HELD)


def test_logs_stretch_with_the_run_where_it_takes_longer() -> None:
    # Told 10, it runs 200 where its log is of 100: what the log shows at a tenth comes at 20.
    tenth = {0: ((Fraction(1, 10), Fraction(1)),)}
    truth, told = (window(job(1, run_us), job(2, 5, 1), job(1, 20, 2), on=servers(1, 2)) for run_us in (200, 10))
    timeline = simulate(told, parse_policy("easy"), truth=truth, progress=tenth)
    assert check(truth, timeline) == []
    assert timeline.start_us.tolist() == [0, 200, 20]


def test_logs_of_tasks_and_packed_logs(tmp_path: Path) -> None:
    tasks = {name: {"runtime": "100 s"} for name in ("one", "the.other")}
    cluster = {"servers": 1, "gpu": {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}}
    jobs = [{"release": "0 s", "workflow": "w"}] * 2
    made = scenario_from({"cluster": cluster, "workflows": {"w": {"tasks": tasks}}, "workload": {"jobs": jobs}})
    (tmp_path / "job1.the.other.log.gz").write_bytes(gzip.compress(EVERY_TEN.encode()))
    assert read_progress(tmp_path, made.instance) == {3: ((Fraction(1, 10), Fraction(1)),)}
    (tmp_path / "job1.log").write_text(EVERY_TEN)
    with pytest.raises(
        InputError, match=r"job1.log: file: says no task of job 1; write job1.TASK.log with one of one,"
    ):
        read_progress(tmp_path, made.instance)


@pytest.mark.parametrize("noise", ["true=lognormal:1", "told=mean,run=lognormal:1"])
def test_logs_are_of_the_run_times_of_the_scenario(tmp_path: Path, noise: str) -> None:
    scenario, told, logs = imported(tmp_path, {"job0.log": EVERY_TEN})
    with pytest.raises(NoiseError, match="logs are of the scenario's run times; allowed is beside told="):
        tn.simulate(scenario, "easy", noise=noise, progress=logs)
    with pytest.raises(NoiseError, match="progress sharpens what is told of run times, which is exact; add"):
        tn.simulate(scenario, "easy", progress=logs)
    tn.simulate(scenario, "easy", noise="load=lognormal:1", estimates=told, progress=logs)


@pytest.mark.parametrize(
    ("name", "log", "message"),
    [
        ("a.log", "", "a.log: file: 'a.log' names no job; write job0.log (in release order) or line2.log (of the"),
        ("job3.log", "", "job3.log: file: 3 is no job of the scenario; write those from 0 to 2"),
        ("job0.walk.log", "", "'walk' is no task of job 0; write job0.TASK.log with one of run"),
        ("job0.log", "step 1/2\n", "job0.log:1: time: no line begins with a time stamp, so that nothing says when it"),
        ("job2.log", EVERY_TEN, "job2.log:11: time: 100 s after the first stamp, but job 2 runs for 20 s; write the"),
        ("line2.log", EVERY_TEN, "line2.log: file: line2.log and job0.log are logs of one task; write one of each"),
    ],
)
def test_what_is_no_log_of_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, log: str, message: str
) -> None:
    _, told, logs = imported(tmp_path, {**({"job0.log": EVERY_TEN} if name == "line2.log" else {}), name: log})
    asked = ["simulate", str(tmp_path / "trace.yaml"), "--policy", "easy", "--estimates", str(told), "--progress"]
    assert run(app, [*asked, str(logs)]) == 2
    assert message in capsys.readouterr().err
    assert run(app, [*asked, str(tmp_path / "none")]) == 2
    assert "none: progress: cannot be read: No such file or directory; write a folder of" in capsys.readouterr().err
