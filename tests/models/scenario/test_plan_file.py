# ruff: noqa: E501 (a message is one line)
"""Plan and timeline files: what is written is read again, and what does not fit the scenario is refused."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.instances import random_instance
from tests.models.scenario.small import SMALL, changed, loaded
from truenorth.models import Instance, Placement, Residency, Timeline, scenario_hash
from truenorth.models.scenario import InputError, TimelineHeader, read_timeline, timeline_document, write_timeline
from truenorth.models.timeline import UNPLACED

HEADER = TimelineHeader(
    status="FEASIBLE",
    objective="mean_latency",
    value=0.587,
    lower_bound=0.5,
    bound_method="critical path",
    gap=0.1482,
    policy="compass:prefetch=0",
    solver="cp-sat",
    seed=7,
    runtime_s=1.25,
    options={"workers": 2, "hint": None, "fast": True, "limit": 0.5},
    versions={"ortools": "9.12"},
    command="truenorth plan it.yaml -o plan.json",
    incumbents=((0.5, 2.0, None), (1.0, 0.587, 0.5)),
)


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return loaded(tmp_path, SMALL).instance


def timeline() -> Timeline:
    """Two jobs of opt and nli on two GPUs, by hand; nli is on the second from the start."""
    placements = [Placement(0, 0, 600_000, 1_160_000), Placement(1, 1, 1_160_003, 1_187_003), Placement(3, 1, 5, 6)]
    residencies = [Residency(0, 0, 0, 600_000, 2_000_000), Residency(1, 1, 0, 0, None, None, True)]
    return Timeline.build(4, placements, residencies, realised=True)


def same(a: Timeline, b: Timeline) -> bool:
    arrays = ((a.place, b.place), (a.start_us, b.start_us), (a.end_us, b.end_us))
    return all(np.array_equal(x, y) for x, y in arrays) and (a.residencies, a.realised) == (b.residencies, b.realised)


def test_document_names_everything(instance: Instance) -> None:
    document = timeline_document(instance, timeline(), HEADER)
    assert document["schema_version"] == 1
    assert document["scenario_hash"] == scenario_hash(instance)
    assert document["objective"] == {"name": "mean_latency", "value": 0.587}
    assert document["realised"] is True
    # Task 2 is not placed.
    assert document["tasks"] == [
        {"job": 0, "task": "opt", "gpu": "s0/g0", "start_us": 600_000, "end_us": 1_160_000},
        {"job": 0, "task": "nli", "gpu": "s1/g0", "start_us": 1_160_003, "end_us": 1_187_003},
        {"job": 1, "task": "nli", "gpu": "s1/g0", "start_us": 5, "end_us": 6},
    ]
    times = {"load_start_us": 0, "ready_us": 600_000, "end_us": 2_000_000}
    assert document["residencies"] == [
        {"gpu": "s0/g0", "model": "opt", "slot": None, **times},
        {"gpu": "s1/g0", "model": "nli", "slot": None, "load_start_us": 0, "ready_us": 0, "end_us": None, "initial": True},
    ]  # fmt: skip


@pytest.mark.parametrize("header", [HEADER, TimelineHeader()])
def test_round_trip(tmp_path: Path, instance: Instance, header: TimelineHeader) -> None:
    path = tmp_path / "plan.json"
    write_timeline(path, instance, timeline(), header)
    assert json.loads(path.read_text()) == json.loads(json.dumps(timeline_document(instance, timeline(), header)))
    read = read_timeline(path, instance)
    assert read.header == header
    assert same(read.timeline, timeline())
    assert read.timeline.place[2] == UNPLACED


@pytest.mark.parametrize("seed", range(20))
def test_round_trip_of_random_timelines(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    made = random_instance(rng)
    instant = [rng.randrange(10 ** rng.randrange(1, 18)) for _ in range(4 * made.n_tasks)]
    gpus = np.array([rng.randrange(-1, made.n_gpus) for _ in range(made.n_tasks)], np.int64)
    starts, ends = (np.array(rng.sample(instant, made.n_tasks), np.int64) * (gpus >= 0) for _ in range(2))
    stays = [
        Residency(
            rng.randrange(len(made.models)), rng.randrange(made.n_gpus), rng.choice(instant), rng.choice(instant),
            rng.choice([None, *instant]), rng.choice([None, 0, 3]), rng.random() < 0.5,
        )
        for _ in range(rng.randrange(8) if made.models else 0)
    ]  # fmt: skip
    drawn = Timeline.build(made.n_tasks, (), stays)
    drawn = Timeline(gpus, starts, ends, drawn.residencies, rng.random() < 0.5)
    write_timeline(tmp_path / "plan.json", made, drawn, TimelineHeader())
    assert same(read_timeline(tmp_path / "plan.json", made).timeline, drawn)


def test_least_that_a_hand_made_plan_needs(tmp_path: Path, instance: Instance) -> None:
    plan = {"schema_version": 1, "scenario_hash": scenario_hash(instance), "tasks": [], "residencies": [], "by": "me"}
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"objective": "makespan"}))
    read = read_timeline(tmp_path / "plan.json", instance)
    assert read.header == TimelineHeader(objective="makespan")
    assert (read.timeline.place == UNPLACED).all()
    assert not read.timeline.realised


Change = Callable[[dict[str, Any]], object]


def refusal(folder: Path, instance: Instance, change: Change) -> str:
    document = timeline_document(instance, timeline(), HEADER)
    change(document)
    path = folder / "plan.json"
    path.write_text(json.dumps(document, indent=1))
    with pytest.raises(InputError) as caught:
        read_timeline(path, instance)
    return str(caught.value).replace(f"{folder}/", "")


def put(*where: str | int, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for part in where[:-1]:
            inner = inner[part]
        inner[where[-1]] = value

    return change


def take(*where: str | int) -> Change:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for part in where[:-1]:
            inner = inner[part]
        del inner[where[-1]]

    return change


GPUS = "allowed are s0/g0, s1/g0"
ENTRY = "job, task, gpu, start_us, end_us, first_us, not_before_us, output_tokens, order, cached_tokens, attempts, preempted"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("schema_version", value=2), "2: schema_version: 2 is unknown; allowed is 1"),
        (put("schema_version", value="1"), "2: schema_version: the value '1' stands here; allowed is a whole number"),
        (take("schema_version"), "1: document: key 'schema_version' is missing; allowed are the keys schema_version, scenario_hash"),
        (put("tasks", value={}), "39: tasks: a mapping stands here; allowed is a list"),
        (put("tasks", 1, "job", value=2), "48: tasks[1].job: unknown job 2; allowed are 0 to 1"),
        (put("tasks", 1, "job", value=-1), "48: tasks[1].job: unknown job -1; allowed are 0 to 1"),
        (put("tasks", 1, "job", value=True), "48: tasks[1].job: the value 'True' stands here; allowed is a whole number"),
        (put("tasks", 1, "job", value=0.0), "48: tasks[1].job: the value '0.0' stands here; allowed is a whole number"),
        (put("tasks", 1, "task", value="nil"), "49: tasks[1].task: unknown task 'nil' of job 0; did you mean 'nli'? allowed are opt, nli"),
        (put("tasks", 1, "task", value="opt"), "49: tasks[1].task: task 'opt' of job 0 stands already in tasks[0]; allowed is once"),
        (put("tasks", 1, "gpu", value="s2/g0"), f"50: tasks[1].gpu: unknown GPU 's2/g0'; did you mean 's1/g0'? {GPUS}"),
        (put("tasks", 1, "gpu", value=1), "50: tasks[1].gpu: the value '1' stands here; allowed is a GPU, or a list of them"),
        (put("tasks", 1, "start_us", value=None), "51: tasks[1].start_us: nothing stands here; allowed is a whole number"),
        (put("tasks", 1, "start_us", value=10**18 + 1), "51: tasks[1].start_us: the value '1000000000000000001' stands here; allowed is less than or equal to 1000000000000000000"),
        (put("tasks", 1, "strat_us", value=0), f"53: tasks[1].strat_us: unknown key, did you mean 'start_us'? allowed are {ENTRY}"),
        (take("tasks", 1, "end_us"), f"47: tasks[1]: key 'end_us' is missing; allowed are the keys {ENTRY}"),
        (put("tasks", 1, value=[]), f"47: tasks[1]: a list stands here; allowed is a mapping with keys {ENTRY}"),
        (put("residencies", 0, "model", value="op"), "65: residencies[0].model: unknown model 'op'; did you mean 'opt'? allowed are opt, nli"),
        (put("residencies", 0, "gpu", value="s0"), "64: residencies[0].gpu: unknown GPU 's0'; allowed are s0/g0, s1/g0"),
        (put("residencies", 0, "slot", value=-1), "66: residencies[0].slot: the value '-1' stands here; allowed is greater than or equal to 0"),
        (put("residencies", 1, "initial", value=1), "78: residencies[1].initial: the value '1' stands here; allowed is true or false"),
        (put("realised", value="yes"), "38: realised: the value 'yes' stands here; allowed is true or false"),
        (put("lower_bound", value="low"), "9: lower_bound: the value 'low' stands here; allowed is a number"),
    ],
)  # fmt: skip
def test_bad_plan(tmp_path: Path, instance: Instance, change: Change, message: str) -> None:
    assert refusal(tmp_path, instance, change) == f"plan.json:{message}"


def test_plan_of_another_scenario(tmp_path: Path, instance: Instance) -> None:
    other = loaded(tmp_path, changed("560 ms", "561 ms")).instance
    write_timeline(tmp_path / "plan.json", other, timeline(), HEADER)
    with pytest.raises(InputError) as caught:
        read_timeline(tmp_path / "plan.json", instance)
    assert str(caught.value) == (
        f"{tmp_path}/plan.json:3: scenario_hash: is of another scenario, '{scenario_hash(other)[:12]}', not "
        f"'{scenario_hash(instance)[:12]}'; allowed is a plan of this scenario: "
        "name the file that it was made for, or plan again"
    )


def test_every_truncation_is_refused(tmp_path: Path, instance: Instance) -> None:
    path = tmp_path / "plan.json"
    write_timeline(path, instance, timeline(), HEADER)
    text = path.read_text()
    for length in range(0, len(text) - 2, 7):
        path.write_text(text[:length])
        with pytest.raises(InputError) as caught:
            read_timeline(path, instance)
        assert caught.value.line == text[:length].count("\n") + 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" * 5000, "1e400", "[" * 9999])
def test_numbers_that_are_none(tmp_path: Path, instance: Instance, number: str) -> None:
    path = tmp_path / "plan.json"
    write_timeline(path, instance, timeline(), HEADER)
    path.write_text(path.read_text().replace('"lower_bound": 0.5', f'"lower_bound": {number}'))
    with pytest.raises(InputError, match=r"plan.json:(1|6): (lower_bound|file): "):
        read_timeline(path, instance)


def test_duplicate_key(tmp_path: Path, instance: Instance) -> None:
    path = tmp_path / "plan.json"
    write_timeline(path, instance, timeline(), HEADER)
    path.write_text(path.read_text().replace('"tasks": [', '"tasks": [],\n"tasks": ['))
    with pytest.raises(InputError, match=r"plan.json:19: tasks: duplicate key; it already stands in line 18"):
        read_timeline(path, instance)


def test_value_that_json_lacks_is_not_written(tmp_path: Path, instance: Instance) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_timeline(tmp_path / "plan.json", instance, timeline(), TimelineHeader(lower_bound=float("nan")))
    assert list(tmp_path.glob("*plan*")) == []
