"""The verb ``verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json, ScenarioPath


def verify(
    scenario: ScenarioPath,
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="What bound -o wrote.")],
    as_json: Json = False,
) -> int:
    """Compute a certificate's bound again, without a solver, and accept or refuse it."""
    from models.scenario import load_scenario
    from planner.answers.bound import verdict_record, verify_file

    loaded = load_scenario(scenario)
    verdict = verify_file(loaded, certificate)
    found = verdict_record(loaded, verdict)

    def view() -> object:
        proved = f"the lower bound {found.lower_bound} of {loaded.objective} is proved"
        return f"valid: {proved}" if verdict.valid else f"refused: {verdict.reason}"

    manners.show(found, view, as_json)
    return manners.DONE if verdict.valid else manners.NOT_ACHIEVED
