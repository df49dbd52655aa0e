"""Set a clairvoyant plan beside online policies, under the same rules, in one table and a few pictures.

Its rows say who came to what, times the best, times the bound, and what is known of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from truenorth.executor import IllegalActionError, Knows, NoiseError, PolicyError, StalledError
from truenorth.executor.policies.on_places import rule_on_places
from truenorth.executor.policies.parse import POLICIES, suited
from truenorth.models.errors import QuestionError
from truenorth.models.features import SEVERAL_AT_A_TIME, Feature, missing
from truenorth.models.instance import Instance, UnsupportedInstanceError
from truenorth.models.metrics import CacheMetrics, Metrics, StreamMetrics, measure
from truenorth.models.objective import Objective, Status, gap, reported_bound, reported_value
from truenorth.models.record import take
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.bound import Certifiable
from truenorth.planner.answers.plan import Plan, starts_for
from truenorth.planner.answers.policies.parse import OFFLINE, parse
from truenorth.planner.answers.regret import Regret, RegretRecord
from truenorth.planner.answers.shown import (
    Shown,
    WithRows,
    WithTimelines,
    describe_bound,
    frame_of,
    is_converged,
    tell_proof,
    warn_of,
    with_value,
)
from truenorth.planner.answers.simulate import BrokenRulesError, Simulation, simulate
from truenorth.planner.answers.split import say_apart
from truenorth.planner.answers.take_apart import SUPPORTS as TAKEN_APART
from truenorth.planner.answers.take_apart import HeldSteps, clairvoyance_in, hold
from truenorth.planner.answers.uncertain.spec import parse_uncertainty
from truenorth.planner.answers.versions import Origin, ScenarioNamed, named, provenance
from truenorth.planner.questions.policies import CompareQuestion
from truenorth.solvers import portfolio
from truenorth.solvers.budget import Budget

if TYPE_CHECKING:
    import pandas as pd


PLAN = "plan"
"""Name of the plan's row."""


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """A contender of a comparison.

    Parameters
    ----------
    clairvoyant, knows, information_used
        Whether it knows the future, what it knows of run times, and all that it decides by, in words.
    twin
        Whether it ran on an instance of its own.
    objective, metrics, ratio_to_best, ratio_to_bound, gap_to_bound
        In reported units; None for a policy of the user's that breaks the rules. The ratio to the least possible value
        lies between ratio_to_best and ratio_to_bound.
    bound_method, plan_gap, converged
        What is known of the plan that every ratio is to.
    problem
        Why it has no value and no rank, if it has none.
    """

    policy: str
    clairvoyant: bool
    knows: Knows
    information_used: str
    twin: bool
    objective: float | None
    metrics: CacheMetrics | StreamMetrics | Metrics | None
    ratio_to_best: float | None
    ratio_to_bound: float | None
    gap_to_bound: float | None
    bound_method: str | None
    plan_gap: float | None
    converged: bool
    problem: str | None


def rows_of(
    planned: Plan, simulations: Sequence[Simulation], broken: Mapping[str, str], warmup: Fraction
) -> tuple[ComparedPolicy, ...]:
    """Return the contenders, best objective first; the best is one of the scenario's own instance.

    Parameters
    ----------
    broken
        Policies whose timeline breaks a rule, and which.
    """
    scenario, result = planned.scenario, planned.result
    entries: list[tuple[str, Fraction, Metrics, Knows, bool]] = []
    if result.timeline is not None and result.value is not None:
        metrics = measure(scenario.instance, result.timeline, scenario.slo, warmup)
        entries.append((PLAN, result.value, metrics, Knows.FUTURE, False))
    entries += [(s.policy, s.exact, s.metrics, s.knows, s.on_a_twin) for s in simulations]
    best = min((value for _, value, _, _, twin in entries if not twin), default=None)
    method = result.bound_method
    proved = method, result.gap, is_converged(result.gap, method)
    ranked = [
        ComparedPolicy(
            name,
            knows is Knows.FUTURE,
            knows,
            Knows.FUTURE.information if name == PLAN else parse(name, scenario).uses,
            twin,
            reported_value(scenario.objective, value),
            metrics,
            _ratio(value, best),
            _ratio(value, result.lower_bound),
            gap(value, result.lower_bound),
            *proved,
            None,
        )
        for name, value, metrics, knows, twin in sorted(entries, key=lambda entry: entry[1])
    ]
    parsed = {policy: parse(policy, scenario) for policy in broken}
    none = (None,) * 5  # no figure of a timeline that breaks a rule is true
    refused = [
        ComparedPolicy(name, of.knows is Knows.FUTURE, of.knows, of.uses, False, *none, *proved, broken[name])
        for name, of in parsed.items()
    ]
    return *ranked, *refused


