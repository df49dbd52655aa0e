"""``python -m experiments.servers``: known minima, the authors' workload, and the fluid bound at scale."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import truenorth as tn
from experiments import authors
from experiments.azure_arrivals import arrivals
from experiments.bench import ask
from experiments.suites import parallel_machines
from experiments.suites.case import KNOWN_OPTIMA, best_known, found
from experiments.suites.parallel_machines import CAPACITY, triplets
from truenorth.models import InstanceError, Objective, ServiceLevel, ServiceLevels
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, load_scenario, scenario_from
from truenorth.models.units import parse_time
from truenorth.planner.answers.plan import solve
from truenorth.planner.answers.questions import ScheduleQuestion
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.goal import Tolerance
from truenorth.planner.answers.servers.sizes import Mix, Sizes, order, remainders
from truenorth.solvers.bounds import fluid
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


AZURE = Path(__file__).parent / "scenarios" / "azure.yaml"
CONVERSATIONS = KNOWN_OPTIMA.parent / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv.gz"
LOAD = 0.8
"""Share of the GPUs' time that a large instance takes."""
AUTHORS = Path(__file__).parent / "scenarios" / "compass_edge.yaml"
P99 = "p99 slowdown <= 2"
Seconds = Annotated[float, "seconds per answer"]


def _data_of(base: Scenario) -> dict[str, Any]:
    """Return what a scenario file says."""
    return dict(base.source.root.data()) if base.source.root is not None else {}  # type: ignore[call-overload]


def authors_scenario(rate: int, jobs: int) -> Scenario:
    """Return the first recorded jobs of the authors' workload, shifted to 0."""
    base = load_scenario(AUTHORS)
    arrivals = authors.recorded(rate, jobs)
    data = _data_of(base)
    data["workload"] = {"jobs": [{"release": f"{at} us", "workflow": name} for at, name in arrivals]}
    return scenario_from({**data, "name": f"authors, {rate} jobs/s, {jobs} jobs"})


def triplets_packed(time_limit: Seconds = 300.0, seeds: Annotated[int, "triplets per size"] = 3) -> None:
    """Print the proved minimum for triplets."""
    level = ServiceLevels.parse("no late jobs")
    for items in (30, 60):
        for seed in range(1, seeds + 1):
            scenario = parallel_machines.scenario(f"triplets {items}", triplets(items, seed), 1, CAPACITY)
            answer = tn.servers(scenario, level, policies=(), time_limit=time_limit)
            line = f"{items} items, seed {seed}: {answer.servers} servers of {items // 3}, proved {answer.proved}"
            print(f"{line}, {answer.runtime_s:.1f} s", flush=True)


def pcmax(time_limit: Seconds = 300.0) -> None:
    """Print both sides of the decision at every known optimum."""
    level = ServiceLevels.parse("no late jobs")
    folder = KNOWN_OPTIMA / "pcmax"
    closed = {name: known for name, known in best_known(folder / "optima.csv").items() if known.lower == known.upper}
    for name, known in closed.items():
        sizes, count = parallel_machines.read(folder / name)
        for deadline, wanted in ((known.upper, "met"), (known.upper - 1, "refuted")):
            scenario = parallel_machines.scenario(name, sizes, count, deadline)
            answer = tn.servers(scenario, level, policies=(), max=count, time_limit=time_limit)
            met = answer.servers is not None and answer.servers <= count
            refuted = answer.least is None
            said = "met" if met else "refuted" if refuted else "open"
            line = f"{name}: {count} machines, deadline {deadline}: {said} (expected {wanted})"
            print(f"{line}, {answer.runtime_s:.1f} s", flush=True)


