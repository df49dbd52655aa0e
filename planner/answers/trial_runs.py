"""A run of a trial as its file has it: the object of ``replay --json``, and what the run is read back from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from truenorth.executor.devices.machine import Observed, measured_on
from truenorth.executor.devices.nodes import Nodes
from truenorth.executor.devices.records import Clock, Digest, Records
from truenorth.executor.devices.run import LiveRun
from truenorth.models.record import decode, encode
from truenorth.models.timeline import Residency, ServedRequests, Timeline
from truenorth.planner.answers.kept import digest_of_file
from truenorth.planner.answers.replayed import Replayed
from truenorth.planner.answers.simulate import is_file
from truenorth.planner.questions.devices import TrialQuestion

PLAN = "plan"
"""Names the contender that is planned here."""

Outputs = Mapping[int, str]
"""By task: a hash of what it put out in the first run in which it ran."""


def what_is_measured(asked: TrialQuestion, nodes: Nodes | None) -> dict[str, Any]:
    """Return what decides what a run measures, besides the scenario; how many there are and which count may change."""
    return {
        "policies": list(asked.policies),
        "plans": {name: digest_of_file(Path(name)) for name in asked.policies if name != PLAN and is_file(name)},
        "device": asked.device,
        **measured_on(asked.device, nodes),
        "virtual": asked.virtual,
        "limit_s": asked.limit_s,
        "runner": asked.runner or "",
        "seed": asked.seed,
        "time_limit_s": asked.time_limit_s if PLAN in asked.policies else None,
    }


@dataclass(frozen=True, slots=True)
class _KeptRun:
    """What a run is read back from."""

    timeline: dict[str, Any]
    records: Records
    unpacked: tuple[int, ...]
    copy_peak: float
    machine: Observed
    devices: tuple[str, ...]
    not_finite: list[int]
    not_numbers: list[int]
    different: list[int] | None
    outputs: dict[int, str]
    clocks: tuple[Clock, ...] = ()
    held_bytes: dict[int, int] = field(default_factory=dict)


def run_document(run: Replayed, outputs: Outputs) -> dict[str, Any]:
    """Return what is kept of a run; `outputs` are those of tasks that had put out nothing before it."""
    live = run.live
    kept = _KeptRun(
        _timeline_data(live.timeline),
        live.records,
        live.unpacked,
        live.copy_peak,
        live.machine,
        live.devices,
        live.not_finite,
        live.not_numbers,
        None if run.different is None else list(run.different),
        dict(outputs),
        tuple(live.clocks),
        dict(live.held_bytes),
    )
    return {**encode(run.record), "kept": encode(kept)}


def read_run(document: Mapping[str, Any], run_of: Callable[..., Replayed]) -> tuple[Replayed, Outputs]:
    """Return a run, and the outputs that `run_document` was told of.

    Parameters
    ----------
    run_of
        Makes the run of what was measured.

    Raises
    ------
    pydantic.ValidationError, KeyError
        If the document is none.
    """
    kept = decode(_KeptRun, document["kept"])
    digests = {task: Digest("", False, task not in kept.not_numbers) for task in kept.not_finite}
    live = LiveRun(
        _timeline(kept.timeline),
        kept.records,
        kept.unpacked,
        kept.copy_peak,
        kept.machine,
        kept.devices,
        digests,
        {},
        kept.clocks,
        kept.held_bytes,
    )
    return run_of(live, None, kept.different), kept.outputs


_OF_REQUESTS = ("first_us", "not_before_us", "output")


def _timeline_data(timeline: Timeline) -> dict[str, Any]:
    served = timeline.served
    return {
        "arrays": {
            "gpu": timeline.place.tolist(),
            "start_us": timeline.start_us.tolist(),
            "end_us": timeline.end_us.tolist(),
        },
        "residencies": [asdict(residency) for residency in timeline.residencies],
        "served": None if served is None else {name: getattr(served, name).tolist() for name in _OF_REQUESTS},
        "limits": {} if served is None else dict(served.limits),
    }


def _timeline(data: Mapping[str, Any]) -> Timeline:
    served = None
    if data["served"] is not None:
        limits = {int(gpu): int(limit) for gpu, limit in data["limits"].items()}
        served = ServedRequests(**_arrays(data["served"]), limits=limits)
    residencies = tuple(decode(list[Residency], data["residencies"]))
    place, start_us, end_us = (np.array(data["arrays"][name], np.int64) for name in ("gpu", "start_us", "end_us"))
    return Timeline(place, start_us, end_us, residencies, True, served)


def _arrays(data: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    return {name: np.array(numbers, np.int64) for name, numbers in data.items()}
