"""How many servers of each group in every interval of the day meet the levels at least price.

From the least fleet that stays the schedule descends, the quietest interval first and in it the dearest group, by
halves as long as the levels are met over all jobs: in simulation for a policy, by a plan for the optimum. What was
tried is kept in a file, by line. A backlog carries over, so intervals are not judged one by one. The floor of an
interval is the fluid bound of the windows inside it: with fewer GPUs more jobs are late than the levels allow, whatever
happens before and after. Jobs that are released and due in different intervals are different jobs, so what is late in
all intervals together may not exceed that either: the least cost of counts that keep to it is what no schedule costs
less than; where one costs as much, it is proved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from truenorth.executor import PolicyError, PolicyFaultError, StoppedError
from truenorth.models import Instance, InstanceError, ServiceLevels, Timeline, completion_us, scenario_hash
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario import Scenario, write_atomically
from truenorth.models.timeline import TokenTimes
from truenorth.models.torn import torn
from truenorth.planner.answers.servers.answer import ServersAnswer, answer_sizes
from truenorth.planner.answers.servers.day import US_PER_HOUR, Attained, Autoscaled, Day, Schedule, attained, autoscale
from truenorth.planner.answers.servers.decide import attempt
from truenorth.planner.answers.servers.goal import tolerances
from truenorth.planner.answers.servers.hunt import LONG_TRACE
from truenorth.planner.answers.servers.scheduled import IntervalFloor, ScheduleAnswer, Scheduled
from truenorth.planner.answers.servers.sizes import Mix, Sizes
from truenorth.planner.answers.servers.streams import requests_asked
from truenorth.planner.answers.simulate import simulate
from truenorth.planner.answers.uncertain.spec import parse_uncertainty
from truenorth.planner.questions.sizes import ScheduleQuestion
from truenorth.solvers.bounds import fluid
from truenorth.solvers.bounds.stream_floor import RequestDemands
from truenorth.solvers.budget import Budget, tell_nobody


class Descent:
    """Takes servers off a schedule as long as what is left is enough.

    Parameters
    ----------
    floors
        Fewest GPUs per interval.
    met
        Says whether a schedule is enough.
    goes_on
        Says whether there is time.
    """

    def __init__(
        self, day: Day, floors: Sequence[int], met: Callable[[Schedule], bool], goes_on: Callable[[], bool]
    ) -> None:
        self._day, self._floors, self._met, self._goes_on = day, floors, met, goes_on
        self.tried = 0

    def run(self, start: Schedule) -> Schedule:
        """Return the cheapest schedule on the way down from one that is enough."""
        if self._day.count == 1:  # a fleet that stays
            return start
        found, quietest = start, sorted(range(self._day.count), key=lambda k: (self._day.jobs[k], k))
        # The quiet intervals first: there most can go before the level is in danger.
        for interval in quietest:
            for group in self._dearest():
                found = self._halve(found, interval, group)
        while True:  # what was too little at first may do now: policies are not monotone
            before = found
            for interval, group in ((k, g) for k in quietest for g in self._dearest()):
                fewer = self._with(found, interval, group, found[interval][group] - 1)
                if self._is_enough(fewer, interval):
                    found = fewer
            if found == before:
                return found

    def _dearest(self) -> Iterator[int]:
        prices = self._day.sizes.prices or (Fraction(1),)
        return iter(sorted(range(len(prices)), key=lambda group: -prices[group]))

    def _halve(self, found: Schedule, interval: int, group: int) -> Schedule:
        """Return the schedule with as few servers of a group in an interval as a search by halves comes to."""
        low, high = 0, found[interval][group]
        while low < high and self._goes_on():
            middle = (low + high) // 2
            fewer = self._with(found, interval, group, middle)
            if self._is_enough(fewer, interval):
                found, high = fewer, middle
            else:
                low = middle + 1
        return found

    def _is_enough(self, candidate: Schedule, interval: int) -> bool:
        per_server, mix = self._day.sizes.gpus_per_server, candidate[interval]
        gpus = sum(count * each for count, each in zip(mix, per_server, strict=True))
        if min(mix) < 0 or gpus < self._floors[interval] or not self._goes_on():
            return False
        self.tried += 1
        return self._met(candidate)

    def _with(self, found: Schedule, interval: int, group: int, count: int) -> Schedule:
        mix = (*found[interval][:group], count, *found[interval][group + 1 :])
        return (*found[:interval], mix, *found[interval + 1 :])


NAME = "tried.jsonl"


class Tried:
    """Whether policies, and plans, met the levels on schedules.

    Parameters
    ----------
    folder
        Where the file is; None: nothing is kept.
    asked
        Of what: what was found out for another question does not count.
    """

    def __init__(self, folder: Path | None, asked: dict[str, Any]) -> None:
        self._path = None if folder is None else folder / NAME
        self._met: dict[tuple[str, Schedule], bool] = {}
        if self._path is None:
            return
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        entries = [entry for entry in map(_read, lines) if entry is not None]
        kept = entries if entries and entries[0] == asked else [asked]
        for entry in kept[1:]:
            self._met[entry["who"], tuple(map(tuple, entry["schedule"]))] = entry["met"]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, "".join(json.dumps(entry) + "\n" for entry in kept))  # without a torn last line

    def known(self, who: str, schedule: Schedule) -> bool | None:
        """Return what was found out; None if nothing was."""
        return self._met.get((who, schedule))

    def note(self, who: str, schedule: Schedule, met: bool) -> bool:
        """Keep what was found out, and return it."""
        self._met[who, schedule] = met
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"who": who, "schedule": schedule, "met": met}) + "\n")
        return met


def question(scenario: Scenario, levels: ServiceLevels, by_us: int, seed: int, noise: str | None) -> dict[str, Any]:
    """Return what tells one question about schedules from another."""
    slo = " and ".join(str(level) for level in levels)
    start_ups = [group.start_up for group in scenario.document.cluster.server_groups]
    told = {"scenario_hash": scenario_hash(scenario.instance), "slo": slo, "start_up_us": str(start_ups)}
    return {**told, "by_us": by_us, "seed": seed, "noise": noise}


def _read(line: str) -> dict[str, Any] | None:
    """Return an entry; None for a line whose writer was stopped."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


