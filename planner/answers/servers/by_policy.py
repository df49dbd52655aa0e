"""The least size at which an online policy meets the level, by simulation.

Policies are not monotone: one more server can break a level that was met. So only a size at which the level was met in
simulation counts, and the least one is known once every smaller size was simulated. What can be deployed comes first:
the scenario's own size, then sizes ever further from the lower bound until one meets the level, those by halves below
it that have more of some group than every size that failed, and at last, once every policy has come so far, all that
lie below the least that met. Policies that plan with a solver take as long as all the others: they come after them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from truenorth.executor import Knows, PolicyError, PolicyFaultError, StalledError, StoppedError
from truenorth.models import InstanceError, ServiceLevels
from truenorth.models.scenario import Scenario
from truenorth.planner.answers.plan import uncut
from truenorth.planner.answers.policies.parse import needs_solver, parse
from truenorth.planner.answers.servers.decide import Reached, meets, reached_by, share_of_limit
from truenorth.planner.answers.servers.hunt import Hunt
from truenorth.planner.answers.servers.sizes import Case, Mix, Sizing, is_within, remainders
from truenorth.planner.answers.simulate import Simulation, simulate

DEFAULT_POLICIES = ("srpt", "compass", "jit", "heft", "hash", "static", "receding")
"""Cheap ones first: what they find is where plans start."""
LONG_TRACE_POLICIES = ("jit", "srpt")
"""The quickest to simulate, for windows too long to plan."""
SIZING_GANG_POLICIES = ("sjf", "easy", "dally", "qssf", "fifo")
"""Where tasks run on several GPUs: quick ones."""
SIZING_LOADING_POLICIES = ("compass",)
"""Besides, where these need models: it asks each place what it would have to load."""
_FIRST_SHARE = 0.2
"""At most this share of the time left goes to the first simulation of a policy; that of the first policy has it all."""


@dataclass(frozen=True, slots=True)
class _SizeRun:
    """Whether a simulation met the levels, what it reached (None: the policy cannot serve), and itself if it met."""

    met: bool
    reached: Reached | None = None
    ran: Simulation | None = None


@dataclass(slots=True)
class SizeTrial:
    """A policy under trial: what it reached so far, and the sizes at which it met the levels with all spare gone, too.

    Attributes
    ----------
    knows, uses
        What its decisions make of run times, and the information used in words.
    rank
        By what a size comes before another: see `Sizes.rank`.
    runs
        Simulations by the servers that were left, and the draw of failures.
    reached
        Every size that was simulated, and what it reached there; None where the policy cannot serve at all.
    mix
        The cheapest size at which it met the levels, of several the one of least latency; None if it met them nowhere.
    met_at
        The simulation at every size at which it met them.
    skipped
        How many sizes cheaper than `mix`, or of all without one, are neither refuted nor simulated: time was up.
    limit
        Most requests at once on a node, None: as many as its engine has seats.
    """

    policy: str
    knows: Knows
    uses: str
    rank: Callable[[Mix], tuple[Fraction, int]]
    runs: dict[Case, _SizeRun] = field(default_factory=dict)
    reached: dict[Mix, Reached | None] = field(default_factory=dict)
    mix: Mix | None = None
    met_at: dict[Mix, Simulation] = field(default_factory=dict)
    skipped: int = 0
    limit: int | None = None
    _compared: dict[Mix, int | None] = field(default_factory=dict)

    def close(self, hunt: Hunt) -> None:
        """Note what is left out of sizes that are not refuted, and put what was reached in order of cost."""
        self.skipped = len(self.untried(hunt.unrefuted))
        self.reached = {mix: self.reached[mix] for mix in sorted(self.reached, key=hunt.question.sizes.order)}

    def promising(self, sizes: Sequence[Mix]) -> list[Mix]:
        """Return the sizes before that, not simulated yet, that have more of some group than every one that failed."""
        failed = [mix for mix in self.reached if mix not in self.met_at]
        found = []
        for mix in self.before_met(sizes):
            # Asked after every simulation: what was compared with those before is not compared again.
            compared = self._compared.get(mix, 0)
            if compared is not None and any(is_within(mix, each) for each in failed[compared:]):
                compared = None
            self._compared[mix] = None if compared is None else len(failed)
            if compared is not None and mix not in self.reached:
                found.append(mix)
        return found

    def untried(self, sizes: Sequence[Mix]) -> list[Mix]:
        """Return the sizes before that which are not simulated yet."""
        return [mix for mix in self.before_met(sizes) if mix not in self.reached]

    def closest(self, levels: ServiceLevels) -> Mix | None:
        """Return the size at which it came closest to the levels; None if it met them somewhere, or served nowhere."""
        shares = {mix: share_of_limit(levels, reached) for mix, reached in self.reached.items() if reached is not None}
        known = [mix for mix, share in shares.items() if share is not None]
        return min(known, key=lambda mix: shares[mix] or 0.0, default=None) if self.mix is None else None

    def before_met(self, sizes: Sequence[Mix]) -> Sequence[Mix]:
        """Return the sizes that come before the one at which the level was met; all if it was met nowhere."""
        return sizes if self.mix is None else sizes[: bisect_left(sizes, self.rank(self.mix), key=self.rank)]


def begin_trials(hunt: Hunt, policies: Sequence[str]) -> list[SizeTrial]:
    """Return the policies with what they know, none of them simulated yet."""
    parsed = [parse(policy, hunt.question.sizes.scenario) for policy in policies]
    return [
        SizeTrial(policy, each.knows, each.uses, hunt.question.sizes.rank, limit=each.limit)
        for policy, each in zip(policies, parsed, strict=True)
    ]


def try_own_size(hunt: Hunt, trials: Sequence[SizeTrial]) -> None:
    """Simulate policies once, at the scenario's own size: what meets the level there can be deployed.

    Those that plan with a solver have their turn in `scan`.
    """
    own = hunt.question.sizes.own
    for trial in trials if own in hunt.unrefuted else ():
        if own is not None and own not in trial.reached and not needs_solver(trial.policy):
            simulate_at(hunt, trial, own, _reserve_s(hunt))


def scan(hunt: Hunt, trials: Sequence[SizeTrial], share: float) -> None:
    """Simulate policies at the sizes in question, in a share of the time left; plans go to the hunt.

    At first each has its part of it; who needs least then takes what is left to be sure of it: it may be the answer.
    """
    sizes, reserve_s = hunt.unrefuted, (1 - share) * hunt.question.left_s
    quick = [trial for trial in trials if not needs_solver(trial.policy)]
    # Those that plan with a solver take as long as all others: what is left is theirs.
    for among in (quick, [trial for trial in trials if trial not in quick]):
        _simulate_in_turn(hunt, among, sizes, reserve_s)
        for trial in sorted(among, key=lambda trial: len(trial.before_met(sizes))):
            _simulate_below(hunt, trial, sizes, reserve_s)


def try_largest_size(hunt: Hunt, trials: Sequence[SizeTrial], share: float) -> None:
    """Simulate policies at the largest size where nothing has met the levels: it shows how far off they are."""
    reserve_s, largest = (1 - share) * hunt.question.left_s, hunt.unrefuted[-1:]
    for trial in trials if largest and not any(trial.met_at for trial in trials) else ():
        if largest[0] not in trial.reached:
            simulate_at(hunt, trial, largest[0], reserve_s)


def _simulate_in_turn(hunt: Hunt, trials: Sequence[SizeTrial], sizes: Sequence[Mix], reserve_s: float) -> None:
    """Simulate one policy after the other towards its least size, each in its part of the time above a reserve.

    The first has half of it where its time is short: the others begin at the least size that it finds.
    """
    ask = hunt.question
    for position, trial in enumerate(trials):
        parts = len(trials) - position if position else min(2, len(trials))
        end_s = ask.left_s - max(0.0, ask.left_s - reserve_s) / parts
        least = min((each.mix for each in trials if each.mix is not None), key=ask.sizes.order, default=None)
        for mix in _towards_least(trial, sizes, least, ask.sizes.likely):
            # Who has shown nothing yet, as the scenario's own size is not in question, gets its first simulation now.
            first = not trial.reached
            if not simulate_at(hunt, trial, mix, min(end_s, _reserve_s(hunt)) if first else end_s):
                break


def _reserve_s(hunt: Hunt) -> float:
    """Return what a policy's first simulation leaves of the time: nothing, until some policy was simulated."""
    return (1 - _FIRST_SHARE) * hunt.question.left_s if hunt.starts else 0.0


