"""From a schedule that is enough down to a cheap one, server by server; what was tried is kept in a file, by line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from truenorth.models import ServiceLevels, scenario_hash
from truenorth.models.scenario import Scenario, write_atomically
from truenorth.planner.answers.servers.day import Day, Schedule


class Descent:
    """Takes servers off a schedule as long as what is left is enough.

    Parameters
    ----------
    floors
        Fewest GPUs per interval.
    met
        Says whether a schedule is enough.
    goes_on
        Says whether there is time.
    """

    def __init__(
        self,
        day: Day,
        floors: Sequence[int],
        met: Callable[[Schedule], bool],
        goes_on: Callable[[], bool],
    ) -> None:
        self._day, self._floors, self._met, self._goes_on = day, floors, met, goes_on
        self.tried = 0

    def run(self, start: Schedule) -> Schedule:
        """Return the cheapest schedule on the way down from one that is enough."""
        if self._day.count == 1:  # a fleet that stays
            return start
        found, quietest = start, sorted(range(self._day.count), key=lambda k: (self._day.jobs[k], k))
        # The quiet intervals first: there most can go before the level is in danger.
        for interval in quietest:
            for group in self._dearest():
                found = self._halve(found, interval, group)
        while True:  # what was too little at first may do now: policies are not monotone
            before = found
            for interval, group in ((k, g) for k in quietest for g in self._dearest()):
                fewer = self._with(found, interval, group, found[interval][group] - 1)
                if self._is_enough(fewer, interval):
                    found = fewer
            if found == before:
                return found

    def _dearest(self) -> Iterator[int]:
        prices = self._day.sizes.prices or (Fraction(1),)
        return iter(sorted(range(len(prices)), key=lambda group: -prices[group]))

    def _halve(self, found: Schedule, interval: int, group: int) -> Schedule:
        """Return the schedule with as few servers of a group in an interval as a search by halves comes to."""
        low, high = 0, found[interval][group]
        while low < high and self._goes_on():
            middle = (low + high) // 2
            fewer = self._with(found, interval, group, middle)
            if self._is_enough(fewer, interval):
                found, high = fewer, middle
            else:
                low = middle + 1
        return found

    def _is_enough(self, candidate: Schedule, interval: int) -> bool:
        per_server, mix = self._day.sizes.gpus_per_server, candidate[interval]
        gpus = sum(count * each for count, each in zip(mix, per_server, strict=True))
        if min(mix) < 0 or gpus < self._floors[interval] or not self._goes_on():
            return False
        self.tried += 1
        return self._met(candidate)

    def _with(self, found: Schedule, interval: int, group: int, count: int) -> Schedule:
        mix = (*found[interval][:group], count, *found[interval][group + 1 :])
        return (*found[:interval], mix, *found[interval + 1 :])


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
