"""``python -m experiments.gentd26_2026_11_21 --time-limit 30``: fills results.csv, prints the table, draws the picture.

A cell is one window on one number of GPUs. Cells that the file already holds, for the same time limit, are not
computed again, so an interrupted run goes on where it was. The trace is read from ``../shared/data/gentd26`` (it is not
part of this repository).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.gentd26_2026_11_21.assignment import assigned
from experiments.gentd26_2026_11_21.figure import BOUND, PLAN, STATIC, figure
from experiments.resumed import fill
from models.objective import reported_bound, reported_value
from models.scenario import write_atomically
from planner import plan
from planner.answers.simulate import simulate
from planner.inputs.importers.format import Override
from planner.inputs.importers.trace import Imported, import_trace
from planner.show.canvas import png

FOLDER = Path(__file__).parent
DATA = FOLDER.parents[2] / "shared" / "data" / "gentd26"
LOG, UPDATES = DATA / "lora_request_trace.csv.gz", DATA / "pipeline_update_latency_anon.csv.gz"
PEAK_HOUR = ("2024-12-06T00:00", "2024-12-06T01:00")
POLICIES = ("compass", "srpt", "receding")


@dataclass(frozen=True, slots=True)
class Row:
    """What one contender reaches in one cell; the bound has only an objective."""

    start: str
    end: str
    gpus: int
    time_limit_s: float
    contender: str
    mean_slowdown: float
    mean_latency_s: float | None = None
    p95_latency_s: float | None = None
    loads: int | None = None
    hit_rate: float | None = None

    @property
    def cell(self) -> tuple[str, str, int, float]:
        """What was asked."""
        return self.start, self.end, self.gpus, self.time_limit_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the missing cells, print the table and draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m experiments.gentd26_2026_11_21", description=__doc__)
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds per cell for plan and bound together")
    parser.add_argument("--window", nargs=2, metavar=("FROM", "TO"), default=PEAK_HOUR, help="any window of the trace")
    parser.add_argument("--gpus", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results.csv and the picture lie")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    cells = [(*options.window, gpus, options.time_limit) for gpus in options.gpus]
    wanted = fill(options.folder / "results.csv", Row, cells, lambda cell: measured(*cell))
    print(table(wanted))
    write_atomically(options.folder / "slowdown.png", png(figure(values(wanted), " to ".join(options.window))))


def measured(start: str, end: str, gpus: int, time_limit_s: float) -> Iterator[Row]:
    """Yield what every policy, the plan and the lower bound reach; the plan starts from the policies' timelines."""
    made = imported(start, end, gpus)
    scenario = made.scenario
    simulations = {policy: simulate(scenario, policy) for policy in POLICIES}
    simulations[STATIC] = simulate(assigned(scenario), "jit")
    starts = [simulation.timeline for simulation in simulations.values()]
    planned = plan(scenario, time_limit_s=time_limit_s, starts=starts)
    assert planned.result.value is not None
    assert planned.result.lower_bound is not None
    assert planned.metrics is not None
    reached = {name: (simulation.value, simulation.metrics) for name, simulation in simulations.items()}
    for name, (value, metrics) in {**reached, PLAN: (planned.result.value, planned.metrics)}.items():
        slowdown = reported_value(scenario.objective, value)
        yield Row(
            start,
            end,
            gpus,
            time_limit_s,
            name,
            slowdown,
            round(metrics.mean_latency_s, 3),
            round(metrics.p95_latency_s, 3),
            metrics.loads,
            metrics.hit_rate,
        )
    bound = reported_bound(scenario.objective, planned.result.lower_bound)
    yield Row(start, end, gpus, time_limit_s, BOUND, bound)


def imported(start: str, end: str, gpus: int) -> Imported:
    """Return a window of the trace on servers of one GPU each."""
    return import_trace("gentd26", [LOG, UPDATES], window=(start, end), override=Override(servers=gpus).apply)


def values(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Return mean slowdowns by contender and number of GPUs."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row.contender, {})[row.gpus] = row.mean_slowdown
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown, the worst contender of each cell first."""
    heads = "GPUs", "", "mean slowdown", "x plan", "mean latency in s", "p95 latency in s", "loads", "hit rate"
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    plans = {row.cell: row.mean_slowdown for row in rows if row.contender == PLAN}
    for row in sorted(rows, key=lambda row: (row.gpus, -row.mean_slowdown)):
        latencies = [_shown(row.mean_latency_s, ".1f"), _shown(row.p95_latency_s, ".0f")]
        cells = [str(row.gpus), row.contender, f"{row.mean_slowdown:.4g}", f"{row.mean_slowdown / plans[row.cell]:.2f}"]
        lines.append(
            "| " + " | ".join([*cells, *latencies, _shown(row.loads, "d"), _shown(row.hit_rate, ".3f")]) + " |"
        )
    return "\n".join(lines)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


if __name__ == "__main__":
    main()
