"""Dotted paths: which places they name, and what is put there."""

from __future__ import annotations

import pytest

from truenorth.models.scenario.changes import (
    PathError,
    change,
    factor,
    first_missing,
    places,
    scale_quantity,
    value_at,
)
from truenorth.models.scenario.errors import FieldError

DOCUMENT = {
    "models": {"opt": {"weights": "2 GB"}, "nli-1.5": {"weights": "3 GB"}, "nli-1": {"5": "x"}},
    "groups": [{"count": "1"}, {"count": "2"}],
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("models.opt.weights", [("models", "opt", "weights")]),
        ("models.nli-1.5.weights", [("models", "nli-1.5", "weights")]),  # the longest key that is there
        ("groups[1].count", [("groups", 1, "count")]),
        ("groups[*].count", [("groups", 0, "count"), ("groups", 1, "count")]),
        ("groups[0]", [("groups", 0)]),
        ("options.overlap_loads", [("options", "overlap_loads")]),  # missing: taken as it is written
        ("models.*", [("models", "opt"), ("models", "nli-1.5"), ("models", "nli-1")]),
    ],
)
def test_a_path_names_places(path: str, expected: list[tuple[str | int, ...]]) -> None:
    assert places(DOCUMENT, path) == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("models.opt.weights.more", "models.opt.weights is the value '2 GB'; allowed is a path that ends there"),
        ("groups.count", "groups is a list; allowed is groups[0], groups[*], or the whole list"),
        ("groups[2].count", "groups has 2 items; allowed are [0] to [1]"),
        ("models.opt.", "the path ends with a dot"),
        ("nothing.*.weights", "after nothing names nothing"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, message: str) -> None:
    with pytest.raises(PathError) as caught:
        places(DOCUMENT, path)
    assert message in str(caught.value)


def test_what_is_missing_is_found_and_made() -> None:
    where = ("options", "deep", "key")
    assert first_missing(DOCUMENT, where) == 0
    assert first_missing({"options": {}}, where) == 1
    assert first_missing({"options": {"deep": {"key": None}}}, where) is None
    assert change({"a": 1}, {"options.deep.key": 5}) == {"a": 1, "options": {"deep": {"key": 5}}}


def test_changes_are_made_to_a_copy_and_all_at_once() -> None:
    changed = change(DOCUMENT, {"groups[0]": None, "groups[1].count": "x3", "models.opt": None})
    assert changed["groups"] == [{"count": "6"}]  # the second group, counted before the first was removed
    assert list(changed["models"]) == ["nli-1.5", "nli-1"]  # type: ignore[call-overload]
    assert value_at(DOCUMENT, ("groups", 1, "count")) == "2"
    assert changed["models"]["nli-1"] is DOCUMENT["models"]["nli-1"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups[*].count": "x2", "groups[1].count": 5}, "changes groups[1].count, as 'groups[*].count' does"),
        ({"groups": [], "groups[1].count": 5}, "changes a part of groups, as 'groups' does; allowed is one of them"),
        ({"models.opt.weigths": "x2"}, "there is nothing to scale by 2; did you mean 'weights'? allowed are weights"),
        ({"models.optt": None}, "there is nothing to remove; did you mean 'opt'? allowed are opt, nli-1.5, nli-1"),
        ({"a." * 5_000_000: 1}, "is too long; allowed are paths of at most 2000 characters"),
    ],
)
def test_changes_that_contradict_or_hit_nothing_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError) as refused:
        change(DOCUMENT, changes)
    assert message in refused.value.problem


@pytest.mark.parametrize(
    ("value", "times", "expected"),
    [
        ("14 GB", "0.5", "7 GB"),
        ("5", "2", "10"),
        (3, "1.5", "4.5"),
        ("1e3 us", ".5", "500 us"),
        ("0.1/s", "3", "0.3 /s"),
    ],
)
def test_a_quantity_is_scaled_exactly(value: object, times: str, expected: str) -> None:
    assert scale_quantity(value, times) == expected


@pytest.mark.parametrize("value", [None, "opt", True, ["2 GB"]])
def test_what_is_no_number_cannot_be_scaled(value: object) -> None:
    with pytest.raises(PathError, match="allowed is to scale a number"):
        scale_quantity(value, "2")


def test_only_x_and_a_number_is_a_factor() -> None:
    assert [factor(text) for text in ("x2", "x 0.5", "x", "2x", "x2 GB", "-x2")] == ["2", "0.5", None, None, None, None]
