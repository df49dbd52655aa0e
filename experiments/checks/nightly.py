"""``python -m experiments nightly``: random scenarios against the oracle; what was compared, and what is wrong."""

from __future__ import annotations

import copy
import json
import math
import random
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from operator import le
from pathlib import Path
from typing import Annotated, Any

import truenorth as tn
from experiments.bench import ask
from experiments.benchmarks.exact import ask_plainly, fork_data, subsolvers
from experiments.random_scenarios import UNITS_US, Draw, draw
from truenorth.models import Cluster, Instance, InstanceError, Objective, Timeline
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.errors import UserError
from truenorth.models.objective import Status, reported_bound
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.sizes import Mix, Sizes, remainders
from truenorth.solvers.bounds import closed_form, refutation
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.lagrangian.improve import improve
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.budget import Method
from truenorth.solvers.exact import cp_sat, exhaustive, milp, parts, refute, start_orders
from truenorth.solvers.result import Result, Search
from truenorth.solvers.rounding import round_up
from truenorth.solvers.search.dispatch import greedy

_PROVED = Fraction(1, 1_000_000)
"""Relative difference within which a value counts as equal to its bound."""
MOST_SERVERS, INTERVALS = 3, 2
"""Sizes and schedules are looked at up to here."""
JUNK: tuple[Any, ...] = (None, True, False, -1, 0, 1, 3, 1e400, float("nan"), 1 << 63, 10**40, "x", [], {}, [[]], 0.5)


@dataclass(frozen=True, slots=True)
class OracleCheck:
    """What was compared with the oracle; whether it was open, undecided at its limit; what contradicts it, or None."""

    what: str
    is_open: bool = False
    contradiction: str | None = None


def compare_plans(draw: Draw, limit_s: float) -> Iterator[OracleCheck]:
    """Compare the plans of every method but the MILP, and of CP-SAT by itself."""
    yield from _compare_methods(draw, limit_s, [method for method in Method if method is not Method.MILP])
    yield _judge("CP-SAT alone", cp_sat.solve(*_question(draw), limit_s, workers=1), exhaustive.solve(*_question(draw)))


def compare_milp(draw: Draw, limit_s: float) -> Iterator[OracleCheck]:
    """Compare the plans of the MILP, which takes long to set up, in the portfolio and by itself."""
    yield from _compare_methods(draw, limit_s, [Method.MILP])
    yield _judge("MILP alone", milp.solve(*_question(draw), limit_s, workers=1), exhaustive.solve(*_question(draw)))


def draw_fork(seed: int) -> Draw:
    """Return a window of two kinds of GPU that forks, in milliseconds; the oracle is too slow for it."""
    data = fork_data(seed)
    return Draw(data, scenario_from(data), 1_000)


def compare_subsolvers(draw: Draw, seed: int) -> Iterator[OracleCheck]:
    """Compare what CP-SAT's subsolvers say of the plain model: no bound may lie above a plan of any of them."""
    asked = [(name or "alone", ask_plainly(draw.scenario, name, seed)) for name in subsolvers(_question(draw)[1])]
    least = min((answer.value for _, answer in asked if answer.value is not None), default=math.inf)
    for name, answer in asked:
        wrong = f"bound {float(answer.bound)}, but there is a plan of {float(least)}" if answer.bound > least else None
        yield OracleCheck(f"CP-SAT {name}", answer.value is None or answer.bound < answer.value, wrong)


def _question(draw: Draw) -> tuple[Instance, Objective]:
    return draw.scenario.instance, draw.scenario.objective


def _compare_methods(draw: Draw, limit_s: float, methods: list[Method]) -> Iterator[OracleCheck]:
    optimum = exhaustive.solve(*_question(draw))
    for method in methods:
        made = tn.plan(draw.scenario, time_limit=limit_s, method=method, workers=1)
        yield _judge(f"plan --method {method}", made.result, optimum)


def _judge(what: str, result: Result, optimum: Result) -> OracleCheck:
    best, bounds = optimum.value, [moment.bound for moment in result.incumbents if moment.bound is not None]
    wrong = None
    if best is None:
        wrong = None if result.value is None else f"has a plan of {result.value}, and there is none"
    elif result.status is Status.INFEASIBLE:
        wrong = f"says that there is no plan, and the optimum is {best}"
    elif result.value is not None and result.value < best:
        wrong = f"has a plan of {result.value}, and the optimum is {best}"
    elif result.status is Status.OPTIMAL and result.value is not None and result.value > best * (1 + _PROVED):
        wrong = f"calls {result.value} optimal, and the optimum is {best}"
    elif max(bounds, default=best) > best:
        wrong = f"has a bound of {max(bounds)}, and the optimum is {best}"
    return OracleCheck(what, result.status in (Status.FEASIBLE, Status.NO_SOLUTION), wrong)


