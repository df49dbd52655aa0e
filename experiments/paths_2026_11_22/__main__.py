"""``python -m experiments.paths_2026_11_22``: fills results.csv cell by cell, then prints the table of the answer.

A cell is a policy on one draw of arrivals and paths at one rate, once with paths that show when the task before a
branch ends, once with paths that are known at the release. An interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from executor import instance_for, parse_policy
from executor import simulate as run
from experiments.resumed import fill
from models import Instance, Objective, timeline_value
from models.scenario import build, load_scenario
from planner.answers.intervals import interval_of

FOLDER = Path(__file__).parent
POLICIES = ("compass", "compass-released", "jit", "heft", "hash", "srpt", "lru", "dally", "hadar", "rltune")
RATES = (3.0, 6.0)


@dataclass(frozen=True, slots=True)
class Row:
    """The mean slowdown of a policy without and with the paths known at the release."""

    jobs_per_s: float
    seed: int
    jobs: int
    policy: str
    shown_late: float
    known: float

    @property
    def cell(self) -> tuple[float, int, int, str]:
        """What was asked."""
        return self.jobs_per_s, self.seed, self.jobs, self.policy


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the missing cells and print the answer."""
    parser = argparse.ArgumentParser(prog="python -m experiments.paths_2026_11_22", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="jobs per second")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results.csv lies")
    options = parser.parse_args(arguments)
    cells = list(product(options.rates, range(1, options.draws + 1), [options.jobs], POLICIES))
    rows = fill(options.folder / "results.csv", Row, cells, lambda cell: measured(*cell))
    for line in table(rows, options.rates):
        print(line)


def table(rows: Sequence[Row], rates: Sequence[float]) -> Iterator[str]:
    """Yield the lines of a table: per policy and rate what the paths cost where they show late, in per cent."""
    yield f"| policy | {' | '.join(f'{rate:g} jobs/s: slowdown | not knowing the path' for rate in rates)} |"
    yield f"| --- |{' --: | --: |' * len(rates)}"
    for policy in POLICIES:
        figures = []
        for rate in rates:
            here = [row for row in rows if (row.policy, row.jobs_per_s) == (policy, rate)]
            cost = interval_of([100 * (row.shown_late / row.known - 1) for row in here])
            ends = "" if cost.low is None else f" [{cost.low:+.1f}, {cost.high:+.1f}]"
            figures += [f"{interval_of([row.shown_late for row in here]).mean:.3g}", f"{cost.mean:+.1f}%{ends}"]
        yield f"| `{policy}` | {' | '.join(figures)} |"


def measured(rate: float, seed: int, jobs: int, policy: str) -> Iterator[Row]:
    """Yield the row of a cell."""
    like = load_scenario(FOLDER.parent / "scenarios" / "branches.yaml")
    assert like.document.workload.poisson is not None
    poisson = like.document.workload.poisson.model_copy(update={"rate": Fraction(rate), "seed": seed, "jobs": jobs})
    workload = like.document.workload.model_copy(update={"poisson": poisson})
    drawn = build(like.document.model_copy(update={"workload": workload}), like.source).instance
    late, known = (slowdown(on, policy) for on in (drawn, with_known_paths(drawn)))
    yield Row(rate, seed, jobs, policy, late, known)


def with_known_paths(instance: Instance) -> Instance:
    """Return an instance in which every job asks for the path that it takes, and has no other."""
    return replace(instance, jobs=tuple(replace(job, workflow=replace(job.workflow, of=None)) for job in instance.jobs))


def slowdown(on: Instance, policy: str) -> float:
    """Return the mean slowdown of a policy."""
    parsed = parse_policy(policy)
    own = instance_for(on, parsed)
    return float(timeline_value(Objective.MEAN_SLOWDOWN, own, run(own, parsed)))


if __name__ == "__main__":
    main()
