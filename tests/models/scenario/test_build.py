"""Good scenario files: what they become."""

import json
import math
import random
import re
from fractions import Fraction
from pathlib import Path

import pytest

from experiments import authors
from tests.models.scenario.small import GPU, JOBS, SMALL, changed, loaded
from truenorth.models import InitialResidency, Instance, Objective, scenario_hash
from truenorth.models.identity import canonical
from truenorth.models.scenario import build, load_scenario, scenario_from

ROOT = Path(__file__).parents[3]
COMPASS = ROOT / "experiments" / "scenarios" / "compass_edge.yaml"
HOUSE = ROOT.parent / "shared" / "HOUSE.md"
END = "objective: mean_latency"
TWO_GROUPS = """\
  groups:
    - {count: 2, gpus_per_server: 2, price_per_hour: 0.9, gpu: {kind: T4, slots: [6 GB, 4 GB, 8 GB],
       load_bandwidth: 1 GB/s}}
    - {count: 1, gpu: {kind: A10, memory: 24 GB, load_bandwidth: 8 Gbit/s, load_overhead: 1.5 ms}}
"""


def two_groups() -> str:
    old = SMALL[SMALL.index("  servers") : SMALL.index("  network")]
    return changed(old, TWO_GROUPS).replace("{T4: 27 ms}", "{T4: 27 ms, A10: 9 ms, H100: 1 ms}")


def test_small_scenario_in_every_value(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, SMALL)
    assert (scenario.name, scenario.objective, scenario.slo) == ("small", Objective.MEAN_LATENCY, None)
    assert [group.price_per_hour for group in scenario.document.cluster.server_groups] == [None]
    assert canonical(scenario.instance) == {
        "gpus": [
            ["s0/g0", 0, "T4", 14_000_000_000, [], 10_000_000_000, 0],
            ["s1/g0", 1, "T4", 14_000_000_000, [], 10_000_000_000, 0],
        ],
        "network": [[2, 10_000_000_000], [2, 10_000_000_000], False],
        "models": [["opt", 6_000_000_000], ["nli", 2_000_000_000]],
        "workflows": [
            ["qa", [["opt", {"*": 560_000}, ["opt"], []], ["nli", {"T4": 27_000}, ["nli"], [["opt", 2_000]]]]]
        ],
        # By release, not by line.
        "jobs": [[0, 0, 1, None, None], [0, 5_000, "5/2", 2_000_000, 1]],
        "options": {"overlap_loads": True, "initial": []},
        "restrictions": {"model_gpus": {}, "workflow_gpus": {}, "max_replicas": {}, "no_swaps": False},
    }


def test_authors_workload() -> None:
    instance = load_scenario(COMPASS).instance
    assert len(instance.jobs) == 20
    # Their table, added up by hand: translation 561 + 441 + 778 + 803 + 1 ms, question_answer 560 + 27, img_to_sound
    # 283 + 26 + 76 + 0.2, object_detection 0.6 + 178 + 147 + 104.
    work = {of.name: sum(task.fastest_us for task in of.tasks) for of in instance.catalogue}
    names = ("translation", "question_answer", "img_to_sound", "object_detection")
    assert work == dict(zip(names, (2_584_000, 587_000, 385_200, 429_600), strict=True))
    assert sum(work.values()) / 4e6 == pytest.approx(authors.WORK_PER_JOB_S, abs=1e-3)
    # The longest ways: 561 + 803 + 1, 560 + 27, 283 + 76 + 0.2, 0.6 + 178 + 104 ms.
    longest = [of.critical_path_us for of in instance.catalogue]
    assert longest == [1_365_000, 587_000, 359_200, 282_600]
    # 5.72 GB at 10.17 GB/s; 2 KB staged: 2 us, and 2,000 B at 12.58 and twice 10.17 GB/s, under a microsecond.
    opt, first = instance.models[0], instance.cluster.gpus[0]
    assert (opt.name, first.load_us(opt.weight_bytes)) == ("opt", 562_439)
    assert instance.cluster.network.transfer_us(2_000, first, first, False) == 3


@pytest.mark.skipif(not HOUSE.exists(), reason="shared/ is not beside this clone")
def test_sample_of_the_format(tmp_path: Path) -> None:
    text = HOUSE.read_text()
    sample = text[text.index("    name: compass-edge") :].split("\n\n")[0]
    text = re.sub("^    ", "", sample, flags=re.MULTILINE)
    scenario = loaded(tmp_path, text)
    assert scenario.document.streams["chat"].kinds["H100"].step == {1: 12_500, 64: 40_000}
    assert scenario.name == "compass-edge"
    assert scenario.objective is Objective.MEAN_SLOWDOWN
    assert scenario.slo is not None
    assert scenario.slo.levels[0].share == Fraction(99, 100)
    assert scenario.instance.initial == (InitialResidency(0, 0),)
    limits = scenario.instance.restrictions
    # `group 1` is the first and only group.
    assert limits.model_gpus == {"opt": frozenset(range(5))}
    assert limits.workflow_gpus == {"question_answer": frozenset({0, 2, 3, 4})}
    assert limits.max_replicas == {"nli": 2}


