"""Scenarios whose least number of servers can be found by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truenorth.models import ServiceLevels
from truenorth.models.scenario import Scenario, scenario_from
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.show.servers import sizes_table

NO_LATE_JOBS = ServiceLevels.parse("no late jobs")


def scenario(
    workflows: Mapping[str, Mapping[str, Any]],
    jobs: Sequence[tuple[int, str, int]],
    models: Mapping[str, str] | None = None,
    **changes: Any,
) -> Scenario:
    """Return one server of 10 GB that loads 1 GB/s; jobs are (release ms, workflow, deadline ms)."""
    data: dict[str, Any] = {
        "cluster": {
            "servers": 1,
            "gpu": {"kind": "A", "memory": "10 GB", "load_bandwidth": "1 GB/s"},
            "network": {"bandwidth": "1 GB/s"},
        },
        "models": {name: {"weights": size} for name, size in (models or {}).items()},
        "workflows": {name: {"tasks": {"run": task}} for name, task in workflows.items()},
        "workload": {
            "jobs": [
                {"release": f"{release} ms", "workflow": name, "deadline": f"{deadline} ms"}
                for release, name, deadline in jobs
            ]
        },
    }
    return scenario_from(data | changes)


def rows(answer: ServersAnswer) -> list[tuple[str, ...]]:
    """Return who needs what size, and how that is known, as it is shown."""
    return [tuple(row) for row in sizes_table(answer.record(), "").cells()]
