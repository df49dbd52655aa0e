"""What is told of run times: quantiles, draws, what is left of a task, and files of estimates."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from tests.instances import chain, gpu, instance, network, task
from tests.planner.answers.uncertain.work import told, window
from truenorth.executor import NoiseError, parse_policy, simulate
from truenorth.models import GPU, BatchClass, Cluster, Job, Task, check
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.planner.answers.uncertain.spec import parse_uncertainty
from truenorth.planner.inputs.told import TRUTH, Told, read_told, stretch

Z90 = 1.2815515655446008
HEADER = "workflow,task,p10_s,p50_s,p90_s,source,confidence,neighbours\n"


def test_quantiles_are_those_of_the_estimate() -> None:
    # a: 400, 500, 1000 us; b is certain.
    known = told(window({"a": 500, "b": 70}), [0.8, 1.0], [2.0, 1.0])
    assert known.at(0.5) is known.instance
    assert known.at(0.9).run_us[:, 0].tolist() == [1000, 70]
    assert known.at(0.1).run_us[:, 0].tolist() == [400, 70]
    # Log-normal on either side: one standard deviation above, at level 0.8413, 500 x 2^(1 / 1.28155) = 858.6.
    assert known.at(0.8413447460685429).run_us[:, 0].tolist() == [859, 70]
    assert known.limits_us(0, 500) == (400, 1000)
    assert known.limits_us(1, 70) == (70, 70)


def test_draws_fill_the_intervals_as_they_should() -> None:
    known = told(window({str(index): 10**9 for index in range(20)}), 0.5, 4.0)
    drawn = np.concatenate([known.draw(seed).job_critical_us for seed in range(200)])
    for level, quantile in ((0.1, 0.5e9), (0.5, 1e9), (0.9, 4e9)):
        assert np.mean(drawn <= quantile) == pytest.approx(level, abs=0.025)  # 4,000 draws
    assert known.draw(7).run_us.tolist() == known.draw(7).run_us.tolist()


def test_jobs_may_be_off_as_a_whole() -> None:
    pair = [Job(chain(task("x", 100_000), task("y", 300_000, after={"x": 0})), 0)]
    together = told(instance(pair), 0.5, 2.0, by_job=True).draw(1).run_us[:, 0].tolist()
    assert together[1] == pytest.approx(3 * together[0], rel=1e-4)
    apart = told(instance(pair), 0.5, 2.0).draw(1).run_us[:, 0].tolist()
    assert abs(apart[1] - 3 * apart[0]) > 1_000


def test_the_tasks_of_a_batch_class_are_off_together() -> None:
    # Medians 4 and 6 us for one and two, p90 twice as long: whatever is drawn holds for the whole table.
    pairs = BatchClass("pairs", {"*": {1: 4_000, 2: 6_000}})
    on = instance([Job(chain(Task.of_class("t", pairs)), 0) for _ in range(3)])
    drawn = told(on, 0.5, 2.0).draw(1)
    one, two = drawn.batch_us[0, 0, 1:].tolist()
    assert len(drawn.batches) == 1
    assert one != 4_000
    assert two == pytest.approx(1.5 * one, rel=1e-3)
    timeline = simulate(on, parse_policy("jit"), truth=drawn)  # two, then the third alone
    assert sorted(timeline.end_us.tolist()) == [two, two, two + one]
    assert check(drawn, timeline) == []


def test_rows_of_one_batch_class_agree(tmp_path: Path) -> None:
    tasks = {name: {"batch": "c"} for name in "ab"}
    given = scenario_from(
        {
            "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}},
            "batches": {"c": {"runtime": {1: "2 s", 2: "3 s"}}},
            "workflows": {"w": {"tasks": tasks}},
            "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
        }
    )
    path = tmp_path / "estimates.csv"
    path.write_text(HEADER + "w,a,3,4,5,,,\n")
    known = read_told(path, given)  # it speaks of the class: b takes 4 s as well, and two together 6 s
    assert known.instance.batch_us[0, 0, 1:].tolist() == [4_000_000, 6_000_000]
    assert known.high.tolist() == [1.25, 1.25]
    path.write_text(HEADER + "w,a,3,4,5,,,\nw,b,3,4,6,,,\n")
    with pytest.raises(InputError, match="3: task: w/b is of batch class c, for which another row says something else"):
        read_told(path, given)


def test_what_is_left_of_a_task() -> None:
    # Log-normal with median 1000 and 90 % quantile 2000. Still running at the median: half of the tasks are left, and
    # half of those end by the 75 % quantile, 1000 x 2^(0.67449 / 1.28155) = 1440. At p90 the 95 % quantile counts.
    known = told(window({"a": 1000}), 0.5, 2.0)
    assert known.remaining_us(0, 1000, 0) == 1000
    assert known.remaining_us(0, 1000, 1000) == 440
    assert known.remaining_us(0, 1000, 2000) == round(1000 * 2 ** (1.6448536269514722 / Z90)) - 2000
    left = [known.remaining_us(0, 1000, elapsed) + elapsed for elapsed in range(0, 10_000, 50)]
    assert left == sorted(left)
    exact = Told.exactly(window({"a": 1000}))
    assert [exact.remaining_us(0, 1000, elapsed) for elapsed in (0, 400, 1000, 1500)] == [1000, 600, 0, 0]


def test_all_kinds_of_gpu_are_off_by_the_same_factor() -> None:
    kinds = Cluster((gpu(0, kind="A"), gpu(1, kind="B")), network())
    on = instance([Job(chain(task("t", {"A": 10, "B": 25})), 0)], on=kinds)
    assert isinstance(kinds.gpus[0], GPU)
    assert sorted(stretch(on, np.array([1.5])).run_us[0].tolist()) == [15, 38]  # 37.5 rounds up
    assert stretch(on, np.array([1e-9])).run_us[0].tolist() == [1, 1]  # never below 1 us
    assert stretch(on, np.array([1.0])) is on


def test_intervals_must_hold_their_medians() -> None:
    on = window({"a": 10})
    for low, high in ((1.1, 2.0), (0.5, 0.9), (0.0, 1.0), (0.5, math.inf)):
        with pytest.raises(ValueError, match="must contain its median"):
            told(on, low, high)
    with pytest.raises(ValueError, match="one interval per task"):
        Told(on, np.ones(2), np.ones(2))


def test_a_file_of_estimates(scenario: Scenario, tmp_path: Path) -> None:
    # The scenario (tests/planner/conftest.py) has two jobs of a (3 us) and b (2 us); the file speaks of a alone.
    path = tmp_path / "estimates.csv"
    path.write_text(f"{HEADER}w,a,4e-6,0.000005,0.00001,median,0.7,x; y\n")
    known = read_told(path, scenario)
    assert known.instance.run_us[known.instance.task_template, 0].tolist() == [5, 2, 5, 2]
    assert known.low.tolist() == [0.8, 1, 0.8, 1]
    assert known.high.tolist() == [2, 1, 2, 1]
    sides = parse_uncertainty(f"estimates={path}").sides(scenario, 3)
    assert sides.told.instance.run_us.tolist() == known.instance.run_us.tolist()
    assert sides.truth.run_us.tolist() == known.draw(3, TRUTH).run_us.tolist()
    assert sides.truth.run_us.tolist() != known.draw(3).run_us.tolist()  # a plan's samples do not tell the truth
    packed = tmp_path / "estimates.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_told(packed, scenario).instance.run_us.tolist() == known.instance.run_us.tolist()


def test_run_times_that_become_too_long_name_the_noise(scenario: Scenario, tmp_path: Path) -> None:
    # Quantiles of 1 us and 1e9 s are allowed, but this seed draws more than the 1e10 s that an instance can have.
    path = tmp_path / "estimates.csv"
    path.write_text(f"{HEADER}w,a,1e-6,1e-6,1000000000,,,\n")
    asked = parse_uncertainty(f"estimates={path}")
    with pytest.raises(NoiseError, match=r"noise estimates=.*estimates\.csv: run times up to .* times as long"):
        asked.sides(scenario, 12)
    with pytest.raises(NoiseError, match=r"times as long: .* must not exceed"):
        stretch(scenario.instance, np.full(scenario.instance.n_tasks, 1e30))


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("v,a,1,2,3,,,", "2: workflow: unknown workflow 'v'; allowed are w"),
        ("w,c,1,2,3,,,", "2: task: unknown task 'c' of w"),
        ("w,a,1,x,3,,,", "2: p50_s: 'x' is no time in range"),
        ("w,a,2,1,3,,,", "2: p50_s: '1' is not in order"),
        ("w,a,0,1,3,,,", "2: p10_s: '0' is no time in range; .* from 1e-06 s to 1e[+]09 s"),
        ("w,a,1,1e300,3,,,", "2: p50_s: '1e300' is no time in range"),
        ("w,a,1,2,1000000001,,,", "2: p90_s: '1000000001' is no time in range"),
        ("w,a,1,2,3", "2: row: has 5 fields; allowed are 8"),
        ("\nw,a,1,x,3,,,", "3: p50_s: 'x' is no time"),
        ("w,a,1,2,3,,,\nw,a,1,2,3,,,", "3: task: w/a has a row already"),
    ],
)
def test_rows_that_are_refused(scenario: Scenario, tmp_path: Path, row: str, place: str) -> None:
    path = tmp_path / "estimates.csv"
    path.write_text(f"{HEADER}{row}\n")
    with pytest.raises(InputError, match=place):
        read_told(path, scenario)


def test_files_that_are_refused(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "estimates.csv"
    with pytest.raises(InputError, match="cannot be read"):
        read_told(path, scenario)
    path.write_text("workflow,task,p10_s,p50_s\nw,a,1,2\n")
    with pytest.raises(InputError, match="1: header: has no column 'p90_s'"):
        read_told(path, scenario)
    path.write_text(HEADER)
    with pytest.raises(InputError, match="has no rows"):
        read_told(path, scenario)
    path.write_text("workflow,task,p10_s,p50_s,p90_s,p50_s\nw,a,1,2,3,2\n")
    with pytest.raises(InputError, match="1: header: column 'p50_s' occurs twice"):
        read_told(path, scenario)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        read_told(path, scenario)