def compare_bounds(draw: Draw, limit_s: float, alterations: int) -> Iterator[OracleCheck]:
    """Compare every bound, the certificate of each that has one, and altered certificates."""
    instance, objective = draw.scenario.instance, draw.scenario.objective
    optimum = exhaustive.solve(instance, objective).value
    if optimum is None:
        return  # any bound holds
    rng = random.Random(len(instance.jobs))  # noqa: S311
    for name, document, bound in certificates(instance, objective, limit_s):
        wrong = f"has a bound of {bound}, and the optimum is {optimum}" if bound > optimum else None
        yield OracleCheck(f"bound {name}", False, wrong)
        verdict = verify(instance, document)
        same = verdict.valid and verdict.lower_bound == bound
        yield OracleCheck(f"certificate {name}", False, None if same else f"is refused: {verdict.reason}")
        for changed in altered(document, alterations, rng):
            yield OracleCheck("altered certificates", False, _believes(instance, objective, changed, optimum))


def certificates(
    instance: Instance, objective: Objective, seconds: float
) -> Iterator[tuple[str, dict[str, Any], Fraction]]:
    """Yield every bound that has a certificate: its method, the certificate as a file would hold it, and its value."""
    for name, method in closed_form.METHODS.items():
        value = method(instance, objective)
        if value is not None:
            value = round_up(instance, objective, value)
            yield name, json.loads(json.dumps(closed_form_document(instance, objective, name, value))), value
    priced = improve(Search(instance, objective, seconds))
    if priced is not None:
        yield "lagrangian", json.loads(json.dumps(lagrangian_document(instance, objective, priced))), priced.bound
    # The decoder behind `greedy` knows fewer windows than the bounds do: those of start orders it all knows.
    proves = priced is not None and start_orders.applies(instance, objective)
    plan = greedy(instance, objective) if proves else None
    if priced is not None and plan is not None:
        search = _beginning_with(plan, instance, objective, seconds)
        parts.improve(search, priced, seconds)
        yield from _written("parts", search)
    plan = greedy(instance, objective) if refutation.applies(instance, objective) else None
    if plan is not None:
        search = _beginning_with(plan, instance, objective, seconds)
        refute.improve(search, seconds)
        yield from _written("refutation", search)


def _beginning_with(plan: Timeline, instance: Instance, objective: Objective, seconds: float) -> Search:
    search = Search(instance, objective, seconds, writes=True)
    search.offer(plan)
    return search


def _written(name: str, search: Search) -> Iterator[tuple[str, dict[str, Any], Fraction]]:
    if search.written is not None:
        bound, document = search.written
        yield name, json.loads(json.dumps(document)), bound


