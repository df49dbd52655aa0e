"""Random scenario files: every section, run times from 1 us to years, one to four kinds, 1 to 600 tasks."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]

UNITS_US = (1, 7, 1_000, 250_000, 10**6, 60 * 10**6, 86_400 * 10**6, 365 * 86_400 * 10**6)
"""What times are multiples of: from a microsecond to a year."""
_SIZES = ("1 B", "7 KB", "3 MB", "900 MB", "2 GB", "6 GB", "9 GB")
_MOST_TASKS = (1, 2, 4, 8, 20, 60, 150, 300, 600)
_OBJECTIVES = (
    "mean_latency", "mean_slowdown", "weighted_latency", "makespan", "weighted_tardiness", "late_jobs", "max_slowdown",
)  # fmt: skip
_KINDS = ("T4", "A10", "L4", "H100")


def random_scenario(rng: random.Random) -> Document:
    """Return a scenario as its file would hold it; a few are refused, since what is drawn fits nowhere."""
    unit_us, kinds = rng.choice(UNITS_US), list(_KINDS[: rng.choice((1, 1, 2, 3, 4))])
    models = {f"m{index}": {"weights": rng.choice(_SIZES)} for index in range(rng.choice((1, 2, 3, 6)))}
    classes = _classes(rng, kinds, [*models], unit_us) if rng.random() < 0.25 else {}
    most = rng.choice(_MOST_TASKS)
    workflows = {
        f"w{index}": {"tasks": _tasks(rng, kinds, [*models], [*classes], unit_us, most)}
        for index in range(rng.choice((1, 1, 2, 3)))
    }
    document: Document = {
        "cluster": _cluster(rng, kinds, unit_us),
        "models": models,
        "workflows": workflows,
        "workload": _workload(rng, workflows, unit_us, most),
        "objective": rng.choice(_OBJECTIVES),
    }
    if classes:
        document["batches"] = classes
    if rng.random() < 0.5:
        document["slo"] = rng.choice(("p95 slowdown <= 4", "no late jobs", f"mean latency <= {_time(rng, unit_us)}"))
    if rng.random() < 0.3:
        document["options"] = {"overlap_loads": False}
    if rng.random() < 0.3:
        document["restrictions"] = _restrictions(rng, [*models], [*workflows])
    return document


def _time(rng: random.Random, unit_us: int, most: int = 9) -> str:
    """Return a time; one in twenty is of another scale than the rest."""
    unit_us = unit_us if rng.random() < 0.95 else rng.choice(UNITS_US)
    return _us(unit_us * rng.randint(1, most))


def _us(time_us: int) -> str:
    """Return a time in words, no longer than a file may hold."""
    return f"{min(time_us, 10**15)} us"


def _runtime(rng: random.Random, kinds: list[str], unit_us: int) -> str | dict[str, str]:
    if rng.random() < 0.5:
        return _time(rng, unit_us)
    return {kind: _time(rng, unit_us) for kind in kinds if kind == kinds[0] or rng.random() < 0.8}


def _cluster(rng: random.Random, kinds: list[str], unit_us: int) -> Document:
    groups = [_group(rng, kind, unit_us) for kind in kinds]
    network: Document = {
        "latency": rng.choice(("0 us", "2 us", "1 ms")),
        "bandwidth": rng.choice(("1 KB/s", "12 GB/s")),
    }
    if rng.random() < 0.3:
        network["staged"] = True
    if rng.random() < 0.3:
        network["within_server"] = {"bandwidth": "25 GB/s", "latency": "1 us"}
    return {"groups": groups, "network": network}


def _group(rng: random.Random, kind: str, unit_us: int) -> Document:
    gpu: Document = {"kind": kind, "load_bandwidth": rng.choice(("1 MB/s", "6 GB/s", "1000000 GB/s"))}
    if rng.random() < 0.3:
        gpu["slots"] = ["9 GB", *(rng.choice(_SIZES) for _ in range(rng.randint(0, 3)))]
    else:
        gpu["memory"] = rng.choice(("10 GB", "24 GB"))
    if rng.random() < 0.2:
        gpu["load_overhead"] = _time(rng, unit_us)
    group: Document = {"count": rng.choice((1, 1, 2, 4, 12)), "gpus_per_server": rng.choice((1, 1, 2)), "gpu": gpu}
    if rng.random() < 0.2:
        group["price_per_hour"] = rng.choice((0.5, 1, 3))
    if rng.random() < 0.1:
        group["available"] = [["0 s", _us(50 * unit_us)], [_us(2_000_000_000 + 60 * unit_us), "end"]]
    return group


def _classes(rng: random.Random, kinds: list[str], models: list[str], unit_us: int) -> Document:
    def table() -> dict[int, str]:
        first = unit_us * rng.randint(1, 9)
        return {size: f"{first + unit_us * size // 2} us" for size in (1, 2, 4, 8)}

    classes: Document = {}
    for index in range(rng.choice((1, 2))):
        runtime = {kind: table() for kind in kinds} if rng.random() < 0.5 else table()
        classes[f"c{index}"] = {"models": [rng.choice(models)], "runtime": runtime}
        if rng.random() < 0.4:
            classes[f"c{index}"]["share"] = rng.choice((0.25, 0.5))
    return classes


def _tasks(
    rng: random.Random, kinds: list[str], models: list[str], classes: list[str], unit_us: int, most: int
) -> Document:
    """Return the tasks of a workflow: a chain, a fan, or each after some or all of those before it."""
    count = rng.choice((1, rng.randint(1, min(5, most)), rng.randint(1, most)))
    inputs = rng.choice((0, 0, 1, 2, count))
    shares = rng.random() < 0.15
    tasks: Document = {}
    for index in range(count):
        task: Document = {}
        if classes and rng.random() < 0.7:
            task["batch"] = rng.choice(classes)
        else:
            task["runtime"] = _runtime(rng, kinds, unit_us)
            task["models"] = rng.sample(models, min(len(models), rng.choice((0, 1, 1, 1, 2))))
            if shares:
                task |= {"share": rng.choice((0.25, 0.5, 1)), "memory": rng.choice(("1 B", "10 MB"))}
        if rng.random() < 0.5:
            task["output"] = rng.choice(_SIZES[:4])
        if inputs and index:
            task["after"] = [f"t{before}" for before in range(max(0, index - inputs), index)]
        elif rng.random() < 0.1:
            task["input"] = rng.choice(_SIZES[:4])
        tasks[f"t{index}"] = task
    return tasks


def _workload(rng: random.Random, workflows: Document, unit_us: int, most: int) -> Document:
    """Return jobs, listed or drawn, of about so many tasks in all."""
    largest = max(len(workflow["tasks"]) for workflow in workflows.values())
    jobs = max(1, most // largest)
    if rng.random() < 0.3:
        rate = f"{rng.choice((0.1, 1, 5)) * 1e6 / unit_us:.12f} /s"
        return {"poisson": {"rate": rate, "jobs": jobs, "seed": rng.randint(0, 99), "mix": dict.fromkeys(workflows, 1)}}
    listed: list[Document] = []
    for _ in range(jobs):
        job: Document = {"release": _us(unit_us * rng.choice((0, 0, rng.randint(0, 9 * jobs))))}
        job["workflow"] = rng.choice([*workflows])
        if rng.random() < 0.3:
            job["deadline"] = _time(rng, unit_us, 50)
        if rng.random() < 0.3:
            job["weight"] = rng.choice((0, 0.5, 2))
        if rng.random() < 0.1:
            job["ingress"] = "s0"
        listed.append(job)
    return {"jobs": listed}


def _restrictions(rng: random.Random, models: list[str], workflows: list[str]) -> Document:
    limits: Document = {"no_swaps": rng.random() < 0.3}
    if rng.random() < 0.4:
        limits["max_replicas"] = {rng.choice(models): rng.randint(1, 3)}
    if rng.random() < 0.3:
        limits["pin"] = [{"workflow": rng.choice(workflows), "on": ["group 1"]}]
    if rng.random() < 0.3:
        limits["forbid"] = [{"model": rng.choice(models), "on": ["s0"]}]
    return limits
