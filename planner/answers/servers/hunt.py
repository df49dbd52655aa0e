"""The hunt for the least size: refute from below, find plans from above, until they meet or time is up.

A plan at one size is a plan at every larger one, since servers that are added may idle. So a refutation counts for
every mix that has no more servers of any group, and a bisection over the sizes in order of cost is sound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from models import Instance, InstanceError, Timeline
from planner.answers.servers.decide import (
    LONGEST_PATH,
    Attempt,
    Refutation,
    attempt,
    meets,
    refuted_by_formula,
    refuted_however_many,
)
from planner.answers.servers.forces import demand_in_words
from planner.answers.servers.goal import Tolerance
from planner.answers.servers.question import Question
from planner.answers.servers.sizes import Mix, is_within
from solvers.bounds import fluid
from solvers.bounds.certificate import closed_form_document

LONG_TRACE = 50_000
"""Windows of more tasks get the fluid bound alone: nothing else is worth its time there."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What the fluid bound says of every size at once: so many GPUs at least, for this demand and tolerance."""

    gpus: int
    demand: fluid.Demand | None
    tolerance: Tolerance


def floor_of(instance: Instance, level_tolerances: list[Tolerance], limit_s: float) -> Floor:
    """Return the highest fluid bound over the tolerances; one GPU, if that may take longer than a limit."""
    if len(level_tolerances) * fluid.longest_s(instance) > limit_s:
        return Floor(1, None, level_tolerances[0])
    floors = [
        Floor(*fluid.least_gpus(instance, tolerance.due_us(instance), tolerance.most_late(instance)), tolerance)
        for tolerance in level_tolerances
    ]
    return max(floors, key=lambda found: found.gpus)


@dataclass(slots=True)
class Hunt:
    """What is known so far.

    Attributes
    ----------
    best, timeline
        The cheapest size with a plan within the level, and that plan.
    refutations
        Sizes that are too small, each with its proof.
    tried
        Sizes at which an attempt settled nothing.
    starts
        Timelines that policies made, per size.
    """

    question: Question
    best: Mix | None = None
    timeline: Timeline | None = None
    refutations: list[Refutation] = field(default_factory=list)
    tried: set[Mix] = field(default_factory=set)
    starts: dict[Mix, list[Timeline]] = field(default_factory=dict)

    @property
    def unrefuted(self) -> list[Mix]:
        """Sizes that are not refuted, cheapest first."""
        return [mix for mix in self.question.candidates if not self.refuted(mix)]

    @property
    def open(self) -> list[Mix]:
        """Sizes cheaper than the best that are not refuted, cheapest first."""
        ask = self.question
        below = None if self.best is None else ask.cost(self.best)
        return [m for m in ask.candidates if (below is None or ask.cost(m) < below) and not self.refuted(m)]

    def refuted(self, mix: Mix) -> bool:
        """Say whether a size has no more servers of any group than one that was refuted."""
        return any(is_within(mix, done.mix) for done in self.refutations)

    def offer(self, mix: Mix, timeline: Timeline) -> None:
        """Keep a plan within the level if its size is the cheapest so far."""
        ask = self.question
        if self.best is None or ask.cost(mix) < ask.cost(self.best):
            self.best, self.timeline = mix, timeline

    def apply_floor(self, floor: Floor) -> None:
        """Refute the largest size that the fluid bound excludes for each group's last servers."""
        per_server = self.question.sizes.gpus_per_server
        small = [m for m in self.open if sum(a * b for a, b in zip(m, per_server, strict=True)) < floor.gpus]
        for mix in reversed(small):
            if not self.refuted(mix):
                self.refutations.append(self._by_floor(mix, floor))

    def _by_floor(self, mix: Mix, floor: Floor) -> Refutation:
        try:
            instance = self.question.scenario(mix).instance
        except InstanceError as error:
            return _nowhere(mix, error)
        if floor.demand is None:
            raise ValueError("a fluid bound above one GPU has a demand")
        words = demand_in_words(instance, floor.demand, floor.demand.late(instance.n_gpus))
        if instance.n_tasks > LONG_TRACE:
            return Refutation(mix, "fluid", None, None, None, words)
        goal = floor.tolerance.goal(instance)
        bound = fluid.bound(goal.instance, goal.objective)
        if bound is None or bound <= goal.most:
            raise ValueError("the fluid bound of all sizes and that of one disagree")
        document = closed_form_document(goal.instance, goal.objective, "fluid", bound)
        return Refutation(mix, "fluid", goal, bound, document, words)

    def refute(self, mix: Mix, reserve_s: float = 0.0) -> bool:
        """Try the bounds that need no search, and end before a reserve, on a size; say whether it is refuted."""
        if self.refuted(mix):
            return True
        ask = self.question
        try:
            scenario = ask.scenario(mix)
            found = refuted_by_formula(scenario, mix, ask.levels, left_s=lambda: ask.left_s - reserve_s)
        except InstanceError as error:
            found = _nowhere(mix, error)
        if found is not None and found.method == LONGEST_PATH:
            most = [max(mix[group] for mix in (ask.sizes.counts, ask.candidates[-1])) + 1 for group in range(len(mix))]
            found = refuted_however_many(ask.scenario(tuple(most)), tuple(most), ask.levels) or found
        if found is not None:
            self.refutations.append(found)
        return found is not None

    def bisect(self, share: float) -> None:
        """Refute by formulas from below, for at most a share of the time left."""
        self.question.tell("bounds")
        sizes, reserve_s = self.open, (1 - share) * self.question.left_s
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
                self._attempt(mix, left / (len(fresh).bit_length() + 1))
            else:
                self._attempt(sizes[-1], left)

    def _attempt(self, mix: Mix, time_limit_s: float) -> None:
        ask = self.question
        ask.tell(f"plans for {sum(mix)} servers")
        if self.refute(mix):
            return
        scenario = ask.scenario(mix)
        made: Attempt = attempt(
            scenario,
            mix,
            ask.levels,
            time_limit_s,
            starts=self.starts.get(mix, ()),
            workers=ask.workers,
            seed=ask.seed + (mix in self.tried),
            stop=ask.stop,
            left_s=lambda: ask.left_s,
        )
        self.tried.add(mix)
        if made.timeline is not None and meets(scenario.instance, made.timeline, ask.levels):
            self.offer(mix, made.timeline)
        elif made.refutation is not None:
            self.refutations.append(made.refutation)


def _nowhere(mix: Mix, error: InstanceError) -> Refutation:
    """Return the refutation of a size where some task can run nowhere."""
    return Refutation(mix, "eligibility", None, None, None, f"Not every task can run there: {error}")
