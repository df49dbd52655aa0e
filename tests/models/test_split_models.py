"""Models of runs on several GPUs: split over them, or whole on each (rules G2 and G3)."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.split_models import broken_rules, draw, job, window
from truenorth.models import Instance, Placement, Residency, Timeline, check
from truenorth.models.identity import canonical, scenario_hash
from truenorth.models.instance import NEVER, InstanceError
from truenorth.models.metrics import measure
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.models.scenario.plan_file import TimelineHeader, read_timeline, timeline_document, write_timeline
from truenorth.models.scenario.writing import document_of


def _rules(instance: Instance, runs: list[Placement], *stays: Residency) -> set[str]:
    timeline = Timeline.build(instance.n_tasks, runs, stays)
    found = {violation.rule for violation in check(instance, timeline)}
    broken = broken_rules(instance, timeline)
    # Of two stays of a model that overlap the checker asks the later one alone.
    unsure = {"R3"} if "R4" in broken else set()
    assert found - unsure == broken - unsure
    return found


def test_a_place_loads_parts_and_has_room_for_what_no_gpu_has() -> None:
    # 11 bytes are 6 on each of two GPUs and 3 on each of four; a byte takes 1 us. One GPU has 10 bytes.
    made = window(job(2, 5, "m"), job(4, 5, "m"), models={"m": 11}, held=4)
    pair, four = made.places.number[0, 1], made.places.number[0, 1, 2, 3]
    assert [made.load_time(0, place) for place in (0, pair, four)] == [NEVER, 6, 3]
    assert [made.held_bytes(0, place) for place in (0, pair, four)] == [11, 6, 3]
    assert made.model_places(0, pair) == (pair,)
    with pytest.raises(InstanceError, match=r"its models \(m: 11 bytes\) fit no eligible GPU together"):
        window(job(2, 5, "m", copies=True), models={"m": 11})
    with pytest.raises(InstanceError, match=r"its models \(m: 11 bytes on each of 2 GPUs\) fit no eligible"):
        window(job(2, 5, "m"), models={"m": 21})
    assert window(job(2, 5, "m", copies=True), models={"m": 9}).model_places(0, 2) == (0, 1)


def test_slower_gpus_of_a_place_are_waited_for() -> None:
    made = window(job(2, 5, "m"), models={"m": 11})
    slow = replace(made.cluster.gpus[1], load_overhead_us=4)
    made = replace(made, cluster=replace(made.cluster, gpus=(made.cluster.gpus[0], slow)))
    assert made.load_time(0, 2) == 10


def test_a_run_needs_its_models_on_exactly_its_place_or_copies_on_each_gpu() -> None:
    made = window(job(2, 5, "m"), models={"m": 8}, held=4)
    pair, other = made.places.number[0, 1], made.places.number[2, 3]
    run = [Placement(0, pair, 4, 9)]
    assert _rules(made, run, Residency(0, pair, 0, 4)) == set()
    assert _rules(made, run, Residency(0, pair, 0, 4, 9)) == set()
    assert _rules(made, run, Residency(0, pair, 0, 4, 8)) == {"R3"}
    assert _rules(made, run, Residency(0, pair, 1, 5)) == {"R3"}
    assert _rules(made, run, Residency(0, other, 0, 4)) == {"R3"}
    late = [Placement(0, pair, 8, 13)]
    assert _rules(made, late, Residency(0, 0, 0, 8), Residency(0, 1, 0, 8)) == {"R3"}  # whole, where parts are needed
    copied = window(job(2, 5, "m", copies=True), models={"m": 8})
    assert _rules(copied, [Placement(0, 2, 8, 13)], Residency(0, 0, 0, 8), Residency(0, 1, 0, 8)) == set()
    assert _rules(copied, [Placement(0, 2, 8, 13)], Residency(0, 0, 0, 8)) == {"R3"}
    assert _rules(copied, [Placement(0, 2, 8, 13)], Residency(0, 0, 0, 8), Residency(0, 1, 1, 9)) == {"R3"}
    assert _rules(copied, [Placement(0, 2, 8, 13)], Residency(0, 2, 0, 4)) == {"R3"}


def test_a_single_run_is_not_served_by_a_part() -> None:
    made = window(job(2, 5, "m"), job(1, 2, "m"), models={"m": 8})
    parts = Residency(0, 2, 0, 4)
    assert _rules(made, [Placement(0, 2, 4, 9), Placement(1, 0, 9, 11)], parts) == {"R3"}
    again = replace(parts, end_us=9), Residency(0, 0, 9, 17)
    assert _rules(made, [Placement(0, 2, 4, 9), Placement(1, 0, 17, 19)], *again) == set()


def test_loads_memory_and_models_are_those_of_every_gpu() -> None:
    models = {"m": 8, "n": 8, "o": 3}
    made = window(job(2, 5, "m"), job(2, 5, "n"), job(1, 1, "o"), models=models, memory=8)
    runs = [Placement(0, 2, 4, 9), Placement(1, 2, 9, 14), Placement(2, 1, 20, 21)]
    m, n, o = Residency(0, 2, 0, 4, 9), Residency(1, 2, 4, 8), Residency(2, 1, 8, 11)
    assert _rules(made, runs, m, n, replace(o, load_start_us=9, ready_us=12)) == set()
    assert _rules(made, runs, m, n, o) == {"R2"}  # 4 + 4 + 3 bytes on GPU 1 from 8 to 9
    assert _rules(made, runs, m, replace(n, load_start_us=3, ready_us=7), Residency(2, 1, 9, 12)) == {"R1"}
    assert _rules(made, runs, m, n, Residency(2, 1, 9, 12), Residency(0, 0, 14, 22)) == {"R2"}
    assert _rules(made, runs, m, n, Residency(2, 1, 9, 13)) == {"R1"}
    assert _rules(made, runs, replace(m, end_us=3), n, Residency(2, 1, 9, 12)) == {"R1", "R3"}


def test_no_model_touches_a_gpu_twice_whatever_the_place() -> None:
    made = window(job(2, 5, "m"), models={"m": 2}, held=3, rule="any")
    one, other = made.places.number[0, 1], made.places.number[1, 2]
    run = [Placement(0, one, 4, 9)]
    assert _rules(made, run, Residency(0, one, 0, 1), Residency(0, 2, 0, 2)) == set()
    assert _rules(made, run, Residency(0, one, 0, 1), Residency(0, other, 1, 2)) == {"R4"}
    assert _rules(made, run, Residency(0, one, 0, 1), Residency(0, 1, 1, 3)) == {"R4"}
    assert _rules(made, run, Residency(0, one, 0, 1, 9), Residency(0, other, 9, 10)) == set()


def test_with_overlap_off_a_load_occupies_every_gpu_of_its_place() -> None:
    made = replace(window(job(2, 5, "m"), job(1, 9), models={"m": 8}), overlap_loads=False)
    stay, run = Residency(0, 2, 0, 4), Placement(0, 2, 20, 25)
    for start_us, rules in ((3, ["R5"]), (4, [])):
        timeline = Timeline.build(2, [run, Placement(1, 1, start_us, start_us + 9)], [stay])
        assert [violation.rule for violation in check(made, timeline)] == rules


def test_a_load_counts_once_with_the_bytes_of_all_parts() -> None:
    made = window(job(2, 5, "m"), job(2, 5, "m"), models={"m": 7})
    timeline = Timeline.build(2, [Placement(0, 2, 4, 9), Placement(1, 2, 9, 14)], [Residency(0, 2, 0, 4)])
    found = measure(made, timeline)
    assert (found.loads, found.load_bytes, found.evictions, found.hit_rate) == (1, 8, 0, 0.5)
    assert found.copy_busy == 8 / 28  # 4 us on both engines, of 14 us
    copied = window(job(2, 5, "m", copies=True), job(1, 5, "m"), models={"m": 7})
    stays = [Residency(0, 0, 0, 7), Residency(0, 1, 0, 7)]
    found = measure(copied, Timeline.build(2, [Placement(0, 2, 7, 12), Placement(1, 1, 12, 17)], stays))
    assert (found.loads, found.load_bytes, found.hit_rate) == (2, 14, 0.5)


SCENARIO = """
cluster:
  servers: 1
  gpus_per_server: 2
  gpu: {kind: A, memory: 10 B, load_bandwidth: 1 MB/s}
  network: {bandwidth: 1 MB/s}
