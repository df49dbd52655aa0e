"""Plans and certificates with a change somewhere, to see that two verifiers that share no line still agree.

What recomputation contradicts both must refuse. What it does not contradict (a run moved within its slack, a price that
does not matter) both must accept, at the same value or bound.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.library import verifier
from experiments.library.store import (
    CERTIFICATE,
    PLAN,
    Data,
    Library,
    NotEnteredError,
    check_certificate,
    check_plan,
    path_of,
)
from truenorth.models.objective import reported_bound, reported_value
from truenorth.models.scenario import InputError, Scenario
from truenorth.models.scenario.files import read_text

COUNTED = {
    PLAN: ("schema_version", "scenario_hash", "objective", "tasks", "residencies"),
    CERTIFICATE: ("schema_version", "scenario_hash", "objective", "method", "lower_bound", "parameters", "prices"),
}
"""What counts in a file; all else says how it was made."""
_Change = Callable[[Any, Any, random.Random], None]


@dataclass(frozen=True)
class Tampered:
    """A changed file and what two verifiers say of it: a number in reported units if they accept it."""

    name: str
    sort: str
    change: str
    document: Data
    project: float | None
    stranger: float | None
    beyond_stranger: bool
    reasons: tuple[str, str]

    @property
    def agreed(self) -> bool:
        """Whether both refuse, or both accept at the same number; where orders are searched it may prove less."""
        searched = self.document.get("method") == "refutation" or "start_orders" in json.dumps(self.document)
        if self.project is not None and self.stranger is not None and searched:
            return self.stranger <= self.project
        return self.beyond_stranger or self.project == self.stranger

    @property
    def outcome(self) -> str:
        """What became of it, in words."""
        if not self.agreed:
            return "disagreed"
        return "beyond the stranger" if self.beyond_stranger else "refused" if self.project is None else "accepted"


def tamper(library: Library, count: int, seed: int = 0) -> Iterator[Tampered]:
    """Yield so many changed files, plans and certificates of all instances in turn."""
    draw = random.Random(seed)  # noqa: S311
    originals = [
        (name, sort, path)
        for name, entry in library.entries.items()
        for sort in (PLAN, CERTIFICATE)
        if (path := path_of(library.folder, sort, entry)).exists()
    ]
    windows: dict[str, tuple[Scenario, verifier.Window]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tampered.json"
        for number in range(count if originals else 0):
            name, sort, path = originals[number % len(originals)]
            if name not in windows:
                window = verifier.Window(verifier.read(str(library.instance_path(name))))
                windows[name] = library.scenario(name), window
            original = json.loads(read_text(path))
            document, change = original, ""
            while json.dumps(document) == json.dumps(original):  # 1 and true are equal to Python
                document, change = changed(original, COUNTED[sort], draw)
            file.write_text(json.dumps(document))
            yield Tampered(name, sort, change, document, **asked(*windows[name], sort, file))


def asked(scenario: Scenario, window: verifier.Window, sort: str, file: Path) -> Data:
    """Return what both verifiers say of a file."""
    reason, project = "", None
    try:
        if sort == PLAN:
            project = reported_value(scenario.objective, check_plan(scenario, file)[0])
        else:
            project = reported_bound(scenario.objective, check_certificate(scenario, file)[0])
    except (NotEnteredError, InputError) as error:
        reason = str(error)
    verdict = verifier.judge(window, str(file))
    stranger = verdict["value" if sort == PLAN else "lower_bound"] if verdict["holds"] else None
    reasons = reason, str(verdict["reason"])
    return {"project": project, "stranger": stranger, "beyond_stranger": verdict["holds"] is None, "reasons": reasons}


def changed(document: Data, keys: tuple[str, ...], draw: random.Random) -> tuple[Data, str]:
    """Return a copy that differs in one place, chosen fairly by level so that headers are hit as often as prices."""
    made = deepcopy(document)
    holder: Any = made
    key: Any = draw.choice([key for key in keys if key in made])
    path = [key]
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.95:
        holder = holder[key]
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        path.append(key)
    change = draw.choice(_CHANGES)
    change(holder, key, draw)
    return made, f"{change.__name__.strip('_')} {'.'.join(map(str, path))}"


def _nudge(holder: Any, key: Any, draw: random.Random) -> None:
    value = holder[key]
    if isinstance(value, int | float):
        holder[key] = value + draw.choice([-1000, -7, -1, 1, 7, 1000])


def _scale(holder: Any, key: Any, draw: random.Random) -> None:
    value = holder[key]
    if isinstance(value, int):
        holder[key] = draw.choice([-value, 0, value // 2, 2 * value, value << 70])
    elif isinstance(value, float):
        holder[key] = value * draw.choice([-1, 0.5, 1 - 1e-12, 1 + 1e-12, 1 + 1e-6, 2])


def _retype(holder: Any, key: Any, draw: random.Random) -> None:
    value = holder[key]
    numbers = [float(value), str(value)] if isinstance(value, int) and abs(value) < 1 << 60 else []
    holder[key] = draw.choice([None, True, False, 0, "", [], {}, [value], *numbers])


def _leave_out(holder: Any, key: Any, draw: random.Random) -> None:
    del holder[key]


def _double(holder: Any, key: Any, draw: random.Random) -> None:
    if isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), deepcopy(holder[key]))


def _swap(holder: Any, key: Any, draw: random.Random) -> None:
    other = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


def _shift(holder: Any, key: Any, draw: random.Random) -> None:
    """Move a run or a residency as a whole, or a list of numbers."""
    value, by = holder[key], draw.choice([-10_000, -1, 1, 10_000])
    if isinstance(value, dict):
        value.update({name: at + by for name, at in value.items() if name.endswith("_us") and isinstance(at, int)})
    elif isinstance(value, list):
        holder[key] = [at + by if type(at) is int else at for at in value]


_CHANGES: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    _nudge, _scale, _retype, _leave_out, _double, _swap, _shift
)  # fmt: skip


def summary(outcomes: Iterator[Tampered]) -> tuple[list[str], bool]:
    """Return lines on what became of changed files, and whether the verifiers always agreed."""
    tally, lines = Counter[tuple[str, str]](), []
    for each in outcomes:
        tally[each.sort, each.outcome] += 1
        if not each.agreed:
            lines.append(f"{each.name}, {each.sort}, {each.change}: {each.project} and {each.stranger}, {each.reasons}")
    found = [f"{sort}: {number} {outcome}" for (sort, outcome), number in sorted(tally.items())]
    return lines + found, not lines
