"""What a person sees of a profile: the rounds as they pass, then tables of runs, loads and transfers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from executor.devices.profiling import WARMUP_ROUNDS
from executor.samples import FittedLine
from models.scenario.work import build_workflows
from models.units import say_bandwidth
from planner.answers.profile import Profile


@contextmanager
def rounds_shown(rounds: int) -> Iterator[Callable[[int], None]]:
    """Show how many rounds are done for as long as the block runs; silent unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    columns = (TextColumn("profiling"), MofNCompleteColumn(), TextColumn("rounds"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("rounds", total=WARMUP_ROUNDS + rounds)
        yield lambda done: progress.update(bar, completed=done)


def profile_view(profile: Profile) -> Group:
    """Return the tables of a profile."""
    found = profile.measurements
    head = Text(f"{found.device}, runner {profile.runner}, {profile.rounds} rounds", style="bold")
    copies = [_copy("load", found.load), _copy("transfer", found.transfer)]
    if found.copy_peak is not None:
        copies.append(f"best bare copy of the largest model: {say_bandwidth(found.copy_peak)}")
    return Group(head, _runs(profile), _loads(profile), Text("\n".join(filter(None, copies))))


def _runs(profile: Profile) -> Table:
    table = _table("task", "run, median in ms", "95 %", "given")
    workflows = list(build_workflows(profile.scenario.document).values())
    given = {(workflow.name, task.name): task.fastest_us for workflow in workflows for task in workflow.tasks}
    for (workflow, task), spread in profile.measurements.runs.items():
        table.add_row(f"{workflow}/{task}", *map(_ms, (spread.median_us, spread.p95_us, given[workflow, task])))
    classes = {task.batch.name: task.batch for of in workflows for task in of.tasks if task.batch is not None}
    for name, sizes in profile.measurements.batches.items():
        for size, spread in sizes.items():
            fastest = min(filter(None, (classes[name].runtime_on(kind, size) for kind in classes[name].runtime_us)))
            table.add_row(f"{size} of {name}", *map(_ms, (spread.median_us, spread.p95_us, fastest)))
    return table


def _loads(profile: Profile) -> Table:
    table = _table("model", "MB", "load, median in ms", "95 %", "fit")
    found = profile.measurements
    for model, spread in found.loads.items():
        size = found.weight_bytes[model]
        fit = None if found.load is None else found.load.time_us(size)
        table.add_row(model, f"{size / 1e6:.1f}", *map(_ms, (spread.median_us, spread.p95_us, fit)))
    return table


def _table(first: str, *figures: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for figure in figures:
        table.add_column(figure, justify="right")
    return table


def _ms(us: float | None) -> str:
    return "-" if us is None else f"{us / 1000:.3f}"


def _copy(what: str, line: FittedLine | None) -> str:
    return "" if line is None else f"{what}: {line.overhead_us:.1f} us + bytes / ({say_bandwidth(line.bandwidth)})"
