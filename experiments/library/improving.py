"""Work on an instance for a while: a better plan than the best known one, and a higher bound with its certificate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from experiments.library.store import PLAN, Found, Library, NotEnteredError
from truenorth.models.objective import Status
from truenorth.models.scenario import TimelineHeader
from truenorth.planner.answers.bound import bound_within
from truenorth.planner.answers.plan import Plan, plan_within
from truenorth.planner.answers.versions import provenance
from truenorth.solvers.budget import Budget

_S_PER_TASK = 1e-3
"""Traces have no less than that for each task: in less, policies alone are simulated."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a worker is asked.

    Parameters
    ----------
    folder, name
        The library and the instance.
    runs
        How often it was worked on before: the seed.
    longest_s
        The most time that was given for its bound before, which the same time would find again.
    time_limit_s
        For a plan, and again for a bound.
    """

    folder: Path
    name: str
    runs: int
    longest_s: float
    time_limit_s: float

    @classmethod
    def of(cls, library: Library, name: str, tried: Mapping[str, float], time_limit_s: float) -> Attempt:
        """Return the next attempt at an instance, after those that `tried` tells of."""
        limit_s = max(time_limit_s, _S_PER_TASK * library.entries[name].tasks)
        return cls(library.folder, name, int(tried.get("runs", 0)), tried.get("longest_s", 0.0), limit_s)

    @property
    def tried(self) -> dict[str, float]:
        """What is to be known of the attempts once this one is made."""
        return {"runs": self.runs + 1, "longest_s": max(self.longest_s, self.time_limit_s)}

    @property
    def plans(self) -> bool:
        """Whether a better plan may be found: no solver has proved that there is none."""
        return Library(self.folder).stored(PLAN, self.name).get("status") != Status.OPTIMAL

    @property
    def bounds(self) -> bool:
        """Whether a higher bound may be found."""
        return self.time_limit_s > self.longest_s


def work_on(asked: Attempt) -> str:
    """Plan and bound an instance, enter what is better, and return what came of it in words."""
    said = [find(asked) for find, due in ((_plan, asked.plans), (_bound, asked.bounds)) if due]
    return f"{asked.name}: {'; '.join(filter(None, said)) or 'nothing better'}"


def _plan(asked: Attempt) -> str:
    library, name = Library(asked.folder), asked.name
    budget = Budget(asked.time_limit_s, workers=1, seed=asked.runs)
    made = plan_within(library.scenario(name), budget, hint=library.plan(name))
    if made.timeline is None:
        return "no plan was found"
    found = _found(asked.runs, made.result.runtime_s)
    with suppress(NotEnteredError):
        library.enter_plan(name, made.timeline, _header(made), found)
        return f"plan {made.value:.9g}"
    return ""


def _bound(asked: Attempt) -> str:
    library, name = Library(asked.folder), asked.name
    made = bound_within(library.scenario(name), Budget(asked.time_limit_s, workers=1), hint=library.plan(name))
    with suppress(NotEnteredError):
        library.enter_certificate(name, made.certificate, _found(0, made.runtime_s))
        return f"bound {made.certificate['lower_bound']:.9g} ({made.method})"
    return ""


def _header(made: Plan) -> TimelineHeader:
    """Return what the file says of a plan: with the bound that was proved beside it, certified or not."""
    return TimelineHeader(
        status=str(made.result.status),
        objective=str(made.scenario.objective),
        value=made.value,
        lower_bound=made.lower_bound,
        bound_method=made.result.bound_method,
        gap=made.result.gap,
        solver=made.result.solver,
        versions=provenance(),
    )


def _found(seed: int, seconds: float) -> Found:
    return Found(
        "improve",
        provenance().get("commit"),
        seed,
        round(seconds, 1),
        f"{os.cpu_count()} cores",
        datetime.now(UTC).date().isoformat(),
    )
