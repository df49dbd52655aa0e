"""The verbs that can answer a cell: what each is told, under the names of the command's options, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

from models.cluster import MICROSECONDS_PER_SECOND
from models.objective import reported_bound, reported_value
from models.record import encode
from models.scenario import Scenario
from models.scenario.errors import FieldError, allowed, quote
from models.scenario.quantities import GPUCount, JobCount, Levels, Name, Number, PositiveTime, Seed, SpareCount
from models.scenario.section import Section
from planner.answers.convergence import is_converged
from planner.answers.policies.parse import parse
from planner.answers.simulate import is_file, simulate
from planner.answers.uncertain.spec import parse_uncertainty
from planner.answers.whatif.warm import warm_up
from solvers.options import Method

MAX_SEED = 2**31 - 1
PLAN = "plan"
"""Name of the plan's row."""
Row = dict[str, str | int | float | bool | None]
"""One line of the table, by column."""


class Verb(Section):
    """What a verb is told besides its scenario."""

    names_policies_in: ClassVar[str] = "policy"

    seed: Seed = 0

    def policy_names(self) -> list[str]:
        """Return the policies that are to run."""
        return []

    def check(self, scenario: Scenario) -> None:
        """Refuse what is known to be wrong before a cell runs.

        Raises
        ------
        FieldError
            With the setting.
        """
        if self.seed > MAX_SEED:
            raise FieldError(("seed",), f"{self.seed} is out of range; allowed is 0 to {MAX_SEED}")
        for name in self.policy_names():
            if is_file(name):
                problem = f"{quote(name)} is the plan of one scenario; allowed are online policies"
                raise FieldError((self.names_policies_in,), problem)
            try:
                parse(name, scenario)
            except ValueError as error:
                raise FieldError((self.names_policies_in,), str(error)) from None

    def warm_up(self, scenario: Scenario) -> None:
        """Have what the verb needs loaded on this process; what has no time limit needs nothing."""

    def rows(self, scenario: Scenario) -> list[Row]:
        """Return what the verb finds out about a scenario, in the units of the command's ``--json``."""
        raise NotImplementedError


class _WarmingUp(Verb):
    warmup: Number = Fraction(0)

    def check(self, scenario: Scenario) -> None:
        super().check(scenario)
        if self.warmup >= 1:
            raise FieldError(("warmup",), f"{float(self.warmup):g} is no share; allowed is 0 to below 1")


class _Limited(Verb):
    time_limit: PositiveTime = 60 * MICROSECONDS_PER_SECOND

    @property
    def time_limit_s(self) -> float:
        """The time limit in seconds."""
        return self.time_limit / MICROSECONDS_PER_SECOND

    def warm_up(self, scenario: Scenario) -> None:
        """Have what planning needs loaded before the time limit counts."""
        warm_up(scenario, self.time_limit_s)


class SimulateVerb(_WarmingUp):
    """``simulate``: one row with the objective's value and the metrics."""

    policy: Name
    noise: Name | None = None

    def policy_names(self) -> list[str]:
        """Return the one policy."""
        return [self.policy]

    def check(self, scenario: Scenario) -> None:
        """Refuse noise that cannot be read, too."""
        super().check(scenario)
        _check_noise(self.noise, parse_uncertainty)

    def rows(self, scenario: Scenario) -> list[Row]:
        """Return the row of the simulation."""
        done = simulate(scenario, self.policy, seed=self.seed, noise=self.noise, warmup=self.warmup)
        return [{"policy": self.policy, **_valued(scenario, done.value), **encode(done.metrics)}]


class PlanVerb(_Limited):
    """``plan``: one row with status, value, lower bound, gap and the plan's metrics."""

    method: Name = str(Method.AUTO)
    iterations: JobCount | None = None

    def check(self, scenario: Scenario) -> None:
        """Refuse an unknown method, too."""
        super().check(scenario)
        if self.method not in list(Method):
            raise FieldError(("method",), f"unknown method {quote(self.method)}; {allowed(self.method, list(Method))}")

    def rows(self, scenario: Scenario) -> list[Row]:
        """Return the row of the plan."""
        from planner.answers.plan import plan

        done = plan(
            scenario,
            time_limit_s=self.time_limit_s,
            method=Method(self.method),
            workers=1,
            seed=self.seed,
            iterations=self.iterations,
        )
        result = done.result
        row: Row = {
            "status": str(result.status),
            **_valued(scenario, result.value),
            **_bounded(scenario, result.lower_bound, result.bound_method),
            "gap": result.gap,
            "converged": is_converged(result.gap, result.bound_method),
        }
        return [row if done.metrics is None else {**row, **encode(done.metrics)}]


class _WithPolicies(_Limited):
    names_policies_in: ClassVar[str] = "policies"

    policies: Any = None

    def named(self) -> list[str] | None:
        """Return the policies of a list, or of a text with commas; None leaves them to the verb.

        Raises
        ------
        FieldError
            If it is neither.
        """
        from planner.answers.compare import split_policies

        if self.policies is None:
            return None
        if isinstance(self.policies, str):
            return split_policies(self.policies)
        if isinstance(self.policies, (list, tuple)) and all(isinstance(name, str) for name in self.policies):
            return list(self.policies)
        raise FieldError(("policies",), "is no list of policies; allowed is a list, or text with commas")

    def policy_names(self) -> list[str]:
        return self.named() or []


