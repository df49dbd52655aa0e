"""Floors for requests, computed again: what `servers` writes is accepted, forgeries are not, none lies above a plan."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truenorth as tn
from tests.night import by_day
from tests.streams.test_optimum import tiny
from tests.streams.worlds import POLICIES, random_chats, random_steps
from truenorth.executor import parse_policy, simulate
from truenorth.models import Instance, ServiceLevels
from truenorth.models.scenario import Scenario, load_scenario, scenario_from
from truenorth.planner.answers.servers.answer import write
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.floor_certificate import verify_floor
from truenorth.planner.answers.servers.streams import limits
from truenorth.planner.answers.verify import verify_file
from truenorth.solvers.bounds.floor_recomputed import asked_and_offered
from truenorth.solvers.bounds.stream_floor import WAYS, StreamFloor

TWO_KINDS = """\
cluster:
  groups:
  - {count: 9, gpu: {kind: A, memory: 80 GB, load_bandwidth: 50 GB/s}, price_per_hour: 1}
  - {count: 5, gpu: {kind: B, memory: 80 GB, load_bandwidth: 50 GB/s}, price_per_hour: 2}
  network: {bandwidth: 1 GB/s}
streams:
  s:
    prefill: {A: 3000 /s, B: 1000 /s}
    chunk: 3000
    concurrency: 1
    step: {A: {1: 30 ms}, B: {1: 10 ms}}
    kv_per_token: 1 KB
workflows: {w: {tasks: {r: {stream: s}}}}
workload:
  jobs: [JOBS]