def test_defaults(tmp_path: Path) -> None:
    text = SMALL.replace("name: small\n", "").replace("objective: mean_latency\n", "")
    scenario = loaded(tmp_path, text, "edge.yaml")
    assert (scenario.name, scenario.objective) == ("edge", Objective.MEAN_SLOWDOWN)
    assert scenario.instance.overlap_loads
    one = changed("servers: 2", "servers: 1").replace("  network: {bandwidth: 10 GB/s, latency: 2 us}\n", "")
    assert len(loaded(tmp_path, one.replace("ingress: s1", "ingress: s0")).instance.cluster.gpus) == 1


def test_groups_number_servers_in_file_order(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, two_groups())
    gpus = scenario.instance.cluster.gpus
    assert [gpu.id for gpu in gpus] == ["s0/g0", "s0/g1", "s1/g0", "s1/g1", "s2/g0"]
    assert [gpu.kind for gpu in gpus] == ["T4"] * 4 + ["A10"]
    assert gpus[0].slots == (6_000_000_000, 4_000_000_000, 8_000_000_000)
    assert gpus[0].memory_bytes == 18_000_000_000
    assert (gpus[4].load_bandwidth, gpus[4].load_overhead_us) == (Fraction(10**9), 1_500)
    assert [group.price_per_hour for group in scenario.document.cluster.server_groups] == [Fraction(9, 10), None]


def test_places_of_restrictions(tmp_path: Path) -> None:
    limits = """\
restrictions:
  pin: [{model: opt, on: [s0/g1, group 2]}, {workflow: qa, on: [s0, s2]}]
  forbid: [{workflow: qa, on: [s0/g0]}, {model: nli, on: [group 2]}, {model: nli, on: [s1]}]
  max_replicas: {nli: 3}
  no_swaps: true
"""
    found = loaded(tmp_path, two_groups() + limits).instance.restrictions
    assert found.model_gpus == {"opt": frozenset({1, 4}), "nli": frozenset({0, 1})}
    assert found.workflow_gpus == {"qa": frozenset({1, 4})}
    assert (found.max_replicas, found.no_swaps) == ({"nli": 3}, True)


def test_initial_residency_takes_the_smallest_free_slot(tmp_path: Path) -> None:
    # Slots of 6, 4 and 8 GB; nli (2 GB) asks for slot 1 by number, so opt (6 GB) gets slot 0; on s0/g1 nli gets slot 1.
    options = """\
options:
  overlap_loads: false
  initial_residency: [{gpu: s0/g0, model: opt}, {gpu: s0/g0, model: nli, slot: 1}, {gpu: s0/g1, model: nli}]
"""
    instance = loaded(tmp_path, two_groups() + options).instance
    assert instance.initial == (InitialResidency(0, 0, 0), InitialResidency(0, 1, 1), InitialResidency(1, 1, 1))
    assert not instance.overlap_loads


@pytest.mark.parametrize(
    ("after", "size"),
    [("[opt]", 2_000), ("{opt: null}", 2_000), ("{opt: }", 2_000), ("{opt: 18 MB}", 18_000_000), ("{opt: 0 B}", 0)],
)
def test_bytes_of_an_edge(tmp_path: Path, after: str, size: int) -> None:
    workflow = loaded(tmp_path, changed("after: [opt]", f"after: {after}")).instance.workflows[0]
    assert workflow.tasks[1].inputs[0].size_bytes == size


@pytest.mark.parametrize(
    ("within", "latency", "bandwidth"),
    [("{}", 2, 10**10), ("{latency: 1 us}", 1, 10**10), ("{bandwidth: 25 GB/s, latency: 5 us}", 5, 25 * 10**9)],
)
def test_within_a_server_defaults_to_between(tmp_path: Path, within: str, latency: int, bandwidth: int) -> None:
    text = changed("latency: 2 us}", f"latency: 2 us, staged: true, within_server: {within}}}")
    network = loaded(tmp_path, text).instance.cluster.network
    assert (network.within.latency_us, network.within.bandwidth) == (latency, Fraction(bandwidth))
    assert (network.between.latency_us, network.staged) == (2, True)


def test_quantities_are_exact(tmp_path: Path) -> None:
    # 0.1 + 0.2 trouble, exponents and halves: 1000.5 us rounds up; 1e-3 without a dot stays a number.
    text = changed("560 ms", "1.0005 ms").replace("27 ms", "1e-3 s").replace("release: 5 ms", "release: 0.3 ms")
    instance = loaded(tmp_path, text).instance
    tasks = instance.workflows[0].tasks
    assert (tasks[0].runtime_us["*"], tasks[1].runtime_us["T4"], instance.jobs[1].release_us) == (1001, 1000, 300)


