"""Workflows: order, critical path, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.instances import chain, task
from truenorth.models import Edge, Job, MLModel, Task, Workflow


def test_the_critical_path_takes_the_fastest_of_all_listed_kinds() -> None:
    # a 3 (on B), then b 5 or c 2 + d 4 (on A): 3 + max(5, 2 + 4) = 9.
    workflow = chain(
        task("a", {"A": 7, "B": 3}),
        task("b", 5, after={"a": 1}),
        task("c", 2, after={"a": 0}),
        task("d", {"A": 4, "C": 6}, after={"c": 9}),
    )
    assert workflow.critical_path_us == 9
    assert Job(workflow, 5).critical_path_us == 9


def test_the_longest_branch_counts_whatever_the_order_of_the_tasks() -> None:
    # Written back to front: end 1 after long 10 and short 2, both after start 4.
    workflow = chain(
        task("end", 1, after={"long": 0, "short": 0}), task("short", 2, after={"start": 0}),
        task("long", 10, after={"start": 0}), task("start", 4),
    )  # fmt: skip
    assert workflow.critical_path_us == 15
    order = workflow.topological
    assert sorted(order) == [0, 1, 2, 3]
    assert order[0] == 3
    assert order[-1] == 0


def test_a_listed_kind_comes_before_the_run_time_for_every_kind() -> None:
    both = Task("t", {"*": 9, "A": 4})
    assert (both.runtime_on("A"), both.runtime_on("B"), both.fastest_us) == (4, 9, 4)
    assert Task("t", {"A": 4}).runtime_on("B") is None


def test_a_cycle_is_named() -> None:
    with pytest.raises(ValueError, match=r"workflow w: tasks form a cycle: (a -> b -> a|b -> a -> b)"):
        chain(task("a", 1, after={"b": 0}), task("b", 1, after={"a": 0}))
    with pytest.raises(ValueError, match="cycle: a -> a"):
        chain(task("a", 1, after={"a": 0}))


def test_refused_work() -> None:
    with pytest.raises(ValueError, match="unknown task x"):
        chain(task("a", 1, after={"x": 0}))
    with pytest.raises(ValueError, match="at least one task"):
        Workflow("w", ())
    with pytest.raises(ValueError, match="names must differ"):
        chain(task("a", 1), task("a", 2))
    with pytest.raises(ValueError, match="at least 1 us"):
        task("a", 0)
    with pytest.raises(ValueError, match="needs a run time"):
        task("a", {})
    with pytest.raises(ValueError, match="model is named twice"):
        task("a", 1, ["m", "m"])
    with pytest.raises(ValueError, match="predecessor is named twice"):
        Task("a", {"*": 1}, (), (Edge("b", 1), Edge("b", 2)))
    with pytest.raises(ValueError, match="bytes"):
        Edge("a", -1)
    with pytest.raises(ValueError, match="positive"):
        MLModel("m", 0)


@pytest.mark.parametrize("fields", [{"release_us": -1}, {"weight": Fraction(-1)}, {"deadline_us": -1}])
def test_refused_jobs(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="negative"):
        Job(**{"workflow": chain(task("a", 1)), "release_us": 0, **fields})  # type: ignore[arg-type]
