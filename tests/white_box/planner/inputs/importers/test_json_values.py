"""Lists that are larger than what is held of them in memory: entries, lines and limits."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truenorth.models.scenario import InputError
from truenorth.planner.inputs.importers import json_files
from truenorth.planner.inputs.importers.json_files import Entries

_CHUNKS = (1, 2, 7, 64)
_OBJECTS = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=5,
    ),
    max_size=3,
)


@pytest.fixture(params=_CHUNKS)
def _small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "_CHUNK", request.param)


@settings(max_examples=100, deadline=None)
@given(st.lists(_OBJECTS, max_size=4), st.sampled_from([None, 0, 2]), st.booleans(), st.sampled_from(_CHUNKS))
def test_any_list_is_read_as_by_the_standard_library(
    entries: list[dict[str, object]], indent: int | None, ascii_only: bool, chunk: int
) -> None:
    text = json.dumps(entries, indent=indent, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_files, "_CHUNK", chunk)
        found = [entry.data() for entry in Entries(io.StringIO(text, newline=""), "log")]
    expected = json.loads(text, parse_int=str)
    assert found == expected


@pytest.mark.usefixtures("_small_chunks")
def test_every_entry_knows_its_lines_whatever_the_chunks() -> None:
    text = '\n[\n{"a": 1},\n\n{"a":\n2}\n,{"a": "\\n"}  ,\n{"a": 4}]\n'
    entries = Entries(io.StringIO(text), "log")
    found = [(entry.data(), entry.first_line) for entry in entries]
    assert found == [({"a": "1"}, 3), ({"a": "2"}, 5), ({"a": "\n"}, 7), ({"a": "4"}, 8)]


@pytest.mark.usefixtures("_small_chunks")
def test_the_line_of_a_value_is_found_whatever_the_chunks() -> None:
    entries = Entries(io.StringIO('[\n{"a": 1},\n{\n"a":\n\n2}]'), "log")
    found = [str(entry.error(("a",), "is wrong")) for entry in entries]
    assert found == ["log:2: [0].a: is wrong", "log:4: [1].a: is wrong"]


def test_an_entry_that_does_not_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "_CHUNK", 16)
    monkeypatch.setattr(json_files, "LONGEST_ENTRY", 1000)
    log = io.StringIO('[\n{"a": "' + "x" * 1_000_000)
    with pytest.raises(InputError, match=r"log:2: \[0\]: is longer than 1000 characters"):
        list(Entries(log, "log"))
    assert log.tell() < 5000
