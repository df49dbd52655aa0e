"""The verb ``schema``."""

from __future__ import annotations

import json

from planner.command import manners
from planner.command.verbs.options import Json


def schema(as_json: Json = False) -> int:
    """Print the JSON Schema of scenario files, for editors."""
    from models.scenario import json_schema

    print(json.dumps(json_schema(), indent=None if as_json else 2))
    return manners.DONE
