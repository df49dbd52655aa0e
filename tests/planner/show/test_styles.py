"""Styles of policies: told apart, the same in every figure, and seen on white."""

from __future__ import annotations

import pytest

from truenorth.executor.policies.parse import POLICIES
from truenorth.planner.answers.compare import (
    BATCHING_POLICIES,
    DEFAULT_POLICIES,
    GANG_POLICIES,
    SLOWER_GANG_POLICIES,
    STREAM_POLICIES,
)
from truenorth.planner.show.canvas import COLOURS, PLAIN, contrast
from truenorth.planner.show.curves import lines, slowdown_ecdf
from truenorth.planner.show.styles import LINE_COLOURS, STYLES, styles

LIGHT, DARK = "#ffffff", "#17181b"
"""The paper of pages, as page.css has it."""


@pytest.mark.parametrize("paper", [LIGHT, DARK])
@pytest.mark.parametrize("colour", [*LINE_COLOURS, *COLOURS, PLAIN])
def test_every_colour_is_seen_on_light_and_on_dark(colour: str, paper: str) -> None:
    assert contrast(colour, paper) >= 3


def test_names_beside_each_other_have_colours_of_their_own_as_long_as_there_are_any() -> None:
    names = [f"memory {size} GB, {policy}" for size in (7, 14) for policy in ("compass", "srpt", "jit", "lru")]
    assert len({style.colour for style in styles(names).values()}) == len(LINE_COLOURS) == len(names)


def test_policies_have_shapes_of_their_own_and_the_plan_the_ink() -> None:
    names = ["plan (knows the future)", "receding", "compass", "srpt", "ahead", "lru", "jit", "rltune", "hadar"]
    own = styles(names)
    assert len({style.marker for style in own.values()}) == len(names)
    assert own[names[0]].colour == ""
    assert styles(["plan", "jit"])["plan"] == own[names[0]]


def test_policies_of_a_comparison_have_styles_of_their_own() -> None:
    others = tuple(name for name in POLICIES if name not in GANG_POLICIES)
    on_several = (*GANG_POLICIES, *SLOWER_GANG_POLICIES)
    for shown in ((*DEFAULT_POLICIES, *BATCHING_POLICIES), STREAM_POLICIES, on_several, others):
        assert len(set(styles(shown).values())) == len(shown) <= len(STYLES)


def test_a_policy_looks_the_same_whoever_stands_beside_it() -> None:
    alone, among = styles(["jit"])["jit"], styles(["mine:Policy", "jit", "jit:period=1s"])
    assert among["jit"] == alone
    assert among["jit:period=1s"] != alone
    assert styles(["jit:period=1s"])["jit:period=1s"] == alone
    ecdf = slowdown_ecdf({"plan": [1.0, 2.0], "srpt": [1.0, 3.0], "jit": [1.0, 4.0]}, ["plan"])
    grid = lines("", "", "", {"jit": [(1.0, 2.0)], "lru": [(1.0, 3.0)]})
    (of_ecdf,) = {(c.colour, c.stroke) for c in ecdf.curves if c.name.startswith("jit")}
    (of_grid,) = {(c.colour, c.stroke) for c in grid.curves if c.name == "jit"}
    assert of_ecdf == of_grid == tuple(alone)
