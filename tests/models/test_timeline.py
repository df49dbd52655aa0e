"""Timelines: built from placements in any order, refused when they contradict themselves."""

from __future__ import annotations

import numpy as np
import pytest

from truenorth.models import Placement, Residency, Timeline
from truenorth.models.timeline import UNPLACED


def test_placements_come_back_in_task_order_and_residencies_by_gpu_and_load() -> None:
    late, early, other = Residency(0, 0, 5, 6), Residency(1, 0, 2, 3), Residency(0, 1, 0, 1)
    timeline = Timeline.build(3, [Placement(2, 1, 4, 6), Placement(0, 0, 1, 2)], [late, other, early])
    assert list(timeline.placements) == [Placement(0, 0, 1, 2), Placement(2, 1, 4, 6)]
    assert timeline.place.tolist() == [0, UNPLACED, 1]
    assert timeline.residencies == (early, late, other)
    assert not timeline.realised


@pytest.mark.parametrize("task", [-1, 2])
def test_a_placement_of_no_task_is_refused(task: int) -> None:
    with pytest.raises(ValueError, match=f"no task {task}; allowed are 0 to 1"):
        Timeline.build(2, [Placement(task, 0, 0, 1)], [])


def test_a_task_placed_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="task 1 is placed twice"):
        Timeline.build(2, [Placement(1, 0, 0, 1), Placement(1, 0, 0, 1)], [])


def test_arrays_have_one_length_and_are_read_only() -> None:
    zeros = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="one entry per task"):
        Timeline(zeros, zeros, np.zeros(3, np.int64), ())
    timeline = Timeline.build(1, [], [])
    with pytest.raises(ValueError, match="read-only"):
        timeline.start_us[0] = 1