def authors_served(
    time_limit: Seconds = 300.0,
    rates: Annotated[tuple[int, ...], "jobs per second"] = (2, 3, 4),
    jobs: Annotated[int, "jobs of the authors' workload"] = 300,
    slo: str = P99,
) -> None:
    """Print the interval and the policies for the authors' workload."""
    level = ServiceLevels.parse(slo)
    for rate in rates:
        answer = tn.servers(authors_scenario(rate, jobs), level, time_limit=time_limit)
        reached = {row.policy: None if row.mix is None else sum(row.mix) for row in answer.policies}
        print(f"{rate} jobs/s: {answer.lower_bound} to {answer.servers} servers, {answer.runtime_s:.0f} s, {reached}")
        print(f"   {answer.refutation.forces if answer.refutation else ''}", flush=True)


def fluid_bound(jobs_at_scale: int = 1_000_000, gpus: int = 10_000, slo: str = P99) -> None:
    """Print how long the fluid bound takes on a large instance."""
    instance = authors.at_load(LOAD, gpus, jobs_at_scale, seed=1)
    tolerance = Tolerance(ServiceLevel.parse(slo), 1, Fraction(99, 100))
    begun = time.process_time(), time.monotonic()
    due, late = tolerance.due_us(instance), tolerance.most_late(instance)
    least, demand = fluid.least_gpus(instance, due, late)
    spent = f"{time.process_time() - begun[0]:.2f} s of CPU, {time.monotonic() - begun[1]:.2f} s"
    size = f"{len(instance.jobs)} jobs, {instance.n_tasks} tasks, {instance.n_gpus} GPUs"
    print(f"{size}: at least {least} GPUs, {spent}")
    if demand is not None:
        print(f"   window {demand.begin_us / 1e6:.6g} s to {demand.end_us / 1e6:.6g} s, {demand.resource}")


def large_served(
    time_limit: Seconds = 300.0, jobs_at_scale: int = 1_000_000, gpus: int = 10_000, slo: str = P99
) -> None:
    """Print the interval for many jobs on many GPUs, by the fluid bound and plans of a dispatch rule."""
    base = load_scenario(AUTHORS)
    data = _data_of(base)
    mix = dict.fromkeys(base.document.workflows, 1)
    rate, cluster = f"{LOAD * gpus / authors.WORK_PER_JOB_S:g} /s", {**data["cluster"], "servers": gpus}
    arrivals = {"poisson": {"rate": rate, "jobs": jobs_at_scale, "seed": 1, "mix": mix}}
    begun = time.monotonic()
    scenario = scenario_from({**data, "cluster": cluster, "workload": arrivals, "slo": slo})
    print(f"{jobs_at_scale} jobs read in {time.monotonic() - begun:.1f} s", flush=True)

    def tell(words: str) -> None:
        print(f"   {time.monotonic() - begun:6.1f} s: {words}", flush=True)

    answer = tn.servers(scenario, policies=(), time_limit=time_limit, watch=tell)
    print(f"{answer.lower_bound} to {answer.servers} servers, {answer.runtime_s:.1f} s")
    print(f"   {answer.refutation.forces if answer.refutation else ''}")


def mixes_checked(
    time_limit: Seconds = 300.0,
    spare: Annotated[int, "servers that may be gone of a mix"] = 0,
    draws: Annotated[int, "random mixes"] = 20,
    first: Annotated[int, "of the draws"] = 0,
) -> None:
    """Print how often the cheapest of all mixes was found, and whether a floor lay above it."""
    equal = 0
    for seed in range(first, draws):
        try:
            one = check(seed, spare, time_limit)
        except UnprovedError as error:
            print(f"draw {seed}: {error}", flush=True)
            continue
        equal += one.agrees
        said = f"{one.found}, proved {one.proved}, by brute force {one.cheapest}, {one.false_floors} false floors"
        print(f"draw {seed}: {one.level}: of {one.mixes} mixes {said}, {one.runtime_s:.1f} s", flush=True)
    print(f"equal: {equal} of {draws - first}")


