"""How many servers are enough: the question asked, and the answer with its proof, policies and what forces it.

Its files are the plan, the certificate, and for each the scenario it belongs to, at its size.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truenorth.executor import POLICIES, StoppedError
from truenorth.executor.policies.on_places import rule_on_places
from truenorth.models import Instance, InstanceError, ServiceLevels, Timeline, scenario_hash
from truenorth.models.cluster import FOREVER, MICROSECONDS_PER_SECOND, Availability
from truenorth.models.errors import QuestionError
from truenorth.models.features import missing
from truenorth.models.instance import Ints
from truenorth.models.record import ABSENT, encode, take
from truenorth.models.scenario import Scenario, TimelineHeader, load_scenario, write_atomically, write_timeline
from truenorth.models.scenario.errors import FieldError
from truenorth.models.scenario.limits import check_horizon
from truenorth.models.scenario.writing import job_sections, write_scenario
from truenorth.planner.answers.compare import BATCHING_POLICIES
from truenorth.planner.answers.policies.parse import parse
from truenorth.planner.answers.servers.by_policy import (
    DEFAULT_POLICIES,
    LONG_TRACE_POLICIES,
    SIZING_GANG_POLICIES,
    SIZING_LOADING_POLICIES,
    SizeTrial,
    begin_trials,
    scan,
    try_largest_size,
    try_own_size,
)
from truenorth.planner.answers.servers.decide import SizeRefutation, figures, reached_by, share_of_limit
from truenorth.planner.answers.servers.deployable import (
    FEWER_AT_ONCE,
    Alternative,
    Deployable,
    deploy,
    try_limits,
    with_traffic,
)
from truenorth.planner.answers.servers.engines import Engine, NoEnginesError, asked_of_gateway, engines_of
from truenorth.planner.answers.servers.floor_certificate import floor_document
from truenorth.planner.answers.servers.goal import refuse_vacuous, tolerances
from truenorth.planner.answers.servers.hunt import LONG_TRACE, Hunt, dispatch, floor_of, floor_takes_s
from truenorth.planner.answers.servers.manifests import fleet_in_words, kubernetes_text, origin_lines, ray_serve_text
from truenorth.planner.answers.servers.outages import Outages
from truenorth.planner.answers.servers.record import (
    AlternativeSize,
    AssumedWindow,
    ClosestSize,
    CoarseStamps,
    EngineToStart,
    FailuresDrawn,
    FormOfFleet,
    FormsTried,
    GroupOfServers,
    GrowthTaken,
    LimitsTried,
    Minimum,
    PolicySize,
    ReachedSize,
    ServersOrigin,
    ServersRecord,
    SizeRefuted,
    StrainReached,
)
from truenorth.planner.answers.servers.sizes import Mix, Sizes, Sizing, candidates, leave_out_idle
from truenorth.planner.answers.servers.streams import refute_sizes, stream_policies
from truenorth.planner.answers.servers.urgency import NODES_APART, first_come_first, most_urgent, try_pools
from truenorth.planner.answers.shown import Answer, fitted_laws, frame_of_document
from truenorth.planner.answers.simulate import is_file, write_simulation
from truenorth.planner.answers.uncertain.spec import refuse_estimates
from truenorth.planner.answers.versions import named, provenance
from truenorth.planner.questions.sizes import SizesQuestion
from truenorth.solvers.budget import Budget

if TYPE_CHECKING:
    import pandas as pd


SLOWEST, FASTEST = Fraction(1, 100), Fraction(100)
"""Requests come at least and at most so many times as fast as the scenario says."""
_FLOOR_SHARE = 0.5
"""The fluid bound of all sizes, which cannot be interrupted, is begun if it takes at most this share of the time."""
_QUICK_SHARE = 0.05
"""If it may take more than this share, policies are simulated at the scenario's own size before it."""
_FORMULAS_SHARE, _POLICY_SHARE = 0.3, 0.6
"""At most these shares of the time left go to bounds without search, and then to simulating policies at more sizes."""
_REQUESTS_SHARE = 0.4
"""At most this share goes to floors of requests of streams."""
_DISPATCH_SHARE = 0.5
"""Where windows are too long to search, at most this share goes to plans of a dispatch rule."""
_REST_SHARES = (0.1, 0.1, 0.1, 0.1)
"""And then to what costs little more than the best of them, to a failure of that, to more traffic, to other figures."""
_LAST_POLICY_SHARE, _LAST_SHARES = 0.7, (0.1, 0.3, 0.6, 1.0)
"""The same where no plans are searched for after it."""
_LARGEST_SHARE = 0.1
"""At most this share goes to the largest size where nothing has met the levels and plans are still to be searched."""
_POOLS_SHARE, _LIMITS_SHARE = 0.3, 0.4
"""At most these shares go to nodes for some workflows alone, and to fewer requests at once than engines have seats."""
_LATER_SHARES = (0.9, 1.0)
"""Shares of what is left after all that, which policies get again while they have sizes that are not simulated."""


