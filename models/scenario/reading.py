"""Documents from files: YAML or JSON, as the name says, with the line of every value."""

from __future__ import annotations

from pathlib import Path

from models.scenario.json_text import parse_json
from models.scenario.source import Node, Source, read_text
from models.scenario.yaml_text import parse_yaml


def read_document(path: Path) -> Source:
    """Return a document with its lines.

    Raises
    ------
    InputError
        With file and line of what is wrong.
    """
    return Source(str(path), path.parent, parse_document(read_text(path), str(path), path.suffix))


def parse_document(text: str, file: str, suffix: str) -> Node:
    """Return the nodes of a text: JSON if the name of its file ends so, else YAML; InputError as `read_document`."""
    return parse_json(text, file) if suffix.lower() == ".json" else parse_yaml(text, file)
