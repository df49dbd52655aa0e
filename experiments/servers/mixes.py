"""Random priced mixes with short windows: the cheapest that `servers` finds against a proof for every mix."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any

import truenorth as tn
from truenorth.models import InstanceError, Objective, ServiceLevels
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.plan import solve
from truenorth.planner.answers.servers.question import order, remainders
from truenorth.planner.answers.servers.sizes import Mix, Sizes
from truenorth.solvers.budget import Budget
from truenorth.solvers.exact import cp_sat
from truenorth.solvers.result import Progress, Search

MOST_SERVERS, MOST_KINDS = 12, 3
LEVELS = ("no late jobs", "75 % within deadline", "p100 slowdown <= 2.5", "p80 latency <= 250 ms")
_BRIEFLY_S, _CP_SAT_S, _PROOF_S = 0.5, 10.0, 60.0


class UnprovedError(RuntimeError):
    """No proof was found in time."""


@dataclass(frozen=True, slots=True)
class CheckedMix:
    """An answer beside the proofs.

    Parameters
    ----------
    found, cheapest
        The mix that `servers` gives, and the cheapest of those that some plan serves within the level; None if none is.
    proved
        Whether `servers` says that it is the cheapest.
    false_floors
        Mixes that some plan serves, and which an answer refuted nevertheless, or lies below in price.
    """

    level: str
    mixes: int
    found: Mix | None
    cheapest: Mix | None
    proved: bool
    false_floors: int
    runtime_s: float

    @property
    def agrees(self) -> bool:
        """Whether answer and proofs say the same."""
        return self.found == self.cheapest and self.proved == (self.cheapest is not None) and not self.false_floors


def draw(seed: int) -> Scenario:
    """Return five to seven jobs of one or two tasks on up to three kinds at different prices, with a level."""
    rng = random.Random(seed)  # noqa: S311
    kinds = ["A", "B", "C"][: rng.randint(2, MOST_KINDS)]
    counts = _counts(rng, len(kinds))
    speed = {kind: rng.choice((1.0, 0.7, 0.45)) for kind in kinds}
    models = {name: rng.choice((2, 4, 6)) for name in ("x", "y", "z")[: rng.randint(1, 3)]}
    groups = [
        {
            "count": count,
            "gpu": {"kind": kind, "memory": f"{rng.choice((6, 8, 12))} GB", "load_bandwidth": "40 GB/s"},
            "price_per_hour": round(rng.uniform(0.5, 1.5) / speed[kind], 2),
        }
        for kind, count in zip(kinds, counts, strict=True)
    ]

    def task(after: dict[str, Any]) -> dict[str, Any]:
        runtime = rng.randint(60, 200)
        return {
            "models": [rng.choice(list(models))],
            "runtime": {k: f"{runtime * speed[k]:g} ms" for k in kinds},
        } | after

    workflows = {
        name: {"tasks": {"a": task({})} | ({"b": task({"after": ["a"]})} if rng.random() < 0.5 else {})}
        for name in ("w", "v")
    }
    jobs = [
        {
            "release": f"{rng.randint(100, 400)} ms",
            "workflow": rng.choice(("w", "v")),
            "deadline": f"{rng.randint(250, 600)} ms",
        }
        for _ in range(rng.randint(5, 7))
    ]
    return scenario_from(
        {
            "name": f"mixes {seed}",
            "cluster": {"groups": groups, "network": {"bandwidth": "10 GB/s"}},
            "models": {name: {"weights": f"{size} GB"} for name, size in models.items()},
            "workflows": workflows,
            "workload": {"jobs": jobs},
            "slo": LEVELS[seed % len(LEVELS)],
        }
    )


def _counts(rng: random.Random, kinds: int) -> list[int]:
    while True:
        counts = [rng.randint(1, 6) for _ in range(kinds)]
        if sum(counts) <= MOST_SERVERS:
            return counts


def serves(scenario: Scenario) -> bool:
    """Say whether some plan is within the one level of a scenario: by a plan with few late jobs, or by a bound on them.

    Raises
    ------
    UnprovedError
        If neither is found in time.
    """
    level, window = ServiceLevels.parse(str(scenario.slo)).levels[0], scenario.instance
    if level.measure != "lateness":
        units = [job.critical_path_us if level.measure == "slowdown" else 1 for job in window.jobs]
        jobs = [replace(job, deadline_us=int(level.limit * unit)) for job, unit in zip(window.jobs, units, strict=True)]
        window = replace(window, jobs=tuple(jobs))
    most = len(window.jobs) - ceil((level.share or 1) * len(window.jobs))
    settled = threading.Event()

    def watch(progress: Progress) -> None:
        met = progress.value is not None and progress.value <= most
        if met or (progress.bound is not None and progress.bound > most):
            settled.set()

    search = Search(window, Objective.LATE_JOBS, _CP_SAT_S, watch, settled)
    cp_sat.improve(search, workers=1, seed=0)
    found = search.result("cp-sat", {})
    if not settled.is_set() and not found.infeasible:  # all that the project has, then
        found = solve(window, Objective.LATE_JOBS, Budget(_PROOF_S, workers=1, watch=watch, stop=settled))
    if found.value is not None and found.value <= most:
        return True
    if found.infeasible or (found.lower_bound or 0) > most:
        return False
    raise UnprovedError(f"{scenario.name}: {found.status} after {_PROOF_S:g} s, which proves nothing")


def check(seed: int, spare: int, time_limit_s: float) -> CheckedMix:
    """Ask about a draw, for a short and for a longer time, and prove or refute every mix by itself."""
    scenario = draw(seed)
    sizes = Sizes(scenario)
    mixes = [mix for mix in product(*(range(count + 1) for count in sizes.counts)) if sum(mix)]
    served = {mix: _serves_on(sizes, mix) for mix in mixes} | {(0,) * len(sizes.counts): False}
    enough = [mix for mix in mixes if all(served[left] for left in remainders(mix, spare))]
    cheapest = min(enough, key=lambda mix: order(sizes, mix), default=None)
    answer, brief = (
        tn.servers(scenario, policies=("srpt",), spare=spare, time_limit=limit_s)
        for limit_s in (time_limit_s, _BRIEFLY_S)
    )
    false_floors = sum(
        any(all(a <= b for a, b in zip(mix, done.mix, strict=True)) for mix in mixes if served[mix])
        for each in (answer, brief)
        for done in each.refutations
    )
    if cheapest is not None:
        price = answer.cost(cheapest)
        false_floors += sum((each.lower_bound_price or Fraction(10**9)) > price for each in (answer, brief))
    level = str(scenario.slo)
    return CheckedMix(level, len(mixes), answer.mix, cheapest, answer.proved, false_floors, answer.runtime_s)


def _serves_on(sizes: Sizes, mix: Mix) -> bool:
    try:
        return serves(sizes.at(mix))
    except InstanceError:
        return False  # some task can run nowhere
