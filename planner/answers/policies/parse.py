"""Policies by name, those that need a solver included."""

from __future__ import annotations

from dataclasses import replace

from truenorth.executor import POLICIES, ParsedPolicy, parse_policy
from truenorth.models.scenario import Scenario
from truenorth.planner.inputs.told import Told

RECEDING = "receding"
"""Name of the receding horizon."""
OFFLINE = "offline"
"""Name of the policy that carries out a plan made from what is told of run times."""


def needs_solver(text: str) -> bool:
    """Say whether a policy plans with a solver: its simulation takes far longer than others', the first one compiles.

    >>> needs_solver("receding:moves=2000"), needs_solver("srpt")
    (True, False)
    """
    return text.strip().partition(":")[0] in (RECEDING, OFFLINE)


def is_own(text: str) -> bool:
    """Say whether a policy is one of the user's, named as ``module:Class``."""
    return text.strip().partition(":")[0] not in (*POLICIES, RECEDING, OFFLINE)


def parse(text: str, scenario: Scenario, told: Told | None = None) -> ParsedPolicy:
    """Read a policy that is to run on a scenario.

    Parameters
    ----------
    text
        As `executor.parse_policy` reads it, or ``receding:moves=2000,lookahead=5s``, or ``offline:on=p90,replan=on``.
        These two minimise the scenario's objective; the receding horizon another one if it is given one.
    told
        What is known of run times; None: those of the scenario, as certain.

    Raises
    ------
    PolicyError
        If there is no such policy or option, or a value cannot be read; the message says what is allowed.
    """
    if text.strip().partition(":")[0] in POLICIES:
        return parse_policy(text)
    # Their solver is compiled code, which a command that does not use it need not import.
    from truenorth.planner.answers.policies.offline import Offline
    from truenorth.planner.answers.policies.receding_horizon import Oracle, RecedingHorizon, RecedingOptions
    from truenorth.planner.answers.policies.receding_on_places import RecedingOnPlaces

    parsed = parse_policy(text, {**POLICIES, RECEDING: RecedingHorizon, OFFLINE: Offline})
    options = parsed.options
    if parsed.policy is Offline:
        return replace(parsed, given={"scenario": scenario, "told": told or Told.exactly(scenario.instance)})
    if parsed.policy is not RecedingHorizon or not isinstance(options, RecedingOptions):
        return parsed
    chosen = replace(options, objective=options.objective or str(scenario.objective))
    instance = scenario.instance if told is None else told.instance
    oracle = Oracle(instance.jobs) if options.lookahead else None
    policy = RecedingOnPlaces if instance.gangs else RecedingHorizon
    return replace(parsed, policy=policy, given={"oracle": oracle}, options=chosen)
