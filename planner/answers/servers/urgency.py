"""Who goes first, and who has nodes of its own: of workflows with levels of their own, the tightest is most urgent.

One pool in which urgent requests go first costs least where the others leave room for them; pools apart where steps of
many requests would be too long for the urgent ones (requests at once slow each other, whoever goes first).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from truenorth.executor import StoppedError
from truenorth.models import Instance, ServiceLevel, ServiceLevels
from truenorth.models.scenario import Scenario
from truenorth.models.slo import is_named
from truenorth.planner.answers.servers.by_policy import SizeTrial, begin_trials, serve, simulate_at
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.hunt import Hunt
from truenorth.planner.answers.servers.sizes import Mix

NODES_APART = "nodes for urgent workflows alone"
_MOST_POOLS = 4
_SPECIAL = frozenset("+,=:")
"""What a name cannot have that stands in a policy's options."""


def most_urgent(instance: Instance, levels: ServiceLevels) -> tuple[str, ...]:
    """Return the workflows, as the levels name them, by how soon they must be served; the last tier is left out.

    Empty where there are no requests, levels do not differ by workflow, or jobs say themselves how urgent they are.
    """
    if instance.streams is None or any(job.priority for job in instance.jobs):
        return ()
    named = {level.workflow for level in levels if level.workflow is not None}
    soonest = {name: min(_within_us(instance, level) for level in levels if level.workflow == name) for name in named}
    order = sorted(soonest, key=lambda name: (soonest[name], name))
    if any(_SPECIAL.intersection(name) for name in order):
        return ()
    covered = all(any(is_named(name, workflow.name) for name in order) for workflow in instance.workflows)
    # Where all are named those of the last tier need no name: they come after the others.
    last = max(soonest.values(), default=0)
    return tuple(name for name in order if not covered or soonest[name] < last)[:_MOST_POOLS]


def _within_us(instance: Instance, level: ServiceLevel) -> float:
    """Return about how soon, in microseconds, a level wants its jobs served."""
    jobs = [job for job in instance.jobs if level.names(job.workflow.name)]
    if not jobs:
        return float("inf")
    if level.measure == "lateness":
        return min((job.deadline_us for job in jobs if job.deadline_us is not None), default=float("inf"))
    if level.measure == "slowdown":
        return float(level.limit) * sum(job.ideal_us for job in jobs) / len(jobs)
    if level.measure == "time per token":
        answers = [job.tokens_of(task).output for job in jobs for task in job.workflow.tasks if task.stream is not None]
        return float(level.limit) * sum(answers) / max(1, len(answers))
    return float(level.limit)


def first_come_first(policy: str, order: Sequence[str]) -> str:
    """Return a gateway that lets these workflows go first, the first of them before all."""
    return f"{policy}:urgent={'+'.join(order)}"


def try_pools(hunt: Hunt, trials: list[SizeTrial], policy: str, order: Sequence[str], share: float) -> None:
    """Simulate a gateway whose urgent workflows have nodes of their own, in a share of the time left.

    It joins the trials with the cheapest size found that meets the levels for less than what is known.

    Raises
    ------
    StoppedError
        If time was up before all was tried.
    """
    ask = hunt.question
    # Where prefill is apart the first nodes are those of prefill alone.
    if not order or set(ask.sizes.gpus_per_server) != {1} or ask.sizes.split:
        return
    cheapest = min((ask.sizes.cost(trial.mix) for trial in trials if trial.mix is not None), default=None)
    cheaper = [mix for mix in hunt.unrefuted if cheapest is None or ask.sizes.cost(mix) < cheapest]
    if not cheaper:
        return
    reserve_s = (1 - share) * ask.left_s
    one_kind = len(ask.sizes.counts) == 1
    sizes = _of_one_kind(hunt, policy, order, reserve_s) if one_kind else _of_several_kinds(cheaper, order)
    for mix, nodes in sizes:
        if mix not in cheaper:
            continue
        apart = "+".join(map(str, nodes))
        (trial,) = begin_trials(hunt, [f"{first_come_first(policy, order)},apart={apart}"])
        if not simulate_at(hunt, trial, mix, reserve_s):
            raise StoppedError
        if trial.mix is not None:
            trials.append(trial)
            return


def _of_one_kind(hunt: Hunt, policy: str, order: Sequence[str], reserve_s: float) -> Iterator[tuple[Mix, list[int]]]:
    """Yield the size at which each tier, simulated alone, has the fewest nodes that meet its levels."""
    nodes: list[int] = []
    for tier in range(len(order) + 1):
        most = hunt.question.candidates[-1][0] - sum(nodes)
        least = _least_alone(hunt, policy, _Tier.of(order, tier, hunt.question.levels), most, reserve_s)
        if least is None:
            return
        nodes.append(least)
    yield (sum(nodes),), nodes[:-1]


def _of_several_kinds(sizes: Sequence[Mix], order: Sequence[str]) -> Iterator[tuple[Mix, list[int]]]:
    """Yield these sizes with every way to share their nodes out, as they stand, among the tiers."""
    for mix in sizes:
        for ends in combinations(range(1, sum(mix)), len(order)):
            yield mix, [end - begin for begin, end in pairwise((0, *ends))]


@dataclass(frozen=True, slots=True)
class _Tier:
    """The workflows that share nodes, by their place in the order of urgency, and the levels that name them alone."""

    order: Sequence[str]
    at: int
    levels: ServiceLevels

    @classmethod
    def of(cls, order: Sequence[str], at: int, levels: ServiceLevels) -> _Tier:
        """Return a tier; behind the last of the order come all workflows that it does not name."""
        others = {level.workflow for level in levels} - {None, *order}
        own = {order[at]} if at < len(order) else others
        return cls(order, at, ServiceLevels(tuple(level for level in levels if level.workflow in own)))

    def keeps(self, workflow: str) -> bool:
        """Say whether a workflow is of the tier."""
        return next((at for at, by in enumerate(self.order) if is_named(by, workflow)), len(self.order)) == self.at


def _least_alone(hunt: Hunt, policy: str, tier: _Tier, most: int, reserve_s: float) -> int | None:
    """Return the fewest nodes that serve the workflows of a tier alone; None if none do."""
    if not tier.levels.levels:
        return 1
    low, high = 1, most + 1
    while low < high:
        middle = (low + high) // 2
        met = _meets_alone(hunt, policy, middle, tier, reserve_s)
        low, high = (low, middle) if met else (middle + 1, high)
    return low if low <= most else None


def _meets_alone(hunt: Hunt, policy: str, nodes: int, tier: _Tier, reserve_s: float) -> bool:
    """Say whether so many nodes serve the workflows of a tier, simulated alone."""
    ask = hunt.question

    def alone() -> Scenario:
        scenario = ask.scenario((nodes,))
        jobs = tuple(job for job in scenario.instance.jobs if tier.keeps(job.workflow.name))
        return replace(scenario, instance=replace(scenario.instance, jobs=jobs))

    if ask.left_s <= reserve_s:
        raise StoppedError
    ask.budget.watch(f"{policy} on {nodes} nodes for some workflows alone")
    ran = serve(ask, policy, alone, reserve_s)
    return ran is not None and meets(ran.truth, ran.timeline, tier.levels)
