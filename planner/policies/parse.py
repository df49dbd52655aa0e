"""Policies by name, those that need a solver included."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from executor import POLICIES, ParsedPolicy, parse_policy
from models.scenario import Scenario

RECEDING = "receding"
"""Name of the receding horizon."""


def parse(text: str, scenario: Scenario) -> ParsedPolicy:
    """Read a policy that is to run on a scenario.

    Parameters
    ----------
    text
        As `executor.parse_policy` reads it, or ``receding:moves=2000,lookahead=5s``. The receding horizon minimises
        the scenario's objective unless it is given another one.

    Raises
    ------
    PolicyError
        If there is no such policy or option, or a value cannot be read; the message says what is allowed.
    """
    if _name(text) in POLICIES:
        return parse_policy(text)
    # Its solver is compiled code, which a command that does not use it need not import.
    from planner.policies.receding_horizon import Oracle, RecedingHorizon, RecedingOptions

    parsed = parse_policy(text, {**POLICIES, RECEDING: RecedingHorizon})
    options = parsed.options
    if parsed.policy is not RecedingHorizon or not isinstance(options, RecedingOptions):
        return parsed
    chosen = replace(options, objective=options.objective or str(scenario.objective))
    oracle = Oracle(scenario.instance.jobs) if options.lookahead else None
    return replace(parsed, policy=partial(RecedingHorizon, oracle=oracle), options=chosen)


def knows_the_future(text: str) -> bool:
    """Say whether a policy is one that looks ahead in time."""
    if _name(text) != RECEDING:
        return False
    from planner.policies.receding_horizon import RecedingHorizon, RecedingOptions

    options = parse_policy(text, {RECEDING: RecedingHorizon}).options
    return isinstance(options, RecedingOptions) and options.lookahead > 0


def _name(text: str) -> str:
    return text.strip().partition(":")[0]
