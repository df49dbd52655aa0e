"""What a person sees of a profile: tables of runs, loads and transfers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group
from rich.text import Text

from truenorth.executor.samples import FittedLine, Spread
from truenorth.models.scenario.work import build_workflows
from truenorth.models.units import say_bandwidth
from truenorth.models.workload import Task
from truenorth.planner.answers.profile import Profile
from truenorth.planner.show.table import Column, Table, terminal

Measured = tuple[str, Spread, float | None]
"""What was measured, how long it took, and the time that is given or fitted."""


def profile_view(profile: Profile) -> Group:
    """Return the tables of a profile."""
    found = profile.measurements
    head = Text(f"{found.device}, runner {profile.runner}, {profile.rounds} rounds", style="bold")
    copies = [_copy("load", found.load), _copy("transfer", found.transfer)]
    if found.copy_peak is not None:
        copies.append(f"best bare copy of the largest model: {say_bandwidth(found.copy_peak)}")
    if found.live.dispatch:
        late = ", ".join(f"{sort} {spread.median_us:.0f} us" for sort, spread in found.live.dispatch.items())
        copies.append(f"dispatch, medians: {late}")
    if found.memory_bytes:
        most = max(found.memory_bytes, key=found.memory_bytes.__getitem__)
        copies.append(f"most beside the weights: {found.memory_bytes[most] / 1e6:.1f} MB, of {'/'.join(most)}")
    tables = (terminal(table, None) for table in (_runs(profile), _loads(profile)))
    return Group(head, *tables, Text("\n".join(filter(None, copies))))


def _times(of: str, beside: str) -> list[Column[Measured]]:
    return [
        Column(f"{of}, median in ms", lambda row: row[1].median_us, _ms),
        Column("95 %", lambda row: row[1].p95_us, _ms),
        Column(beside, lambda row: row[2], _ms),
    ]


def _runs(profile: Profile) -> Table[Measured]:
    workflows, found = list(build_workflows(profile.scenario.document).values()), profile.measurements
    tasks = {(workflow.name, task.name): task for workflow in workflows for task in workflow.tasks}
    classes = {task.batch.name: task.batch for of in workflows for task in of.tasks if task.batch is not None}
    rows: list[Measured] = [
        (f"{workflow}/{task}", spread, _given(tasks[workflow, task])) for (workflow, task), spread in found.runs.items()
    ]
    rows += [
        (f"{workflow}/{task} on {gpus}", spread, _given(tasks[workflow, task], gpus))
        for (workflow, task, gpus), spread in found.together.items()
    ]
    for name, sizes in found.batches.items():
        for size, spread in sizes.items():
            fastest = min(filter(None, (classes[name].runtime_on(kind, size) for kind in classes[name].runtime_us)))
            rows.append((f"{size} of {name}", spread, fastest))
    rows += [row for name in found.streams for row in _served(profile, name)]
    return Table("", [Column("task", lambda row: row[0], words=True), *_times("run", "given")], rows)


def _given(task: Task, gpus: int = 1) -> int:
    """Return the run time of a task on so many GPUs, or on the only number that it runs on, on the quickest kind."""
    modes = [mode for mode in task.modes if mode.gpus == gpus]
    return min(modes[0].runtime_us.values()) if modes else task.fastest_us


def _served(profile: Profile, stream: str) -> Iterator[Measured]:
    """Yield a class's typical prompt, and its steps by concurrency, beside what the quickest kind was given."""
    times, instance = profile.measurements.streams[stream], profile.scenario.instance
    if instance.streams is None:
        return
    listed = next(of for of in instance.streams.classes if of.name == stream)
    speeds = [speed for speed in (listed.speed_on(gpu.kind) for gpu in instance.cluster.gpus) if speed is not None]
    prompt = times.asked.prompt
    yield f"{stream}: prompt of {prompt}", times.prompt, min(speed.prefill_us(prompt) for speed in speeds)
    for k, spread in times.steps.items():
        yield (
            f"{stream}: step of {k}",
            spread,
            min((speed.tau[k] for speed in speeds if k <= speed.seats), default=None),
        )


def _loads(profile: Profile) -> Table[Measured]:
    found = profile.measurements
    rows: list[Measured] = [
        (model, spread, None if found.load is None else found.load.time_us(found.weight_bytes[model]))
        for model, spread in found.loads.items()
    ]
    named: list[Column[Measured]] = [
        Column("model", lambda row: row[0], words=True),
        Column("MB", lambda row: found.weight_bytes[row[0]] / 1e6, ".1f"),
    ]
    return Table("", [*named, *_times("load", "fit")], rows)


def _ms(us: float) -> str:
    return f"{us / 1000:.3f}"


def _copy(what: str, line: FittedLine | None) -> str:
    return "" if line is None else f"{what}: {line.overhead_us:.1f} us + bytes / ({say_bandwidth(line.bandwidth)})"
