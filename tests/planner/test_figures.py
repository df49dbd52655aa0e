from __future__ import annotations

import numpy as np
from matplotlib.collections import PolyCollection

from models import Job, Placement, Residency, Timeline
from planner.show.figures import gantt, slowdown_ecdf
from planner.show.perfetto import trace_events
from tests.instances import chain, cluster, instance, task

# One job on two GPUs: a needs m (4 bytes, loaded in [0, 4)) and runs in [4, 7) on GPU 0; b runs in [10, 12) on GPU 1.
WINDOW = instance([Job(chain(task("a", 3, ["m"]), task("b", 2, after={"a": 2})), 0)], {"m": 4}, on=cluster(2))
TIMELINE = Timeline.build(2, [Placement(0, 0, 4, 7), Placement(1, 1, 10, 12)], [Residency(0, 0, 0, 4)])


def test_gantt_draws_every_run_load_and_band_in_its_lane() -> None:
    (axes,) = gantt(WINDOW, TIMELINE, "title").axes
    boxes = [path.get_extents() for shape in axes.collections for path in shape.get_paths()]
    spans = {(round(box.x0 * 1e6), round(box.x1 * 1e6)) for box in boxes}
    assert {(4, 7), (10, 12), (0, 4)} <= spans  # two runs and the load
    bands = [shape for shape in axes.collections if isinstance(shape, PolyCollection) and shape.get_alpha()]
    (held,) = (path.get_extents() for shape in bands for path in shape.get_paths())
    assert round(held.x1 * 1e6) == 12  # never evicted: to the end of the picture
    assert next(label.get_text() for label in axes.get_yticklabels()) == "s0/g0  compute"


def test_ecdf_ends_at_one_and_says_who_knows_the_future() -> None:
    (axes,) = slowdown_ecdf(WINDOW, {"plan": TIMELINE, "jit": TIMELINE}, "plan").axes
    ends = [(np.asarray(line.get_xdata())[0], np.asarray(line.get_ydata())[-1]) for line in axes.get_lines()]
    assert ends == [(12 / 5, 1.0), (12 / 5, 1.0)]  # latency 12, P = 5
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["plan (mean 2.4, knows the future)", "jit (mean 2.4)"]


def test_trace_has_a_process_per_gpu_and_exact_times() -> None:
    events = trace_events(WINDOW, TIMELINE, "plan", first_process=5)
    spans = {(e["name"], e["pid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert spans == {("a (job 0)", 5, 4, 3), ("b (job 0)", 6, 10, 2), ("load m", 5, 0, 4)}
    assert [(e["ts"], e["args"]) for e in events if e["ph"] == "C"] == [(0, {"weights in GB": 4e-9})]