_FIXED_SHARE, _POLICY_SHARE, _AUTOSCALER_SHARE = 0.35, 0.5, 0.3
"""Shares of the time: for the fleet that stays, of the rest for schedules of policies, then for an autoscaler."""
_LONG_POLICY_SHARE = 0.7
"""The share for policies where windows are too long to plan; all that is left then goes to the autoscaler."""
_FLOORS_SHARE = 0.2
"""At most this share of the time left goes to floors of intervals, and then to the late jobs of all together."""
_PLAN = "plan"
_LEAST_ATTEMPT_S = 1.0
_ATTEMPTS = 3
"""A plan is looked for on so many candidates per interval."""


def answer_schedule(asked: ScheduleQuestion, scenario: Scenario, budget: Budget) -> ScheduleAnswer:
    """Find the cheapest schedule that meets the levels, for plans and per policy, within a budget."""
    if asked.failures is not None:
        raise QuestionError("is for fleets that stay; ask without --by", "failures")
    scenario.instance.require_always_available("the question of how many servers by the interval")
    if any(gpu.gpus > 1 for gpu in scenario.cluster.gpus):
        problem = "has no support for engines of several GPUs; ask without it, or for servers of one engine as one GPU"
        raise QuestionError(problem, "by")
    if scenario.instance.needs_servers_that_stay:
        problem = "has no support for runs on several GPUs beside tasks that wait for others, have input or need models"
        raise QuestionError(f"{problem}; ask without it", "by")
    fixed = answer_sizes(asked, scenario, budget.share(_FIXED_SHARE))
    folder = None if asked.folder is None else Path(asked.folder)
    tried = Tried(folder, question(fixed.sizes.scenario, fixed.levels, asked.by_us, budget.seed, asked.noise))
    search = _ScheduleSearch(Day(fixed.sizes, asked.by_us), fixed, budget, tried)
    lower_bound = search.lower_bound()
    found = search.policies()
    autoscaler = search.autoscaled()
    optimum = search.optimum(found)
    asked = replace(asked.alone(), slo=fixed.levels, policies=fixed.asked.policies)
    return ScheduleAnswer(
        search.day, fixed, search.floors, lower_bound, optimum, found, autoscaler, budget.elapsed_s, asked
    )