def _ratio(value: Fraction, least: Fraction | None) -> float | None:
    """Return how many times the least a value is; None if there is no telling."""
    if least is None or (not least and value):
        return None
    return float(value / least) if least else 1.0


COMPASS = "compass"
"""Name of the policy whose regret is always shown if it is among the contenders."""
_HOLD_SHARE, _HELD_TOGETHER, _LONGEST_HOLD_S = 0.1, 0.5, 5.0
OFFLINE_POLICIES = ("offline", "offline:on=p90", "offline:on=samples", "offline:replan=on")
"""Contenders besides, where run times are told wrongly."""
DEFAULT_POLICIES = (
    "receding", "ahead", "srpt", "rltune", "compass", "compass-released", "jit", "dally", "hadar", "lru", "heft",
    "hash", "static",
)  # fmt: skip
STREAM_POLICIES = ("least_tokens", "least_tokens:known=yes", "prefix_affinity", "least_requests", "round_robin")
"""Who is asked where tasks are requests of streams; `known` tells what knowing the lengths of answers is worth."""
GANG_POLICIES = ("easy", "conservative", "sjf", "qssf", "dally", "fifo", "compass")
"""Who is asked where tasks run on several GPUs."""
SLOWER_GANG_POLICIES = ("srpt", "ahead", "rltune", "hadar")
"""Contenders besides, up to `LONGEST_LISTS`."""
AHEAD, LONGEST_LISTS = "ahead", 100_000
"""Who lists all that is released, at every event; and up to how many tasks x GPUs unasked."""
BATCHING_POLICIES = ("clockwork", "deferred")
"""Contenders besides, where tasks come in batch classes."""
CLAIRVOYANCE = (
    "The plan knows every arrival in advance; the online policies learn of a job when it is released. "
    "The gap combines two costs: greedy decisions, and not knowing the future."
)
KNOWS_LENGTHS = (
    "The plan knows every arrival, and how long every answer will be, in advance; online policies learn of a request "
    "when it is released, and of its answer as it comes, unless they say `known=yes`. "
    "The gap combines two costs: greedy decisions, and not knowing."
)
TOLD_WRONGLY = "Everyone but the plan is told wrong run times ({noise}); what is shown happened under the true ones."
OFFLINE_TOLD = "Policies named offline know every arrival, and plan with the run times that they are told."