@dataclass(frozen=True, slots=True)
class ServersAnswer(Answer):
    """The least size that meets a level, or the interval it lies in.

    Parameters
    ----------
    sizes, levels
        What was asked about.
    mix, timeline
        The cheapest size with a plan within the level, and that plan; None if none was found.
    undecided
        Cheaper sizes that are neither refuted nor met, cheapest first; none: the size is proved least.
    refutations
        Sizes that were refuted, each standing for all mixes with no more servers of any group.
    policies
        What simulating each online policy found.
    largest
        The largest size that was asked about.
    runtime_s
        Wall-clock time.
    asked
        The question that repeats it, with the levels that held; policies only if they were named.
    alternatives
        Policies at sizes that met the levels in simulation and cost little more than the cheapest, which comes first.
    growth
        How much more traffic the first of them takes; None if there is none, or no time was left.
    strains
        What the first of them reaches with one model larger or slower, worst first, as far as there was time.
    survives_failure
        Whether the first of them meets the levels with any one server gone from the start, too; None if not simulated.
    spare
        The levels are met with any so many servers gone, too; all sizes count them.
    planned
        The size that the timeline uses: of `mix`, what is left with the dearest servers gone as far as they are spare.
    noise
        Under which policies were simulated; bounds and plans are of the scenario as it stands.
    least_gpus
        Fewest GPUs that any size needs, whatever its groups' counts.
    rate
        So many times as many requests come per second as the scenario says.
    coarse_stamps
        What the arrivals' clock shows, if it is so coarse that many coincide; None otherwise.
    limited
        What fewer requests at once on a node come to; None where that was not tried.
    not_tried
        What there was no time for that may make do with less, in words.
    interrupted
        Whether the search was interrupted: what was found by then.
    outages
        The draws of failures that policies were simulated in; None if none were asked about.
    beside
        The answer about the other form of fleet, if both were asked about: prefill apart from decode, or together.
        Bounds and proofs are about both.
    """

    sizes: Sizes
    levels: ServiceLevels
    mix: Mix | None
    timeline: Timeline | None
    undecided: tuple[Mix, ...]
    refutations: tuple[SizeRefutation, ...]
    policies: tuple[SizeTrial, ...]
    largest: Mix
    runtime_s: float
    asked: SizesQuestion
    alternatives: tuple[Alternative, ...] = ()
    growth: GrowthTaken | None = None
    strains: tuple[StrainReached, ...] = ()
    survives_failure: bool | None = None
    spare: int = 0
    planned: Mix | None = None
    noise: str | None = None
    least_gpus: int = 1
    rate: Fraction = Fraction(1)
    coarse_stamps: CoarseStamps | None = None
    limited: LimitsTried | None = None
    not_tried: tuple[str, ...] = ()
    interrupted: bool = False
    outages: Outages | None = None
    beside: ServersAnswer | None = None

    def __repr__(self) -> str:
        best = self.recommended
        order = "no policy met the level" if best is None else f"order {_sum_of(best.mix)} for {best.policy}"
        planned = "no plan found" if self.mix is None else f"{_sum_of(self.mix)} with the future known"
        return f"<ServersAnswer of {self.sizes.scenario.name!r}: {order}; {planned}{', proved least' * self.proved}>"

    def frame(self) -> pd.DataFrame:
        """Return a row for the plan and one per policy: the least size of each, and what it reaches there."""
        record = self.record()
        rows = {"plan": record.minimum, **record.policies}
        reached = {row.policy: None if row.mix is None else row.reached[row.mix] for row in self.policies}
        values: dict[str, Any] = {"plan": record.minimum.value}
        values |= {name: figures(self.levels, at) for name, at in reached.items()}
        frame = frame_of_document(*rows.values()).drop(columns=["reached", "knows", "plan"], errors="ignore")
        return frame.assign(policy=list(rows), value=[values[name] for name in rows]).set_index("policy")

    @property
    def recommended(self) -> Alternative | None:
        """What to order: the cheapest size at which a policy met the levels, and that policy; None if none did."""
        return next(iter(self.alternatives), None)

    @property
    def engines(self) -> list[Engine]:
        """The engines to start for what is to be ordered.

        Raises
        ------
        NoEnginesError
            If nothing is to be ordered, or it is no set of engines of one language model each.
        """
        if self.recommended is None:
            raise NoEnginesError("no policy met the level")
        return engines_of(self.recommended)

    @property
    def servers(self) -> int | None:
        """Servers of the least size found, of a plan that knows the future; what to order is `recommended`."""
        return None if self.mix is None else sum(self.mix)

    @property
    def proved(self) -> bool:
        """Whether every cheaper size is refuted, of both forms if there are two."""
        if self.mix is None or self.undecided:
            return False
        other = None if self.beside is None else self.beside.least
        return other is None or self.beside is None or self.beside.cost(other) >= self.cost(self.mix)

    @property
    def least(self) -> Mix | None:
        """The cheapest size that is not refuted; None if all are."""
        return self.undecided[0] if self.undecided else self.mix

    @property
    def impossible(self) -> bool:
        """Whether it is proved that no number of servers is enough."""
        own = any(done.however_many for done in self.refutations)
        return own and (self.beside is None or self.beside.impossible)

    @property
    def lower_bound(self) -> int | None:
        """Fewest servers that may be enough, one more than asked about if all those are refuted.

        None where no number is enough, and of several groups: there the price has a bound, and one dear server may do
        where many cheap ones do not.
        """
        if self.impossible or not self.sizes.one_price:
            return None
        own = sum(self.least or self.largest) + (self.least is None)
        other = None if self.beside is None else self.beside.lower_bound
        return own if other is None else min(own, other)

    @property
    def lower_bound_price(self) -> Fraction | None:
        """The least price of an hour that may be enough, of mixes asked about.

        None without prices, or if all of them are refuted.
        """
        own = None if self.least is None else self.sizes.price(self.least)
        other = None if self.beside is None else self.beside.lower_bound_price
        return min((price for price in (own, other) if price is not None), default=None)

    @property
    def lower_bound_price_of_any(self) -> Fraction | None:
        """The least price of an hour that may be enough, whatever the counts of the groups.

        A mix that was not asked about has one server more of some sort than all that were, and no fewer GPUs than
        the fluid bound asks of every mix. None without prices, or where no number is enough.
        """
        prices = self.sizes.prices
        if prices is None or self.impossible:
            return None
        most = self.sizes.of_pools(self.largest)
        per_server = dict(zip(self.sizes.pool_of, prices, strict=True)).values()
        beyond = min(each * (count + 1) for each, count in zip(per_server, most, strict=True))
        per_gpu = min(each / gpus for each, gpus in zip(prices, self.sizes.gpus_per_server, strict=True))
        outside, inside = max(beyond, self.least_gpus * per_gpu), self.lower_bound_price
        other = None if self.beside is None else self.beside.lower_bound_price_of_any
        return min(price for price in (outside, inside, other) if price is not None)

    @property
    def refutation(self) -> SizeRefutation | None:
        """The refutation of the most expensive size below the floor: it says what forces one more.

        Where that is refuted by a larger one alone, the least of those; None where only the other form is so cheap.
        """
        floor = None if self.least is None or self.impossible else self.cost(self.least)
        other = None if self.beside is None or self.beside.least is None else self.beside.cost(self.beside.least)
        lower = other is not None and (floor is None or other < floor)
        floor = other if lower else floor
        below = [done for done in self.refutations if floor is None or self.cost(done.mix) < floor]
        if below or lower:
            return max(below, key=lambda done: self.sizes.explains(done.mix), default=None)
        return min(self.refutations, key=lambda done: self.cost(done.mix), default=None)

    def cost(self, mix: Mix) -> Fraction:
        """Return what was to be least: the price of several groups, the servers of one."""
        return self.sizes.cost(mix)

    def record(self, plan: Path | None = None, certificate: Path | None = None) -> ServersRecord:
        """Return the answer with the keys of ``servers --json``."""
        size, priced, rounded = self.sizes.size, self.sizes.prices is not None, self.sizes.scenario.document.rounded_up
        bounds = (_number(self.lower_bound_price), _number(self.lower_bound_price_of_any)) if priced else ()
        reached = None
        if self.planned is not None and self.timeline is not None:
            reached = reached_by(self.sizes.at(self.planned).instance, self.timeline, self.levels)
        value = figures(self.levels, reached)
        at = None if plan is None else str(plan)
        minimum = Minimum(size(self.mix), self.proved, self.lower_bound, value, at, *bounds)
        policies = {
            row.policy: PolicySize(
                size(row.mix),
                row.knows,
                sum(list(row.reached)[-1]) if row.reached and not priced else None,
                row.skipped,
                [ReachedSize(size(mix), figures(self.levels, value)) for mix, value in row.reached.items()],
                row.uses,
                self._closest(row),
            )
            for row in self.policies
        }
        return take(
            ServersRecord,
            self,
            slo=self.levels.written,
            rate=float(self.rate),
            groups=[
                GroupOfServers(group.gpu.kind, group.gpus_per_server, list(group.engines or ()) or ABSENT)
                for group in self.sizes.scenario.document.cluster.server_groups
            ],
            rounded_up=_number(rounded),
            largest=size(self.largest),
            open_sizes=len(self.undecided) + (0 if self.beside is None else len(self.beside.undecided)),
            minimum=minimum,
            policies=policies,
            alternatives=[
                take(
                    AlternativeSize,
                    each,
                    size=size(each.mix),
                    value=figures(self.levels, each.reached),
                    information_used=each.uses,
                    requests_at_once=ABSENT if each.limit is None else each.limit,
                    value_with_spare_gone=ABSENT if each.gone is None else figures(self.levels, each.gone),
                )
                for each in self.alternatives
            ],
            coarse_stamps=self.coarse_stamps,
            fitted=fitted_laws(self.sizes.scenario.instance),
            requests_at_once=ABSENT if self.limited is None else self.limited,
            not_tried=list(self.not_tried) or ABSENT,
            failures=ABSENT if self.outages is None else self._failures(self.outages),
            **self._engines(),
            split=ABSENT if self.beside is None else self._forms(self.beside),
            away=ABSENT if self.sizes.scenario.instance.always_available else True,
            sensitivity=list(self.strains),
            refutation=None if self.refutation is None else self._refuted(self.refutation, certificate),
        )

    def _closest(self, row: SizeTrial) -> ClosestSize | None:
        mix = row.closest(self.levels)
        reached = None if mix is None else row.reached[mix]
        if mix is None or reached is None:
            return None
        share = share_of_limit(self.levels, reached)
        return ClosestSize(self.sizes.size(mix), figures(self.levels, reached), share)

    def _engines(self) -> dict[str, Any]:
        """Return the engines to start, or why there are none; nothing where no task is a request."""
        if self.sizes.scenario.instance.streams is None:
            return {"engines": ABSENT, "no_engines": ABSENT}
        try:
            return {
                "engines": [
                    take(EngineToStart, each, role=each.role or ABSENT, priorities=dict(each.priorities) or ABSENT)
                    for each in self.engines
                ],
                "no_engines": ABSENT,
            }
        except NoEnginesError as error:
            return {"engines": ABSENT, "no_engines": str(error)}

    def _forms(self, beside: ServersAnswer) -> FormsTried:
        apart, together = (self, beside) if self.sizes.split else (beside, self)
        return FormsTried(self.sizes.split, together.ordered, apart.ordered)

    @property
    def ordered(self) -> FormOfFleet:
        """What this form of fleet takes, if any policy met the levels on it."""
        best = self.recommended
        if best is None:
            return self._closest_form()
        counts = self._kinds(best.mix)
        price = ABSENT if self.sizes.prices is None else _number(self.sizes.price(best.mix))
        return FormOfFleet(sum(best.mix), counts, best.policy, price)

    def _closest_form(self) -> FormOfFleet:
        """Return what came closest to the levels in simulation, or the dearest size and what refutes it."""
        closest = [(row.reached[mix], mix) for row in self.policies if (mix := row.closest(self.levels)) is not None]
        known = [(share_of_limit(self.levels, reached) or 0.0, mix, reached) for reached, mix in closest if reached]
        if known:
            _, mix, reached = min(known)
            said: dict[str, Any] = {"reached": figures(self.levels, reached)}
        elif self.refutations and not self.undecided:
            done = max(self.refutations, key=lambda done: self.cost(done.mix))
            mix, said = done.mix, {"refuted": done.forces}
            if done.however_many:
                return FormOfFleet(None, None, None, refuted=done.forces)
        else:
            return FormOfFleet(None, None, None)
        loads = self.sizes.loads(mix) or ABSENT
        return FormOfFleet(None, None, None, closest=self._kinds(mix), loads=loads, **said)

    def _kinds(self, mix: Mix) -> dict[str, int]:
        counts: dict[str, int] = {}
        for count, group in zip(mix, self.sizes.scenario.document.cluster.server_groups, strict=True):
            counts[group.gpu.kind] = counts.get(group.gpu.kind, 0) + count
        return counts

    def _failures(self, outages: Outages) -> FailuresDrawn:
        best = self.recommended
        return FailuresDrawn(outages.rate.text, outages.seed, None if best is None else outages.count(best.mix))

    def _refuted(self, done: SizeRefutation, certificate: Path | None) -> SizeRefuted:
        return take(
            SizeRefuted,
            done,
            size=self.sizes.size(done.mix),
            too_long_alone=None if done.alone is None else done.alone.record,
            certificate=None if certificate is None else str(certificate),
        )