slo: SLO
"""
"""Nodes serve a request at a time; prompts of 300 take 100 and 300 ms, answers of 10 more tokens 300 and 100 ms."""


def two_kinds(folder: Path, slo: str) -> Scenario:
    jobs = [f"{{release: 0 s, workflow: w, tokens: {{r: {each}}}}}" for each in ([300, 300, 1], [1, 1, 11])] * 26
    path = folder / "two.yaml"
    path.write_text(TWO_KINDS.replace("JOBS", ", ".join(jobs)).replace("SLO", slo))
    return load_scenario(path)


def refuted(folder: Path, slo: str) -> tuple[Scenario, dict[str, Any]]:
    """Return the scenario of a size that is too small, and its certificate, both as `servers` writes them."""
    answer = tn.servers(two_kinds(folder, slo), policies=["least_requests"], time_limit=30)
    write(answer, folder)
    assert answer.record().refutation.recomputable  # type: ignore[union-attr]
    return load_scenario(folder / "too_few.json"), json.loads((folder / "certificate.json").read_text())


@pytest.mark.parametrize("slo", ["p100 latency <= 1 s", "p100 first token <= 1 s", "p75 latency <= 1 s"])
def test_what_servers_refutes_is_computed_again(slo: str, tmp_path: Path) -> None:
    scenario, document = refuted(tmp_path, slo)
    assert document["method"] == "stream_floor"
    verdict = verify_file(scenario, tmp_path / "certificate.json")
    assert (verdict.valid, verdict.how) == (True, f"no plan meets {slo}")
    assert tn.verify(scenario, document).valid


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scenario, dict[str, Any]]:
    return refuted(tmp_path_factory.mktemp("floor"), "p100 latency <= 1 s")


Forge = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lambda d: d["parameters"].update(end_us=10**9), "of what the GPUs offer there"),
        (lambda d: d["parameters"].update(end_us=0), "end_us must be a whole number from 1"),
        (lambda d: d["parameters"].update(begin_us=True), "begin_us must be a whole number"),
        (lambda d: d["parameters"].update(begin_us=1), "ask for 0 of what"),
        (lambda d: d["parameters"].update(weights=[1.0]), "weights must be a list of"),
        (lambda d: d["parameters"].update(weights=[0] * len(d["parameters"]["weights"])), "numbers above 0"),
        (lambda d: d["parameters"].update(weights=[float("inf")] * len(d["parameters"]["weights"])), "above 0"),
        (lambda d: d["parameters"].update(weights=[float("nan")] * len(d["parameters"]["weights"])), "above 0"),
        (lambda d: d["parameters"].update(weights=[-1] * len(d["parameters"]["weights"])), "numbers above 0"),
        (lambda d: d["parameters"].update(way=["energy"]), "way must be one of"),
        (lambda d: d["parameters"].update(way="haste"), "way must be one of"),
        (lambda d: d.update(parameters=[]), "way is missing"),
        (lambda d: d.update(slo=["p100 latency <= 60 s"]), "of what the GPUs offer there"),
        (lambda d: d.update(slo=[]), "there is no service level"),
        (lambda d: d.update(slo=["p100 latency"]), "is no service level"),
        (lambda d: d.update(slo=[17]), "is no service level"),
        (lambda d: d.update(slo="p100 latency <= 1 s"), "slo must be a list"),
        (lambda d: d.update(slo=["p100 latency of nobody <= 1 s"]), "nobody"),
        (lambda d: d.update(scenario_hash="0"), "belongs to another scenario"),
        (lambda d: d.update(schema_version=2), "schema_version must be"),
    ],
)
def test_forged_floors_are_refused(forge: Forge, reason: str, written: tuple[Scenario, dict[str, Any]]) -> None:
    scenario, document = written[0], copy.deepcopy(written[1])
    forge(document)
    verdict = verify_floor(scenario, document)
    assert not verdict.valid
    assert reason in str(verdict.reason)


def test_without_requests_nothing_is_asked() -> None:
    data = {
        "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 GB", "load_bandwidth": "1 GB/s"}}
        | {"network": {"bandwidth": "1 GB/s"}},
        "workflows": {"w": {"tasks": {"r": {"runtime": "1 s"}}}},
        "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
    }
    scenario = scenario_from(data)
    parameters = {"way": "energy", "begin_us": 0, "end_us": 1, "weights": [1.0]}
    limit = limits(tiny(random.Random(0)), ServiceLevels.parse("p100 latency <= 1 s"))[0]
    with pytest.raises(ValueError, match="has no requests"):
        asked_and_offered(scenario.instance, limit, parameters)


def drawn(rng: random.Random) -> tuple[Instance, ServiceLevels]:
    """Return few requests of any sort, and levels near what they need."""
    measured = rng.random() < 0.5
    instance = rng.choice(
        (
            lambda: tiny(rng, measured),
            lambda: random_chats(rng, 12, 2, measured),
            lambda: random_steps(rng, 6, measured),
        )
    )()
    ran = simulate(instance, parse_policy("least_tokens"))
    latency = np.sort(np.maximum.reduceat(ran.end_us, instance.job_first_task[:-1]) - instance.job_release_us)
    longest, share = int(latency[-1]), rng.choice((100, 75, 50))
    near = max(1, round(rng.choice((0.3, 0.6, 0.8, 1)) * int(latency[(share * len(latency) + 99) // 100 - 1])))
    texts = [rng.choice((f"p{share} latency <= {near} us", f"p{share} first token <= {max(1, near // 2)} us"))]
    texts += rng.choice(([], [], [f"p100 latency <= {longest} us"], [f"p75 time per token <= {max(1, near // 8)} us"]))
    return instance, ServiceLevels.parse(*texts)


@pytest.mark.parametrize("seed", by_day(range(400), 40))
def test_no_floor_lies_above_what_is_served(seed: int) -> None:
    """Cuts of any weights hold, and are computed again; no window, however chosen, refutes what a policy does."""
    rng = random.Random(seed)
    instance, levels = drawn(rng)
    gpus = list(instance.cluster.gpus)
    met = any(meets(instance, simulate(instance, parse_policy(policy)), levels) for policy in POLICIES)
    floor = StreamFloor(instance, gpus)
    for limit in limits(instance, levels):
        weighed = [tuple(Fraction(rng.choice((1, 1, 2, 5))) for _ in gpus) for _ in range(3)]
        cuts = floor.cuts(limit, weighed)
        assert cuts is not None or not met
        for cut in cuts or []:
            refutes = cut.refutes([1] * len(gpus))
            assert not (met and refutes), (levels, cut)
            window = {"begin_us": cut.begin_us, "end_us": cut.end_us, "weights": [float(each) for each in cut.weights]}
            if cut.end_us > cut.begin_us:
                asked, offered = asked_and_offered(instance, limit, window | {"way": cut.way})
                assert asked > offered or not refutes, (levels, cut)
        for _ in range(20):
            begin_us = rng.choice((0, rng.randint(0, 100)))
            window = {"begin_us": begin_us, "end_us": begin_us + rng.randint(1, 400), "way": rng.choice(WAYS)}
            asked, offered = asked_and_offered(
                instance, limit, window | {"weights": [rng.choice((1, 2)) for _ in gpus]}
            )
            assert not (met and asked > offered), (levels, window)
