"""Random scenario files: of up to five tasks for the oracle (`draw`), of up to 600 for limits (`random_scenario`).

Both mix everything that a file can say, with times from a microsecond to weeks or years.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from truenorth.models import Objective
from truenorth.models.scenario import InputError, Scenario, scenario_from

UNITS_US = (1, 1, 7, 1_000, 1_000_000, 3_600_000_000, 86_400_000_000)
"""Times are small numbers of one of these, or a microsecond beside them: up to weeks."""
MOST_TASKS = 5


@dataclass(frozen=True, slots=True)
class Draw:
    """A scenario with the data of its file, and the unit of its times in microseconds."""

    data: dict[str, Any]
    scenario: Scenario
    unit_us: int


def draw(seed: int, resizable: bool = False) -> Draw:
    """Return the scenario of a seed.

    Parameters
    ----------
    resizable
        One group of equal servers, none of them named by anything, with a service level on deadlines or the mean.
    """
    rng = random.Random(seed)  # noqa: S311
    while True:
        drawing = _Drawing(rng, resizable)
        data = drawing.scenario()
        try:
            return Draw(data, scenario_from(data), drawing.unit_us)
        except InputError:
            continue  # a task that fits nowhere, or an initial residency that does not fit


class _Drawing:
    """The numbers and the parts of one scenario."""

    def __init__(self, rng: random.Random, resizable: bool) -> None:
        self.rng, self.resizable = rng, resizable
        self.unit_us = rng.choice(UNITS_US)
        self.kinds = rng.choice((["A"], ["A", "B"]))
        self.models = [f"m{index}" for index in range(rng.randint(0, 3))]
        self.serving, self.fed = rng.random() < 0.4, not resizable and rng.random() < 0.25
        self.servers = rng.randint(1, 3)

    def scenario(self) -> dict[str, Any]:
        """Return the data of a scenario file."""
        workflows = {f"w{index}": self._workflow() for index in range(self.rng.randint(1, 2))}
        data: dict[str, Any] = {
            "cluster": {
                "groups": self._groups(),
                "network": self._network(),
            },
            "models": {name: {"weights": self._bytes(1, 7)} for name in self.models},
            "workflows": workflows,
            "workload": {"jobs": self._jobs(workflows)},
            "objective": str(self.rng.choice(list(Objective))),
            "options": {"overlap_loads": self.rng.random() < 0.7},
        }
        for workflow in workflows.values():
            if self.rng.random() < 0.15:
                workflow["ideal"] = self._time(1, 9)
        if self.serving:
            data["batches"] = {name: self._class() for name in ("c", "d")}
        if self.resizable:
            data["slo"] = self.rng.choice(
                ("no late jobs", "60 % within deadline", f"mean latency <= {self._time(3, 20)}")
            )
        else:
            data["options"]["initial_residency"] = self._residents()
            data["restrictions"] = self._restrictions(list(workflows))
        return data

    def _us(self, least: int, most: int) -> int:
        """Return a time in microseconds: a few units, now and then a microsecond more or less."""
        return max(0, self.rng.randint(least, most) * self.unit_us + self.rng.choice((0, 0, 0, 0, 0, -1, 1)))

    def _time(self, least: int, most: int) -> str:
        return f"{max(least, self._us(least, most))} us"

    def _bytes(self, least: int, most: int) -> str:
        """Return as many bytes as a link of 1 MB/s carries in such a time."""
        return f"{max(least, self._us(least, most))} B"

    def _groups(self) -> list[dict[str, Any]]:
        counts = [self.servers] if self.resizable or self.rng.random() < 0.5 else [1] * self.servers
        return [self._group(count) for count in counts]

    def _group(self, count: int) -> dict[str, Any]:
        rng = self.rng
        gpu: dict[str, Any] = {
            "kind": rng.choice(self.kinds),
            "load_bandwidth": rng.choice(("1 MB/s", "1 MB/s", "3 MB/s")),
        }
        if rng.random() < 0.3 and not self.serving:
            gpu["slots"] = [self._bytes(3, 8) for _ in range(rng.randint(1, 2))]
        else:
            gpu["memory"] = self._bytes(5, 14)
        if rng.random() < 0.3:
            gpu["load_overhead"] = self._time(0, 1)
        group: dict[str, Any] = {"count": count, "gpu": gpu}
        if count == 1 and rng.random() < 0.15 and not self.resizable:
            group["gpus_per_server"] = 2
        if rng.random() < 0.2 and not self.resizable:
            group["available"] = self._intervals()
        return group

    def _intervals(self) -> list[list[str]]:
        instants = sorted(self.rng.sample(range(31), self.rng.choice((1, 2, 3, 4))))
        instants[0] *= self.rng.choice((0, 1))
        texts = [f"{at * self.unit_us} us" for at in instants] + ["end"] * (len(instants) % 2)
        return [list(pair) for pair in zip(texts[::2], texts[1::2], strict=True)]

    def _network(self) -> dict[str, Any]:
        network: dict[str, Any] = {"latency": self._time(0, 2), "bandwidth": self.rng.choice(("1 MB/s", "1 TB/s"))}
        network["staged"] = self.rng.random() < 0.3
        if self.rng.random() < 0.3:
            network["within_server"] = {"latency": self._time(0, 1), "bandwidth": "2 MB/s"}
        return network

    def _class(self) -> dict[str, Any]:
        def table() -> dict[int, str]:
            times = [max(1, self._us(1, 5))]
            for _ in range(3):
                times.append(times[-1] + self.unit_us * self.rng.choice((0, 0, 0, 1, 2)))
            sizes = self.rng.choice(((1, 2), (1, 3), (1, 2, 3), (1, 2, 4)))
            return {size: f"{times[size - 1]} us" for size in sizes}

        runtime: Any = table() if self.rng.random() < 0.5 else {kind: table() for kind in self.kinds}
        return {"runtime": runtime, **self._demand()}

    def _demand(self) -> dict[str, Any]:
        """Return models, and where tasks are served beside each other, a share and memory."""
        rng = self.rng
        demand: dict[str, Any] = {"models": rng.sample(self.models, min(len(self.models), rng.choice((0, 1, 1, 1, 2))))}
        if self.serving:
            demand["share"] = rng.choice((1, 1, 0.5, 0.25, 0.3333, 0.6))
            demand["memory"] = rng.choice(("0 B", "0 B", self._bytes(1, 2)))
        return demand

    def _workflow(self) -> dict[str, Any]:
        tasks: dict[str, Any] = {}
        for index in range(self.rng.randint(1, 3)):
            if self.serving and self.rng.random() < 0.6:
                task: dict[str, Any] = {"batch": self.rng.choice("cd")}
            else:
                kinds = {kind: f"{max(1, self._us(1, 6))} us" for kind in self.kinds}
                runtime: Any = kinds if self.rng.random() < 0.5 else f"{max(1, self._us(1, 6))} us"
                task = {"runtime": runtime, **self._demand()}
            before = {name: self._edge() for name in tasks if self.rng.random() < 0.6}
            if before:
                task["after"] = before
            elif self.fed:
                task["input"] = self._bytes(0, 4)
            tasks[f"t{index}"] = task | {"output": self._bytes(0, 3)}
        return {"tasks": tasks}

    def _edge(self) -> str | None:
        return self._bytes(0, 3) if self.rng.random() < 0.5 else None

    def _jobs(self, workflows: dict[str, Any]) -> list[dict[str, Any]]:
        left, jobs = MOST_TASKS, list[dict[str, Any]]()
        while len(jobs) < MOST_TASKS and (not jobs or self.rng.random() < 0.75):
            name = self.rng.choice(list(workflows))
            left -= len(workflows[name]["tasks"])
            if jobs and left < 0:
                break
            job: dict[str, Any] = {"release": self.rng.choice(("0 us", self._time(0, 12))), "workflow": name}
            if self.resizable or self.rng.random() < 0.7:
                job["deadline"] = self._time(self.rng.choice((0, 3, 6)), 20)
            job["weight"] = self.rng.choice((1, 1, 2, 0.5, 0, 1000))
            if self.fed and self.rng.random() < 0.7:
                job["ingress"] = f"s{self.rng.randrange(self.servers)}"
            jobs.append(job)
        return jobs

    def _residents(self) -> list[dict[str, str]]:
        names = self.rng.sample(self.models, min(len(self.models), self.rng.choice((0, 0, 1, 2))))
        return [{"gpu": f"s{self.rng.randrange(self.servers)}/g0", "model": name} for name in names]

    def _restrictions(self, workflows: list[str]) -> dict[str, Any]:
        rng, limits = self.rng, dict[str, Any]()

        def some() -> list[str]:
            return [f"s{server}" for server in rng.sample(range(self.servers), rng.randint(1, self.servers))]

        if self.models and rng.random() < 0.15:
            limits["pin"] = [{"model": rng.choice(self.models), "on": some()}]
        if rng.random() < 0.15:
            limits["forbid"] = [{"workflow": rng.choice(workflows), "on": some()}]
        if self.models and rng.random() < 0.25:
            limits["max_replicas"] = {rng.choice(self.models): rng.randint(1, 2)}
        if rng.random() < 0.2:
            limits["no_swaps"] = True
        return limits


Document = dict[str, Any]

SCALES_US = (1, 7, 1_000, 250_000, 10**6, 60 * 10**6, 86_400 * 10**6, 365 * 86_400 * 10**6)
"""What times are multiples of: from a microsecond to a year."""
_SIZES = ("1 B", "7 KB", "3 MB", "900 MB", "2 GB", "6 GB", "9 GB")
_MOST_TASKS = (1, 2, 4, 8, 20, 60, 150, 300, 600)
_OBJECTIVES = (
    "mean_latency", "mean_slowdown", "weighted_latency", "makespan", "weighted_tardiness", "late_jobs", "max_slowdown",
)  # fmt: skip
_FOUR_KINDS = ("T4", "A10", "L4", "H100")


def random_scenario(rng: random.Random) -> Document:
    """Return a scenario as its file would hold it; a few are refused, since what is drawn fits nowhere."""
    unit_us, kinds = rng.choice(SCALES_US), list(_FOUR_KINDS[: rng.choice((1, 1, 2, 3, 4))])
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
    unit_us = unit_us if rng.random() < 0.95 else rng.choice(SCALES_US)
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
