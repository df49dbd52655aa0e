"""Scenario files as they are written: YAML under comments, or JSON, as the name of the file says.

What is written keeps the look of files written by hand: small collections stand on one line, and what stood without
quotes stands without them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as Emitter
except ImportError:  # PyYAML was built without the C library
    from yaml import SafeDumper as Emitter  # type: ignore[assignment]

from truenorth.models.branches import branch_of
from truenorth.models.instance import Instance
from truenorth.models.scenario.errors import Plain
from truenorth.models.scenario.files import write_atomically

_WIDTH = 120
_ONE_LINE = _WIDTH - 20
"""Longest collection on one line: there is room for its key and the indentation."""
_FLAT = 2
"""Deepest nesting of a collection on one line."""


def write_scenario(path: Path, content: Mapping[str, Any], comments: Sequence[str] = ()) -> None:
    """Write a scenario file, whole or not at all; parameters as of `scenario_text`.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    write_atomically(path, scenario_text(path, content, comments))


def scenario_text(path: Path, content: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """Return the text of a scenario file.

    Parameters
    ----------
    path
        JSON if its name says so, else YAML.
    content
        With the keys of a scenario file; quantities are text with units.
    comments
        Lines above the content; JSON has none.
    """
    if path.suffix.lower() == ".json":
        return json.dumps(_json_values(content), ensure_ascii=False, indent=1) + "\n"
    text = yaml.dump(
        content, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
    )
    return "".join(f"# {_printable(line)}\n" for line in comments) + str(text)


def job_sections(instance: Instance) -> list[dict[str, Any]]:
    """Return the jobs of an instance one by one, as a scenario's section ``workload.jobs`` has them."""
    sections = []
    for job in instance.jobs:
        section: dict[str, Any] = {"release": f"{job.release_us} us", "workflow": job.workflow.name}
        if job.deadline_us is not None:
            section["deadline"] = f"{job.deadline_us} us"
        if job.weight != 1:
            section["weight"] = float(job.weight)
        if job.ingress is not None:
            section["ingress"] = f"s{job.ingress}"
        if job.workflow.of is not None:
            section["path"] = branch_of(job.workflow)
        if job.tokens:
            section["tokens"] = {name: list(tokens) for name, tokens in job.tokens.items()}
        sections.append(section)
    return sections


def _printable(text: str) -> str:
    """Return a comment that stays one: a file's name may hold a line break."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _json_values(value: object) -> object:
    """Return values as JSON says them: what stood there without quotes may be a number or a truth value."""
    if isinstance(value, Mapping):
        return {key: _json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_values(item) for item in value]
    if isinstance(value, Plain):
        try:
            return json.loads(value)
        except ValueError:
            return str(value)
    return value


class _Dumper(Emitter):
    """Writes small collections on one line, and unquoted what stood unquoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out."""
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        """Put a mapping on one line if it fits there and is not nested deeply."""
        node = super().represent_mapping(tag, mapping, flow_style)
        depth = 1 + max(map(_depth, _children(node)), default=0)
        node.flow_style = depth <= _FLAT and _length(node) < _ONE_LINE
        return node


def _children(node: yaml.Node) -> list[yaml.Node]:
    """Return keys and values, or items."""
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _depth(node: yaml.Node) -> int:
    """Return how deeply collections are nested, at most one more than fits on a line; 0 for a scalar."""
    if isinstance(node, yaml.ScalarNode):
        return 0
    if isinstance(node, yaml.MappingNode) and node.flow_style is False:
        return _FLAT + 1  # it stands on several lines already, and so do those around it
    return 1 + max(map(_depth, _children(node)), default=0)


def _length(node: yaml.Node) -> int:
    """Return how many characters a node takes on one line; a separator of two follows each part of it."""
    if isinstance(node, yaml.ScalarNode):
        return len(node.value)
    return 2 + sum(_length(child) + 2 for child in _children(node))


def _plain(dumper: Any, value: Plain) -> yaml.ScalarNode:
    text = str(value)
    node: yaml.ScalarNode = dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), text)
    return node


_Dumper.add_representer(Plain, _plain)