class CompareVerb(_WithPolicies, _WarmingUp):
    """``compare``: a row for the plan and one for every policy, best first; with `regret` also what its parts lose."""

    regret: Name | None = None
    noise: Name | None = None

    def rows(self, scenario: Scenario) -> list[Row]:
        """Return the rows of the comparison."""
        from planner.answers.compare import compare, split_policies

        done = compare(
            scenario,
            self.named(),
            noise=self.noise,
            regret=None if self.regret is None else split_policies(self.regret),
            time_limit_s=self.time_limit_s,
            warmup=self.warmup,
            workers=1,
            seed=self.seed,
        )
        result, objective = done.plan.result, scenario.objective
        lost = {regret.policy: regret.rows for regret in done.regrets} if self.regret is not None else {}
        return [
            {
                "policy": row.policy,
                "clairvoyant": row.clairvoyant,
                "objective": str(objective),
                "unit": objective.unit,
                "value": row.objective,
                "twin": row.twin,
                "problem": row.problem,
                "ratio_to_best": row.ratio_to_best,
                "ratio_to_bound": row.ratio_to_bound,
                **_bounded(scenario, result.lower_bound, result.bound_method),
                "plan_gap": row.plan_gap,
                "converged": row.converged,
                "gap_to_bound": row.gap_to_bound,
                **(encode(row.metrics) if row.metrics else {}),
                **{f"lost_to_{part.part.replace(' ', '_')}": part.lost for part in lost.get(row.policy, ())},
            }
            for row in done.rows
        ]


class BoundVerb(_Limited):
    """``bound``: one row with the certified lower bound and, where it is higher, the one without a certificate."""

    def rows(self, scenario: Scenario) -> list[Row]:
        """Return the row of the bound."""
        from planner.answers.bound import bound

        made = bound(scenario, time_limit_s=self.time_limit_s, workers=1, seed=self.seed)
        done = made.record()
        return [
            {
                "objective": str(done.objective),
                "unit": scenario.objective.unit,
                "lower_bound": done.lower_bound,
                "bound_method": done.method,
                "uncertified_lower_bound": done.uncertified_lower_bound,
            }
        ]


class ServersVerb(_WithPolicies):
    """``servers``: a row for the plan and one for every policy, with the fewest servers that meet the service level."""

    time_limit: PositiveTime = 300 * MICROSECONDS_PER_SECOND
    slo: Levels | None = None
    max: GPUCount | None = None
    spare: SpareCount = 0
    rate: Number = Fraction(1)
    noise: Name | None = None

    def check(self, scenario: Scenario) -> None:
        """Refuse noise that cannot be read, or that names a file, too."""
        from planner.answers.servers.answer import refuse_estimates

        super().check(scenario)
        _check_noise(self.noise, refuse_estimates)

    def rows(self, scenario: Scenario) -> list[Row]:
        """Return who needs how many servers; `lower_bound` is of the plan's."""
        from planner.answers.servers import servers

        answer = servers(
            scenario,
            self.slo,
            policies=self.named(),
            most=self.max,
            spare=self.spare,
            noise=self.noise,
            rate=self.rate,
            time_limit_s=self.time_limit_s,
            workers=1,
            seed=self.seed,
        )
        done = answer.as_dict()
        priced = "mix" in done["minimum"]
        sizes = ("servers", "mix", "price_per_hour") if priced else ("servers",)
        bound = "lower_bound_price_per_hour" if priced else "lower_bound"
        known = {name: done["minimum"][name] for name in (bound, "proved")}
        found = {PLAN: done["minimum"], **done["policies"]}
        return [
            {"policy": who, "slo": str(answer.levels), **{name: _plain(size[name]) for name in sizes}}
            | (known if who == PLAN else {})
            for who, size in found.items()
        ]


def _check_noise(noise: str | None, read: Callable[[str], object]) -> None:
    """Refuse noise that cannot be read."""
    if noise is not None:
        try:
            read(noise)
        except ValueError as error:
            raise FieldError(("noise",), str(error)) from None


def _plain(figure: Any) -> str | int | float | None:
    """Return a figure as it stands, and a mix as the servers of each group."""
    return " + ".join(map(str, figure)) if isinstance(figure, list) else figure


def _valued(scenario: Scenario, value: Fraction | None) -> Row:
    objective = scenario.objective
    reported = None if value is None else reported_value(objective, value)
    return {"objective": str(objective), "unit": objective.unit, "value": reported}


def _bounded(scenario: Scenario, bound: Fraction | None, method: str | None) -> Row:
    reported = None if bound is None else reported_bound(scenario.objective, bound)
    return {"lower_bound": reported, "bound_method": method}


VERBS: Mapping[str, type[Verb]] = {
    "simulate": SimulateVerb,
    "plan": PlanVerb,
    "compare": CompareVerb,
    "bound": BoundVerb,
    "servers": ServersVerb,
}
"""The verbs by name."""
