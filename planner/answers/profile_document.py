"""What a profile says: its figures, with units in their keys, and the scenario file's content that has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from truenorth.executor.devices.profiling import Measurements
from truenorth.executor.samples import FittedLine, Spread
from truenorth.models.cluster import Cluster
from truenorth.models.record import ABSENT
from truenorth.models.scenario import Scenario
from truenorth.models.scenario.errors import Plain
from truenorth.models.units import say_bandwidth


@dataclass(frozen=True, slots=True)
class ModelProfiled:
    """A model, and how long it takes to load, if it was."""

    weight_bytes: int
    load_median_us: float
    load_p95_us: float


@dataclass(frozen=True, slots=True)
class TaskProfiled:
    """A task, how long it runs, and what it then takes beside the weights (in its largest batch).

    Of one that may choose among several numbers of GPUs, on how many.
    """

    workflow: str
    task: str
    run_median_us: float
    run_p95_us: float
    memory_bytes: int | None
    gpus: int = ABSENT


@dataclass(frozen=True, slots=True)
class BatchProfiled:
    """A batch of a size, and how long it runs."""

    batch: str
    size: int
    run_median_us: float
    run_p95_us: float


@dataclass(frozen=True, slots=True)
class StreamProfiled:
    """A stream class: its prefill, KV, and median and 95 % quantile of a step's microseconds by concurrency."""

    stream: str
    prefill_per_s: float
    kv_bytes_per_token: int
    step_us: Mapping[int, tuple[float, float]]
    context_us: float = ABSENT
    mixed_us: float = ABSENT


@dataclass(frozen=True, slots=True)
class TransferLine:
    """The line through the times of transfers."""

    bandwidth_bytes_per_s: int
    overhead_us: float


@dataclass(frozen=True, slots=True)
class LoadLine(TransferLine):
    """The line through the times of loads, and the best bare copy."""

    copy_peak_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class DispatchProfiled:
    """How late something starts."""

    median_us: float
    p95_us: float


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """A profile's figures, and where it was written."""

    device: str
    kind: str
    runner: str
    rounds: int
    beside: int
    models: Mapping[str, ModelProfiled]
    tasks: list[TaskProfiled]
    batches: list[BatchProfiled]
    load: LoadLine | None
    transfer: TransferLine | None
    dispatch: Mapping[str, DispatchProfiled]
    streams: list[StreamProfiled]
    profile: str | None
    samples: str | None


def measured_document(scenario: Scenario, measurements: Measurements, with_memory: bool = False) -> dict[str, Any]:
    """Return a scenario file's content with measured weights, run times, loads and links within a server.

    Run times replace those of every kind of GPU that the cluster has; kinds that it lacks keep theirs. Where a larger
    batch was measured as faster than a smaller one, or a step of more requests than one of fewer, the time of the
    smaller or fewer stands for both. What tasks take beside the weights replaces the `memory` that they are said to
    hold; with `with_memory` those that are said to hold none hold it, too. What was not measured stays as it is, above
    all the network between servers.

    Raises
    ------
    InputError
        If the scenario was not read from a file.
    """
    document: dict[str, Any] = scenario.source.data()
    for name, size in measurements.weight_bytes.items():
        document["models"][name]["weights"] = _size(size)
    kinds = {gpu.kind for gpu in scenario.instance.cluster.gpus}
    holders: dict[int, tuple[dict[str, Any], list[int]]] = {}
    for (workflow, task), spread in measurements.runs.items():
        section = document["workflows"][workflow]["tasks"][task]
        # Tasks of batch classes have their times from the class.
        if "batch" not in section:
            _set_time(_mode_of(section, 1), kinds, spread)
        taken = measurements.memory_bytes.get((workflow, task))
        holder = document["batches"][section["batch"]] if "batch" in section else section
        if taken is not None and ("memory" in holder or with_memory):
            holders.setdefault(id(holder), (holder, []))[1].append(taken)
    for holder, taken_by in holders.values():  # tasks of a class hold the same
        holder["memory"] = _size(max(taken_by))
    _set_times_together(document["workflows"], kinds, measurements)
    for name, sizes in measurements.batches.items():
        section = document["batches"][name]
        section["runtime"] = _tables(section["runtime"], kinds, sizes)
    for name, times in measurements.streams.items():
        section = document["streams"][name]
        section.pop("fitted", None)  # these steps are measured, not those of the log
        section["prefill"] = _of_kinds(section["prefill"], kinds, f"{times.prefill_rate:.6g} /s")
        section["step"] = _tables(section["step"], kinds, times.plain_steps)
        if times.asked.apart:
            section["context"] = _of_kinds(section.get("context"), kinds, f"{times.context_us:.6f} us")
            section["mixed"] = _of_kinds(section.get("mixed"), kinds, f"{round(times.mixed_us)} us")
        section["kv_per_token"] = _of_kinds(section.get("kv_per_token"), kinds, f"{times.kv_bytes} B")
    cluster = document["cluster"]
    if measurements.load is not None:
        # One machine was measured, and stands for all GPUs alike.
        for group in cluster.get("groups", [cluster]):
            group["gpu"] |= {
                "load_bandwidth": _bandwidth(measurements.load),
                "load_overhead": _time(measurements.load.overhead_us),
            }
    if measurements.transfer is not None and "network" in cluster:
        cluster["network"] |= _within_server(scenario.instance.cluster, measurements.transfer)
    return document