def azure_hour() -> Scenario:
    """Return an hour of the Azure conversation trace as the authors' workflows, on servers that take time to start."""
    base = load_scenario(AZURE)
    data = _data_of(base)
    cluster = data["cluster"]
    group = {"count": 12, "gpu": cluster["gpu"], "price_per_hour": 0.5, "start_up": "30 s"}
    jobs = [{"release": f"{at} ms", "workflow": name} for at, name in arrivals(found(CONVERSATIONS), 60)]
    changed = {"cluster": {"groups": [group], "network": cluster["network"]}, "workload": {"jobs": jobs}}
    return scenario_from({**data, **changed, "name": "azure, one hour"})


def day(
    time_limit: Seconds = 300.0,
    day_slo: str = "p95 slowdown <= 3",
    by: Annotated[str, "interval of the schedule"] = "10 min",
) -> None:
    """Print the cheapest schedule over an hour of the Azure trace, by ten minutes."""
    level = ServiceLevels.parse(day_slo)
    answer = ScheduleQuestion(level, by_us=parse_time(by), time_limit_s=time_limit).ask(azure_hour())
    fixed, told = answer.fixed, answer.record
    print(f"{fixed.lower_bound} to {fixed.servers} servers that stay; {answer.runtime_s:.0f} s")
    for row in told.intervals:
        counts = {name: count.servers for name, count in row.policies.items()}
        said = f"at least {row.minimum.lower_bound}, found {row.minimum.servers}, {counts}"
        print(f"   from {row.from_s:g} s: {row.jobs} jobs, {said}")
    print(f"   {encode(told.schedule)}", flush=True)


TOKEN_LEVELS = (("p95 latency <= 60 s",), ("p95 latency <= 60 s", "p100 latency <= 600 s"))
"""Without and with a level for all."""


def tokens_served(
    scenario: Annotated[str, "file that `import tokens` wrote, with priced kinds"],
    time_limit: Seconds = 120.0,
    nodes: Annotated[int, "of the first kind, for one simulation"] = 10,
) -> None:
    """Print the order for a log of tokens beside its floor, and beside every cheaper mix under the same policy."""
    asked = tn.load(scenario)
    sizes = Sizes(asked)
    some = sizes.at((nodes, *[0] * (len(sizes.counts) - 1)))
    tn.simulate(some, "least_tokens")  # compiles what it needs
    begun = time.process_time()
    made, spent_s = tn.simulate(some, "least_tokens").metrics, time.process_time() - begun
    print(f"{nodes} nodes: {spent_s:.2f} s of CPU, p95 latency {made.p95_latency_s:.1f} s", flush=True)
    for slo in TOKEN_LEVELS:
        answer = tn.servers(asked, slo, time_limit=time_limit)
        if not answer.alternatives or answer.lower_bound_price is None:
            print(f"{' and '.join(slo)}: no order in {answer.runtime_s:.0f} s", flush=True)
            continue
        best, floor = answer.alternatives[0], float(answer.lower_bound_price)
        price = float(answer.cost(best.mix))
        said = f"{best.mix} at {price:g} for {best.policy}, floor {floor:g} ({floor / price:.0%})"
        print(f"{' and '.join(slo)}: {said}, {answer.runtime_s:.0f} s", flush=True)
        mixes = [mix for mix in product(*(range(count + 1) for count in sizes.counts)) if sum(mix)]
        cheaper = [mix for mix in mixes if order(sizes, mix) < order(sizes, best.mix)]
        met = [mix for mix in cheaper if _gateway_meets(answer, mix, best.policy)]
        print(f"   of {len(cheaper)} cheaper mixes {len(met)} meet it under that policy: {met}", flush=True)


def _gateway_meets(answer: tn.ServersAnswer, mix: Mix, policy: str) -> bool:
    ran = tn.simulate(answer.sizes.at(mix), policy)
    return meets(ran.truth, ran.timeline, answer.levels)


if __name__ == "__main__":
    ask(
        {
            "triplets": triplets_packed,
            "pcmax": pcmax,
            "authors": authors_served,
            "fluid": fluid_bound,
            "large": large_served,
            "mixes": mixes_checked,
            "day": day,
            "tokens": tokens_served,
        }
    )