def cheapest_counts(
    demands: Sequence[Sequence[fluid.Demand]],
    floors: Sequence[int],
    most_late: int,
    least_cost: Callable[[int], Fraction],
) -> Fraction:
    """Return the least cost of GPUs per interval with which the late jobs of all intervals together are few enough.

    A programme over the intervals: of two ways to have as many late jobs so far, the cheaper is enough.

    Parameters
    ----------
    demands
        Of windows inside each interval, by jobs of that interval alone.
    floors
        Fewest GPUs per interval.
    least_cost
        What so many GPUs cost at least.
    """
    # By late jobs so far: what came before matters to the intervals behind by nothing else.
    ways: dict[int, Fraction] = {0: Fraction(0)}
    for windows, floor in zip(demands, floors, strict=True):
        options, gpus = list[tuple[int, Fraction]](), floor
        # Beyond the first count with nobody late a server more buys nothing.
        while not options or options[-1][0] > 0:
            late = max((demand.late(gpus) for demand in windows), default=0)
            options.append((late, least_cost(gpus)))
            gpus += 1
        following: dict[int, Fraction] = {}
        for used, paid in ways.items():
            for late, cost in options:
                if used + late <= most_late:
                    total = paid + cost
                    if used + late not in following or total < following[used + late]:
                        following[used + late] = total
        ways = _undominated(following)
    return min(ways.values())


def _undominated(ways: dict[int, Fraction]) -> dict[int, Fraction]:
    """Return the ways than which none has as few late jobs at no higher cost."""
    kept: dict[int, Fraction] = {}
    best: Fraction | None = None
    for late in sorted(ways):
        if best is None or ways[late] < best:
            kept[late] = best = ways[late]
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class _JobDemands:
    """What a tolerance asks of an interval: no more late jobs than so many; `said` is what the others are within."""

    instance: Instance
    due_us: Ints
    late: int
    said: str | None

    def least_gpus_within(self, begin_us: int, end_us: int) -> tuple[int, fluid.Demand | None]:
        """Return how many GPUs an interval cannot do without, and the demand that says so."""
        return fluid.least_gpus_within(self.instance, self.due_us, self.late, begin_us, end_us)

    def within(self, begin_us: int, end_us: int) -> list[fluid.Demand]:
        """Return the demands of jobs that are released and due in an interval: late ones of all intervals add up."""
        return fluid.demands_within(self.instance, self.due_us, begin_us, end_us)


def _jobs_asked(sizes: Sizes, levels: ServiceLevels) -> list[_JobDemands]:
    """Return what levels ask of intervals, of runs on several GPUs by their parts; nothing with too many places.

    Notes
    -----
    Invariant: no schedule within the levels gives an interval fewer GPUs than these demand.
    Because: the parts of a run find room where it runs (`torn`), of what takes it least time where there are places of
        every sort.
    If wrong: lower bounds are unsound.
    """
    try:
        instance = sizes.at_any_size().instance
    except InstanceError:
        return []
    parts = torn(instance)
    asked = tolerances(levels)
    return [_JobDemands(parts, of.due_us(instance), of.most_late(instance), of.within) for of in asked]


