"""Tasks that choose their number of GPUs: how they are written, what they take where, and what the checker says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.gangs import job, moldable, servers, window
from truenorth.models import Mode, Task, Timeline, check, scenario_hash
from truenorth.models.features import Feature, features_of
from truenorth.models.identity import canonical
from truenorth.models.metrics import measure
from truenorth.models.scenario import load_scenario
from truenorth.models.scenario.errors import InputError
from truenorth.models.scenario.writing import document_of, write_scenario
from truenorth.models.torn import torn

MODES = "[{gpus: 4, runtime: {V100: 12 min, A100: 6 min}, across: 1.3}, {gpus: 1, runtime: 40 min}]"
TEXT = f"""
cluster:
  servers: 4
  gpus_per_server: 2
  gpu: {{kind: V100, memory: 16 GB, load_bandwidth: 10 GB/s}}
  network: {{bandwidth: 10 GB/s}}
workflows:
  train: {{tasks: {{run: {{modes: {MODES}, memory: 2 GB}}}}}}
workload: {{jobs: [{{release: 0 s, workflow: train}}]}}
objective: mean_slowdown
"""
MINUTE = 60 * 10**6


def _written(folder: Path, text: str = TEXT) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def test_a_task_with_modes_is_read_and_written_back(tmp_path: Path) -> None:
    made = load_scenario(_written(tmp_path)).instance
    [task] = made.workflows[0].tasks
    assert task.modes == (
        Mode(1, {"*": 40 * MINUTE}),
        Mode(4, {"V100": 12 * MINUTE, "A100": 6 * MINUTE}, Fraction(13, 10)),
    )
    assert (task.gpus, task.memory_bytes) == (4, 2 * 10**9)
    assert features_of(made) == [Feature.MEMORY, Feature.GANGS, Feature.MODES]
    again = tmp_path / "again.yaml"
    write_scenario(again, {**document_of(made), "objective": "mean_slowdown"})
    assert scenario_hash(load_scenario(again).instance) == scenario_hash(made)


@pytest.mark.parametrize("rule", ["any", "aligned", "[[s0/g0, s0/g1], [s2/g0, s2/g1]]"])
def test_a_task_on_a_given_number_of_gpus_is_written_back_with_its_places(tmp_path: Path, rule: str) -> None:
    text = TEXT.replace(f"modes: {MODES}", "gpus: 2, runtime: 1 h").replace("  network", f"  places: {rule}\n  network")
    made = load_scenario(_written(tmp_path, text)).instance
    again = tmp_path / "again.yaml"
    write_scenario(again, document_of(made))
    assert scenario_hash(load_scenario(again).instance) == scenario_hash(made)


def test_what_a_run_takes_says_how_long(tmp_path: Path) -> None:
    made = load_scenario(_written(tmp_path)).instance
    times = {made.places.gpus[place]: made.run_time(0, place) for place in made.eligible_places(0)}
    # Four GPUs are two servers of two: 1.3 times as long.
    wide_us = 12 * MINUTE * 13 // 10
    wide: dict[tuple[int, ...], int] = {(0, 1, 2, 3): wide_us, (4, 5, 6, 7): wide_us}
    assert times == {(gpu,): 40 * MINUTE for gpu in range(8)} | wide
    # P_j is that of the fastest mode on the fastest kind, here or not.
    assert made.job_critical_us.tolist() == [6 * MINUTE]


def test_one_mode_is_a_task_without_a_choice(tmp_path: Path) -> None:
    one = TEXT.replace(MODES, "[{gpus: 2, runtime: 40 min}]")
    plain = TEXT.replace(f"modes: {MODES}", "gpus: 2, runtime: 40 min")
    made = load_scenario(_written(tmp_path, one)).instance
    assert Feature.MODES not in features_of(made)
    assert scenario_hash(made) == scenario_hash(load_scenario(_written(tmp_path, plain)).instance)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ("[]", "workflows.train.tasks.run.modes: is empty; allowed is at least one mode"),
        (
            "[{gpus: 1, runtime: 1 s}, {gpus: 1, runtime: {A: 2 s}}]",
            "run.modes[1]: is a second mode of 1 GPUs; allowed is one of each number, with a runtime for each kind",
        ),
        (
            "[{gpus: 1, runtime: 1 s, across: 2}]",
            "run.modes[0].across: is 2; allowed is that of a task on several",
        ),
        ("[{gpus: 2}]", "run.modes[0]: key 'runtime' is missing"),
        (
            f"{MODES}, gpus: 2",
            "run.gpus: has modes and gpus; allowed is models, memory, output, after and input",
        ),
        (
            "[{gpus: 1, runtime: 1 s, weights: copy}]",
            "run.modes[0].weights: is copy; allowed is that of a task on",
        ),
        (
            "[{gpus: 2, runtime: 1 s, weights: half}]",
            "run.modes[0].weights: 'half' is unknown; allowed are split",
        ),
        (f"{MODES}, share: 0.5", "run.share: has modes and share"),
        (
            f"{MODES}, runtime: 3 s",
            "run: has modes and runtime; allowed is exactly one of batch, modes, runtime, stream",
        ),
        ("[{gpus: 3, runtime: 1 s}, {gpus: 5, runtime: 1 s}]", "there is no place of 3 or 5 GPUs"),
    ],
)
def test_what_modes_cannot_be_is_said_at_the_key(tmp_path: Path, modes: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        load_scenario(_written(tmp_path, TEXT.replace(MODES, modes)))
    assert message in str(refused.value)


def test_a_number_without_a_place_is_no_fault_beside_one_that_has_some() -> None:
    made = window(moldable({1: 9, 3: 4}), on=servers(2, 2))
    assert [made.places.gpus[place] for place in made.eligible_places(0)] == [(0,), (1,), (2,), (3,)]


def test_a_task_is_its_modes() -> None:
    modes = [Mode(1, {"*": 9}), Mode(2, {"*": 5})]
    task = Task.of_modes("run", modes)
    assert task.with_times(lambda us: 2 * us) == Task.of_modes("run", [Mode(1, {"*": 18}), Mode(2, {"*": 10})])
    with pytest.raises(ValueError, match="differs from its modes"):
        replace(task, runtime_us={"*": 4})
    with pytest.raises(ValueError, match="two modes take 2 GPUs"):
        Task.of_modes("run", [*modes, Mode(2, {"*": 4})])


def test_modes_belong_to_the_identity_of_windows_that_have_some() -> None:
    made = window(moldable({1: 9, 2: 5}, across=Fraction(3, 2)), on=servers(1, 2))
    assert canonical(made)["workflows"][0][1][0][-1] == {"modes": [[1, {"*": 9}, 1], [2, {"*": 5}, "3/2"]]}
    other = window(moldable({1: 9, 2: 5}), on=servers(1, 2))
    assert scenario_hash(made) != scenario_hash(other)
    # Two jobs of one name, but of other modes, are of two workflows.
    one, two = moldable({1: 9, 2: 5}), moldable({1: 9, 2: 4, 3: 4})
    renamed = replace(two, workflow=replace(two.workflow, name=one.workflow.name))
    assert len(window(one, renamed, on=servers(1, 3)).workflows) == 2


def test_the_checker_takes_the_run_time_of_as_many_gpus() -> None:
    made = window(moldable({1: 9, 2: 5}), job(1, 3), on=servers(1, 4))
    pair = made.places.number[0, 1]

    def found(place: int, end_us: int) -> list[tuple[str, object, object]]:
        timeline = Timeline(np.array([place, 2]), np.array([0, 0]), np.array([end_us, 3]), ())
        return [(violation.rule, violation.found, violation.allowed) for violation in check(made, timeline)]

    assert found(0, 9) == found(pair, 5) == []
    assert found(0, 5) == [("T1", 5, 9)]
    assert found(pair, 9) == [("T1", 9, 5)]
    overlapping = Timeline(np.array([pair, 1]), np.array([0, 4]), np.array([5, 7]), ())
    assert [violation.rule for violation in check(made, overlapping)] == ["T3"]
    # Two GPUs for 5 us and one for 3, of four for 5.
    plan = Timeline(np.array([pair, 2]), np.array([0, 0]), np.array([5, 3]), ())
    assert measure(made, plan).compute_busy == pytest.approx(13 / 20)


def test_the_torn_twin_fits_into_every_mode() -> None:
    # One part as long as the fastest mode; 12 + 9 + 9 + 9 = 39 of 40 on one GPU, where 28 / 3 is rounded down.
    made = torn(window(moldable({1: 40, 4: 12}), on=servers(1, 4)))
    assert [task.fastest_us for task in made.workflows[0].tasks] == [12, 9, 9, 9]
    # Three parts have 3 x 12 = 36 us of GPU-time; of four, two would share one of three GPUs: 12 + 7 + 7 + 7 = 33.
    made = torn(window(moldable({1: 40, 3: 14, 4: 12}), on=servers(1, 4, "any")))
    assert [task.fastest_us for task in made.workflows[0].tasks] == [12, 12, 12]
    assert made.job_ideal_us.tolist() == [12]
    # A mode that has no place takes no part.
    made = torn(window(moldable({1: 40, 3: 14}), on=servers(2, 2)))
    assert [task.fastest_us for task in made.workflows[0].tasks] == [40]
    assert Feature.MODES not in features_of(made)
