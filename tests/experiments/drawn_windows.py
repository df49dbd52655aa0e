"""Small instances of all sorts, and certificates of them with random prices: whatever they prove, it is something."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

from experiments.library.verifier import Piece, Window

OBJECTIVES = (
    "mean_latency", "mean_slowdown", "weighted_latency", "makespan", "weighted_tardiness", "late_jobs", "max_slowdown",
)  # fmt: skip


def scenario(draw: random.Random) -> dict[str, Any]:
    """Draw an instance: one or two kinds of GPUs, a few models, jobs of up to five tasks."""
    kinds, models = ["A", "B"][: draw.choice([1, 1, 2])], [f"m{i}" for i in range(draw.randint(0, 4))]
    groups = [_group(draw, kind) for kind in kinds + kinds[: draw.random() < 0.3]]
    batches = {f"b{i}": _batch(draw, kinds, models) for i in range(draw.choice([0, 1, 2]))}
    workflows = {f"w{i}": _workflow(draw, kinds, models, list(batches)) for i in range(draw.randint(1, 3))}
    content: dict[str, Any] = {
        "cluster": {
            "groups": groups,
            "network": {
                "latency": f"{draw.randint(0, 6)} us",
                "bandwidth": draw.choice(["1 MB/s", "2.5 MB/s"]),
                "staged": draw.random() < 0.4,
                "within_server": {"latency": f"{draw.randint(0, 6)} us", "bandwidth": "5 MB/s"},
            },
        },
        "models": {name: {"weights": f"{draw.randint(1, 8)} B"} for name in models},
        "workflows": workflows,
        "workload": {"jobs": list(_jobs(draw, workflows))},
        "objective": draw.choice(OBJECTIVES),
        "options": {"overlap_loads": draw.random() < 0.8},
    }
    if models and "available" not in groups[0] and "memory" in groups[0]["gpu"] and draw.random() < 0.5:
        content["options"]["initial_residency"] = [{"gpu": "s0/g0", "model": models[0]}]
    return content | ({"batches": batches} if batches else {})


def _group(draw: random.Random, kind: str) -> dict[str, Any]:
    gpu: dict[str, Any] = {
        "kind": kind,
        "load_bandwidth": draw.choice(["1 MB/s", "0.7 MB/s"]),
        "load_overhead": draw.choice(["0 us", "3 us"]),
    }
    gpu |= {"slots": ["8 B", "9 B"]} if draw.random() < 0.25 else {"memory": f"{draw.randint(17, 25)} B"}
    first, second, third = sorted(draw.sample(range(1, 400), 3))
    spans = [["0 us", f"{first} us"], [f"{second} us", f"{third} us"], [f"{third + 5} us", "end"]]
    group = {"count": draw.randint(1, 2), "gpus_per_server": draw.randint(1, 2), "gpu": gpu}
    return group | ({"available": spans} if draw.random() < 0.2 else {})


def _batch(draw: random.Random, kinds: list[str], models: list[str]) -> dict[str, Any]:
    size, time, table = 1, draw.randint(1, 30), {}
    for _ in range(draw.randint(1, 4)):
        table[str(size)] = f"{time} us"
        size, time = size + draw.randint(1, 2), time + draw.choice([0, draw.randint(0, 15)])
    return {
        "models": draw.sample(models, min(len(models), draw.choice([0, 1, 2]))),
        "runtime": {draw.choice(["*", kinds[0]]): table},
        "share": draw.choice([1, 0.5, 0.3333]),
        "memory": draw.choice(["0 B", "1 B"]),
    }


def _workflow(draw: random.Random, kinds: list[str], models: list[str], batches: list[str]) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    for place in range(draw.randint(1, 5)):
        task: dict[str, Any] = {"batch": draw.choice(batches)} if batches and draw.random() < 0.6 else {}
        if not task:
            times = {kind: f"{draw.randint(1, 40)} us" for kind in (kinds[0], "absent")}
            task = {"models": draw.sample(models, min(len(models), draw.choice([0, 1, 2])))}
            task["runtime"] = times if draw.random() < 0.4 else f"{draw.randint(1, 40)} us"
            task |= {"share": draw.choice([0.5, 0.3333])} if draw.random() < 0.2 else {}
        before = [name for name in tasks if draw.random() < 0.5]
        tasks[f"t{place}"] = task | ({"after": {name: f"{draw.randint(0, 40)} B" for name in before}} if before else {})
    free = [name for name, task in tasks.items() if "after" not in task]
    branches = [{"probability": 0.5, "tasks": [name]} for name in free[:2]]
    return {"tasks": tasks} | ({"branches": branches} if len(tasks) > len(free) == 2 and draw.random() < 0.5 else {})


def _jobs(draw: random.Random, workflows: dict[str, Any]) -> Any:
    release = 0
    for _ in range(draw.randint(1, 7)):
        release += draw.randint(0, 30)
        name = draw.choice(list(workflows))
        job: dict[str, Any] = {"release": f"{release} us", "workflow": name}
        job |= {"path": draw.randint(0, 1)} if "branches" in workflows[name] else {}
        job |= {"deadline": f"{draw.randint(1, 150)} us"} if draw.random() < 0.6 else {}
        yield job | ({"weight": draw.choice([0, 2, 0.5, 1.25])} if draw.random() < 0.4 else {})


def certificate(draw: random.Random, window: Window) -> dict[str, Any]:
    """Draw a certificate that claims next to nothing: what counts is what is computed again."""
    methods = ["critical_path", "mean_busy_time", "energetic", "fluid", *["lagrangian"] * 3]
    method = draw.choice(methods)
    parameters: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    if method == "lagrangian":
        parameters, prices = _prices(draw, window)
    elif method == "energetic" and draw.random() < 0.9:
        classes = range(len(window.classes))
        parameters = {
            "gpu_classes": draw.sample(classes, draw.randint(1, len(classes))),
            "parts": draw.choice([1, 7, 840]),
        }
        parameters |= {"from_us": draw.randint(0, 60), "due_us": draw.choice([0, -10, draw.randint(-60, 200), 1000])}
        parameters |= {"level": [draw.randint(1, 5), draw.randint(1, 3)], "intervals": [[0, 90], [90, 400]]}
    elif method == "fluid":
        parameters = {"resource": draw.choice(["compute", "copy engine", "memory"]), "parts": draw.choice([1, 7, 840])}
        parameters |= {"begin_us": draw.choice([0, 0, 20]), "end_us": draw.randint(1, 300)}
    return {
        "schema_version": 1, "scenario_hash": window.hash, "objective": window.objective, "method": method,
        "lower_bound": -1e300, "parameters": parameters, "prices": prices, "versions": {},
    }  # fmt: skip


def _prices(draw: random.Random, window: Window) -> tuple[dict[str, Any], dict[str, Any]]:
    s, most = draw.choice([1, 2, 3, 5, 7, 10]), draw.choice([3, 10, 1000, 1 << 20, 1 << 70])
    jobs = [pieces for job, pieces in zip(window.jobs, window.pieces, strict=True) if job.w]
    delays = [draw.choice([1, 2, 3, draw.randint(1, 30)]) for _ in jobs]
    reach = max(
        (
            max(x.end for x in xs) + d * s + max(w.r for x in xs for w in x.ways)
            for xs, d in zip(jobs, delays, strict=True)
        ),
        default=s,
    )
    slots = reach // s + 2

    def row() -> list[int]:
        return [draw.choice([0, draw.randint(0, most)]) for _ in range(slots)]

    classes, weights = range(len(window.classes)), list(window.models.values())
    memory = [_memory_row(draw, window, c, weights) for c in classes if draw.random() < 0.8]
    uses = [{"model": m, "gpu_class": c} for m in range(len(weights)) for c in classes if draw.random() < 0.8]
    uses = [use for use in uses if weights[use["model"]] <= max(_sizes(window, use["gpu_class"]))]
    priced = [_off_a_tree(draw, flow) for flow in window.flows]
    falls = [
        [draw.randint(0, most) for _ in range(len(priced[xs[0].job.flow]) * d)]
        for xs, d in zip(jobs, delays, strict=True)
    ]
    parameters = {
        "slot_us": s,
        "scale": draw.choice([1, 1000, 1 << 30, 1 << 80]),
        "delays": delays,
        "priced_precedences": priced,
    }
    prices: dict[str, Any] = {
        "precedences": falls,
        "memory": [row() for _ in memory],
        "model_uses": [row() for _ in uses],
    }
    prices |= {key: [row() for _ in classes] for key in ("compute", "copy")}
    parameters |= {"memory_rows": memory, "model_uses": uses}
    if window.named and draw.random() < 0.7:
        most_of = {(x.task.batch, w.c, w.fewest): w.most for x in chain(*jobs) if x.task.batch for w in x.ways}
        keys = [key for key in most_of if draw.random() < 0.8]
        parameters["places"] = [{"batch": list(window.named).index(b), "gpu_class": c, "fewest": f} for b, c, f in keys]
        prices["places"] = [list(_parts(draw, xs, d, keys, most_of)) for xs, d in zip(jobs, delays, strict=True)]
    return parameters, prices


def _sizes(window: Window, c: int) -> list[int]:
    gpu = window.classes[c][0]
    return list(gpu.slots or [gpu.memory])


def _memory_row(draw: random.Random, window: Window, c: int, weights: list[int]) -> dict[str, Any]:
    size, memory = draw.randint(1, 50), window.classes[c][0].memory
    if window.classes[c][0].slots:
        parts = [draw.randint(0, 1) for _ in weights]
        size = sum(
            slot >= min((w for w, part in zip(weights, parts, strict=True) if part), default=99)
            for slot in _sizes(window, c)
        )
    else:
        parts = [size * weight // memory + (draw.random() < 0.02) for weight in weights]
    return {"gpu_class": c, "parts": parts, "capacity": size}


def _off_a_tree(draw: random.Random, flow: dict[str, Any]) -> list[list[int]]:
    """Return the arcs that a random spanning tree of a workflow leaves out."""
    at, n = {name: place for place, name in enumerate(flow)}, len(flow)
    arcs = [(at[p], at[name]) for name, task in flow.items() for p, _ in task.before]
    sinks = set(range(n)) - {u for u, _ in arcs}
    arcs += [(u, n) for u in sinks if len(sinks) > 1]
    draw.shuffle(arcs)
    group, left = list(range(n + 1)), []
    for u, v in arcs:
        if group[u] == group[v]:
            left.append([u, v])
        group = [group[v] if each == group[u] else each for each in group]
    return left


def _parts(draw: random.Random, pieces: list[Piece], delays: int, keys: list[Any], most_of: dict[Any, int]) -> Any:
    """Yield what tasks pay of batches: seldom more than is sold."""
    for u, x in enumerate(pieces):
        for row, key in enumerate(keys):
            if x.task.batch == key[0] and delays > 1 and draw.random() < 0.8:
                first = draw.randint(0, delays - 2)
                top = 65_536 if draw.random() < 0.1 else 65_536 // most_of[key]
                yield [u, row, first, [draw.randint(0, top) for _ in range(draw.randint(0, delays - 1 - first))]]
