"""Random scenario files: of up to five tasks for the oracle (`draw`), of up to 600 for limits (`random_scenario`).

Both mix everything that a file can say, with times from a microsecond to weeks or years, by the same parts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from truenorth.models import Objective
from truenorth.models.scenario import InputError, Scenario, scenario_from

UNITS_US = (1, 1, 7, 1_000, 1_000_000, 3_600_000_000, 86_400_000_000)
"""Times are small numbers of one of these, or a microsecond beside them: up to weeks."""
MOST_TASKS = 5
_SCALES_US = (1, 7, 1_000, 250_000, 10**6, 60 * 10**6, 86_400 * 10**6, 365 * 86_400 * 10**6)
"""What times of larger windows are multiples of: up to a year."""
_LARGER = (1, 2, 4, 8, 20, 60, 150, 300, 600)
"""How many tasks these have, about."""
_LONGEST_US = 10**15
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Draw:
    """A scenario with the data of its file, and the unit of its times in microseconds."""

    data: Document
    scenario: Scenario
    unit_us: int


def draw(seed: int, resizable: bool = False, priced: bool = False) -> Draw:
    """Return the scenario of a seed.

    Parameters
    ----------
    resizable
        One group of equal servers, none of them named by anything, with a service level on deadlines or the mean.
    priced
        The same with a group of each of two kinds, at prices of their own.
    """
    rng = random.Random(seed)  # noqa: S311
    while True:
        drawing = (_PricedDrawing if priced else _Drawing)(rng, resizable or priced)
        data = drawing.scenario()
        try:
            return Draw(data, scenario_from(data), drawing.unit_us)
        except InputError:
            continue  # a task that fits nowhere, or an initial residency that does not fit


def random_scenario(rng: random.Random) -> Document:
    """Return a larger scenario as its file would hold it; a few are refused, since what is drawn fits nowhere."""
    return _LargerDrawing(rng).scenario()


class _Drawing:
    """The numbers and the parts of one scenario."""

    def __init__(self, rng: random.Random, resizable: bool) -> None:
        self.rng, self.resizable = rng, resizable
        self.unit_us = rng.choice(UNITS_US)
        self.kinds = rng.choice((["A"], ["A", "B"]))
        self.models = [f"m{index}" for index in range(rng.randint(0, 3))]
        self.serving, self.fed = rng.random() < 0.4, not resizable and rng.random() < 0.25
        self.servers = rng.randint(1, 3)

    def scenario(self) -> Document:
        """Return the data of a scenario file."""
        workflows = {f"w{index}": self._workflow() for index in range(self.rng.randint(1, 2))}
        data: dict[str, Any] = {
            "cluster": {"groups": self._groups(), "network": self._network()},
            "models": {name: {"weights": self._bytes(1, 7)} for name in self.models},
            "workflows": workflows,
            "workload": self._workload(workflows),
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
        drawn = self.rng.randint(least, most) * self.unit_us + self.rng.choice((0, 0, 0, 0, 0, -1, 1))
        return max(0, min(drawn, _LONGEST_US))

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
        for index in range(self._length()):
            if self.serving and self.rng.random() < 0.6:
                task: dict[str, Any] = {"batch": self.rng.choice("cd")}
            else:
                kinds = {kind: f"{max(1, self._us(1, 6))} us" for kind in self.kinds}
                runtime: Any = kinds if self.rng.random() < 0.5 else f"{max(1, self._us(1, 6))} us"
                task = {"runtime": runtime, **self._demand()}
            before = {name: self._edge() for name in self._sources(list(tasks))}
            if before:
                task["after"] = before
            elif self.fed:
                task["input"] = self._bytes(0, 4)
            tasks[f"t{index}"] = task | {"output": self._bytes(0, 3)}
        return {"tasks": tasks}

    def _length(self) -> int:
        """Return how many tasks a workflow has."""
        return self.rng.randint(1, 3)

    def _sources(self, names: list[str]) -> Iterator[str]:
        """Yield the predecessors of a task among those before it."""
        yield from (name for name in names if self.rng.random() < 0.6)

    def _edge(self) -> str | None:
        return self._bytes(0, 3) if self.rng.random() < 0.5 else None

    def _workload(self, workflows: dict[str, Any]) -> Document:
        left, jobs = MOST_TASKS, list[dict[str, Any]]()
        while len(jobs) < MOST_TASKS and (not jobs or self.rng.random() < 0.75):
            name = self.rng.choice(list(workflows))
            left -= len(workflows[name]["tasks"])
            if jobs and left < 0:
                break
            jobs.append(self._job(name, 12))
        return {"jobs": jobs}

    def _job(self, workflow: str, latest: int) -> dict[str, Any]:
        """Return a job that is released within so many units of time."""
        job: dict[str, Any] = {"release": self.rng.choice(("0 us", self._time(0, latest))), "workflow": workflow}
        if self.resizable or self.rng.random() < 0.7:
            job["deadline"] = self._time(self.rng.choice((0, 3, 6)), 20)
        job["weight"] = self.rng.choice((1, 1, 2, 0.5, 0, 1000))
        if self.fed and self.rng.random() < 0.7:
            job["ingress"] = f"s{self.rng.randrange(self.servers)}"
        return job

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


class _PricedDrawing(_Drawing):
    """Two kinds of GPU, of which there are one or two servers each, at a price."""

    def _groups(self) -> list[dict[str, Any]]:
        self.kinds = ["A", "B"]
        groups = [self._group(self.rng.choice((1, 2))) for _ in self.kinds]
        for group, kind in zip(groups, self.kinds, strict=True):
            group["gpu"]["kind"] = kind
            group["price_per_hour"] = self.rng.choice((0.5, 0.9, 1, 2.5))
        return groups


class _LargerDrawing(_Drawing):
    """Up to 600 tasks on up to four kinds of GPU, as chains, fans, or each after all before it; jobs may be drawn."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, resizable=False)
        self.unit_us, self.kinds = rng.choice(_SCALES_US), ["T4", "A10", "L4", "H100"][: rng.choice((1, 1, 2, 3, 4))]
        self.models = [f"m{index}" for index in range(rng.choice((1, 2, 3, 6)))]
        self.serving = rng.random() < 0.25
        self.most, self.inputs = rng.choice(_LARGER), 0
        self.counts = [rng.choice((1, 1, 2, 4, 12)) for _ in self.kinds]
        self.servers = sum(self.counts)

    def scenario(self) -> Document:
        """Return the data of a scenario file, half of them with a service level."""
        data = super().scenario()
        if self.rng.random() < 0.5:
            level = self.rng.choice(("p95 slowdown <= 4", "no late jobs", f"mean latency <= {self._time(1, 9)}"))
            data["slo"] = level
        return data

    def _groups(self) -> list[dict[str, Any]]:
        """Return a group for every kind, so that each task can run somewhere."""
        groups = [self._group(count) for count in self.counts]
        for group, kind in zip(groups, self.kinds, strict=True):
            group["gpu"]["kind"] = kind
            group["price_per_hour"] = self.rng.choice((0.5, 1, 3))
        return groups

    def _length(self) -> int:
        rng = self.rng
        count = rng.choice((1, rng.randint(1, min(5, self.most)), rng.randint(1, self.most)))
        self.inputs = rng.choice((0, 0, 1, 2, count))
        return count

    def _sources(self, names: list[str]) -> Iterator[str]:
        yield from names[-self.inputs :] if self.inputs else ()

    def _workload(self, workflows: dict[str, Any]) -> Document:
        rng, jobs = self.rng, max(1, self.most // max(len(workflow["tasks"]) for workflow in workflows.values()))
        if rng.random() < 0.3:
            rate = f"{rng.choice((0.1, 1, 5)) * 1e6 / self.unit_us:.12f} /s"
            mix = dict.fromkeys(workflows, 1)
            return {"poisson": {"rate": rate, "jobs": jobs, "seed": rng.randint(0, 99), "mix": mix}}
        return {"jobs": [self._job(rng.choice([*workflows]), 9 * jobs) for _ in range(jobs)]}

    def _residents(self) -> list[dict[str, str]]:
        return []  # most would not fit, and a window that is refused asks nothing of any limit
