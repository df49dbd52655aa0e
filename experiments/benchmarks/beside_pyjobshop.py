"""Makespan of flexible job shops beside PyJobShop (CP-SAT): the same files, threads and seconds, in turns in one run.

PyJobShop gets an environment of its own, of an exact version, so that neither package tells the other what to install.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from experiments.bench import Study
from experiments.suites import shops
from experiments.suites.case import KNOWN_OPTIMA, found
from truenorth.models import NEVER, Instance, Objective
from truenorth.planner.answers.plan import solve
from truenorth.solvers.budget import Budget
from truenorth.solvers.warm_up import warm_up

PYJOBSHOP, ORTOOLS = "pyjobshop==0.0.9", "ortools==9.15.6755"
WORKERS, KEPT = 2, Path("build/pyjobshop")
_HURINK = {
    "edata": "la01 la05 la06 la10 la11 la15 la16 la20 la21 la22 la26 la30 la31 la35 la36 la40 abz7",
    "rdata": "la02 la04 la07 la09 la12 la14 la17 la19 la21 la24 la28 la30 la32 la34 la37 la39 abz8",
    "vdata": "la03 la05 la08 la10 la13 la18 la20 la21 la23 la27 la29 la33 la35 la38 la40 abz7",
}
"""Of each family two of every five la, give or take one, and an abz."""
CHOSEN = [f"mk{number:02d}" for number in range(1, 11)]
CHOSEN += [f"{family}/{name}" for family, names in _HURINK.items() for name in names.split()]
"""The sixty instances that are planned unless others are named."""


@dataclass(frozen=True, slots=True)
class BesideRow:
    """An instance planned by both: makespans and lower bounds, equal where it is proved."""

    name: str
    seconds: float
    value: int
    bound: int
    pyjobshop_value: int | None
    pyjobshop_bound: int

    @property
    def text(self) -> str:
        """The row of a Markdown table."""
        ours, theirs = ("proved" if value == bound else str(bound) for value, bound in self.pairs)
        return f"| {self.name} | {self.value} | {ours} | {self.pyjobshop_value} | {theirs} |"

    @property
    def pairs(self) -> tuple[tuple[int, int], tuple[float, int]]:
        """Value and bound of either; no plan counts as infinite."""
        theirs = math.inf if self.pyjobshop_value is None else self.pyjobshop_value
        return (self.value, self.bound), (theirs, self.pyjobshop_bound)


def compare(
    seconds: Annotated[float, "per plan"] = 60.0,
    data: Annotated[Path, "folder that holds fjsp: brandimarte, and hurink if it is there"] = KNOWN_OPTIMA,
    instances: Annotated[tuple[str, ...], "such as mk01 or edata/la16; default sixty"] = (),
    output: Annotated[Path, "PyJobShop's environment and results.csv, whose rows are not planned again"] = KEPT,
) -> None:
    """Makespan of flexible job shops beside PyJobShop's."""
    python = _environment(output / PYJOBSHOP)
    files = _files(data)
    unknown = set(instances) - set(files)
    if unknown:
        raise SystemExit(f"{', '.join(sorted(unknown))}: not in {data / 'fjsp'}; allowed are {', '.join(files)}")
    warm_up(["search"])  # or the first instance pays for compiling
    cells = [(name, seconds) for name in instances or CHOSEN if name in files]
    print("| instance | plan | bound | PyJobShop's plan | bound |", "| --- | --- | --- | --- | --- |", sep="\n")
    study = Study(BesideRow, 2, lambda name, seconds: [_measure(python, files[name], name, seconds)])
    rows = study.fill(cells, output)
    print("\n".join(row.text for row in rows))
    ours, theirs = zip(*(row.pairs for row in rows), strict=True)
    both = list(zip(ours, theirs, strict=True))
    for word, count in (
        ("lower makespan", sum(a[0] < b[0] for a, b in both)),
        ("equal", sum(a[0] == b[0] for a, b in both)),
        ("higher makespan", sum(a[0] > b[0] for a, b in both)),
        ("proved here", sum(value == bound for value, bound in ours)),
        ("proved by PyJobShop", sum(value == bound for value, bound in theirs)),
        ("proved by PyJobShop alone", sum(a[0] > a[1] and b[0] == b[1] for a, b in both)),
    ):
        print(f"{word}: {count} of {len(rows)}")


def _files(folder: Path) -> dict[str, Path]:
    """Return the instances that are there by name."""
    shops = found(folder / "fjsp")
    files = {path.stem: path for path in sorted((shops / "brandimarte").glob("mk*.txt"))}
    return files | {f"{path.parent.name}/{path.stem}": path for path in sorted((shops / "hurink").glob("?data/*.txt"))}


def _environment(folder: Path) -> Path:
    """Return the interpreter of an environment with PyJobShop, made where it is missing."""
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PYJOBSHOP, ORTOOLS], check=True)  # noqa: S603
        (folder / "complete").touch()
    return python


def _measure(python: Path, path: Path, name: str, seconds: float) -> BesideRow:
    """Plan an instance with both, one after the other."""
    instance = shops.read_job_shop(path).instance
    ours = solve(instance, Objective.MAKESPAN, Budget(seconds, workers=WORKERS))
    asked = _job_shop(instance) | {"seconds": seconds, "workers": WORKERS}
    script = Path(__file__).with_name("pyjobshop_side.py")
    said = subprocess.run(  # noqa: S603
        [python, script], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True
    )
    theirs = json.loads(said.stdout)
    if ours.value is None or ours.lower_bound is None:
        raise SystemExit(f"{name}: {ours.status}")
    their_value = round(theirs["value"]) if math.isfinite(theirs["value"]) else None
    row = BesideRow(
        name, seconds, int(ours.value), math.ceil(ours.lower_bound), their_value, math.ceil(theirs["bound"])
    )
    print(row.text, file=sys.stderr, flush=True)
    return row


def _job_shop(instance: Instance) -> dict[str, object]:
    """Return machines, and per job and operation the pairs of a machine and the time on it."""
    jobs = []
    for job in range(len(instance.jobs)):
        tasks = instance.tasks_of(job)
        times = [[(g, instance.run_time(task, g)) for g in range(instance.n_gpus)] for task in tasks]
        jobs.append([[pair for pair in row if pair[1] != NEVER] for row in times])
    return {"machines": instance.n_gpus, "jobs": jobs}