@dataclass(frozen=True, slots=True)
class Comparison(WithTimelines, WithRows):
    """A plan and simulations of the same scenario, best objective first in every view.

    `regrets` takes apart what policies, unless named the best online one and Compass, lose to plan and lower bound.
    `asked` is the question that repeats it, with the policies that ran. `left_out` says why, by the names of policies
    that nobody asked for by name and that cannot serve the window. `interrupted` says whether the plan's search was.
    `certifiable` is the highest bound that was found of which a certificate can be written.
    """

    scenario: Scenario
    plan: Plan
    simulations: tuple[Simulation, ...]
    warmup: Fraction
    rows: tuple[ComparedPolicy, ...]
    asked: CompareQuestion
    regrets: tuple[Regret, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    certifiable: Certifiable | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        value = "none" if self.plan.value is None else f"{self.plan.value:.6g}"
        rows = [f"plan {value}", *(f"{s.policy} {s.value:.6g}" for s in self.simulations)]
        objective = self.scenario.objective
        unit = f" ({objective.unit})" if objective.unit else ""
        return f"<Comparison on {self.scenario.name!r}, {objective}{unit}: {', '.join(rows)}>"

    @property
    def note(self) -> str:
        """What has to be known to read the figures."""
        wrongly = [] if self.told is None else [self.told]
        why = {policy: problem.removeprefix(f"policy {policy} ") for policy, problem in self.left_out.items()}
        alike = {problem: [policy for policy in why if why[policy] == problem] for problem in why.values()}
        without = [f"Left out: {', '.join(policies)}: {problem}." for problem, policies in alike.items()]
        ended = ["The search for the plan was interrupted."] if self.interrupted else []
        given = any(job.given_ideal_us is not None for job in self.scenario.instance.jobs)
        divided = ["Slowdowns divide by the ideal times that the scenario names."] if given else []
        knows = CLAIRVOYANCE if self.scenario.instance.streams is None else KNOWS_LENGTHS
        return " ".join([knows, *wrongly, *without, *divided, *ended, *self._apart, *self._remarks])

    def frame(self) -> pd.DataFrame:
        """Return a row per contender, with the columns of grids; of wrongly told run times also what was told."""
        found = with_value(frame_of(self.rows), self.scenario.objective)
        return found if self.asked.noise is None else found.assign(noise=self.asked.noise)

    @property
    def _apart(self) -> list[str]:
        """Which contenders run jobs of equal tasks side by side in parts at different times, and how many."""
        said: dict[str, list[str]] = {}
        for shown in self.shown:
            said.setdefault(say_apart(shown.instance, shown.timeline), []).append(shown.name)
        return [f"Of {', '.join(names)}: {words}." for words, names in said.items() if words]

    @property
    def _remarks(self) -> list[str]:
        """What the marks in the rows mean."""
        # What ran on another instance is shown, but ranks with nobody.
        twins = [row.policy for row in self.rows if row.twin]
        on_twins = [f"On a twin of the scenario, not on the scenario itself: {', '.join(twins)}."] if twins else []
        return on_twins + [f"Without a rank: {row.problem}." for row in self.rows if row.problem]

    @property
    def told(self) -> str | None:
        """That policies are told wrong run times, and which; None if they are not."""
        if self.asked.noise is None:
            return None
        offline = any(row.policy.partition(":")[0] == OFFLINE for row in self.rows)
        return " ".join([TOLD_WRONGLY.format(noise=self.asked.noise), *([OFFLINE_TOLD] if offline else [])])

    @property
    def proof(self) -> str:
        """What is proved of the plan: the method of its bound, its gap, and what a certificate proves of that."""
        said = tell_proof(self.plan.result.gap, self.plan.result.bound_method)
        if self.certifiable is None:
            return said
        if self.certifiable.lower_bound == self.plan.result.lower_bound:
            return f"{said} certificate.json, written by -o, proves this bound."
        bound = f"{self.certified_lower_bound:.5g} {self.scenario.objective.unit}".rstrip()
        return f"{said} certificate.json, written by -o, proves {bound} ({describe_bound(self.certifiable.method)})."

    @property
    def certified_lower_bound(self) -> float | None:
        """The bound that a certificate proves, in its reported unit."""
        found = self.certifiable
        return None if found is None else reported_bound(self.scenario.objective, found.lower_bound)

    @property
    def warning(self) -> str | None:
        """That ratios to the plan understate, and why; None if the plan is converged."""
        return warn_of(self.plan.result.gap, self.plan.result.bound_method)

    @property
    def best(self) -> str | None:
        """Name of the contender with the best objective on the scenario itself; None if there is none."""
        # Rows are sorted: the first that has a ratio is the best.
        ranked = (row.policy for row in self.rows if row.ratio_to_best is not None and not row.twin)
        return next(ranked, None)

    @property
    def record(self) -> ComparisonRecord:
        """The comparison with the keys of ``compare --json``."""
        return take(
            ComparisonRecord,
            self,
            self.plan,
            self.plan.result,
            objective=self.scenario.objective,
            converged=self.warning is None,
            regret=[regret.record for regret in self.regrets],
        )

    @property
    def origin(self) -> ComparisonOrigin:
        """Of what it is, how the plan came about, and how to repeat it."""
        scenario, instance = self.scenario, self.scenario.instance
        slo = None if scenario.slo is None else str(scenario.slo)
        return ComparisonOrigin(
            ComparedWindow(*named(scenario), len(instance.jobs), instance.n_tasks, instance.n_gpus, slo),
            self.asked.command(scenario.source.file),
            provenance(),
            scenario.objective.unit,
            str(self.warmup),
            self.plan.incumbents,
            self.plan.result.runtime_s,
        )

    @property
    def shown(self) -> tuple[Shown, ...]:
        """Every contender's timeline: the plan, then the others, best first."""
        shown = [*self.plan.shown, *(entry for s in self.simulations for entry in s.shown)]
        found = {entry.name: entry for entry in shown}
        names = sorted((row.policy for row in self.rows if not row.problem), key=lambda name: name != PLAN)
        return tuple(found[name] for name in names)


@dataclass(frozen=True, slots=True)
class ComparisonRecord:
    """A comparison in reported units; `gap` and `converged` are of the plan."""

    objective: Objective
    rows: tuple[ComparedPolicy, ...]
    lower_bound: float | None
    certified_lower_bound: float | None
    bound_method: str | None
    gap: float | None
    converged: bool
    warning: str | None
    status: Status
    cpu_s: float
    best: str | None
    left_out: Mapping[str, str]
    regret: list[RegretRecord]
    note: str


@dataclass(frozen=True, slots=True)
class ComparedWindow(ScenarioNamed):
    """The scenario of a comparison, and its size."""

    jobs: int
    tasks: int
    gpus: int
    slo: str | None


@dataclass(frozen=True, slots=True)
class ComparisonOrigin(Origin):
    """What ``comparison.json`` says besides; incumbents are seconds, value and bound at each improvement."""

    scenario: ComparedWindow
    unit: str
    warmup: str
    incumbents: list[tuple[float, float | None, float | None]]
    runtime_s: float


def answer_comparison(asked: CompareQuestion, scenario: Scenario, budget: Budget) -> Comparison:
    """Compare on a scenario; simulations, which come first, do not count against the budget's time."""
    # Noise on what happens would have the plan planned for one truth and the policies run in another.
    if not parse_uncertainty(asked.noise).keeps_truth:
        raise NoiseError(
            f"{asked.noise!r} moves plan and bound too; "
            "compare allows 'told=KIND:SPREAD' and 'told=mean', simulate all noise"
        )
    run = partial(simulate, scenario, seed=budget.seed, noise=asked.noise, warmup=asked.warmup)
    left_out: dict[str, str] = {}
    broken: dict[str, str] = {}
    if asked.policies is None:
        stays = scenario.instance.always_available
        simulations, left_out = _serving(run, stays, _default_policies(scenario, asked.noise))
        # Said, so that nobody takes its absence for a failure.
        if not _lists_are_short(scenario):
            too_long = "its decisions take long on so many GPUs and tasks; it runs where it is named"
            left_out.update(dict.fromkeys(_slower(scenario.instance), too_long))
    else:
        simulations, broken = _keeping_the_rules(run, asked.policies)
    budget = replace(budget)  # the clock starts here
    if asked.regret:
        scenario.instance.require_no_streams("regret")
    apart = _choose_apart(scenario, simulations) if asked.regret is None else _find(scenario, simulations, asked.regret)
    # However many are taken apart, most of the time is the plan's.
    held_share = min(_HOLD_SHARE, _HELD_TOGETHER / max(1, len(apart)))
    held_s = min(_LONGEST_HOLD_S, held_share * budget.time_limit_s)
    held = [hold(scenario, s.timeline, s.policy, replace(budget, time_limit_s=held_s)) for s in apart]
    # Started from all that ran: the plan is then no worse than any of them, however short the limit.
    first = starts_for(scenario.instance, budget.seed, _starts(scenario, simulations, held) or None)
    solved = portfolio.solve_and_price(scenario.instance, scenario.objective, budget.share(1), starts=first)
    result, formula, priced = solved
    planned = Plan.of(scenario, result)
    certifiable = None if formula is None else Certifiable(scenario, formula, priced)
    regrets = tuple(steps.closed_by(planned.result, clairvoyance_in(simulations)) for steps in held)
    rows = rows_of(planned, simulations, broken, asked.warmup)
    # With the policies that ran, so that the command repeats what is shown, not what was guessed.
    repeated = replace(asked, policies=(*(s.policy for s in simulations), *broken))
    return Comparison(
        scenario, planned, simulations, asked.warmup, rows, repeated, regrets, left_out, certifiable=certifiable
    )


def _default_policies(scenario: Scenario, noise: str | None) -> tuple[str, ...]:
    """Return who is asked where nobody is named."""
    if scenario.instance.streams is not None:
        return (*suited(scenario.instance), *STREAM_POLICIES)
    if scenario.instance.gangs:
        slower = _slower(scenario.instance) if _lists_are_short(scenario) else ()
        able = (*_able(scenario.instance, GANG_POLICIES), *slower)
        return able if noise is None else (OFFLINE_POLICIES[0], *able)
    told_wrongly = () if noise is None else OFFLINE_POLICIES
    batching = BATCHING_POLICIES if scenario.instance.batches else ()
    quick = (policy for policy in DEFAULT_POLICIES if policy != AHEAD or _lists_are_short(scenario))
    return *told_wrongly, *quick, *batching


def _able(instance: Instance, policies: Sequence[str]) -> tuple[str, ...]:
    """Return the policies that can serve a window with tasks on several GPUs."""
    rules = {name: rule_on_places(POLICIES[name]) for name in policies}
    return tuple(name for name, rule in rules.items() if not missing(instance, rule.supports))


def _slower(instance: Instance) -> tuple[str, ...]:
    """Return who is not asked unless named where there are many GPUs and tasks."""
    if instance.gangs:
        return _able(instance, SLOWER_GANG_POLICIES)
    return () if missing(instance, SEVERAL_AT_A_TIME | {Feature.DELAYS}) else (AHEAD,)


def _lists_are_short(scenario: Scenario) -> bool:
    return scenario.instance.n_tasks * scenario.instance.n_gpus <= LONGEST_LISTS


def _starts(scenario: Scenario, simulations: Sequence[Simulation], held: Sequence[HeldSteps]) -> list[Timeline]:
    """Return the timelines that a plan of the scenario can be, best first: it is then no worse than any of them.

    So it is even if there is time to check only one.
    """
    # What ran on a twin, or happened with other times, is no plan of this instance.
    ran = [s for s in simulations if s.instance is scenario.instance and not s.timeline.realised]
    known = [(s.value, s.timeline) for s in ran] + [(steps.steps[-1].value, steps.best) for steps in held]
    return [timeline for _, timeline in sorted(known, key=lambda pair: pair[0])]


def _serving(
    run: Callable[[str], Simulation], stays: bool, policies: Sequence[str]
) -> tuple[tuple[Simulation, ...], dict[str, str]]:
    """Simulate the policies that can serve the window; return also why the others cannot.

    Parameters
    ----------
    stays
        Whether servers are always there: a policy that waits for one that has gone for good is not at fault.
    """
    simulations, left_out = [], {}
    for policy in policies:
        try:
            simulations.append(run(policy))
        except IllegalActionError:  # a fault of the policy, not of the window
            raise
        # Where servers go for good a policy may wait for ever, which is told and not counted as its fault.
        except StalledError as error:
            if stays:
                raise
            left_out[policy] = str(error)
        except (PolicyError, UnsupportedInstanceError) as error:  # a static placement whose models do not all fit, say
            left_out[policy] = str(error)
    return tuple(simulations), left_out


def _keeping_the_rules(
    run: Callable[[str], Simulation], policies: Sequence[str]
) -> tuple[tuple[Simulation, ...], dict[str, str]]:
    """Simulate the policies; return also whose timeline breaks a rule, and which."""
    simulations, broken = [], {}
    for policy in policies:
        try:
            simulations.append(run(policy))
        # A policy of the user's own: its row says which rule, and the others are compared all the same.
        except BrokenRulesError as error:
            broken[policy] = str(error)
    return tuple(simulations), broken


def _choose_apart(scenario: Scenario, simulations: Sequence[Simulation]) -> list[Simulation]:
    """Return the best online policy and Compass, as far as they ran on the scenario's own instance.

    None where the window has what nobody is taken apart for yet.
    """
    if missing(scenario.instance, TAKEN_APART):
        return []
    online = [s for s in simulations if s.instance is scenario.instance and not s.clairvoyant]
    # Stable: of equals the one that was named first.
    chosen = sorted(online, key=lambda s: s.value)[:1]
    return chosen + [s for s in online if s.policy == COMPASS and s not in chosen]


def _find(scenario: Scenario, simulations: Sequence[Simulation], names: Sequence[str]) -> list[Simulation]:
    """Return the simulations that are to be taken apart."""
    ran = {s.policy: s for s in simulations if s.instance is scenario.instance}
    for name in names:
        if name not in ran:
            named = any(s.policy == name for s in simulations)
            why = "ran on an instance of its own" if named else "is none of the policies that are compared"
            raise QuestionError(f"{name!r} {why}; allowed are {', '.join(ran) or 'none'}", "regret")
    # Each once, in the order in which they were named.
    return [ran[name] for name in dict.fromkeys(names)]
