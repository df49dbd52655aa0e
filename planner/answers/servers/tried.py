"""What was found out about schedules, line by line in a file: who is stopped goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from truenorth.models import ServiceLevels, scenario_hash
from truenorth.models.scenario import Scenario, write_atomically
from truenorth.planner.answers.servers.day import Schedule

NAME = "tried.jsonl"


class Tried:
    """Whether policies, and plans, met the levels on schedules.

    Parameters
    ----------
    folder
        Where the file is; None: nothing is kept.
    asked
        Of what: what was found out for another question does not count.
    """

    def __init__(self, folder: Path | None, asked: dict[str, Any]) -> None:
        self._path = None if folder is None else folder / NAME
        self._met: dict[tuple[str, Schedule], bool] = {}
        if self._path is None:
            return
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        entries = [entry for entry in map(_read, lines) if entry is not None]
        kept = entries if entries and entries[0] == asked else [asked]
        for entry in kept[1:]:
            self._met[entry["who"], tuple(map(tuple, entry["schedule"]))] = entry["met"]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, "".join(json.dumps(entry) + "\n" for entry in kept))  # without a torn last line

    def known(self, who: str, schedule: Schedule) -> bool | None:
        """Return what was found out; None if nothing was."""
        return self._met.get((who, schedule))

    def note(self, who: str, schedule: Schedule, met: bool) -> bool:
        """Keep what was found out, and return it."""
        self._met[who, schedule] = met
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"who": who, "schedule": schedule, "met": met}) + "\n")
        return met


def question(scenario: Scenario, levels: ServiceLevels, by_us: int, seed: int, noise: str | None) -> dict[str, Any]:
    """Return what tells one question about schedules from another."""
    slo = " and ".join(str(level) for level in levels)
    start_ups = [group.start_up for group in scenario.document.cluster.server_groups]
    told = {"scenario_hash": scenario_hash(scenario.instance), "slo": slo, "start_up_us": str(start_ups)}
    return {**told, "by_us": by_us, "seed": seed, "noise": noise}


def _read(line: str) -> dict[str, Any] | None:
    """Return an entry; None for a line whose writer was stopped."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
