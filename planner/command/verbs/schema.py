"""The verb ``schema``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from planner.command import manners
from planner.command.verbs.options import Json


def schema(
    catalogue: Annotated[bool, typer.Option("--catalogue", help="Of the catalogues of import instead.")] = False,
    as_json: Json = False,
) -> int:
    """Print the JSON Schema of scenario files, for editors."""
    if catalogue:
        from planner.inputs.importers.catalogue import json_schema
    else:
        from models.scenario import json_schema

    print(json.dumps(json_schema(), indent=None if as_json else 2))
    return manners.DONE
