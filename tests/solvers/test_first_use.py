"""Kernels are compiled once, before any clock starts."""

from __future__ import annotations

import os
from pathlib import Path

import numba
import pytest

import truenorth as tn
from tests import instances as make
from tests.planner.answers.servers.test_streams import document
from truenorth.models import Instance, Job
from truenorth.models.scenario import scenario_from
from truenorth.models.workload import WHOLE, Task
from truenorth.solvers import first_use
from truenorth.solvers.first_use import compile_once, count_loaded, mark_complete


def one(share: int = WHOLE) -> Instance:
    return make.instance([Job(make.chain(Task("t", {"*": 5}, share=share)), 0)])


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []
    monkeypatch.setattr(first_use, "MACHINE_CODE", tmp_path / "kernels")
    monkeypatch.setattr(first_use, "_compile_elsewhere", found.append)
    return found


def test_what_is_missing_is_compiled_and_said(asked: list[list[str]]) -> None:
    said: list[str] = []
    compile_once(one(), lambda: said.append("once"))
    assert (asked, said) == ([["search", "bound"]], ["once"])
    mark_complete(["search", "bound"])
    compile_once(one(), lambda: said.append("twice"))
    assert (len(asked), said) == (1, ["once"])
    compile_once(one(WHOLE // 2))
    assert asked[1:] == [["serving"]]


def test_what_another_machine_compiled_does_not_count(
    asked: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels").mkdir()
    mark_complete(["search", "bound"])
    monkeypatch.setattr(numba, "__version__", "0.1")
    compile_once(one())
    assert asked == [["search", "bound"]]


def test_where_nothing_can_be_kept_nothing_is_compiled_beforehand(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    compile_once(one(), lambda: pytest.fail("there is nothing to say"))
    assert asked == []


def test_fleets_of_language_models_are_sized_without_kernels(asked: list[list[str]]) -> None:
    """Floors and simulations are all that it takes, so that nobody waits for a compiler; a bound takes kernels."""
    scenario = scenario_from(document([(0, 100, 1)] * 4, "p100 latency <= 200 ms"))
    before = count_loaded()
    assert tn.servers(scenario, policies=["least_tokens"]).policies[0].mix == (2,)
    assert (asked, count_loaded()) == ([], before)
    tn.bound(scenario, time_limit=1)
    assert asked == [["queues"]]
