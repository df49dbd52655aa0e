"""Scenario files as they are written: their look, and that they read as what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import load_scenario, scenario_from
from truenorth.models.scenario.errors import Plain
from truenorth.models.scenario.writing import job_sections, scenario_text, write_scenario

GIVEN = Path("experiments/scenarios")


def test_small_collections_stand_on_one_line_and_comments_stay_comments() -> None:
    tasks = {"opt": {"models": ["opt"], "runtime": "3 ms"}, "end": {"runtime": "1 ms", "after": {"opt": "5 B"}}}
    content = {"name": "1.5", "options": {"overlap_loads": Plain("true")}, "workflows": {"a": {"tasks": tasks}}}
    assert scenario_text(Path("a.yaml"), content, ["from a\nb.csv"]) == (
        "# from a?b.csv\n"
        "name: '1.5'\n"
        "options: {overlap_loads: true}\n"
        "workflows:\n"
        "  a:\n"
        "    tasks:\n"
        "      opt: {models: [opt], runtime: 3 ms}\n"
        "      end: {runtime: 1 ms, after: {opt: 5 B}}\n"
    )


@pytest.mark.parametrize(("letters", "on_one_line"), [(86, True), (87, False)])
def test_a_collection_of_a_hundred_characters_stands_on_lines_of_its_own(letters: int, on_one_line: bool) -> None:
    # With a separator of two after each part {a: x.., b: y} takes 2 + 3 + letters + 2 + 3 + 3 characters; most are 99.
    content = {"k": {"a": "x" * letters, "b": "y"}}
    assert scenario_text(Path("a.yml"), content).startswith("k: {") is on_one_line


def test_json_has_numbers_where_none_were_quoted() -> None:
    content = {"name": "7", "n": Plain("7"), "half": [Plain("0.50")], "of": (Plain("true"),), "size": Plain("2 GB")}
    expected = '{\n "name": "7",\n "n": 7,\n "half": [\n  0.5\n ],\n "of": [\n  true\n ],\n "size": "2 GB"\n}\n'
    assert scenario_text(Path("a.JSON"), content) == expected


@pytest.mark.parametrize("name", ["compass_edge.yaml", "paper_small.yaml"])
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_what_is_written_reads_as_what_was_given(name: str, suffix: str, tmp_path: Path) -> None:
    given = load_scenario(GIVEN / name)
    path = tmp_path / f"again{suffix}"
    write_scenario(path, given.source.data(), ["a comment"])
    again = load_scenario(path)
    assert again.source.data() == given.source.data()
    assert scenario_hash(again.instance) == scenario_hash(given.instance)


def test_jobs_are_listed_with_what_is_their_own() -> None:
    job: dict[str, Any] = {"release": "2 ms", "workflow": "w", "deadline": "5 us", "weight": 2.5, "ingress": "s1"}
    made = scenario_from(
        {
            "cluster": {
                "servers": 2,
                "gpu": {"kind": "A", "memory": "2 GB", "load_bandwidth": "1 GB/s"},
                "network": {"bandwidth": "1 GB/s"},
            },
            "workflows": {"w": {"tasks": {"t": {"runtime": "1 ms"}}}},
            "workload": {"jobs": [job, {"release": "0 s", "workflow": "w"}]},
        }
    )
    assert job_sections(made.instance) == [
        {"release": "0 us", "workflow": "w"},
        {"release": "2000 us", "workflow": "w", "deadline": "5 us", "weight": 2.5, "ingress": "s1"},
    ]
