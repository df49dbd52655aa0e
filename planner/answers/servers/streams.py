"""Sizes that are too small for requests of streams: by what every request takes alone, and by floors on all together.

Floors are linear: a cut weighs the GPUs of each group, and whatever meets the levels has so much weight. Weighed by
price a cut bounds the price of every mix; weighed by one group alone it says how many are needed without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil
from operator import mul

import numpy as np

from truenorth.executor.policies.parse import suited
from truenorth.models import Instance, InstanceError, ServiceLevel, ServiceLevels
from truenorth.models.instance import NEVER, Ints
from truenorth.planner.answers.servers.decide import SizeRefutation
from truenorth.planner.answers.servers.forces import broken_at_best, told_apart
from truenorth.planner.answers.servers.goal import late_together, tolerances
from truenorth.planner.answers.servers.hunt import Hunt, nowhere
from truenorth.planner.answers.servers.sizes import Mix, Sizes, Sizing, candidates
from truenorth.solvers.bounds.fluid import NO_DEADLINE
from truenorth.solvers.bounds.stream_floor import NO_DUE, Cut, Limit, RequestDemands, StreamFloor

ALONE = "alone"
GATEWAYS = ("least_tokens", "least_requests", "round_robin")
"""Simulated unless others are named: what gateways of language models do, the one that needs least first."""
KNOWING = "least_tokens:known=yes"
"""Beside them: the same rule with exact lengths of answers, which can need more than without."""
AFFINITY = "prefix_affinity"
"""Where a job sends several requests of one class, or nodes cache; for others it is the first of them."""
_APART = 1000
"""A group that is weighed so much more than the others leaves cuts to those that lack it."""
_MOST_TURNS, _CUTS_EACH = 200, 3
"""Sizes that weights of their own are sought for, and how many weights for each that is not refuted."""
_AT_ANY_RATE = 20_000
"""Requests that are charged whatever time is left, weights by weights: some two seconds of a core, busy or not."""
_BOTH = "Every fleet needs nodes of both roles, prefill and decode"
_WAYS = {
    "energy": "prompts and steps",
    "energy with KV": "prompts and steps with the KV memory there is",
    "seats": "seats",
    "KV": "KV memory",
}


def stream_policies(instance: Instance, noise: str | None) -> tuple[str, ...]:
    """Return the policies to simulate where none are named; under noise nobody is to order by lengths of answers."""
    classes = ([task.stream.name for task in workflow.tasks if task.stream] for workflow in instance.workflows)
    caches = instance.streams is not None and instance.streams.prefixes is not None
    several = caches or any(len(set(names)) < len(names) for names in classes)
    return (*suited(instance), *GATEWAYS, *([AFFINITY] if several else []), *([KNOWING] if noise is None else []))


def refute_sizes(hunt: Hunt, most: int | None, share: float) -> int:
    """Refute sizes that are too small, in a share of the time left; return the fewest GPUs that any size needs."""
    ask = hunt.question
    ask.budget.watch("floors of requests")
    instance = ask.sizes.scenario.instance
    floor = _floor(ask.sizes, cut=ask.failures is not None)
    latency = np.maximum(floor.shortest_us(first_token=False), 0)  # of jobs without requests nothing is known
    alone = broken_at_best(instance, ask.levels, latency, floor.least_times(), "Prompts and steps")
    if alone is not None:
        beyond = tuple(max(counts) + 1 for counts in zip(*ask.candidates, strict=True))
        hunt.refutations.append(SizeRefutation(beyond, ALONE, None, None, None, alone.in_words(), True, alone))
        return 1
    reserve_s, found = (1 - share) * ask.left_s, list[tuple[Limit, Cut]]()
    at_any_rate = _AT_ANY_RATE // instance.n_tasks
    for at, (limit, weights) in enumerate(product(limits(instance, ask.levels), _weightings(ask.sizes))):
        if at < at_any_rate or ask.left_s > reserve_s:
            found += [(limit, cut) for cut in floor.cuts(limit, [weights]) or []]
    alike = tuple(Fraction(sort.gpus) for sort in ask.sizes.sorts)
    least_gpus = max((ceil(cut.least) for _, cut in found if cut.weights == alike), default=1)
    ask.candidates = candidates(ask.sizes, most, least_gpus, ask.spare)
    # Building a scenario takes far longer than a cut, so that each combination of groups is tried once.
    served = set[tuple[bool, ...]]()
    decodes = instance.streams is not None and bool(instance.streams.kv_edge.any())

    def too_small(mix: Mix) -> SizeRefutation | None:
        groups = tuple(map(bool, ask.sizes.engines(mix)))
        if groups not in served:  # that all can run hangs on which engines there are, not on how many of each
            try:
                ask.scenario(mix)
            except InstanceError as error:
                refuted = nowhere(mix, error)
                return replace(refuted, forces=_BOTH) if decodes and ask.sizes.lacks_a_role(mix) else refuted
            served.add(groups)
        return _cut_off(ask, [cut for _, cut in found], mix)

    hunt.apply(too_small)
    # Then the cheapest size that is left, by the weights that ask for the most of it, until one is not refuted.
    for turn in range(_MOST_TURNS if found and len(ask.sizes.sorts) > 1 else 0):
        late = _CUTS_EACH * turn >= at_any_rate and ask.left_s <= reserve_s
        if not hunt.open or late or not _refute_cheapest(hunt, floor, found):
            break
        hunt.apply(too_small)
    return least_gpus


def _refute_cheapest(hunt: Hunt, floor: StreamFloor, found: list[tuple[Limit, Cut]]) -> bool:
    """Add cuts by weights that suit the cheapest open size; say whether one refutes it.

    They begin at the cut that comes closest to it, whose window they keep at first.
    """
    ask = hunt.question
    left = min(ask.left_of(hunt.open[0]), key=ask.sizes.order)
    gpus = ask.sizes.engines(left)
    for _ in range(_CUTS_EACH):
        limit, closest = max(found, key=lambda each: each[1].fullness(gpus))
        made = floor.cuts(limit, [floor.balance(limit, closest, gpus)], [closest.way]) or []
        found += [(limit, cut) for cut in made]
        if any(cut.refutes(gpus) for cut in made):
            return True
    return False


def requests_asked(sizes: Sizes, levels: ServiceLevels) -> list[RequestDemands]:
    """Return what levels ask of GPUs that are there for a time only."""
    instance = sizes.scenario.instance
    floor = _floor(sizes, cut=True)
    asked = [floor.demands(limit) for limit in limits(instance, levels)]
    return [each for each in asked if each is not None]


def limits(instance: Instance, levels: ServiceLevels) -> list[Limit]:
    """Return what levels ask of jobs: each level by itself, and those about the same end of jobs together.

    A level for all says when the late jobs of another are due. What is asked of the time per token has no due time of
    its own, and makes that of jobs in time dearer.
    """
    shares = tolerances(level for level in levels if level.measure != "time per token")
    found = []
    for first_token in (False, True):
        alike = [each for each in shares if (each.level.measure == "first token") is first_token]
        asked = [(each.due_us(instance), each.most_late(instance)) for each in alike]
        if len(alike) > 1:
            asked.append(late_together(instance, [each for each in alike if each.multiple == 1]))
        # A first token comes before the end, so that what is due for all of the ends holds for it, too.
        all_due = [each.due_us(instance) for each in shares if each.share == 1 and (first_token or each in alike)]
        surely = np.min([_never(due) for due in all_due] or [np.full(len(instance.jobs), NO_DUE)], axis=0)
        found += [Limit(_never(due), surely, late, first_token) for due, late in asked]
    steps = [level for level in levels if level.measure == "time per token" and level.share is not None]
    for_all = [level for level in steps if level.share == 1]
    found = [_hurried(instance, limit, for_all) for limit in found] if for_all else found
    return found + [_hurried(instance, limit, steps) for limit in found if len(steps) > len(for_all)]


def _hurried(instance: Instance, limit: Limit, steps: Sequence[ServiceLevel]) -> Limit:
    """Return a limit with what levels on the time per token ask besides: what is late there may be late here."""
    streams, step_us, late = instance.streams, np.full(len(instance.jobs), np.inf), limit.late
    if streams is None:
        return limit
    job = instance.task_job[streams.answers(streams.output).last]
    for level in steps:
        covered, share = level.covers(instance), level.share or Fraction(1)
        step_us[covered] = np.minimum(step_us[covered], float(level.limit))
        requests = int(covered[job].sum())
        late += requests - ceil(share * requests)
    return replace(limit, late=late, step_us=step_us)


def _never(due_us: Ints) -> Ints:
    """Return due times, `NO_DUE` where there is none."""
    return np.where(due_us >= NO_DEADLINE, NO_DUE, due_us)


def _floor(sizes: Sizes, cut: bool) -> StreamFloor:
    """Return the floor on an engine of each sort; a group can run what some GPU of it may.

    Parameters
    ----------
    cut
        Whether requests may be cut although the GPUs of the scenario stay.

    Invariant: it holds where GPUs are away at times, or fail, too.
    Because: time away is no time to serve in, and a request that is cut costs what its last run does or more; its first
    token, if an earlier run gave it, has cost that run the prompt.
    If wrong: a floor above what is enough.
    """
    instance, sorts = sizes.scenario.instance, sizes.sorts
    sort_of = [(gpu.group, gpu.gpus) for gpu in instance.cluster.gpus]
    runs = np.asarray(instance.run_us != NEVER)[:, instance.gpu_class]
    allowed = np.stack([runs[:, [one == sort for one in sort_of]].any(axis=1) for sort in sorts], axis=1)
    return StreamFloor(instance, list(sorts.values()), allowed, cut or not instance.always_available)


def _weightings(sizes: Sizes) -> list[tuple[Fraction, ...]]:
    """Return weights of engines: by their GPUs, by price, and each sort apart from the others."""
    sorts = list(sizes.sorts)
    found = [tuple(Fraction(sort.gpus) for sort in sorts)]
    if not sizes.one_price:
        prices = sizes.price_per_gpu
        found.append(tuple(max(prices[sort.pool] * sort.gpus, Fraction(1, _APART)) for sort in sorts))
    if len(sorts) > 1:
        found += [tuple(Fraction(1 if sort == one else _APART) for sort in sorts) for one in sorts]
    return found


def _cut_off(ask: Sizing, cuts: Sequence[Cut], mix: Mix) -> SizeRefutation | None:
    """Return why a mix is too small, if a cut says so."""
    gpus = ask.sizes.engines(mix)
    cut = next((cut for cut in cuts if cut.refutes(gpus)), None)
    if cut is None:
        return None
    return SizeRefutation(mix, cut.way, None, None, None, cut_in_words(ask.sizes, cut, gpus), cut=cut)


def cut_in_words(sizes: Sizes, cut: Cut, engines: Sequence[int]) -> str:
    """Return what requests within the levels need, counted in GPUs, or in engines of the sort that weighs least."""
    by_gpus = [weight / sort.gpus for weight, sort in zip(cut.weights, sizes.sorts, strict=True)]
    alike = len(set(by_gpus)) == 1
    unit = by_gpus[0] if alike else min(cut.weights)
    kinds = [gpu.kind for gpu in sizes.sorts.values()]
    weighed = [each / unit for each in cut.weights]
    there = float(sum(map(mul, weighed, engines)))
    what = "GPUs" if alike else kinds[cut.weights.index(unit)]
    counting = [
        f"each {kind} counting {float(each):.4g}"
        for kind, each, count in zip(kinds, weighed, engines, strict=True)
        if count and each > 1 and not alike
    ]
    least, has = told_apart(float(cut.least / unit), there)
    needed = f"{least} {what} all the time{''.join(f', {each}' for each in counting)}"
    window = f"Between {cut.begin_us / 1e6:.6g} s and {cut.end_us / 1e6:.6g} s"
    has = f"there {'is' if there == 1 else 'are'} {has}"
    return f"{window} the {_WAYS[cut.way]} of requests that keep to the level need {needed}; {has}"
