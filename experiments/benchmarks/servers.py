"""``python -m experiments servers``: known minima, the authors' workload, and the fluid bound at scale."""

from __future__ import annotations

import time
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import truenorth as tn
from experiments import authors
from experiments.azure_arrivals import arrivals
from experiments.bench import ask
from experiments.suites import shops
from experiments.suites.case import KNOWN_OPTIMA, best_known, found
from experiments.suites.shops import CAPACITY, triplets
from truenorth.models import ServiceLevel, ServiceLevels
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.goal import Tolerance
from truenorth.planner.answers.servers.sizes import Mix, Sizes
from truenorth.solvers.bounds import fluid

AZURE = Path(__file__).parents[1] / "scenarios" / "azure.yaml"
CONVERSATIONS = KNOWN_OPTIMA.parent / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv.gz"
LOAD = 0.8
"""Share of the GPUs' time that a large instance takes."""
P99 = "p99 slowdown <= 2"
Seconds = Annotated[float, "seconds per answer"]


def authors_scenario(rate: int, jobs: int) -> Scenario:
    """Return the first recorded jobs of the authors' workload, shifted to 0."""
    listed = [{"release": f"{at} us", "workflow": name} for at, name in authors.recorded(rate, jobs)]
    name = f"authors, {rate} jobs/s, {jobs} jobs"
    return load_scenario(authors.SCENARIO).changed({"workload": {"jobs": listed}, "name": name})


def triplets_packed(time_limit: Seconds = 300.0, seeds: Annotated[int, "triplets per size"] = 3) -> None:
    """Print the proved minimum for triplets."""
    level = ServiceLevels.parse("no late jobs")
    for items in (30, 60):
        for seed in range(1, seeds + 1):
            scenario = shops.scenario(f"triplets {items}", triplets(items, seed), 1, CAPACITY)
            answer = tn.servers(scenario, level, policies=(), time_limit=time_limit)
            line = f"{items} items, seed {seed}: {answer.servers} servers of {items // 3}, proved {answer.proved}"
            print(f"{line}, {answer.runtime_s:.1f} s", flush=True)


def pcmax(time_limit: Seconds = 300.0) -> None:
    """Print both sides of the decision at every known optimum."""
    level = ServiceLevels.parse("no late jobs")
    folder = KNOWN_OPTIMA / "pcmax"
    closed = {name: known for name, known in best_known(folder / "optima.csv").items() if known.lower == known.upper}
    for name, known in closed.items():
        sizes, count = shops.read_parallel_machines(folder / name)
        for deadline, wanted in ((known.upper, "met"), (known.upper - 1, "refuted")):
            scenario = shops.scenario(name, sizes, count, deadline)
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
    base, begun = load_scenario(authors.SCENARIO), time.monotonic()
    mix, rate = dict.fromkeys(base.document.workflows, 1), f"{LOAD * gpus / authors.WORK_PER_JOB_S:g} /s"
    arrivals = {"poisson": {"rate": rate, "jobs": jobs_at_scale, "seed": 1, "mix": mix}}
    scenario = base.changed({"cluster.servers": gpus, "workload": arrivals, "slo": slo})
    print(f"{jobs_at_scale} jobs read in {time.monotonic() - begun:.1f} s", flush=True)

    def tell(words: str) -> None:
        print(f"   {time.monotonic() - begun:6.1f} s: {words}", flush=True)

    answer = tn.servers(scenario, policies=(), time_limit=time_limit, watch=tell)
    print(f"{answer.lower_bound} to {answer.servers} servers, {answer.runtime_s:.1f} s")
    print(f"   {answer.refutation.forces if answer.refutation else ''}")


def azure_hour() -> Scenario:
    """Return an hour of the Azure conversation trace as the authors' workflows, on servers that take time to start."""
    base = load_scenario(AZURE)
    cluster: Any = base.data()["cluster"]
    group = {"count": 12, "gpu": cluster["gpu"], "price_per_hour": 0.5, "start_up": "30 s"}
    jobs = [{"release": f"{at} ms", "workflow": name} for at, name in arrivals(found(CONVERSATIONS), 60)]
    priced = {"groups": [group], "network": cluster["network"]}
    return base.changed({"cluster": priced, "workload": {"jobs": jobs}, "name": "azure, one hour"})


def day(
    time_limit: Seconds = 300.0,
    day_slo: str = "p95 slowdown <= 3",
    by: Annotated[str, "interval of the schedule"] = "10 min",
) -> None:
    """Print the cheapest schedule over an hour of the Azure trace, by ten minutes."""
    answer = tn.servers_by(azure_hour(), by, day_slo, time_limit=time_limit)
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
        cheaper = [mix for mix in mixes if sizes.order(mix) < sizes.order(best.mix)]
        met = [mix for mix in cheaper if _gateway_meets(answer, mix, best.policy)]
        print(f"   of {len(cheaper)} cheaper mixes {len(met)} meet it under that policy: {met}", flush=True)


def _gateway_meets(answer: tn.ServersAnswer, mix: Mix, policy: str) -> bool:
    ran = tn.simulate(answer.sizes.at(mix), policy)
    return meets(ran.truth, ran.timeline, answer.levels)


main = partial(
    ask,
    {
        "triplets": triplets_packed,
        "pcmax": pcmax,
        "authors": authors_served,
        "fluid": fluid_bound,
        "large": large_served,
        "day": day,
        "tokens": tokens_served,
    },
)
