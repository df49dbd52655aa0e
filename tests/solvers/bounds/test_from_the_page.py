"""A verifier of critical paths written from docs/certificate.md alone: it reads canonical JSON and shares no code."""

from __future__ import annotations

import hashlib
import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.command import app, run
from tests.instances import random_instance
from truenorth.models import Objective
from truenorth.models.identity import canonical_text
from truenorth.solvers.bounds import critical_path
from truenorth.solvers.bounds.certificate import closed_form_document

IN_TIME = ("mean_latency", "weighted_latency", "makespan", "weighted_tardiness")


def classes_of(window: Any) -> list[list[int]]:
    """Return the GPUs of each class."""
    limits, found = window["restrictions"], dict[Any, list[int]]()
    for at, (_, _, *hardware) in enumerate(window["gpus"]):
        named = [sorted(n for n, gpus in limits[key].items() if at in gpus) for key in ("model_gpus", "workflow_gpus")]
        found.setdefault(json.dumps([hardware, named]), []).append(at)
    return list(found.values())


def transfer(window: Any, size: int, i: int, j: int) -> int:
    """Return what bytes take from one GPU to another."""
    between, within, staged = window["network"]
    latency, bandwidth = within if window["gpus"][i][1] == window["gpus"][j][1] else between
    speeds = ([bandwidth] if bandwidth is not None else []) + [window["gpus"][g][5] for g in (i, j) if staged]
    return math.ceil(int(latency) + 10**6 * size * sum((1 / Fraction(speed) for speed in speeds), Fraction()))


def proved(window: Any, objective: str) -> Fraction:
    """Return the objective if every job completed at the largest of its earliest ends."""
    classes, sizes, limits = classes_of(window), dict(window["models"]), window["restrictions"]
    names, ends = list(sizes), list[int]()

    def may(kind: str, name: str, gpu: int) -> bool:
        return gpu in limits[kind].get(name, [gpu])

    def run_us(workflow: str, task: Any, gpu: int) -> int | None:
        _, _, kind, memory, slots, *_ = window["gpus"][gpu]
        own = [sizes[m] for m in task[2]]
        fits = sum(own) + (task[4].get("memory", 0) if len(task) > 4 else 0) <= memory
        if slots:
            fits = len(own) <= len(slots) and all(
                a <= b for a, b in zip(sorted(own)[::-1], sorted(slots)[::-1], strict=False)
            )
        allowed = may("workflow_gpus", workflow, gpu) and all(may("model_gpus", m, gpu) for m in task[2])
        found: int | None = task[1].get(kind, task[1].get("*")) if fits and allowed else None
        return found

    def cold(task: Any, gpus: list[int]) -> int:
        there = {(gpu, names[model]) for gpu, model, _ in window["options"]["initial"]}
        loads = [
            [
                math.ceil(sizes[m] * 10**6 / Fraction(window["gpus"][g][5])) + window["gpus"][g][6]
                for m in task[2]
                if (g, m) not in there
            ]
            for g in gpus
        ]
        return min(map(sum, loads))

    for number, release, *_ in window["jobs"]:
        workflow, tasks = window["workflows"][number][:2]
        end, left = dict[str, dict[int, int]](), list(tasks)
        while left:
            task = next(t for t in left if all(p in end for p, *_ in t[3]))
            left.remove(task)
            end[task[0]] = {}
            for c, gpus in enumerate(classes):
                run_here = run_us(workflow, task, gpus[0])
                if run_here is None:
                    continue
                begin = max(release, cold(task, gpus))
                for before, size, *_ in task[3]:
                    hops = [
                        at + (0 if a == c else min(transfer(window, size, i, j) for i in classes[a] for j in gpus))
                        for a, at in end[before].items()
                    ]
                    begin = max(begin, min(hops))
                end[task[0]][c] = begin + run_here
        ends.append(max(min(of.values()) for of in end.values()))
    weights = [Fraction(job[2]) for job in window["jobs"]]
    latency = [end - job[1] for end, job in zip(ends, window["jobs"], strict=True)]
    late = [0 if job[3] is None else max(0, us - job[3]) for us, job in zip(latency, window["jobs"], strict=True)]
    return {
        "mean_latency": Fraction(sum(latency), len(latency)),
        "weighted_latency": sum((w * us for w, us in zip(weights, latency, strict=True)), Fraction())
        / (sum(weights) or 1),
        "makespan": Fraction(max(ends)),
        "weighted_tardiness": sum((w * us for w, us in zip(weights, late, strict=True)), Fraction()),
        "late_jobs": sum((w for w, us in zip(weights, late, strict=True) if us), Fraction()),
    }[objective]


@pytest.mark.parametrize("seed", range(40))
def test_the_page_is_enough_for_a_verifier(seed: int) -> None:
    built = random_instance(random.Random(seed), restricted=seed % 2 == 1)
    text = canonical_text(built)
    for objective in (*IN_TIME, "late_jobs"):
        value = critical_path.bound(built, Objective(objective))
        document = closed_form_document(built, Objective(objective), "critical_path", value)
        assert document["scenario_hash"] == hashlib.sha256(text.encode()).hexdigest()
        found = proved(json.loads(text), objective)
        assert found == value
        unit = 10**6 if objective in IN_TIME else 1
        assert Fraction(document["lower_bound"]) <= found / unit


STAGED = """
cluster:
  servers: 2
  gpu: {kind: G, memory: 4 GB, load_bandwidth: 1 GB/s}
  network: {bandwidth: 2 GB/s, latency: 2 us, staged: true}
models: {m: {weights: 3 GB}, n: {weights: 3 GB}}
workflows: {w: {tasks: {t: {models: [m], runtime: 1 s, output: 1 GB}, u: {models: [n], runtime: 1 s, after: [t]}}}}
workload: {jobs: [{release: 0 s, workflow: w}]}
restrictions: {pin: [{model: m, on: [s0/g0]}, {model: n, on: [s1/g0]}]}
objective: mean_latency
"""


def test_a_staged_transfer_is_as_the_page_says(tmp_path: Path) -> None:
    # Load 3 s, run 1 s, transfer 2 us + 1 GB x (1/2 + 1 + 1) s/GB = 2.500002 s, run 1 s.
    (tmp_path / "s.yaml").write_text(STAGED)
    file, certificate, window = (str(tmp_path / name) for name in ("s.yaml", "c.json", "w.json"))
    assert run(app, ["bound", file, "-o", certificate, "--time-limit", "2"]) == 0
    assert run(app, ["verify", file, certificate, "--window", window]) == 0
    text = Path(window).read_text()
    assert json.loads(Path(certificate).read_text())["scenario_hash"] == hashlib.sha256(text.encode()).hexdigest()
    assert proved(json.loads(text), "mean_latency") == 7_500_002
    assert json.loads(Path(certificate).read_text())["lower_bound"] == pytest.approx(7.500002)
