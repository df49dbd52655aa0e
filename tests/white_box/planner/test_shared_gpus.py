"""Batches and shares in pictures, pages and traces: a batch is one bar with its size, shares are heights in a lane."""

from __future__ import annotations

from tests.instances import chain, instance
from truenorth.models import BatchClass, Job, Placement, Task, Timeline
from truenorth.models.record import encode
from truenorth.planner.answers.shown import Shown
from truenorth.planner.show.gantt import rows_of, runs_by_gpu
from truenorth.planner.show.timelines import timelines_of, trace_events

PAIR = BatchClass("pair", {"*": {1: 4, 2: 6}}, share=5_000)
WORKFLOW = chain(Task.of_class("t", PAIR))
# Shares of a half: jobs 0 and 1 are one batch from 0 to 6, job 2 runs beside it from 1 to 5, job 3 above again from 5.
WINDOW = instance([Job(WORKFLOW, 0) for _ in range(4)])
STARTS = {0: (0, 6), 1: (0, 6), 2: (1, 5), 3: (5, 9)}
DRAWN = Timeline.build(4, [Placement(task, 0, *span) for task, span in STARTS.items()], [])


def test_a_batch_is_one_run_and_runs_that_overlap_lie_at_heights_of_their_own() -> None:
    runs = runs_by_gpu(WINDOW, DRAWN)[0]
    assert [(run.tasks, run.start_us, run.end_us, run.low, run.high) for run in runs] == [
        ((0, 1), 0, 6, 0.0, 0.5),
        ((2,), 1, 5, 0.5, 1.0),
        ((3,), 5, 9, 0.5, 1.0),
    ]


def test_the_picture_says_how_many_run_together() -> None:
    bars = rows_of(WINDOW, DRAWN).rows[0].lanes[0].bars
    assert [(bar.text, bar.low, bar.high) for bar in bars] == [
        ("0 and 1 more", 0.0, 0.5),
        ("2", 0.5, 1.0),
        ("3", 0.5, 1.0),
    ]


def test_the_page_is_told_sizes_and_heights_where_there_are_any() -> None:
    drawn = encode(timelines_of([Shown("plan", True, WINDOW, DRAWN)]))["timelines"][0]
    assert drawn["members"] == [2, 0, 1, 1]
    assert (drawn["low"], drawn["high"]) == ([0.0, 0.0, 0.5, 0.5], [0.5, 1.0, 1.0, 1.0])
    plain = instance([Job(chain(Task("t", {"*": 4})), 0)])
    alone = Timeline.build(1, [Placement(0, 0, 0, 4)], [])
    assert "members" not in encode(timelines_of([Shown("plan", True, plain, alone)]))["timelines"][0]


def test_slices_of_a_trace_that_overlap_have_tracks_of_their_own() -> None:
    slices = [event for event in trace_events(WINDOW, DRAWN, "plan") if event["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in slices] == [
        ("t (job 0 and 1 more)", 0, 0, 6),
        ("t (job 2)", 2, 1, 4),
        ("t (job 3)", 2, 5, 4),
    ]
    assert slices[0]["args"] == {"models": [], "batch_size": 2}
