"""Certificates of floors for requests: a size is too small for service levels, and how that is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from truenorth.models import ServiceLevels, scenario_hash
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, Scenario
from truenorth.models.torn import torn
from truenorth.planner.answers.servers.goal import refuse_vacuous
from truenorth.planner.answers.servers.streams import limits
from truenorth.planner.answers.versions import provenance
from truenorth.solvers.bounds.certificate import SCHEMA_VERSION
from truenorth.solvers.bounds.certified import RefusedError, as_list, get, whole
from truenorth.solvers.bounds.floor_recomputed import asked_and_offered
from truenorth.solvers.bounds.stream_floor import Cut
from truenorth.solvers.bounds.verify import Verdict

METHOD = "stream_floor"


def floor_document(scenario: Scenario, levels: ServiceLevels, cut: Cut, weights: Sequence[Fraction]) -> dict[str, Any]:
    """Return the certificate that levels ask more of a scenario, whose GPUs weigh so much in a cut, than it has."""
    window = {"begin_us": cut.begin_us, "end_us": cut.end_us}
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario_hash": scenario_hash(scenario.instance),
        "method": METHOD,
        "slo": [str(level) for level in levels],
        "parameters": {"way": cut.way, **window, "weights": [float(weight) for weight in weights]},
        "versions": provenance(),
    }


def verify_floor(scenario: Scenario, document: object) -> Verdict:
    """Return whether a certificate proves that no plan of a scenario meets levels; bad content never raises."""
    try:
        return Verdict(True, None, None, _proved(scenario, document))
    except RefusedError as refusal:
        return Verdict(False, None, str(refusal))


def _proved(scenario: Scenario, document: object) -> str:
    """Return what is proved, in words."""
    instance = scenario.instance
    whole(get(document, "schema_version"), SCHEMA_VERSION, SCHEMA_VERSION, "schema_version")
    if get(document, "scenario_hash") != scenario_hash(instance):
        raise RefusedError("scenario_hash belongs to another scenario")
    texts = as_list(get(document, "slo"), None, "slo")
    try:
        levels = ServiceLevels.parse(*(text if isinstance(text, str) else "" for text in texts))
        refuse_vacuous(scenario, levels)
    except (QuestionError, InputError, ValueError) as error:
        raise RefusedError(f"slo is none that can be asked: {error}") from None
    parameters, share = get(document, "parameters"), Fraction(0)
    for limit in limits(instance, levels):
        asked, offered = asked_and_offered(torn(instance), limit, parameters)
        if asked > offered:
            return f"no plan meets {levels}"
        share = max(share, asked / offered)
    problem = f"requests in time ask for {float(share):.4g} of what the GPUs offer there"
    raise RefusedError(f"claims that no plan meets {levels}, but {problem}")