def _sum_of(mix: Mix) -> str:
    return " + ".join(map(str, mix))


def _number(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def answer_sizes(asked: SizesQuestion, scenario: Scenario, budget: Budget, split: bool = False) -> ServersAnswer:
    """Find the least size of a scenario within a budget; `split`: its groups come in pairs, of prefill and decode."""
    noise, rate, most, spare, tell = asked.noise, asked.rate, asked.most, asked.spare, budget.watch
    refuse_estimates(noise)
    stamps = coarse_stamps(scenario.instance.job_release_us)
    scenario = scenario if rate == 1 else _at_rate(scenario, rate)
    chosen = levels_of(scenario, asked.slo)
    streams, long = scenario.instance.streams is not None, scenario.instance.n_tasks > LONG_TRACE
    order = most_urgent(scenario.instance, chosen) if asked.policies is None else ()
    names = default_policies(scenario.instance, noise, order) if asked.policies is None else tuple(asked.policies)
    for name in names:
        if is_file(name):
            raise QuestionError(f"{name!r} is a file, which fits one number of servers only; name policies", "policies")
        parse(name, scenario)
    sizes = Sizes(scenario, any_gone=spare > 0, split=split)
    outages = _draw_outages(asked, scenario, budget.seed)
    question = Sizing(sizes, chosen, candidates(sizes, most, 1, spare), budget, spare, noise, outages)
    sizes.refuse_too_many_places(question.candidates[-1])
    hunt = Hunt(question)
    trials, searched = begin_trials(hunt, names), not long and not streams
    if streams:
        least_gpus = refute_sizes(hunt, most, _REQUESTS_SHARE)
    else:
        allowed = tolerances(chosen)
        # Sizes that the bound refutes need no simulation; where it takes long, what can be deployed comes before it.
        if not long and floor_takes_s(scenario.instance, allowed) > _QUICK_SHARE * budget.time_limit_s:
            try_own_size(hunt, trials)
        tell("fluid bound")
        floor = floor_of(_of_any_size(question), allowed, _FLOOR_SHARE * question.left_s)
        least_gpus, question.candidates = floor.gpus, candidates(sizes, most, floor.gpus, spare)
        sizes.refuse_too_many_places(question.candidates[-1])
        hunt.apply_floor(floor)
        if long:  # plans of a rule first, since one simulation may take all the time
            dispatch(hunt, _DISPATCH_SHARE)
        try_own_size(hunt, trials)
    # Before policies are simulated at more sizes: where a bound says that nothing helps, none is.
    if searched:
        hunt.bisect(_FORMULAS_SHARE)
    deployed, limited, not_tried = Deployable(), None, {NODES_APART} if order else set[str]()
    for share in (_POLICY_SHARE if searched else _LAST_POLICY_SHARE, *_LATER_SHARES):
        _try_apart(hunt, trials, order, not_tried)
        scan(hunt, trials, share)
        try_largest_size(hunt, trials, _LARGEST_SHARE if searched else 1.0)
        # Whoever names policies is asked for them, and for no others.
        if limited is None and streams and asked.policies is None:
            not_tried.add(FEWER_AT_ONCE)
            with suppress(StoppedError):
                limited = try_limits(hunt, trials, _LIMITS_SHARE)
                not_tried.remove(FEWER_AT_ONCE)
        deployed = deploy(hunt, trials, _REST_SHARES if searched else _LAST_SHARES, deployed)
        if searched:
            hunt.search()
        # What the others did not take of the time goes to sizes that are left.
        if not any(trial.untried(hunt.unrefuted) for trial in trials):
            break
    for trial in trials:
        trial.close(hunt)
    planned, timeline = hunt.worst_plan or (None, None)
    return ServersAnswer(
        sizes,
        chosen,
        hunt.best,
        timeline,
        tuple(hunt.open),
        tuple(hunt.refutations),
        tuple(trials),
        question.candidates[-1],
        budget.elapsed_s,
        # Without policies none are named here either: it is then that urgency, nodes apart and limits are tried.
        replace(asked.alone(), slo=chosen, policies=asked.policies or None),
        deployed.alternatives,
        deployed.growth,
        deployed.strains,
        deployed.survives_failure,
        spare,
        planned,
        noise,
        least_gpus,
        rate,
        stamps,
        limited,
        tuple(sorted(not_tried)),
        outages=outages,
    )


def _try_apart(hunt: Hunt, trials: list[SizeTrial], order: Sequence[str], not_tried: set[str]) -> None:
    """Try nodes for urgent workflows alone, unless that was done, before other routers: it may save more than these.

    It has to cost less than the first router, whether or not these workflows go first there on all nodes.
    """
    if NODES_APART in not_tried:
        policy = trials[0].policy
        shared = [trial for trial in trials if trial.policy in (policy, first_come_first(policy, order))]
        scan(hunt, shared, _POOLS_SHARE)
        with suppress(StoppedError):
            try_pools(hunt, trials, policy, order, _POOLS_SHARE)
            not_tried.remove(NODES_APART)


def _draw_outages(asked: SizesQuestion, scenario: Scenario, seed: int) -> Outages | None:
    """Return the failures that are asked about; None if none are."""
    if asked.failures is not None and asked.spare:
        raise QuestionError("is given with spare servers, which are gone all the time; ask for one of them", "failures")
    return None if asked.failures is None else Outages.of(asked.failures, scenario, seed)


def _of_any_size(question: Sizing) -> Instance | None:
    """Return the window on servers on which no run takes longer than on any others; None with too many places."""
    sizes = question.sizes
    if not sizes.scenario.instance.gangs:
        return sizes.scenario.instance
    try:
        return question.scenario(sizes.with_all_places(sizes.counts)).instance
    except InstanceError:
        return None


_TICKS_S, _ON_TICKS, _COINCIDING = (3600, 60, 1), 0.9, 0.5
"""Ticks of clocks, and from which shares of arrivals on ticks, and coinciding there, their stamps are coarse."""


def coarse_stamps(release_us: Ints) -> CoarseStamps | None:
    """Return the coarsest tick that arrivals are stamped in, if most lie on it and many of them coincide.

    None where all come at one instant, which is a batch and no log.
    """
    instants, counts = np.unique(release_us, return_counts=True)
    coinciding = float(counts[counts > 1].sum() / len(release_us))
    if len(instants) < 2 or coinciding < _COINCIDING:
        return None
    for tick_s in _TICKS_S:
        if (release_us % (tick_s * MICROSECONDS_PER_SECOND) == 0).mean() >= _ON_TICKS:
            return CoarseStamps(tick_s, coinciding)
    return None


def default_policies(instance: Instance, noise: str | None, order: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the policies to simulate where none are named; of requests one that lets these workflows go first, too."""
    if instance.streams is not None:
        names = stream_policies(instance, noise)
        return (*names, *([first_come_first(names[0], order)] if order else []))
    if instance.gangs:
        names = (*SIZING_GANG_POLICIES, *(SIZING_LOADING_POLICIES if any(instance.needs) else ()))
        return tuple(name for name in names if not missing(instance, rule_on_places(POLICIES[name]).supports))
    if instance.n_tasks > LONG_TRACE:
        return LONG_TRACE_POLICIES
    return (*DEFAULT_POLICIES, *(BATCHING_POLICIES if instance.batches else ()))


def _at_rate(scenario: Scenario, rate: Fraction) -> Scenario:
    """Return the scenario with so many times the traffic.

    Raises
    ------
    QuestionError, InputError
        If the rate is out of range, or its times are.
    """
    if not SLOWEST <= rate <= FASTEST:
        raise QuestionError(f"{float(rate):g} is out of range; allowed is {float(SLOWEST):g} to {FASTEST}", "rate")
    try:
        busier = with_traffic(scenario, rate)
        check_horizon(busier.instance)
    except InstanceError as error:
        raise QuestionError(f"{error}; ask for less", "rate") from None
    except FieldError as error:
        raise scenario.source.error(error.where, error.problem) from None
    return busier


def levels_of(scenario: Scenario, levels: ServiceLevels | None) -> ServiceLevels:
    """Return the levels asked for, or the scenario's own.

    Raises
    ------
    QuestionError, InputError
        If there is none, or one that says nothing.
    """
    chosen = levels or scenario.slo
    if chosen is None:
        raise QuestionError("is missing; allowed is 'p99 slowdown <= 2' and the like, here or in the scenario", "slo")
    refuse_vacuous(scenario, chosen)
    return chosen


_FILES = (
    "enough.json",
    "plan.json",
    "recommended.json",
    "served.json",
    "too_few.json",
    "certificate.json",
    "kubernetes.yaml",
    "ray_serve.yaml",
    "answer.json",
)


def write(answer: ServersAnswer, folder: Path) -> list[Path]:
    """Write what there is of plan, certificate, their scenarios and answer; return the paths.

    The answer comes first, so that nothing that goes wrong after it costs it; what an earlier answer left in the
    folder, and would stand beside this one as if it belonged to it, goes last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Once without paths, and once more when plan and certificate are there.
    written = [_write_answer(answer, folder, [])]
    try:
        written += _write_plan(answer, folder)
        written += _write_recommended(answer, folder)
        written += _write_certificate(answer, folder)
        written += _write_manifests(answer, folder)
        _write_answer(answer, folder, written)
    finally:
        for name in {*_FILES} - {path.name for path in written}:
            (folder / name).unlink(missing_ok=True)
    return [*written[1:], written[0]]


def _write_answer(answer: ServersAnswer, folder: Path, written: list[Path]) -> Path:
    """Write the answer with the paths of the plan and the certificate, as far as they are written."""
    at = {path.name: path for path in written}
    found, origin = answer.record(at.get("plan.json"), at.get("certificate.json")), origin_of(answer, answer.asked)
    path = folder / "answer.json"
    write_atomically(path, json.dumps(encode(found) | encode(origin), indent=2))
    return path


def _write_plan(answer: ServersAnswer, folder: Path) -> list[Path]:
    if answer.planned is None or answer.timeline is None:
        return []
    enough, slo = answer.sizes.at(answer.planned), answer.levels.written
    path = _write_scenario(folder / "enough.json", answer.sizes, enough, answer.planned, slo)
    plan = folder / "plan.json"
    origin = origin_of(answer, answer.asked)
    header = TimelineHeader(status="FEASIBLE", versions=origin.versions, command=origin.command)
    write_timeline(plan, enough.instance, answer.timeline, header)
    return [path, plan]


def _write_recommended(answer: ServersAnswer, folder: Path) -> list[Path]:
    """Write what the first alternative does on its size, unless it ran on a twin."""
    best = next(iter(answer.alternatives), None)
    if best is None or best.ran.on_a_twin:
        return []
    size = best.ran.scenario
    path = _write_scenario(folder / "recommended.json", answer.sizes, size, best.mix, answer.levels.written)
    write_simulation(best.ran, folder / "served.json")
    return [path, folder / "served.json"]


def _write_certificate(answer: ServersAnswer, folder: Path) -> list[Path]:
    done = answer.refutation
    if done is None or not done.recomputable:
        return []
    small, document, slo = answer.sizes.at(done.mix), done.certificate, None
    if done.goal is not None:
        small = replace(small, objective=done.goal.objective, instance=done.goal.instance)
    if done.cut is not None:
        weights = answer.sizes.weigh(done.cut.weights, small.instance.cluster, done.mix)
        document, slo = floor_document(small, answer.levels, done.cut, weights), answer.levels.written
    path = _write_scenario(folder / "too_few.json", answer.sizes, small, done.mix, slo)
    certificate = folder / "certificate.json"
    write_atomically(certificate, json.dumps(document))
    return [path, certificate]


def _write_manifests(answer: ServersAnswer, folder: Path) -> list[Path]:
    """Write what starts the first alternative, where it is a set of engines of language models."""
    best = answer.recommended
    try:
        engines = answer.engines
    except NoEnginesError:
        return []
    origin = origin_of(answer, answer.asked)
    size, window = fleet_in_words(engines), origin.scenario
    policy = "" if best is None else best.policy
    if any(each.skipped for each in answer.policies if each.policy == policy):
        size = f"at most {size}"
    about = (str(answer.levels), window.jobs, window.length_s, window.hash, size, policy)
    versions = ", ".join(f"{name} {version}" for name, version in origin.versions.items() if name == "truenorth")
    lines = origin_lines(f"{origin.command} ({versions})" if versions else origin.command, *about)
    lines += [] if best is None else asked_of_gateway(best)
    made = {"kubernetes.yaml": kubernetes_text}
    if all(each.role is None for each in engines):
        made["ray_serve.yaml"] = ray_serve_text
    for name, text_of in made.items():
        write_atomically(folder / name, text_of(engines, lines))
    return [folder / name for name in made]


def origin_of(answer: ServersAnswer, asked: SizesQuestion) -> ServersOrigin:
    """Return what a report says besides the answer: of what it is, and how to repeat it."""
    scenario = answer.sizes.scenario
    instance = scenario.instance
    length_s = int(instance.job_release_us.max()) / MICROSECONDS_PER_SECOND
    streams = instance.streams
    requests = 0 if streams is None else int((streams.output > 0).sum())
    speeds = [] if streams is None else [speed for row in streams.speeds for speed in row if speed is not None]
    grows, contexts = any(speed.block for speed in speeds), any(speed.context_ps for speed in speeds)
    held, overlap = len(instance.initial), instance.overlap_loads
    window = AssumedWindow(*named(scenario), len(instance.jobs), length_s, held, overlap, requests, grows, contexts)
    return ServersOrigin(window, asked.command(scenario.source.file), provenance())


def _write_scenario(path: Path, sizes: Sizes, scenario: Scenario, mix: Mix, slo: str | list[str] | None) -> Path:
    """Write a scenario at a size, its jobs listed one by one, and make sure that it reads as the same instance.

    Raises
    ------
    InputError
        If it comes from no file.
    QuestionError
        If it would read as another instance.
    """
    data, instance = scenario.source.data(), scenario.instance
    document, cluster = scenario.document, sizes.said(data["cluster"], mix)
    data["cluster"] = cluster
    cluster.pop("away", None)
    if away := _away_section(scenario):
        cluster["away"] = away
    data["workload"] = {"jobs": job_sections(instance)}
    data["objective"] = str(scenario.objective)
    data["slo"] = slo
    leave_out_idle(data, instance, document.models)
    restrictions = data.get("restrictions") or {}
    for key, entries in (("pin", document.restrictions.pin), ("forbid", document.restrictions.forbid)):
        if entries:
            restrictions[key] = [
                {("model" if e.model else "workflow"): e.model or e.workflow, "on": list(e.on)} for e in entries
            ]
        elif key in restrictions:
            del restrictions[key]
    if restrictions.get("max_replicas"):
        replicas = restrictions["max_replicas"].items()
        restrictions["max_replicas"] = {name: most for name, most in replicas if name in document.models}
    options = data.get("options") or {}
    if options.get("initial_residency"):
        kept = {entry.gpu for entry in document.options.initial_residency}
        options["initial_residency"] = [entry for entry in options["initial_residency"] if entry["gpu"] in kept]
    for key, value in (("restrictions", restrictions), ("options", options)):
        data.pop(key, None)
        if value:
            data[key] = value
    write_scenario(path, {key: value for key, value in data.items() if value is not None})
    if scenario_hash(load_scenario(path).instance) != scenario_hash(instance):
        raise QuestionError(f"{path}: the scenario written reads as another instance, so that nothing written fits it")
    return path


def _away_section(scenario: Scenario) -> dict[str, list[list[str]]]:
    """Return when servers are away, by server, as far as their group does not say so."""
    groups, found = scenario.document.cluster.server_groups, dict[str, list[list[str]]]()
    for gpu in scenario.instance.cluster.gpus:
        if gpu.available != Availability.of(groups[gpu.group].available):
            gone = gpu.available.absences(FOREVER)
            found[f"s{gpu.server}"] = [[f"{begin} us", "end" if end == FOREVER else f"{end} us"] for begin, end in gone]
    return found
