"""``python -m experiments paths``: what not knowing the path of a job costs, policy by policy.

A cell is a policy on one draw of arrivals and paths at one rate, once with paths that show when the task before a
branch ends, once with paths that are known at the release. An interrupted run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

from experiments.bench import Study, ask, carry_out, markdown
from truenorth.models import Instance, Objective, timeline_value
from truenorth.models.scenario import build, load_scenario
from truenorth.planner.answers.intervals import interval_of

FOLDER = Path(__file__).parent
POLICIES = ("compass", "compass-released", "jit", "heft", "hash", "srpt", "lru", "dally", "hadar", "rltune")


@dataclass(frozen=True, slots=True)
class PathsRow:
    """The mean slowdown of a policy without and with the paths known at the release."""

    jobs_per_s: float
    seed: int
    jobs: int
    policy: str
    shown_late: float
    known: float


def paths(
    jobs: int = 200,
    draws: int = 10,
    rates: Annotated[tuple[float, ...], "jobs per second"] = (3.0, 6.0),
    folder: Annotated[Path, "where results.csv lies"] = FOLDER,
) -> None:
    """Fill the missing cells and print the answer."""
    Study(PathsRow, 4, measured, [table]).run(product(rates, range(1, draws + 1), [jobs], POLICIES), folder)


def table(rows: Sequence[PathsRow]) -> str:
    """Return per policy and rate what the paths cost where they show late, in per cent."""
    rates = list(dict.fromkeys(row.jobs_per_s for row in rows))
    lines = []
    for policy in dict.fromkeys(row.policy for row in rows):
        figures = []
        for rate in rates:
            here = [row for row in rows if (row.policy, row.jobs_per_s) == (policy, rate)]
            cost = interval_of([100 * (row.shown_late / row.known - 1) for row in here])
            ends = "" if cost.low is None else f" [{cost.low:+.1f}, {cost.high:+.1f}]"
            figures += [f"{interval_of([row.shown_late for row in here]).mean:.3g}", f"{cost.mean:+.1f}%{ends}"]
        lines.append([f"`{policy}`", *figures])
    heads = [f"{rate:g} jobs/s: slowdown | not knowing the path" for rate in rates]
    return markdown(["policy", *heads], lines, " --: | --: |")


def measured(rate: float, seed: int, jobs: int, policy: str) -> Iterator[PathsRow]:
    """Yield the row of a cell."""
    like = load_scenario(FOLDER.parents[1] / "scenarios" / "branches.yaml")
    assert like.document.workload.poisson is not None
    poisson = like.document.workload.poisson.model_copy(update={"rate": Fraction(rate), "seed": seed, "jobs": jobs})
    workload = like.document.workload.model_copy(update={"poisson": poisson})
    drawn = build(like.document.model_copy(update={"workload": workload}), like.source).instance
    late, known = (
        float(timeline_value(Objective.MEAN_SLOWDOWN, *carry_out(on, policy)))
        for on in (drawn, with_known_paths(drawn))
    )
    yield PathsRow(rate, seed, jobs, policy, late, known)


def with_known_paths(instance: Instance) -> Instance:
    """Return an instance in which every job asks for the path that it takes, and has no other."""
    return replace(instance, jobs=tuple(replace(job, workflow=replace(job.workflow, of=None)) for job in instance.jobs))


main = partial(ask, paths)
