"""A few dozen draws of the nightly comparison with the oracle, and that it would say what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from experiments.checks import nightly
from experiments.checks.nightly import NightlyTable, OracleCheck, compare_bounds, compare_plans, compare_servers
from experiments.random_scenarios import UNITS_US, Draw, draw
from truenorth.models import Objective
from truenorth.models.scenario import load_scenario, scenario_from
from truenorth.solvers.bounds import closed_form

SEEDS = range(500, 512)


def _wrong(compared: Iterator[OracleCheck]) -> list[str]:
    return [f"{done.what} {done.contradiction}" for done in compared if done.contradiction is not None]


def test_no_plan_and_no_bound_contradicts_the_oracle() -> None:
    for seed in SEEDS:
        drawn = draw(seed)
        assert not _wrong(compare_bounds(drawn, 0.1, 10)), seed
    for seed in SEEDS[::4]:
        assert not _wrong(compare_plans(draw(seed), 0.5)), seed


def test_no_size_of_a_cluster_does() -> None:
    for seed in SEEDS[::8]:
        assert not _wrong(compare_servers(draw(seed, resizable=True), 2)), seed


def test_draws_mix_features_and_reach_from_microseconds_to_weeks() -> None:
    drawn = [draw(seed) for seed in range(200)]
    text = json.dumps([one.data for one in drawn])
    wanted = ["slots", "available", "batch", "share", "input", "staged", "within_server", "ingress", "load_overhead"]
    assert not [word for word in wanted if f'"{word}"' not in text]
    assert not [word for word in ("pin", "forbid", "max_replicas", "no_swaps", "gpu") if f'"{word}"' not in text]
    assert {one.unit_us for one in drawn} == set(UNITS_US)
    assert {one.scenario.objective for one in drawn} == set(Objective)
    assert max(one.scenario.instance.n_tasks for one in drawn) == 5
    longest = max(int(one.scenario.instance.job_release_us[-1]) for one in drawn)
    assert longest > 7 * 86_400_000_000


def test_a_bound_above_the_optimum_is_found_and_its_scenario_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(closed_form, "METHODS", {"critical_path": lambda instance, objective: Fraction(10**18)})
    table, drawn = NightlyTable(tmp_path), draw(500)
    table.add(500, drawn, lambda one: compare_bounds(one, 0.2, 1))
    assert table.contradictions > 0
    assert "bound critical_path has a bound of 1000000000000000000" in capsys.readouterr().out
    written = load_scenario(tmp_path / "500_bound_critical_path.json")
    assert written.instance == drawn.scenario.instance


def test_a_traceback_is_a_contradiction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_: Draw) -> Iterator[OracleCheck]:
        raise ZeroDivisionError

    table = NightlyTable(tmp_path)
    table.add(500, draw(500), fails)
    assert table.contradictions == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_the_level_of_a_size_is_the_oracle_s() -> None:
    # Two jobs of 4 us due at 5: on one server the second one ends at 8, on two neither is late.
    data = {
        "cluster": {"groups": [{"count": 1, "gpu": {"kind": "A", "memory": "4 B", "load_bandwidth": "1 MB/s"}}]}
        | {"network": {"bandwidth": "1 MB/s"}},
        "workflows": {"w": {"tasks": {"t": {"runtime": "4 us"}}}},
        "workload": {"jobs": [{"release": "0 us", "workflow": "w", "deadline": "5 us"}] * 2},
        "slo": "no late jobs",
    }
    one = Draw(data, scenario_from(data), 1)
    assert [nightly._meets(nightly._sized(one, count)) for count in (1, 2, 3)] == [False, True, True]
    # The second server comes at 3, and its task ends at 7; it comes at 1, and its task ends at 5.
    assert not nightly._meets(nightly._ordered(one, (1, 2), 3))
    assert nightly._meets(nightly._ordered(one, (1, 2), 1))


@pytest.mark.parametrize(
    ("failed", "seed", "only", "code", "runs"),
    [
        (0, 0, "tests", 0, 1),
        (1, 0, "tests", 1, 1),
        (1, 0, None, 1, 1),
        (1, 7, None, 0, 0),
        (1, 0, "bounds", 0, 0),
    ],
)
def test_the_tests_that_are_left_out_by_day_come_first(
    failed: int, seed: int, only: str | None, code: int, runs: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They run before draw 0, unless one of the comparisons is asked for; one that fails is a failure of the night."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> CompletedProcess[str]:
        asked.append(command[1:5])
        return CompletedProcess(command, failed)

    monkeypatch.setattr("experiments.checks.nightly.subprocess.run", run)
    with pytest.raises(SystemExit, match=f"^{code}$"):
        nightly.nightly(count=0, seed=seed, only=only, output=tmp_path)
    assert asked == [["-m", "pytest", "-m", "nightly"]] * runs