def test_equal_releases_keep_file_order(tmp_path: Path) -> None:
    jobs = "".join(
        f"    - {{release: {r} us, workflow: qa, weight: {w}}}\n" for r, w in [(5, 1), (0, 2), (5, 3), (0, 4)]
    )
    made = loaded(tmp_path, changed(JOBS, f"  jobs:\n{jobs}")).instance.jobs
    assert [(job.release_us, int(job.weight)) for job in made] == [(0, 2), (0, 4), (5, 1), (5, 3)]


def test_json_is_the_same_scenario(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, SMALL)
    data = json.loads(json.dumps(scenario.source.root.data()))  # type: ignore[union-attr]
    data["workload"]["jobs"][0]["weight"] = 2.5
    data["cluster"]["servers"] = 2
    for indent in (None, 2, "\t"):
        twin = loaded(tmp_path, json.dumps(data, indent=indent), "scenario.json")
        assert scenario_hash(twin.instance) == scenario_hash(scenario.instance)
    assert scenario_hash(scenario_from(data).instance) == scenario_hash(scenario.instance)


def test_changed_document_builds_again(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, SMALL)
    cluster = scenario.document.cluster.model_copy(update={"servers": 4})
    bigger = build(scenario.document.model_copy(update={"cluster": cluster}), scenario.source)
    assert [gpu.id for gpu in bigger.instance.cluster.gpus] == ["s0/g0", "s1/g0", "s2/g0", "s3/g0"]
    assert bigger.instance.jobs == scenario.instance.jobs


def test_anchors_and_names_that_look_like_something_else(tmp_path: Path) -> None:
    text = changed("opt: {weights: 6 GB}", "no: &size {weights: 6 GB}\n  123: *size").replace(
        "[opt], runtime", "[no, '123'], runtime"
    )
    instance = loaded(tmp_path, text).instance
    assert [model.name for model in instance.models] == ["no", "123", "nli"]
    assert instance.workflows[0].tasks[0].models == ("no", "123")


def poisson(tmp_path: Path, text: str) -> Instance:
    return loaded(tmp_path, changed(JOBS, f"  poisson: {{{text}}}\n")).instance


def test_poisson_is_seeded_and_extends(tmp_path: Path) -> None:
    long = [job.release_us for job in poisson(tmp_path, "rate: 2 /s, jobs: 400, seed: 1").jobs]
    assert [job.release_us for job in poisson(tmp_path, "rate: 120 /min, jobs: 30, seed: 1").jobs] == long[:30]
    assert [job.release_us for job in poisson(tmp_path, "rate: 2 /s, jobs: 400, seed: 2").jobs] != long
    # Twice the rate halves every release, up to rounding.
    fast = [job.release_us for job in poisson(tmp_path, "rate: 4 /s, jobs: 400, seed: 1").jobs]
    assert max(abs(2 * a - b) for a, b in zip(fast, long, strict=True)) <= 2
    # 400 gaps of mean 0.5 s: the sum lies within four standard deviations (10 s) of 200 s.
    assert abs(long[-1] - 200e6) < 40e6
    # By the definition: -ln(1 - u) / rate for the first, third and fifth uniform number; the others draw workflows.
    uniform = random.Random(1)
    draws = [uniform.random() for _ in range(6)]
    gaps = [-math.log(1 - u) / 2 for u in draws[::2]]
    assert long[:3] == [72_146, 793_630, 1_135_659] == [round(sum(gaps[: k + 1]) * 1e6) for k in range(3)]


def test_poisson_mix_is_relative(tmp_path: Path) -> None:
    twin = SMALL[SMALL.index("  qa:") : SMALL.index("workload")].replace("qa", "qb", 1)
    text = changed(JOBS, "  poisson: {rate: 1 /s, jobs: 2000, mix: {qb: 1.5, qa: 0.5}}\n").replace(
        "workload", twin + "workload"
    )
    names = [job.workflow.name for job in loaded(tmp_path, text).instance.jobs]
    # 1500 expected with a standard deviation of 19.4.
    assert abs(names.count("qb") - 1500) < 80
    only = loaded(tmp_path, text.replace("qa: 0.5", "qa: 0")).instance
    assert {job.workflow.name for job in only.jobs} == {"qb"}


def test_slots_in_place_of_memory(tmp_path: Path) -> None:
    gpu = loaded(tmp_path, changed(GPU, "kind: T4, slots: [6 GB, 2 GB]")).instance.cluster.gpus[0]
    assert gpu.slots == (6_000_000_000, 2_000_000_000)


def test_the_catalogue_is_what_is_written_and_no_part_of_the_window(tmp_path: Path) -> None:
    # A workflow that no job asks for is known beforehand, and changes neither the hash nor the window's workflows.
    more = changed("workload:\n", "  idle:\n    tasks:\n      t: {models: [nli], runtime: 5 ms}\nworkload:\n")
    plain, listed = loaded(tmp_path, SMALL).instance, loaded(tmp_path, more).instance
    assert [workflow.name for workflow in listed.catalogue] == ["qa", "idle"]
    assert [workflow.name for workflow in listed.workflows] == ["qa"]
    assert scenario_hash(plain) == scenario_hash(listed)
    assert plain == listed