models: {m: {weights: 12 B}}
workflows:
  w: {tasks: {run: {models: [m], TASK}}}
workload: {jobs: [{release: 0 us, workflow: w}]}
objective: makespan
"""


def _read(text: str) -> Scenario:
    return scenario_from(yaml.safe_load(text))


def test_the_file_says_how_weights_lie_and_is_written_back() -> None:
    split = _read(SCENARIO.replace("TASK", "runtime: 5 us, gpus: 2")).instance
    assert [bool(split.split[0, kind]) for kind in split.place_class] == [False, False, True]
    assert "weights" not in canonical(split)["workflows"][0][1][0][-1]
    small = SCENARIO.replace("12 B", "9 B")
    copied = _read(small.replace("TASK", "runtime: 5 us, gpus: 2, weights: copy")).instance
    assert not copied.split.any()
    assert canonical(copied)["workflows"][0][1][0][-1] == {"gpus": 2, "weights": "copy"}
    modes = "modes: [{gpus: 1, runtime: 9 us}, {gpus: 2, runtime: 5 us, weights: copy}]"
    chosen = _read(small.replace("TASK", modes)).instance
    for made in (split, copied, chosen):
        again = scenario_from({**document_of(made), "objective": "makespan"}).instance
        assert scenario_hash(again) == scenario_hash(made)
    with pytest.raises(InputError, match=r"models\.m\.weights: 22 bytes, split over 2 GPUs 11, are larger than every"):
        _read(SCENARIO.replace("12 B", "22 B").replace("TASK", "runtime: 5 us, gpus: 2"))
    with pytest.raises(InputError, match=r"run\.weights: is copy; allowed is that of a task on several gpus"):
        _read(small.replace("TASK", "runtime: 5 us, weights: copy"))


def test_plan_files_name_every_gpu_of_a_residency(tmp_path: Path) -> None:
    made = window(job(2, 5, "m"), models={"m": 7})
    timeline = Timeline.build(1, [Placement(0, 2, 4, 9)], [Residency(0, 2, 0, 4)])
    document = timeline_document(made, timeline, TimelineHeader())
    assert document["residencies"][0]["gpu"] == ["s0/g0", "s0/g1"]
    write_timeline(tmp_path / "plan.json", made, timeline, TimelineHeader())
    assert read_timeline(tmp_path / "plan.json", made).timeline.residencies == timeline.residencies


@pytest.mark.parametrize("seed", range(15))
def test_the_checker_finds_what_a_look_at_every_microsecond_finds(seed: int) -> None:
    rng = random.Random(seed)
    made = draw(rng)
    for _ in range(20):
        runs = []
        for task in range(made.n_tasks):
            place, start = rng.choice(made.eligible_places(task)), made.jobs[task].release_us + rng.randint(0, 12)
            runs.append(Placement(task, place, start, start + made.run_time(task, place)))
        pairs = product(range(len(made.models)), range(len(made.places.gpus)))
        able = [(model, place) for model, place in pairs if made.load_time(model, place) != NEVER]
        stays = []
        for model, place in rng.choices(able, k=rng.randint(0, 4)) if able else ():
            start = rng.randint(0, 12)
            ready = start + made.load_time(model, place)
            stays.append(Residency(model, place, start, ready, rng.choice((None, ready + rng.randint(0, 9)))))
        _rules(made, runs, *stays)
