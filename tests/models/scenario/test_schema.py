"""The JSON Schema: it names every key, and its patterns agree with what is read."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from truenorth.models import Objective
from truenorth.models.scenario import json_schema
from truenorth.models.units import QuantityError, parse_bandwidth, parse_rate, parse_size, parse_time

SCHEMA = json_schema()


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping of the schema."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else []:
        yield from objects(child)


def test_is_plain_json_and_closed() -> None:
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    sections = [SCHEMA, *SCHEMA["$defs"].values()]
    assert all(section["additionalProperties"] is False for section in sections)
    assert all(section["description"] for section in sections)
    assert SCHEMA["required"] == ["cluster", "workflows", "workload"]
    assert SCHEMA["properties"]["objective"]["enum"] == [str(objective) for objective in Objective]


def test_references_resolve() -> None:
    references = {node["$ref"].removeprefix("#/$defs/") for node in objects(SCHEMA) if "$ref" in node}
    assert references == set(SCHEMA["$defs"])


def test_alternatives() -> None:
    workload = SCHEMA["$defs"]["WorkloadSection"]
    assert workload["oneOf"] == [{"required": ["poisson"]}, {"required": ["trace"]}, {"required": ["jobs"]}]


PATTERNS = {
    parse_time: SCHEMA["$defs"]["JobSection"]["properties"]["release"]["pattern"],
    parse_size: SCHEMA["$defs"]["ModelSection"]["properties"]["weights"]["pattern"],
    parse_bandwidth: SCHEMA["$defs"]["NetworkSection"]["properties"]["bandwidth"]["pattern"],
    parse_rate: SCHEMA["$defs"]["PoissonSection"]["properties"]["rate"]["pattern"],
}
UNITS = ["us", "ms", "s", "min", "h", "B", "KB", "KiB", "TB", "GB/s", "Gbit/s", "/s", "/min", "/h", "", "X"]
NUMBERS = ["1", "1.5", ".5", "1.", "1e3", "1E-3", "+2", "", ".", "1e", "nan", "1e1234", "1,5", "0x1", "1_0"]


@pytest.mark.parametrize("read", PATTERNS)
def test_pattern_agrees_with_the_reader(read: Any) -> None:
    for text in [f"{number}{space}{unit}" for number in NUMBERS for space in ("", " ") for unit in UNITS]:
        try:
            read(text)
            good = True
        except QuantityError:
            good = False
        assert bool(re.search(PATTERNS[read], text)) == good, text


def test_examples_match_their_patterns() -> None:
    described = [node for node in objects(SCHEMA) if "pattern" in node]
    assert len(described) > 10
    assert all(re.search(node["pattern"], example) for node in described for example in node["examples"])