def _within_server(cluster: Cluster, line: FittedLine) -> dict[str, Any]:
    """Return what copies inside this machine say of a network: of the links within a server, and of no others.

    They are whole transfers, so they say nothing where the given network charges the copies by way of the hosts on top
    (`staged`), unless all GPUs are on one server: then that is left out.
    """
    # Staged transfers add copies by way of hosts, which what was measured holds already.
    one_server = len({gpu.server for gpu in cluster.gpus}) == 1
    if cluster.network.staged and not one_server:
        return {}
    measured = {"within_server": {"bandwidth": _bandwidth(line), "latency": _time(line.overhead_us)}}
    return measured | ({"staged": Plain("false")} if cluster.network.staged else {})


def _set_times_together(workflows: dict[str, Any], kinds: set[str], measurements: Measurements) -> None:
    """Set the times of tasks that may choose several numbers of GPUs."""
    for (workflow, task, gpus), spread in measurements.together.items():
        _set_time(_mode_of(workflows[workflow]["tasks"][task], gpus), kinds, spread)


def _mode_of(section: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Return the mode of a task on so many GPUs; the task itself if it has none to choose."""
    if "modes" not in section:
        return section
    return next(mode for mode in section["modes"] if int(mode["gpus"]) == gpus)


def _set_time(section: dict[str, Any], kinds: set[str], spread: Spread) -> None:
    section["runtime"] = _of_kinds(section["runtime"], kinds, _time(max(1.0, spread.median_us)))


def _of_kinds(given: object, kinds: set[str], measured: str) -> object:
    """Return what was measured in place of what is given: one value, or that of every kind that the cluster has."""
    if not isinstance(given, Mapping):
        return measured
    return {kind: measured if kind in kinds else value for kind, value in given.items()}


def _tables(given: Mapping[str, Any], kinds: set[str], sizes: Mapping[int, Spread]) -> dict[str, Any]:
    """Return a class's table, or its tables by kind, with measured times for the sizes that each lists."""
    if any(isinstance(table, Mapping) for table in given.values()):
        return {kind: _table(table, sizes) if kind in kinds else table for kind, table in given.items()}
    return _table(given, sizes)


def _table(given: Mapping[str, Any], sizes: Mapping[int, Spread]) -> dict[str, Any]:
    longest, times = 1.0, {}
    for size in sorted(map(int, given)):
        # Chance may make a larger batch look faster, which the format refuses.
        longest = max(longest, sizes[size].median_us)
        times[size] = _time(longest)
    return {Plain(size): times[int(size)] for size in given}


def _time(us: float) -> str:
    """Return a time as scenario files have it.

    >>> _time(1234.6), _time(17.2)
    ('1.235 ms', '17 us')
    """
    # The format counts whole microseconds.
    whole = round(us)
    return f"{Decimal(whole).scaleb(-3)} ms" if whole >= 1000 else f"{whole} us"


def _size(size_bytes: int) -> str:
    """Return a size exactly.

    >>> _size(58_318_848), _size(2_000_000)
    ('58.318848 MB', '2 MB')
    """
    megabytes = Decimal(size_bytes).scaleb(-6).normalize()
    return f"{megabytes:f} MB"


def _bandwidth(line: FittedLine) -> str:
    return say_bandwidth(line.bandwidth)