class _ScheduleSearch:
    """What is searched, until when, and what is known so far."""

    def __init__(self, day: Day, fixed: ServersAnswer, budget: Budget, tried: Tried) -> None:
        self.day, self._fixed, self._levels, self._tried = day, fixed, fixed.levels, tried
        self._times: dict[tuple[str, Schedule], tuple[Ints, TokenTimes | None]] = {}
        self._budget = budget
        budget.watch("floors of the intervals")
        reserve_s = (1 - _FLOORS_SHARE) * self._left_s
        self._asked: Sequence[_JobDemands | RequestDemands] = (
            _jobs_asked(day.sizes, self._levels)
            if day.instance.streams is None
            else requests_asked(day.sizes, self._levels)
        )
        self.floors = tuple(self._floor(interval, reserve_s) for interval in range(day.count))

    @property
    def _left_s(self) -> float:
        return self._budget.left_s

    @property
    def _long(self) -> bool:
        """Whether no time need be kept for plans: the window is too long for them, or they are not searched for."""
        return self.day.instance.n_tasks > LONG_TRACE or self.day.instance.streams is not None

    def _floor(self, interval: int, reserve_s: float) -> IntervalFloor:
        """Return the floor of an interval; none, which is one too, unless more than a reserve is left."""
        best = IntervalFloor(0, None)
        for asked in self._asked if self._left_s > reserve_s else ():
            gpus, demand = asked.least_gpus_within(*self.day.span(interval))
            if gpus > best.gpus:
                best = IntervalFloor(gpus, demand, asked.said if isinstance(asked, _JobDemands) else "their limits")
        return best

    def lower_bound(self) -> Fraction:
        """Return what no schedule costs less than: the highest over what the levels tolerate.

        Of intervals for which there is no time only the floors count.
        """
        reserve_s = (1 - _FLOORS_SHARE) * self._left_s
        hours = Fraction(self.day.by_us, US_PER_HOUR)
        floors = [floor.gpus for floor in self.floors]
        bounds = [sum(map(self.day.least_cost, floors), Fraction(0))]
        for asked in self._asked if self._left_s > reserve_s else ():
            spans = map(self.day.span, range(self.day.count))
            demands = [asked.within(*span) if self._left_s > reserve_s else [] for span in spans]
            bounds.append(cheapest_counts(demands, floors, asked.late, self.day.least_cost))
        return max(bounds) * hours

    def policies(self) -> dict[str, Scheduled]:
        """Return the cheapest schedule of every policy: those that meet the levels somewhere share the time."""
        found: dict[str, Scheduled] = {}
        # Each has its part of what is left, so that one that ends early leaves more to the others.
        reserve_s = (1 - (_LONG_POLICY_SHARE if self._long else _POLICY_SHARE)) * self._left_s
        waiting = sum(row.mix is not None for row in self._fixed.policies)
        for row in self._fixed.policies:
            share_s = max(0.0, self._left_s - reserve_s) / max(1, waiting)
            found[row.policy] = self._of_policy(row.policy, row.mix, self._left_s - share_s)
            waiting -= row.mix is not None
        return found

    def _of_policy(self, policy: str, fixed: Mix | None, until_s: float) -> Scheduled:
        """Return the cheapest schedule of a policy, unless only so much time is left."""
        if fixed is None:
            return Scheduled(None, None, 0)

        def met(candidate: Schedule) -> bool:
            self._budget.watch(f"{policy} on {float(self.day.server_hours(candidate)):.4g} server-hours")
            return self._is_met(candidate, policy, until_s)

        descent = Descent(self.day, [floor.gpus for floor in self.floors], met, lambda: self._left_s > until_s)
        found = descent.run(self.day.constant(fixed))
        attained = self._attained(policy, found, until_s)
        return Scheduled(found, fixed, descent.tried, attained, self._ends_us(policy, found))

    def _attained(self, policy: str, found: Schedule, until_s: float) -> tuple[Attained | None, ...] | None:
        """Return what a policy attains in each interval of a schedule; None if there is no time to simulate it."""
        if (policy, found) not in self._times and not self._simulate(found, policy, until_s):
            return None
        return self._by_interval(policy, found)

    def _by_interval(self, who: str, found: Schedule) -> tuple[Attained | None, ...] | None:
        times, day = self._times.get((who, found)), self.day
        if times is None:
            return None
        latency, tokens = times
        return attained(day.instance, latency, self._levels, day.by_us, day.count, tokens)

    def _ends_us(self, who: str, found: Schedule) -> int | None:
        """Return when the last job of a schedule ends; None if no timeline of it is at hand."""
        times = self._times.get((who, found))
        return None if times is None else int((self.day.instance.job_release_us + times[0]).max())

    def autoscaled(self) -> Autoscaled | None:
        """Return what an autoscaler orders above the policy that meets the levels on the least fleet that stays."""
        met = [row for row in self._fixed.policies if row.mix is not None]
        if not met:
            return None
        best = min(met, key=lambda row: self.day.cost(self.day.constant(row.mix or ())))
        reserve_s = 0.0 if self._long else (1 - _AUTOSCALER_SHARE) * self._left_s
        self._budget.watch(f"an autoscaler above {best.policy}")

        def late() -> bool:
            return self._left_s <= reserve_s

        most, noise = self._fixed.largest, self._fixed.noise
        return autoscale(self.day, best.policy, best.mix or (), most, self._levels, self._budget.seed, late, noise)

    def _is_met(self, candidate: Schedule, policy: str, until_s: float) -> bool:
        """Say whether what a policy makes of a schedule is within the levels."""
        known = self._tried.known(policy, candidate)
        if known is not None:
            return known
        met = self._simulate(candidate, policy, until_s)
        # Nothing is noted of what was stopped: with more time it may be met.
        return False if met is None else self._tried.note(policy, candidate, met)

    def _simulate(self, candidate: Schedule, policy: str, until_s: float) -> bool | None:
        """Simulate a policy on a schedule and say whether it is within the levels; None if time was up."""
        try:
            scenario = self.day.at(candidate)
            ran = simulate(
                scenario, policy, seed=self._budget.seed, noise=self._fixed.noise, stop=lambda: self._left_s <= until_s
            )
        except PolicyFaultError:
            raise
        except (InstanceError, PolicyError):
            return False
        except StoppedError:
            return None
        return self._keep_times(policy, candidate, ran.truth, ran.timeline)

    def _keep_times(self, who: str, candidate: Schedule, instance: Instance, timeline: Timeline) -> bool:
        """Say whether a timeline is within the levels, and keep how long its jobs took if it is."""
        latency, tokens = completion_us(instance, timeline) - instance.job_release_us, TokenTimes.of(instance, timeline)
        met = self._levels.met_by(instance, latency, range(len(latency)), tokens)
        if met:  # of each only the latest is asked for again
            self._times = {key: kept for key, kept in self._times.items() if key[0] != who}
            self._times[who, candidate] = latency, tokens
        return met

    def optimum(self, found: dict[str, Scheduled]) -> Scheduled:
        """Return the cheapest schedule with a plan within the levels.

        What a policy does on one is a plan, too, if its run times hold.
        """
        fixed = self._fixed.mix
        holds = parse_uncertainty(self._fixed.noise).keeps_truth
        known = [row.schedule for row in found.values() if row.schedule is not None and holds]
        known += [] if fixed is None else [self.day.constant(fixed)]
        if not known or self._long:
            return self._planned(min(known, key=self.day.cost, default=None), found, 0)

        def met(candidate: Schedule) -> bool:
            """Say whether a plan within the levels is known or found in its part of the time."""
            before = self._tried.known(_PLAN, candidate)
            if before is not None:
                return before
            limit_s = max(_LEAST_ATTEMPT_S, self._left_s / (_ATTEMPTS * self.day.count))
            self._budget.watch(f"plans on {float(self.day.server_hours(candidate)):.4g} server-hours")
            try:
                scenario = self.day.at(candidate)
            except InstanceError:
                return self._tried.note(_PLAN, candidate, False)
            limited = replace(self._budget, time_limit_s=min(limit_s, max(0.1, self._left_s)), watch=tell_nobody)
            made = attempt(scenario, candidate[0], self._levels, limited, lambda: 0.0)
            enough = made.timeline is not None and self._keep_times(_PLAN, candidate, scenario.instance, made.timeline)
            return self._tried.note(_PLAN, candidate, enough) if enough or self._left_s else False

        descent = Descent(self.day, [floor.gpus for floor in self.floors], met, lambda: self._left_s > 0)
        return self._planned(descent.run(min(known, key=self.day.cost)), found, descent.tried)

    def _planned(self, schedule: Schedule | None, policies: dict[str, Scheduled], tried: int) -> Scheduled:
        """Return the schedule of the optimum; what a policy attains on it, a plan does."""
        own = (None, None) if schedule is None else (self._by_interval(_PLAN, schedule), self._ends_us(_PLAN, schedule))
        same = (row for row in policies.values() if row.schedule == schedule and row.attained is not None)
        told = own if own[0] else next(((row.attained, row.ends_us) for row in same), own)
        return Scheduled(schedule, self._fixed.mix, tried, *told)