def altered(document: dict[str, Any], count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield so many certificates that differ from one in one or two places, and are to prove nothing more."""
    for _ in range(count):
        changed = copy.deepcopy(document)
        for _ in range(rng.randint(1, 2)):
            places = [place for place in _places(changed) if place[0] in ("lower_bound", "parameters", "prices")]
            inside, place = changed, rng.choice(places)
            for key in place[:-1]:
                inside = inside[key]
            inside[place[-1]] = _instead(inside[place[-1]], rng)
        # A claim that only a proof of more than is true could bear.
        changed["lower_bound"] = rng.choice((changed["lower_bound"], 1e18))
        yield changed


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to everything inside a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*at, key)
        yield from _places(value[key], (*at, key))


def _instead(value: Any, rng: random.Random) -> Any:
    """Return something else: near by, far away, reordered, or no such thing at all."""
    if isinstance(value, int) and rng.random() < 0.7:
        return rng.choice((value + 1, value - 1, 2 * value, value // 2, -value, value << rng.randint(1, 80)))
    if isinstance(value, list) and value and rng.random() < 0.7:
        return rng.choice((value[::-1], value[:-1], value + value[-1:], [value[0]] * len(value)))
    return copy.deepcopy(rng.choice(JUNK))


def _believes(instance: Instance, objective: Objective, document: Any, optimum: Fraction) -> str | None:
    """Return how the verifier trusts a certificate too far; None if it does not."""
    verdict = verify(instance, document)
    if verdict.lower_bound is not None and verdict.lower_bound > optimum:
        return f"proves {verdict.lower_bound}, and the optimum is {optimum}: {json.dumps(document)}"
    if verdict.valid and document["lower_bound"] > reported_bound(objective, optimum):
        return f"is believed, and the optimum is {optimum}: {json.dumps(document)}"
    return None


def compare_servers(draw: Draw, limit_s: float) -> Iterator[OracleCheck]:
    """Compare the least number of servers, and the sizes that are refuted, with what the oracle says of every size."""
    answer = tn.servers(draw.scenario, policies=["jit"], max=MOST_SERVERS, time_limit=limit_s, workers=1)
    enough = [count for count in range(1, MOST_SERVERS + 1) if _meets(_sized(draw, count))]
    yield OracleCheck("servers", bool(answer.undecided), _servers_fault(answer, enough))


def _servers_fault(answer: ServersAnswer, enough: list[int]) -> str | None:
    if answer.servers is not None and answer.servers not in enough:
        return f"finds {answer.servers}, and enough are {enough}"
    if answer.impossible and enough:
        return f"refutes all numbers, and enough are {enough}"
    least = answer.lower_bound
    if least is not None and any(count < least for count in enough):
        return f"refutes all below {least}, and enough are {enough}"
    return None


def compare_mixes(draw: Draw, limit_s: float, spare: int) -> Iterator[OracleCheck]:
    """Compare the cheapest mix of priced servers, of which some may be gone, with what the oracle says of every mix."""
    sizes = Sizes(draw.scenario)
    mixes = [mix for mix in product(*(range(count + 1) for count in sizes.counts)) if sum(mix)]
    served = {mix: _serves(sizes, mix) for mix in mixes} | {(0,) * len(sizes.counts): False}
    enough = [mix for mix in mixes if all(served[left] for left in remainders(mix, spare))]
    cheapest = min(enough, key=sizes.order, default=None)
    answer = tn.servers(draw.scenario, policies=["jit"], spare=spare, time_limit=limit_s, workers=1)
    fault, floor = None, answer.lower_bound_price
    refuted = [done.mix for done in answer.refutations]
    false = [mix for mix in mixes if served[mix] and any(all(map(le, mix, done)) for done in refuted)]
    if answer.mix is not None and answer.mix not in enough:
        fault = f"finds {answer.mix}, and enough are {enough}"
    elif answer.mix is not None and answer.proved and cheapest and answer.cost(answer.mix) > answer.cost(cheapest):
        fault = f"calls {answer.mix} the cheapest, and {cheapest} is cheaper"
    elif false:
        fault = f"refutes {false}, which serve the jobs in time"
    elif cheapest is not None and floor is not None and floor > answer.cost(cheapest):
        fault = f"refutes all prices below {floor}, and {cheapest} is enough"
    yield OracleCheck(f"servers at a price, {spare} spare", not answer.proved, fault)


def _serves(sizes: Sizes, mix: Mix) -> bool:
    try:
        return _meets(sizes.at(mix))
    except InstanceError:
        return False  # some task can run nowhere


def compare_schedule(draw: Draw, limit_s: float) -> Iterator[OracleCheck]:
    """Compare the cheapest schedule and its bounds with what the oracle says of every schedule of few servers."""
    last = max(1, int(draw.scenario.instance.job_release_us[-1]))
    by_us = -(-last // INTERVALS)
    made = tn.servers_by(draw.scenario, f"{by_us} us", policies="jit", max=MOST_SERVERS, time_limit=limit_s, workers=1)
    orders = product(range(1, MOST_SERVERS + 1), repeat=made.day.count)
    enough = [counts for counts in orders if _meets(_ordered(draw, counts, by_us))]
    fault, found = None, made.optimum.schedule
    least = min((Fraction(sum(counts) * by_us, 3_600_000_000) for counts in enough), default=None)
    if found is not None and tuple(sum(mix) for mix in found) not in enough and min(map(sum, found)) > 0:
        fault = f"finds {found}, and enough are {enough}"
    elif least is not None and made.lower_bound > least:
        fault = f"refutes all below {made.lower_bound} server-hours, and {least} are enough"
    for counts in enough:
        for interval, count in enumerate(counts):
            if made.least_servers(interval) > count:
                fault = f"needs {made.least_servers(interval)} servers in interval {interval}, and {counts} are enough"
    yield OracleCheck("servers --by", not made.proved, fault)


def _sized(draw: Draw, count: int) -> Scenario:
    """Return the scenario with another number of servers."""
    data = json.loads(json.dumps(draw.data))
    data["cluster"]["groups"][0]["count"] = count
    return scenario_from(data)


def _ordered(draw: Draw, counts: tuple[int, ...], by_us: int) -> Scenario:
    """Return the scenario with so many servers in every interval, the last of which has no end."""
    most = _sized(draw, max(counts))
    ends = [*(by_us * place for place in range(1, len(counts))), FOREVER]
    spans = list(zip([0, *ends[:-1]], ends, counts, strict=True))
    there = [Availability.of((a, b) for a, b, count in spans if count > number) for number in range(max(counts))]
    gpus = tuple(replace(gpu, available=there[gpu.server]) for gpu in most.instance.cluster.gpus)
    return replace(most, instance=replace(most.instance, cluster=Cluster(gpus, most.instance.cluster.network)))


def _meets(scenario: Scenario) -> bool:
    """Say, by the oracle, whether some plan keeps the scenario's level, which is one on deadlines or on the mean."""
    if scenario.slo is None:
        raise ValueError("a scenario without a service level")
    (level,), jobs = scenario.slo, len(scenario.instance.jobs)
    if level.share is None:
        best = exhaustive.solve(scenario.instance, Objective.MEAN_LATENCY).value
        return best is not None and best <= level.limit
    late = exhaustive.solve(scenario.instance, Objective.LATE_JOBS).value
    return late is not None and jobs - late >= level.share * jobs


def compare_laws(draw: Draw, limit_s: float) -> Iterator[OracleCheck]:
    """Compare a longer window with what each law makes of it: the bound of what is no worse lies above no plan."""
    before = draw.scenario.changed({"workload.jobs": draw.data["workload"]["jobs"] * COPIES})
    planned = tn.plan(before, time_limit=limit_s, workers=1).result
    for law, change in LAWS.items():
        changes = change(before.data())
        if changes:
            after = before.changed(changes)
            found = tn.plan(after, time_limit=limit_s, workers=1).result
            times = 2 if law == TWICE and before.objective.unit == "s" else 1
            is_open = Status.FEASIBLE in (planned.status, found.status)
            yield OracleCheck(f"law: {law}", is_open, _breaks_law(before, planned, after, found, times))


def _breaks_law(before: Scenario, planned: Result, after: Scenario, found: Result, times: int) -> str | None:
    """Say what contradicts that the optimum of a sum or maximum over jobs is at most so many times that of before."""
    if planned.value is None:
        return None
    if found.status is Status.INFEASIBLE:
        return f"makes what has a plan of {planned.value} impossible"
    most, least = times * planned.value * _jobs_counted(before), found.lower_bound
    if least is not None and least * _jobs_counted(after) > most:
        return f"has a bound of {least * _jobs_counted(after)} after {planned.value * _jobs_counted(before)}"
    return None


def _jobs_counted(scenario: Scenario) -> Fraction:
    """Return what turns an objective into a sum, or a maximum, over jobs."""
    jobs = scenario.instance.jobs
    if scenario.objective is Objective.WEIGHTED_LATENCY:
        return sum((job.weight for job in jobs), Fraction(0)) or Fraction(1)
    return Fraction(len(jobs) if scenario.objective in (Objective.MEAN_LATENCY, Objective.MEAN_SLOWDOWN) else 1)


def _twice(data: Any) -> Any:
    """Return a scenario's data in which every time is twice as long, and every link half as fast."""
    if isinstance(data, dict):
        return {key: _twice(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_twice(value) for value in data]
    match = _TIME_OR_SPEED.fullmatch(data) if isinstance(data, str) else None
    if match is None:
        return data
    return f"{2 * int(match[1])} us" if match[2] == "us" else f"{int(match[1]) / 2:g} {match[2]}"


_TIME_OR_SPEED = re.compile(r"(\d+) (us|[MT]B/s)")
TWICE, COPIES = "everything twice as slow", 4
LAWS: Mapping[str, Callable[[dict[str, Any]], dict[str, object]]] = {
    "more memory": lambda data: {
        f"cluster.groups[{at}].gpu.memory": "x2"
        for at, group in enumerate(data["cluster"]["groups"])
        if "memory" in group["gpu"]
    },
    "faster loads": lambda data: {"cluster.groups[*].gpu.load_bandwidth": "x4"},
    "another server": lambda data: {
        "cluster.groups": [*data["cluster"]["groups"], {"count": 1, "gpu": data["cluster"]["groups"][0]["gpu"]}]
    },
    "a job less": lambda data: {"workload.jobs": data["workload"]["jobs"][:-1]},
    TWICE: lambda data: {
        name: _twice(data[name]) for name in ("cluster", "workflows", "workload", "batches") if name in data
    },
}
"""Changes after which, for every objective, the optimum is no worse (but for the last, twice as large in time)."""

Comparison = Callable[[Draw], Iterator[OracleCheck]]
TESTS = "tests"
ONLY = (TESTS, "plans", "milp", "bounds", "servers", "mixes", "by", "laws", "forks")


def nightly(
    count: Annotated[int, "draws"] = 10_000,
    seconds: Annotated[float, "begin no draw after so long"] = float("inf"),
    seed: Annotated[int, "of the first draw; the others follow, and tests come before draw 0"] = 0,
    limit: Annotated[float, "seconds for each plan and each bound"] = 2.0,
    altered: Annotated[int, "altered certificates per certificate"] = 20,
    only: Annotated[str | None, "one of the comparisons", ONLY] = None,
    output: Annotated[Path, "folder for scenarios"] = Path("contradictions"),
) -> None:
    """Run the tests of the night and compare so many draws; exit with 1 if a test fails or an answer is wrong."""
    passed = seed != 0 or only not in (None, TESTS) or run_tests()
    table, begun = NightlyTable(output), time.monotonic()
    for drawn in range(seed, seed + count * (only != TESTS)):
        if time.monotonic() - begun > seconds:
            break
        table.draws += 1
        for name, sort, every, compare in _comparisons(limit, altered):
            if only in (None, name) and drawn % every == 0:
                table.add(drawn, sort(drawn), compare)
    print(table.text(time.monotonic() - begun))
    raise SystemExit(0 if passed and not table.contradictions else 1)


def run_tests() -> bool:
    """Run the tests that `make test` leaves to the night, and say whether all passed."""
    command = [sys.executable, "-m", "pytest", "-m", "nightly", "-n", "auto", "--dist", "worksteal", "-q"]
    return subprocess.run(command, check=False, cwd=Path(__file__).parents[2]).returncode == 0  # noqa: S603


def _comparisons(limit_s: float, alterations: int) -> list[tuple[str, Callable[[int], Draw], int, Comparison]]:
    """Return the comparisons: name, what scenario a seed draws, every how many draws."""
    resizable, priced = partial(draw, resizable=True), partial(draw, resizable=True, priced=True)
    usual: Callable[[int], Draw] = draw
    return [
        ("plans", usual, 1, partial(compare_plans, limit_s=limit_s)),
        ("milp", usual, 20, partial(compare_milp, limit_s=limit_s)),
        ("bounds", usual, 1, partial(compare_bounds, limit_s=limit_s, alterations=alterations)),
        ("servers", resizable, 5, partial(compare_servers, limit_s=3 * limit_s)),
        ("mixes", priced, 10, partial(compare_mixes, limit_s=6 * limit_s, spare=0)),
        ("mixes", priced, 20, partial(compare_mixes, limit_s=6 * limit_s, spare=1)),
        ("by", resizable, 10, partial(compare_schedule, limit_s=6 * limit_s)),
        ("laws", usual, 10, partial(compare_laws, limit_s=limit_s)),
        ("forks", draw_fork, 1, partial(compare_subsolvers, seed=0)),
    ]


class NightlyTable:
    """What was compared so far; contradictions are printed, and written as scenarios, at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.draws, self.contradictions = folder, 0, 0
        self._compared, self._open, self._wrong = Counter[str](), Counter[str](), Counter[str]()
        self._units = Counter[int]()

    def add(self, seed: int, drawn: Draw, compare: Comparison) -> None:
        """Compare one draw; whatever is raised contradicts the oracle as well."""
        self._units[drawn.unit_us] += 1
        try:
            for compared in compare(drawn):
                self._compared[compared.what] += 1
                self._open[compared.what] += compared.is_open
                if compared.contradiction is not None:
                    self._report(seed, drawn, compared.what, compared.contradiction)
        except UserError:
            self._compared["refused in words"] += 1
        except Exception:  # a traceback is one of the things that a night is to find
            self._report(seed, drawn, "traceback", traceback.format_exc())

    def _report(self, seed: int, drawn: Draw, what: str, contradiction: str) -> None:
        self.contradictions += 1
        self._wrong[what] += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{seed}_{what.replace(' ', '_').strip('-')}.json"
        path.write_text(json.dumps(drawn.data, indent=1), encoding="utf-8")
        print(f"{path}: {what} {contradiction}", flush=True)

    def text(self, seconds: float) -> str:
        """Return the table."""
        rows = [f"{'compared with the oracle':34}{'answers':>9}{'open':>7}{'wrong':>7}"]
        rows += [
            f"{what:34}{self._compared[what]:9}{self._open[what]:7}{self._wrong[what]:7}"
            for what in sorted({*self._compared, *self._wrong})
        ]
        units = ", ".join(f"{unit} us: {self._units[unit]}" for unit in sorted(set(UNITS_US)))
        return "\n".join([*rows, f"{self.draws} draws in {seconds:.0f} s; scenarios by unit of time: {units}"])


main = partial(ask, nightly)
