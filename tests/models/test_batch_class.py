"""Batch classes, shares and memory of tasks, each figure derived by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import instances as make
from truenorth.models import (
    NEVER,
    NONE,
    WHOLE,
    BatchClass,
    Instance,
    InstanceError,
    Job,
    Task,
    UnsupportedInstanceError,
)
from truenorth.models.features import ONE_AT_A_TIME, require

OPT = BatchClass("opt", {"A": {1: 4, 2: 5, 4: 9}, "B": {1: 3}}, ("m",), WHOLE // 4, 2)


def test_a_size_that_is_not_listed_takes_the_time_of_the_next_larger_one() -> None:
    assert [OPT.runtime_on("A", size) for size in range(1, 6)] == [4, 5, 9, 9, None]
    assert [OPT.runtime_on("B", size) for size in (1, 2)] == [3, None]
    assert (OPT.runtime_on("C", 1), OPT.largest_on("C"), OPT.largest_on("A")) == (None, 0, 4)
    every = BatchClass("every", {"*": {1: 6}, "A": {1: 4, 3: 8}})
    assert (every.runtime_on("A", 2), every.runtime_on("B", 1), every.runtime_on("B", 2)) == (8, 6, None)


def test_a_task_of_a_class_has_its_demands_and_runs_alone_at_size_1() -> None:
    task = Task.of_class("t", OPT)
    assert (task.runtime_us, task.models, task.share, task.memory_bytes) == ({"A": 4, "B": 3}, ("m",), 2500, 2)
    assert (task.batch, task.fastest_us) == (OPT, 3)
    assert replace(task, name="u") == Task.of_class("u", OPT)


@pytest.mark.parametrize(
    "change", [{"models": ()}, {"runtime_us": {"A": 4}}, {"share": WHOLE}, {"memory_bytes": 0}], ids=str
)
def test_a_task_must_not_differ_from_its_class(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="task t: differs from its batch class opt"):
        replace(Task.of_class("t", OPT), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"runtime_us": {}}, "needs a table"),
        ({"runtime_us": {"A": {2: 5}}}, "every table lists size 1"),
        ({"runtime_us": {"A": {0: 1, 1: 5}}}, "every table lists size 1 and none below"),
        ({"runtime_us": {"A": {1: 5}, "B": {1: 5, 2: 4}}}, "do not fall"),
        ({"runtime_us": {"A": {1: 0}}}, "at least 1 us"),
        ({"share": 0}, "its share is 0 of 10000"),
        ({"share": WHOLE + 1}, "its share is 10001"),
        ({"memory_bytes": -1}, "memory must not be negative"),
        ({"models": ("m", "m")}, "named twice"),
    ],
)
def test_refused_classes(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        replace(OPT, **fields)  # type: ignore[arg-type]


def served(*tasks: Task, on: object = None, **sizes: int) -> Instance:
    return make.instance([Job(make.chain(task, name=task.name), 0) for task in tasks], sizes or {"m": 3}, on)  # type: ignore[arg-type]


def test_tables_by_class_kind_and_size() -> None:
    # 10 bytes of memory, 3 of weights, 2 per member: at most 3 members on kind A though 4 are listed.
    on = replace(make.cluster(), gpus=(make.gpu(0), make.gpu(1, kind="B"), make.gpu(2, kind="C")))
    plain = Task("plain", {"*": 7}, share=5000, memory_bytes=1)
    instance = served(Task.of_class("t", OPT), plain, Task.of_class("u", OPT), on=on)
    assert instance.batches == (OPT,)
    assert instance.template_batch.tolist() == [0, NONE, 0]
    assert instance.template_share.tolist() == [2500, 5000, 2500]
    assert instance.template_memory.tolist() == [2, 1, 2]
    assert instance.batch_us.tolist() == [
        [[NEVER, 4, 5, 9, NEVER], [NEVER, 3, NEVER, NEVER, NEVER], [NEVER, NEVER, NEVER, NEVER, NEVER]]
    ]
    assert instance.batch_largest.tolist() == [[3, 1, 0]]
    assert instance.run_us.tolist() == [[4, 3, NEVER], [7, 7, 7], [4, 3, NEVER]]
    assert [instance.batch_time(0, 0, size) for size in range(6)] == [NEVER, 4, 5, 9, NEVER, NEVER]
    assert not instance.one_at_a_time


def test_one_at_a_time_is_what_no_key_says() -> None:
    assert served(make.task("t", 4, ["m"])).one_at_a_time
    for asking in (Task("t", {"*": 1}, share=9999), Task("t", {"*": 1}, memory_bytes=1), Task.of_class("t", OPT)):
        instance = served(make.task("s", 4), asking)
        assert not instance.one_at_a_time
        with pytest.raises(UnsupportedInstanceError, match=r"somebody has no support for (shares|memory|batches)"):
            require(instance, "somebody", ONE_AT_A_TIME)


def test_equal_classes_are_one_whoever_built_them_and_names_are_not_shared() -> None:
    again = replace(OPT, runtime_us={"B": {1: 3}, "A": {4: 9, 2: 5, 1: 4}})
    assert served(Task.of_class("t", OPT), Task.of_class("u", again)).template_batch.tolist() == [0, 0]
    with pytest.raises(InstanceError, match="batch class opt is given twice, with different content"):
        served(Task.of_class("t", OPT), Task.of_class("u", replace(OPT, share=1)))


@pytest.mark.parametrize(
    ("memory", "slots", "problem"),
    [
        (7, (), None),
        (8, (), r"its models \(3 bytes\) and the 8 bytes that it holds beside them fit no eligible GPU together"),
        (0, (5, 5), None),
        (1, (5, 5), "it holds 1 bytes beside its models, and every eligible GPU has slots"),
    ],
)
def test_memory_of_a_task_needs_room_beside_its_models(
    memory: int, slots: tuple[int, ...], problem: str | None
) -> None:
    on = make.cluster(slots=slots)
    task = Task("t", {"*": 1}, ("m",), memory_bytes=memory)
    if problem is None:
        assert served(task, on=on).eligible_gpus(0) == [0]
    else:
        with pytest.raises(InstanceError, match=problem):
            served(task, on=on)


def test_a_gpu_with_slots_is_left_out_where_another_can_hold_the_memory() -> None:
    on = replace(make.cluster(), gpus=(make.gpu(0, slots=(5, 5)), make.gpu(1)))
    instance = served(Task("t", {"*": 1}, ("m",), memory_bytes=1), on=on)
    assert instance.eligible_gpus(0) == [1]
    assert isinstance(instance.batch_us, np.ndarray)
