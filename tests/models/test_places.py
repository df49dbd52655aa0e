"""Places: which sets of GPUs runs take, in what order, and what the checker says of runs on them (rule G1)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.gangs import job, servers, window
from tests.instances import gpu, instance, network, task
from truenorth.models import Cluster, InstanceError, Job, Timeline, Workflow, check
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.features import Feature, features_of
from truenorth.models.identity import canonical, scenario_hash
from truenorth.models.metrics import measure
from truenorth.models.places import Places
from truenorth.models.torn import torn


def test_aligned_places_follow_the_gpus_by_size_and_server() -> None:
    # Two servers of four: pairs 01 23 | 45 67, triples floor(4 / 3) = 1 each, whole servers, both together.
    places = Places.of(servers(2, 4), [1, 2, 3, 4, 8])
    assert places.gpus[8:] == (
        *((0, 1), (2, 3), (4, 5), (6, 7)),
        *((0, 1, 2), (4, 5, 6)),
        *((0, 1, 2, 3), (4, 5, 6, 7)),
        (0, 1, 2, 3, 4, 5, 6, 7),
    )
    assert places.gpus[:8] == tuple((index,) for index in range(8))


def test_any_places_are_all_sets_of_a_server_and_aligned_groups_of_servers() -> None:
    places = Places.of(servers(3, 2, "any"), [2, 4])
    # 3 servers of 2 choose 2 = 1; two servers together fit once among three.
    assert places.gpus[6:] == ((0, 1), (2, 3), (4, 5), (0, 1, 2, 3))
    assert len(Places.of(servers(1, 8, "any"), [4]).gpus) == 8 + 70


def test_groups_of_servers_do_not_cross_groups() -> None:
    gpus = tuple(gpu(index, index, group=int(index >= 3)) for index in range(6))
    # Three servers each: pairs 01 and 34; 2 and 5 stay alone.
    assert Places.of(Cluster(gpus, network()), [2]).gpus[6:] == ((0, 1), (3, 4))


def test_listed_places_are_those_and_no_others() -> None:
    assert Places.of(servers(1, 4, ((0, 2), (1, 3))), [2, 3]).gpus[4:] == ((0, 2), (1, 3))
    with pytest.raises(InstanceError, match="of one kind"):
        Places.of(servers(2, 1, ((0, 1),), "AB"), [2])


def test_too_many_places_are_refused_with_their_count() -> None:
    with pytest.raises(InstanceError, match="12870 places; allowed are 10000"):
        Places.of(servers(1, 16, "any"), [8])


def test_members_are_the_gpus_of_each_place() -> None:
    places = Places.of(servers(1, 4), [2])
    each, gpus = places.members(np.array([5, 1], np.int64))
    assert (each.tolist(), gpus.tolist()) == ([0, 0, 1], [2, 3, 1])


def test_run_times_are_those_of_the_kind_longer_across_servers() -> None:
    made = window(job(2, {"A": 10, "B": 20}), job(4, {"A": 10}, across=Fraction(13, 10)), on=servers(3, 2, kinds="AAB"))
    two, four = made.task_template.tolist()
    by_place = {made.places.gpus[place]: made.run_time(0, place) for place in made.eligible_places(0)}
    assert by_place == {(0, 1): 10, (2, 3): 10, (4, 5): 20}
    assert {made.places.gpus[place]: made.run_time(1, place) for place in made.eligible_places(1)} == {(0, 1, 2, 3): 13}
    assert made.template_gpus[[two, four]].tolist() == [2, 4]


def test_what_several_gpus_cannot_have_yet_is_refused() -> None:
    pair = job(2, 5)
    with pytest.raises(InstanceError, match="there is no place of 3 GPUs"):
        window(job(3, 5), on=servers(2, 2))
    loaded, slotted = replace(task("run", 5, ["m"]), gpus=2), servers(1, 2)
    slotted = replace(slotted, gpus=tuple(replace(gpu, memory_bytes=4, slots=(2, 2)) for gpu in slotted.gpus))
    with pytest.raises(InstanceError, match="takes 2 GPUs and needs models, and GPUs have slots"):
        instance([Job(Workflow("w", (loaded,)), 0)], {"m": 1}, slotted)
    assert features_of(window(pair, on=servers(1, 2))) == [Feature.GANGS]


def test_gpus_of_runs_belong_to_the_identity_and_windows_without_keep_theirs() -> None:
    alone = window(job(1, 5), on=servers(1, 2))
    assert "places" not in canonical(alone)
    assert scenario_hash(alone) == scenario_hash(window(job(1, 5), on=servers(1, 2, "any")))
    pair = window(job(2, 5), on=servers(1, 2))
    assert canonical(pair)["places"] == [[0, 1]]
    assert canonical(pair)["workflows"][0][1][0][-1] == {"gpus": 2}


def _timeline(places: list[int], starts: list[int], ends: list[int]) -> Timeline:
    return Timeline(np.array(places), np.array(starts), np.array(ends), ())


def test_runs_on_common_gpus_may_not_overlap() -> None:
    made = window(job(2, 5), job(1, 5), on=servers(1, 4))
    pair = made.places.number[0, 1]
    assert check(made, _timeline([pair, 2], [0, 0], [5, 5])) == []
    violations = check(made, _timeline([pair, 1], [0, 3], [5, 8]))
    assert [(v.rule, v.found, v.allowed) for v in violations] == [("T3", 3, 5)]


def test_a_run_takes_places_of_its_size_only() -> None:
    made = window(job(2, 5), job(4, 5), on=servers(1, 4))
    found = check(made, _timeline([made.places.number[0, 1, 2, 3], made.places.number[0, 1, 2, 3]], [0, 5], [5, 10]))
    assert [(v.rule, v.found) for v in found] == [("T1", "s0/g0 s0/g1 s0/g2 s0/g3")]


def test_busy_time_counts_every_gpu_of_a_run() -> None:
    made = window(job(2, 6), job(1, 3), on=servers(1, 4))
    measured = measure(made, _timeline([made.places.number[0, 1], 2], [0, 0], [6, 3]))
    # 2 x 6 + 3 of 4 x 6 GPU-microseconds; three GPUs ran something.
    assert (measured.compute_busy, measured.gpus_used) == (15 / 24, 3)


def test_the_torn_twin_has_a_run_on_each_gpu_and_the_ideal_times_of_the_window() -> None:
    made = window(job(2, {"A": 6, "B": 9}), job(1, 3), on=servers(2, 2, kinds="AB"))
    twin = torn(made)
    assert [len(each.tasks) for each in twin.workflows] == [2, 1]
    assert twin.workflows[0].tasks[0].runtime_us == {"A": 6, "B": 9}
    assert twin.job_ideal_us.tolist() == made.job_ideal_us.tolist() == [6, 3]
    assert torn(twin) is twin


def test_every_gpu_of_a_run_has_to_be_there() -> None:
    late = Availability.of([(3, 9), (12, FOREVER)])
    on = servers(2, 2)
    on = replace(on, gpus=(*on.gpus[:2], *(replace(gpu, available=late) for gpu in on.gpus[2:])))
    made = window(job(4, 6), job(2, 2), on=on)
    four, pair = made.places.number[0, 1, 2, 3], made.places.number[2, 3]
    assert check(made, _timeline([four, pair], [3, 12], [9, 14])) == []
    early = check(made, _timeline([four, pair], [4, 1], [10, 3]))
    assert [(v.rule, v.subject.split()[1], v.found, v.allowed) for v in early] == [
        ("A1", "0", "[4, 10)", "inside [3, 9)"),
        ("A1", "0", "[4, 10)", "inside [3, 9)"),
        ("A1", "1", "[1, 3)", "inside [3, 9)"),
        ("A1", "1", "[1, 3)", "inside [3, 9)"),
    ]
    # Of what happened the start and the given time count.
    realised = replace(_timeline([four, pair], [3, 12], [11, 14]), realised=True)
    assert check(made, realised) == []