def _towards_least(
    trial: SizeTrial, sizes: Sequence[Mix], least: Mix | None, likely: Callable[[Sequence[Mix]], list[Mix]]
) -> Iterator[Mix]:
    """Yield sizes in strides that double until one meets the level, then in halves below it.

    Of several groups each is tried alone at first, until some policy has met the level. Strides begin at the least size
    that did for some policy, and take those that are likely to be enough. Halves of what is promising lead to a size
    that is nearly the least in a few simulations.
    """
    groups = len(sizes[0]) if sizes else 0
    if least is None and groups > 1:
        for group in range(groups):
            yield from _of_one_group(trial, sizes, group)
    above = likely(sizes if least is None else sizes[sizes.index(least) :])
    strides = [min(2**power, len(above)) - 1 for power in range(len(above).bit_length() + 1)] if above else []
    for position in strides:
        if trial.mix is not None:
            break
        if above[position] not in trial.reached:
            yield above[position]
    while trial.mix is not None and (below := trial.promising(sizes)):
        yield below[len(below) // 2]


def _of_one_group(trial: SizeTrial, sizes: Sequence[Mix], group: int) -> Iterator[Mix]:
    """Yield sizes of one group alone in halves; few simulations show about what each group is worth."""
    low, high = 0, sum(sum(mix) == mix[group] for mix in trial.before_met(sizes))
    alone = [mix for mix in sizes if sum(mix) == mix[group]]
    while low < high:
        middle = (low + high) // 2
        if alone[middle] not in trial.reached:
            yield alone[middle]
        low, high = (low, middle) if alone[middle] in trial.met_at else (middle + 1, high)


def _simulate_below(hunt: Hunt, trial: SizeTrial, sizes: Sequence[Mix], reserve_s: float) -> None:
    """Simulate what lies below the least size that met the level, the dearest first: that it is the least takes all."""
    for mix in reversed(trial.before_met(sizes)):
        # One that meets the level leaves out what costs as much.
        left = trial.mix is None or trial.rank(mix) < trial.rank(trial.mix)
        if left and mix not in trial.reached and not simulate_at(hunt, trial, mix, reserve_s):
            break


def simulate_at(hunt: Hunt, trial: SizeTrial, mix: Mix, reserve_s: float) -> bool:
    """Simulate a policy at a size as long as more than a reserve is left; say whether there was time for it.

    A size meets the levels if it does so whole and with any servers gone, up to as many as are spare, and in every
    draw of failures.
    """
    ask = hunt.question
    for case in ask.cases(mix):
        ran = _run_once(hunt, trial, case, reserve_s)
        if ran is None:
            return False
        # One case that fails decides; what it reached is what the size is worth.
        if not ran.met:
            trial.reached[mix] = ran.reached
            return True
    # Of failures the worst draw is what it is worth.
    cases = [trial.runs[case] for case in ask.cases(mix) if case.mix == mix]
    worst = max(cases, key=lambda run: share_of_limit(ask.levels, run.reached or ()) or 0.0)
    trial.reached[mix] = worst.reached
    if worst.ran is not None:
        trial.met_at[mix] = worst.ran
    trial.mix = min(trial.met_at, key=lambda each: (*trial.rank(each), trial.met_at[each].metrics.mean_latency_s, each))
    return True


def survives(hunt: Hunt, trial: SizeTrial, mix: Mix, reserve_s: float) -> bool | None:
    """Say whether a policy meets the levels with any one server of a size gone from the start; None if time was up."""
    for left in remainders(mix, 1):
        ran = _run_once(hunt, trial, Case(left), reserve_s)
        if ran is None or not ran.met:
            return None if ran is None else False
    return True


def _run_once(hunt: Hunt, trial: SizeTrial, case: Case, reserve_s: float) -> _SizeRun | None:
    """Return what a policy does in a case, simulated if it was not before; None if time was up."""
    if case not in trial.runs:
        if hunt.question.left_s <= reserve_s:
            return None
        struck = "" if case.draw is None else f", draw {case.draw + 1} of failures"
        hunt.question.budget.watch(f"{trial.policy} on {sum(case.mix)} servers{struck}")
        ran = _run(hunt, trial.policy, case, reserve_s)
        if ran is None:
            return None
        trial.runs[case] = ran
    return trial.runs[case]


def _run(hunt: Hunt, policy: str, case: Case, reserve_s: float) -> _SizeRun | None:
    """Simulate once, and hand the timeline to the hunt; None if time was up."""
    ask = hunt.question
    try:
        ran = serve(ask, policy, lambda: ask.scenario_in(case), reserve_s)
    except StoppedError:
        return None
    if ran is None:
        return _SizeRun(False)
    met = meets(ran.truth, ran.timeline, ask.levels)
    # On a twin, or where run times held that nobody was told, it is no plan of this scenario; nor is one with failures.
    if not ran.on_a_twin and not ran.timeline.realised and case.draw is None:
        _offer(hunt, case.mix, ran, met, reserve_s)
    return _SizeRun(met, reached_by(ran.truth, ran.timeline, ask.levels), ran if met else None)


def _offer(hunt: Hunt, mix: Mix, ran: Simulation, met: bool, reserve_s: float) -> None:
    """Hand a timeline to the hunt; as a plan cuts no request, one that does is run again with longer drains.

    Nor does a plan preempt by priority: such a timeline is none.
    """
    ask, timeline = hunt.question, ran.timeline
    if timeline.preempted:
        return
    if timeline.cuts:
        if not met or (hunt.best is not None and ask.sizes.cost(hunt.best) <= ask.sizes.cost(mix)):
            return
        try:
            policy = parse(ran.policy, ran.scenario)
            timeline = uncut(ran.instance, policy, ask.budget.seed, lambda: ask.left_s <= reserve_s)
        except (StoppedError, PolicyError):
            return
        met = meets(ran.instance, timeline, ask.levels)
    hunt.starts.setdefault(mix, []).append(timeline)
    if met:
        hunt.offer(mix, timeline)


def serve(ask: Sizing, policy: str, scenario: Callable[[], Scenario], reserve_s: float) -> Simulation | None:
    """Simulate a policy as long as more than a reserve is left.

    None if it cannot serve the scenario, for instance a static placement whose models do not all fit, or where servers
    have gone for good.

    Raises
    ------
    StoppedError
        If time was up.
    PolicyFaultError, StalledError
        If the policy raises, acts illegally or leaves tasks while all servers are there, which no other size mends.
    """
    try:
        made = scenario()
        return simulate(made, policy, seed=ask.budget.seed, noise=ask.noise, stop=lambda: ask.left_s <= reserve_s)
    except PolicyFaultError:
        raise
    except StalledError:
        if made.instance.always_available:
            raise
        return None
    except (InstanceError, PolicyError):
        return None
