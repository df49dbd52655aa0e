"""Instances with known optima: HEFT's canonical graph, AsyncHow's plans, flexible job shops.

Sources: Topcuoglu, Hariri, Wu, IEEE TPDS 2002, Fig. 2; Lin et al., ICML 2024 (MIT); Brandimarte 1993 as
collected by SchedulingLab (MIT). None of them has models: GPUs are machines, one kind each where they differ.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from models import GPU, Cluster, Edge, Instance, Job, Link, Network, Task, Workflow

SHARED = Path(__file__).parents[3] / "shared" / "data" / "known_optima"
"""Where the data lies; not part of the tree."""

_BYTES_PER_S = Fraction(1_000_000)
_HEFT_RUNTIMES = (
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
)
_HEFT_TRANSFERS = {
    (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23,
    (3, 7): 27, (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
}  # fmt: skip


def machines(kinds: list[str], network: Network | None = None) -> Cluster:
    """Return one GPU per kind, each in a server of its own; transfers are free unless a network is given."""
    gpus = (GPU(f"s{i}/g0", i, kind, 1, _BYTES_PER_S) for i, kind in enumerate(kinds))
    return Cluster(tuple(gpus), network or Network(Link(), Link()))


def heft() -> Instance:
    """Return the canonical graph of ten tasks on three processors, a time unit being a microsecond."""
    tasks = tuple(
        Task(
            f"n{task + 1}",
            {f"P{processor}": time for processor, time in enumerate(times)},
            inputs=tuple(
                Edge(f"n{source + 1}", cost) for (source, target), cost in _HEFT_TRANSFERS.items() if target == task
            ),
        )
        for task, times in enumerate(_HEFT_RUNTIMES)
    )
    link = Link(0, _BYTES_PER_S)
    return Instance(machines(["P0", "P1", "P2"], Network(link, link)), (), (Job(Workflow("canonical", tasks), 0),))


@dataclass(frozen=True, slots=True)
class AsyncPlan:
    """A plan of AsyncHow with its answer: the instance at one end of its ranges, and the answer there."""

    name: str
    instance: Instance
    answer_us: int


def async_how(path: Path) -> Iterator[AsyncPlan]:
    """Yield every plan at the low end of its durations and, where it is another, at the high end."""
    with gzip.open(path, "rt") as file:
        for row in map(json.loads, file):
            ranges = [*row["durations_s"].values(), row["answer_s"]]
            for end in (0, 1) if any(low != high for low, high in ranges) else (0,):
                tasks = tuple(
                    Task(
                        name,
                        {"any": round(span[end] * 1_000_000)},
                        inputs=tuple(Edge(a, 0) for a, b in row["edges"] if b == name and a != "START"),
                    )
                    for name, span in row["durations_s"].items()
                )
                built = Instance(machines(["any"] * len(tasks)), (), (Job(Workflow(row["id"], tasks), 0),))
                yield AsyncPlan(row["id"], built, round(row["answer_s"][end] * 1_000_000))


def flexible_job_shop(path: Path) -> Instance:
    """Return a flexible job shop: a job is a chain of operations, each eligible on some machines.

    First line: jobs and machines. Then per job: operations, and per operation the number of machines followed by
    pairs (machine from 0, time).
    """
    header, *lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    n_jobs, n_machines = int(header[0]), int(header[1])
    jobs = []
    for index, line in enumerate(lines[:n_jobs]):
        numbers = iter([int(word) for word in line])
        tasks: list[Task] = []
        for operation in range(next(numbers)):
            times = {f"M{next(numbers)}": next(numbers) for _ in range(next(numbers))}
            tasks.append(Task(f"o{operation}", times, inputs=(Edge(tasks[-1].name, 0),) if tasks else ()))
        jobs.append(Job(Workflow(f"j{index}", tuple(tasks)), 0))
    return Instance(machines([f"M{machine}" for machine in range(n_machines)]), (), tuple(jobs))
