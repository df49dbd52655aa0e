"""Workflows with branches: paths, expectations, draws, and what is refused.

d (2 us) is followed by a (5 us) in three of four jobs, else by b (1 us); j (1 us) comes after whichever ran.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.instances import instance, task
from truenorth.models import Instance, Job, Workflow, scenario_hash
from truenorth.models.branches import branch_of, deciders, draw_branch, likelihoods, open_paths, paths_of
from truenorth.models.workload import Branch

TASKS = (task("d", 2), task("a", 5, after={"d": 1}), task("b", 1, after={"d": 1}), task("j", 1, after={"a": 0, "b": 0}))
FORKED = Workflow("w", TASKS, (Branch(Fraction(3, 4), ("a",)), Branch(Fraction(1, 4), ("b",))))


def job(branch: int, release_us: int = 0) -> Job:
    return Job(paths_of(FORKED)[branch], release_us)


def test_a_path_keeps_its_own_tasks_and_edges() -> None:
    long, short = paths_of(FORKED)
    assert [[t.name for t in path.tasks] for path in (long, short)] == [["d", "a", "j"], ["d", "b", "j"]]
    assert [edge.source for edge in short.tasks[2].inputs] == ["b"]
    assert (branch_of(long), branch_of(short)) == (0, 1)
    # 2 + 5 + 1 and 2 + 1 + 1; expected 3/4 x 8 + 1/4 x 4.
    assert (long.critical_path_us, short.critical_path_us, FORKED.critical_path_us) == (8, 4, 7)
    assert likelihoods(FORKED) == [1, Fraction(3, 4), Fraction(1, 4), 1]


def test_the_hash_counts_the_path_taken_and_nothing_else() -> None:
    taken = instance([job(0)])
    plain = instance([Job(Workflow("w", paths_of(FORKED)[0].tasks), 0)])
    assert scenario_hash(taken) == scenario_hash(plain)
    assert scenario_hash(taken) != scenario_hash(instance([job(1)]))


def test_the_open_instance_has_whole_workflows() -> None:
    def opened(on: Instance) -> list[int]:
        found = open_paths(on)
        assert found is not None
        assert found.instance.n_tasks == 4 * len(on.jobs)
        kept: list[int] = found.kept.tolist()
        return kept

    assert opened(instance([job(0), job(1)])) == [0, 1, 3, 4, 6, 7]
    assert open_paths(instance([Job(Workflow("w", TASKS), 0)])) is None


def test_a_path_shows_with_the_first_task_before_a_branch() -> None:
    assert deciders(FORKED) == {0}
    bare = Workflow("v", (task("a", 1), task("b", 1)), (Branch(Fraction(1, 2), ("a",)), Branch(Fraction(1, 2), ("b",))))
    assert deciders(bare) == frozenset()
    skipping = replace(FORKED, branches=(Branch(Fraction(1, 2), ("a",)), Branch(Fraction(1, 2), ())))
    assert [len(path.tasks) for path in paths_of(skipping)] == [4, 3]


def test_draws_are_those_of_seed_and_job_and_as_likely_as_they_say() -> None:
    drawn = Counter(draw_branch(FORKED, 1, index) for index in range(2_000))
    assert drawn[1] / 2_000 == pytest.approx(0.25, abs=0.03)  # three standard deviations
    assert [draw_branch(FORKED, 7, index) for index in range(9)] == [
        draw_branch(FORKED, 7, index) for index in range(9)
    ]


@pytest.mark.parametrize(
    ("branches", "problem"),
    [
        ([("1/2", "a")], "do not add up to 1"),
        ([("1", "x")], "unknown task x"),
        ([("1/2", "a"), ("1/2", "a")], "task a is in two branches"),
        ([("1/2", "a"), ("1/2", "j")], "j comes after a, which is in another branch"),
        ([("1", "dabj")], "holds every task"),
    ],
)
def test_branches_that_contradict_themselves_are_refused(branches: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Workflow("w", TASKS, tuple(Branch(Fraction(share), tuple(names)) for share, names in branches))
