"""How what devices did compares with what the samples of a profile foretell, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def say_forecast(found: Mapping[str, Any]) -> str:
    """Return a comparison, as `planner.answers.forecast.Forecast.compare` makes it, in words."""
    low, high = found["mean_latency_s_low"], found["mean_latency_s_high"]
    said = f"mean latency {found['mean_latency_s']:.4g} s, 90 % from {low:.4g} to {high:.4g}"
    if found["error"] is None:
        return said
    chance = "" if found["own_job_error"] is None else f", by chance alone {found['own_job_error']:.1%}"
    return (
        f"{said}; measured {found['error']:+.1%}; a job is off by {found['job_error']:.1%}{chance}; "
        f"{found['inside']:.0%} of latencies in their job's 90 %"
    )
