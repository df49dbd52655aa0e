"""The hunt for the least size: refute from below, find plans from above, until they meet or time is up.

A plan at one size is a plan at every larger one, since servers that are added may idle. So a refutation counts for
every mix that has no more servers of any group, and a bisection over the sizes in order of cost is sound. Where windows
are too long to search, plans are those of one dispatch rule, at sizes ever further from the lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from truenorth.models import Instance, InstanceError, MLModel, Objective, Timeline
from truenorth.models.scenario import Scenario
from truenorth.models.torn import torn
from truenorth.planner.answers.servers.decide import (
    LONGEST_PATH,
    SizeRefutation,
    attempt,
    meets,
    refuted_by_formula,
    refuted_however_many,
)
from truenorth.planner.answers.servers.forces import demand_in_words
from truenorth.planner.answers.servers.goal import Tolerance, goals
from truenorth.planner.answers.servers.sizes import Mix, Sizing, is_within
from truenorth.solvers.bounds import fluid
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.budget import tell_nobody
from truenorth.solvers.result import Search
from truenorth.solvers.search.dispatch import EFFORT, greedy

LONG_TRACE = 50_000
"""Windows of more tasks get the fluid bound alone: nothing else is worth its time there."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What the fluid bound says of every size at once: so many GPUs at least, for this demand and tolerance.

    Parameters
    ----------
    models
        Those that the demand names: the parts of split models are among them.
    """

    gpus: int
    demand: fluid.Demand | None
    tolerance: Tolerance
    models: Sequence[MLModel] = ()


def floor_takes_s(instance: Instance, level_tolerances: list[Tolerance]) -> float:
    """Return how many seconds the floor may take."""
    return len(level_tolerances) * fluid.longest_s(torn(instance))


def floor_of(instance: Instance | None, level_tolerances: list[Tolerance], limit_s: float) -> Floor:
    """Return the highest fluid bound over the tolerances; one GPU, if that may take longer than a limit.

    Parameters
    ----------
    instance
        The window where no run takes longer than at any size; None: nothing is known of that.
    """
    if instance is None or floor_takes_s(instance, level_tolerances) > limit_s:
        return Floor(1, None, level_tolerances[0])
    relaxed = torn(instance)
    found = (
        (*fluid.least_gpus(relaxed, tolerance.due_us(instance), tolerance.most_late(instance)), tolerance)
        for tolerance in level_tolerances
    )
    floors = [Floor(*each, relaxed.models) for each in found]
    return max(floors, key=lambda found: found.gpus)


@dataclass(slots=True)
class Hunt:
    """What is known so far.

    Attributes
    ----------
    best
        The cheapest size with plans within the level, whatever is gone of it as far as that is spare.
    plans
        Plans within the level, by the size that they use.
    refutations
        Sizes that are too small, each with its proof.
    tried
        Sizes at which an attempt settled nothing.
    starts, closest
        Timelines that policies made, and the plan of an attempt that came closest, per size.
    """

    question: Sizing
    best: Mix | None = None
    plans: dict[Mix, Timeline] = field(default_factory=dict)
    refutations: list[SizeRefutation] = field(default_factory=list)
    tried: set[Mix] = field(default_factory=set)
    starts: dict[Mix, list[Timeline]] = field(default_factory=dict)
    closest: dict[Mix, Timeline] = field(default_factory=dict)
    _compared: dict[Mix, int | None] = field(default_factory=dict)

    @property
    def unrefuted(self) -> list[Mix]:
        """Sizes that are not refuted, cheapest first."""
        return [mix for mix in self.question.candidates if not self.refuted(mix)]

    @property
    def open(self) -> list[Mix]:
        """Sizes cheaper than the best that are not refuted, cheapest first."""
        ask = self.question
        below = None if self.best is None else ask.sizes.cost(self.best)
        return [m for m in ask.candidates if (below is None or ask.sizes.cost(m) < below) and not self.refuted(m)]

    def refuted(self, mix: Mix) -> bool:
        """Say whether what may be left of a size has no more servers of any group than one that was refuted."""
        return any(map(self._too_few, self.question.left_of(mix)))

    def _too_few(self, left: Mix) -> bool:
        # Asked again and again of thousands of fleets: what was compared before is not compared again.
        compared = self._compared.get(left, 0)
        if compared is not None and any(is_within(left, done.mix) for done in self.refutations[compared:]):
            compared = None
        self._compared[left] = None if compared is None else len(self.refutations)
        return compared is None

    def _plan_for(self, left: Mix) -> Mix | None:
        """Return the size of a plan that can be carried out on what is left; None if none is known."""
        return next((used for used in self.plans if is_within(used, left)), None)

    def offer(self, mix: Mix, timeline: Timeline) -> None:
        """Keep a plan within the level, and the cheapest size that the plans known so far serve."""
        ask = self.question
        self.plans[mix] = timeline
        for each in ask.candidates:
            # Cheapest first: from here on nothing is an improvement.
            if self.best is not None and ask.sizes.cost(each) >= ask.sizes.cost(self.best):
                break
            if all(self._plan_for(left) is not None for left in ask.left_of(each)):
                self.best = each
                break

    @property
    def worst_plan(self) -> tuple[Mix, Timeline] | None:
        """The plan for what is left of the best size when the dearest servers are gone, and the size that it uses."""
        ask = self.question
        if self.best is None:
            return None
        used = self._plan_for(min(ask.left_of(self.best), key=ask.sizes.order))
        return None if used is None else (used, self.plans[used])

    def apply_floor(self, floor: Floor) -> None:
        """Refute the sizes that the fluid bound excludes, and those without a place for some run on several GPUs."""
        per_server = self.question.sizes.gpus_per_server

        def below(mix: Mix) -> SizeRefutation | None:
            gpus = sum(a * b for a, b in zip(mix, per_server, strict=True))
            return self._by_floor(mix, floor) if gpus < floor.gpus else None

        self.apply(below)
        if self.question.sizes.scenario.instance.gangs:
            self._refute_unable()

    def _refute_unable(self) -> None:
        """Refute the cheapest sizes where some task can run nowhere: they have no place of as many GPUs."""
        for mix in self.open:
            try:
                self.question.scenario(mix)
            except InstanceError as error:
                self.refutations.append(nowhere(mix, error))
            else:
                return

    def apply(self, proof: Callable[[Mix], SizeRefutation | None]) -> None:
        """Refute what a proof says is too small, the largest sizes first, for each group's last servers."""
        # The largest first: what refutes it refutes all that it contains, which are then not asked about.
        ask = self.question
        lefts = dict.fromkeys(left for mix in reversed(self.open) for left in ask.left_of(mix))
        for mix in lefts:
            found = None if self._too_few(mix) else proof(mix)
            if found is not None:
                self.refutations.append(found)
        # Said again of the dearest size below the floor, since what was refuted may be dearer.
        floor = ask.sizes.cost(self.open[0]) if self.open else None
        below = [mix for mix in ask.candidates if floor is not None and ask.sizes.cost(mix) < floor]
        dearest = max(below, key=ask.sizes.explains, default=None)
        again = (proof(left) for left in (() if dearest is None else ask.left_of(dearest)))
        self.refutations += [found for found in again if found is not None][:1]

    def _by_floor(self, mix: Mix, floor: Floor) -> SizeRefutation | None:
        try:
            instance = self.question.scenario(mix).instance
        except InstanceError as error:
            return nowhere(mix, error)
        if floor.demand is None:
            raise ValueError("a fluid bound above one GPU has a demand")
        late, within = floor.demand.late(instance.n_gpus), floor.tolerance.within
        words = demand_in_words(floor.models, instance.n_gpus, floor.demand, late, within)
        if instance.n_tasks > LONG_TRACE:
            return SizeRefutation(mix, "fluid", None, None, None, words)
        # Computed again at this size: a certificate speaks of one, the floor of all of them.
        goal = floor.tolerance.goal(instance)
        bound = fluid.bound(goal.relaxed, goal.objective)
        if bound is None or bound <= goal.most:
            if instance.gangs:
                return None  # where there are fewer places runs are torn into other parts
            raise ValueError("the fluid bound of all sizes and that of one disagree")
        document = closed_form_document(goal.instance, goal.objective, "fluid", bound)
        return SizeRefutation(mix, "fluid", goal, bound, document, words)

    def refute(self, mix: Mix, reserve_s: float = 0.0) -> bool:
        """Try the bounds that need no search, and end before a reserve, on a size; say whether it is refuted."""
        return self.refuted(mix) or any(
            self._refute(left, reserve_s) for left in self.question.left_of(mix) if self._plan_for(left) is None
        )

    def _refute(self, mix: Mix, reserve_s: float) -> bool:
        ask = self.question
        try:
            scenario = ask.scenario(mix)
            found = refuted_by_formula(scenario, mix, ask.levels, left_s=lambda: ask.left_s - reserve_s)
        except InstanceError as error:
            found = nowhere(mix, error)
        if found is not None and found.method == LONGEST_PATH:
            found = self._refute_all() or found
        if found is not None:
            self.refutations.append(found)
        return found is not None

    def _refute_all(self) -> SizeRefutation | None:
        """Refute every size by a longest path, on servers on which it is nowhere shorter, if that can be."""
        ask = self.question
        # One server more than anybody looks at, of every group, and every sort of place there is.
        more = tuple(max(counts) + 1 for counts in zip(ask.sizes.counts, ask.candidates[-1], strict=True))
        most = ask.sizes.with_all_places(more)
        try:
            return refuted_however_many(ask.scenario(most), most, ask.levels)
        except InstanceError:  # too many places
            if not ask.sizes.scenario.instance.gangs:
                raise
            return None

    def bisect(self, share: float) -> None:
        """Refute by formulas from below, for at most a share of the time left."""
        self.question.budget.watch("bounds")
        sizes, reserve_s = self.open, (1 - share) * self.question.left_s
        # Sound by cost, too: what is refuted is refuted by itself, wherever the bisection turns.
        low, high = 0, len(sizes)
        while low < high and self.question.left_s > reserve_s:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.refute(sizes[middle], reserve_s) else (low, middle)

    def search(self) -> None:
        """Attempt sizes, the middle one first, until none is open or time is up; what is left goes to the last ones."""
        while (left := self.question.left_s) > 0 and (sizes := self.open):
            fresh = [mix for mix in sizes if mix not in self.tried]
            if fresh:
                mix = fresh[len(fresh) // 2]
                # As many halvings are to come as the number of sizes has bits; one share is kept for what stays open.
                self._attempt(mix, left / (len(fresh).bit_length() + 1))
            else:
                self._attempt(sizes[-1], left)

    def _attempt(self, mix: Mix, time_limit_s: float) -> None:
        """Attempt whatever may be left of a size and has no plan yet, until it is refuted or the time for it is up."""
        if self.refute(mix):
            return
        reserve_s = max(0.0, self.question.left_s - time_limit_s)
        lefts = self.question.left_of(mix)
        for position, left in enumerate(lefts):
            if self._plan_for(left) is None and not self.refuted(mix):
                share_s = (self.question.left_s - reserve_s) / (len(lefts) - position)
                self._attempt_one(left, max(0.1, share_s), again=mix in self.tried)
        self.tried.add(mix)

    def _attempt_one(self, mix: Mix, time_limit_s: float, again: bool) -> None:
        ask = self.question
        ask.budget.watch(f"plans for {sum(mix)} servers")
        scenario = ask.scenario(mix)
        budget = replace(ask.budget, time_limit_s=time_limit_s, seed=ask.budget.seed + again, watch=tell_nobody)
        starts, closest = self.starts.get(mix, ()), self.closest.get(mix)
        made = attempt(scenario, mix, ask.levels, budget, lambda: ask.left_s, starts=starts, closest=closest)
        if made.timeline is not None and meets(scenario.instance, made.timeline, ask.levels):
            self.offer(mix, made.timeline)
        elif made.refutation is not None:
            self.refutations.append(made.refutation)
        elif made.closest is not None:
            self.closest[mix] = made.closest


def nowhere(mix: Mix, error: InstanceError) -> SizeRefutation:
    """Return the refutation of a size where some task can run nowhere."""
    return SizeRefutation(mix, "eligibility", None, None, None, f"Not every task can run there: {error}")


_FACTORS = (Fraction(11, 10), Fraction(5, 4), Fraction(3, 2), Fraction(2), Fraction(3))
"""Sizes at so many times the least price are tried one after the other until one is enough; then halves below."""
_S_PER_TASK, _S_PER_COMPARISON = 1e-5, 1.5e-8
"""What a plan may take: its tables, goal and checks by the task, its rules by the task compared with a GPU."""
_MOST_RULES = 6


def dispatch(hunt: Hunt, share: float) -> None:
    """Offer plans of one dispatch rule at some sizes, in a share of the time left.

    A plan cannot be interrupted: none is begun that may take longer than there is time, by its tasks and GPUs or by
    what the one before it took, half as long again.
    """
    ask, last_s = hunt.question, 0.0
    reserve_s = (1 - share) * ask.left_s
    sizes = _sizes(hunt)
    met: bool | None = None
    while True:
        try:
            mix = sizes.send(met) if met is not None else next(sizes)
        except StopIteration:
            return
        met = True
        for left in ask.left_of(mix):
            if ask.left_s - max(_longest_s(hunt, left), 1.5 * last_s) <= reserve_s:
                return
            ask.budget.watch(f"dispatch rule on {sum(left)} servers")
            begun = time.monotonic()
            met = _offered(hunt, left)
            last_s = time.monotonic() - begun
            if not met:
                break


def _longest_s(hunt: Hunt, mix: Mix) -> float:
    """Return how many seconds a plan at a size may take."""
    sizes = hunt.question.sizes
    tasks = sizes.scenario.instance.n_tasks
    pairs = tasks * sum(count * each for count, each in zip(mix, sizes.gpus_per_server, strict=True))
    return _S_PER_TASK * tasks + _S_PER_COMPARISON * max(pairs, min(_MOST_RULES * pairs, EFFORT))


def _sizes(hunt: Hunt) -> Generator[Mix, bool, None]:
    """Yield sizes by price until one is said to be enough, then the middle of those between it and what was not."""
    ask, sizes = hunt.question, hunt.open
    prices = [ask.sizes.cost(mix) for mix in sizes]
    below, enough = 0, len(sizes)
    for factor in _FACTORS:
        if below == len(sizes):
            return
        position = next((p for p in range(below, len(sizes)) if prices[p] >= factor * prices[0]), len(sizes) - 1)
        met = yield sizes[position]
        if met:
            enough = position
            break
        below = position + 1
    while below < enough < len(sizes):
        middle = (below + enough) // 2
        met = yield sizes[middle]
        below, enough = (below, middle) if met else (middle + 1, enough)


def _offered(hunt: Hunt, mix: Mix) -> bool:
    """Offer the plan of the rule at a size; say whether it is within the levels."""
    ask = hunt.question
    try:
        scenario: Scenario = ask.scenario(mix)
    except InstanceError:
        return False
    if not scenario.instance.one_at_a_time or scenario.instance.gangs:
        return False
    goal = goals(scenario.instance, ask.levels)[0]
    # Late jobs, being counted, tell a rule less than how late they are.
    objective = Objective.WEIGHTED_TARDINESS if goal.objective is Objective.LATE_JOBS else goal.objective
    timeline = greedy(goal.instance, objective)
    if timeline is None or not meets(scenario.instance, timeline, ask.levels):
        return False
    Search(goal.instance, objective, 1.0).offer(timeline)  # which raises if it breaks a rule
    hunt.offer(mix, timeline)
    return True
