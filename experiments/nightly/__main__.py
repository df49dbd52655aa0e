"""``python -m experiments.nightly``: random scenarios against the oracle; what was compared, and what is wrong."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

from experiments.bench import ask
from experiments.nightly.against import (
    Compared,
    compare_bounds,
    compare_milp,
    compare_plans,
    compare_schedule,
    compare_servers,
)
from experiments.nightly.draws import UNITS_US, Draw, draw
from truenorth.models.errors import UserError

Comparison = Callable[[Draw], Iterator[Compared]]


def nightly(
    count: Annotated[int, "draws"] = 10_000,
    seconds: Annotated[float, "begin no draw after so long"] = float("inf"),
    seed: Annotated[int, "of the first draw; the others follow"] = 0,
    limit: Annotated[float, "seconds for each plan and each bound"] = 2.0,
    altered: Annotated[int, "altered certificates per certificate"] = 20,
    only: Annotated[str | None, "one of the comparisons", ("plans", "milp", "bounds", "servers", "by")] = None,
    output: Annotated[Path, "folder for scenarios"] = Path("contradictions"),
) -> None:
    """Compare so many draws, print a table, and exit with 1 if anything contradicts the oracle."""
    table, begun = Table(output), time.monotonic()
    for drawn in range(seed, seed + count):
        if time.monotonic() - begun > seconds:
            break
        table.draws += 1
        for name, resizable, every, compare in _comparisons(limit, altered):
            if only in (None, name) and drawn % every == 0:
                table.add(drawn, draw(drawn, resizable), compare)
    print(table.text(time.monotonic() - begun))
    raise SystemExit(1 if table.contradictions else 0)


def _comparisons(limit_s: float, alterations: int) -> list[tuple[str, bool, int, Comparison]]:
    """Return the comparisons: name, whether of scenarios of any size, every how many draws."""
    return [
        ("plans", False, 1, partial(compare_plans, limit_s=limit_s)),
        ("milp", False, 20, partial(compare_milp, limit_s=limit_s)),
        ("bounds", False, 1, partial(compare_bounds, limit_s=limit_s, alterations=alterations)),
        ("servers", True, 5, partial(compare_servers, limit_s=3 * limit_s)),
        ("by", True, 10, partial(compare_schedule, limit_s=6 * limit_s)),
    ]


class Table:
    """What was compared so far; contradictions are printed, and written as scenarios, at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.draws, self.contradictions = folder, 0, 0
        self._compared, self._open, self._wrong = Counter[str](), Counter[str](), Counter[str]()
        self._units = Counter[int]()

    def add(self, seed: int, drawn: Draw, compare: Comparison) -> None:
        """Compare one draw; whatever is raised contradicts the oracle as well."""
        self._units[drawn.unit_us] += 1
        try:
            for compared in compare(drawn):
                self._compared[compared.what] += 1
                self._open[compared.what] += compared.is_open
                if compared.contradiction is not None:
                    self._report(seed, drawn, compared.what, compared.contradiction)
        except UserError:
            self._compared["refused in words"] += 1
        except Exception:  # a traceback is one of the things that a night is to find
            self._report(seed, drawn, "traceback", traceback.format_exc())

    def _report(self, seed: int, drawn: Draw, what: str, contradiction: str) -> None:
        self.contradictions += 1
        self._wrong[what] += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{seed}_{what.replace(' ', '_').strip('-')}.json"
        path.write_text(json.dumps(drawn.data, indent=1), encoding="utf-8")
        print(f"{path}: {what} {contradiction}", flush=True)

    def text(self, seconds: float) -> str:
        """Return the table."""
        rows = [f"{'compared with the oracle':34}{'answers':>9}{'open':>7}{'wrong':>7}"]
        rows += [
            f"{what:34}{self._compared[what]:9}{self._open[what]:7}{self._wrong[what]:7}"
            for what in sorted({*self._compared, *self._wrong})
        ]
        units = ", ".join(f"{unit} us: {self._units[unit]}" for unit in sorted(set(UNITS_US)))
        return "\n".join([*rows, f"{self.draws} draws in {seconds:.0f} s; scenarios by unit of time: {units}"])


if __name__ == "__main__":
    ask(nightly)
