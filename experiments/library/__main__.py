"""``python -m experiments library [COMMAND]``: instances with best known plans and bounds.

Without a word everything is checked again, and library.md and its picture are written.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import truenorth as tn
from experiments.bench import Study, draw, read
from experiments.library import page
from experiments.library.improving import Attempt, work_on
from experiments.library.store import FOLDER, Found, Library, NotEnteredError, known_of, read_claim
from truenorth.executor import PolicyError
from truenorth.models.instance import InstanceError
from truenorth.models.scenario import InputError, write_atomically
from truenorth.planner.answers.compare import BATCHING_POLICIES, DEFAULT_POLICIES
from truenorth.planner.answers.pool import as_finished, in_order
from truenorth.planner.command import manners
from truenorth.planner.command.options import Ray, Workers

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Another library.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[INSTANCE]...", help="All if none is named.")]
POLICIES, ATTEMPTS = "policies.csv", "attempts.json"
_SLOW, _FEW_TASKS = ("ahead", "receding"), 400
"""Policies that plan anew at every event, and up to how many tasks they are asked."""


@app.callback(invoke_without_command=True)
def table(context: typer.Context, folder: Folder = FOLDER, workers: Workers = 2) -> int:
    """Check everything again and write library.md with its picture."""
    if context.invoked_subcommand is not None:
        return manners.DONE
    library = Library(folder)
    known = in_order(known_of, [(folder, name) for name in library.entries], workers=workers)
    results = read(folder / POLICIES, page.PolicyResult) if (folder / POLICIES).exists() else []
    text = page.page(known, results)
    write_atomically(folder / "library.md", text)
    draw(page.figure(known, results), folder / page.PICTURE)
    print(text)
    return manners.DONE


@app.command()
def improve(
    names: Names = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long to work.")] = 600,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds for a plan, and again for a bound.")] = 20,
    workers: Annotated[int, typer.Option(min=1, help="Instances at a time, a thread each.")] = 1,
    ray: Ray = None,
    folder: Folder = FOLDER,
) -> int:
    """Work on what is open, that first which was worked on least; killed at any time, it goes on where it was."""
    library, stop = Library(folder), threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    while asked := _open(library, names or list(library.entries), time_limit):
        for outcome in as_finished(work_on, asked, workers=workers, ray=ray, stop=stop):
            attempt = asked[outcome.index]
            print(outcome.value or f"{attempt.name}: {outcome.failure}", flush=True)
            tried = {**_tried(folder), attempt.name: attempt.tried}
            write_atomically(folder / ATTEMPTS, json.dumps(tried, indent=0) + "\n")
        if stop.is_set():
            break
    timer.cancel()
    return manners.DONE


def _tried(folder: Path) -> dict[str, dict[str, float]]:
    """Return what was tried of each instance, as `Attempt.tried` says it."""
    path = folder / ATTEMPTS
    known: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
    return known


def _open(library: Library, names: list[str], time_limit_s: float) -> list[Attempt]:
    """Return what can be done for open instances, those first that were worked on least, the small among them first."""
    tried = _tried(library.folder)
    open_ones = (name for name in names if not library.is_closed(name))
    attempts = [Attempt.of(library, name, tried.get(name, {}), time_limit_s) for name in open_ones]
    return sorted(
        (each for each in attempts if each.plans or each.bounds),
        key=lambda each: (each.runs, library.entries[each.name].tasks),
    )


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan or a certificate of any instance.")],
    by: Annotated[str, typer.Option(help="Who found it, and with what.")] = "submitted",
    folder: Folder = FOLDER,
) -> int:
    """Check a plan or certificate and enter it if it is better than what is known."""
    library = Library(folder)
    claim = read_claim(file)
    names = {entry.scenario_hash: name for name, entry in library.entries.items()}
    name = names.get(str(claim.get("scenario_hash")))
    if name is None:
        raise InputError(str(file), 1, "scenario_hash", "is of no instance here; allowed are those of instances.json")
    found = Found(by, date=datetime.now(UTC).date().isoformat())
    try:
        if "tasks" in claim:
            library.submit_plan(name, file, found)
        else:
            library.enter_certificate(name, claim, found)
    except NotEnteredError as refused:
        manners.say(f"not entered: {refused}")
        return manners.NOT_ACHIEVED
    print(f"entered for {name}")
    return manners.DONE


@app.command()
def tamper(
    count: Annotated[int, typer.Option(min=1, help="How many changed files.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed repeats the changes.")] = 0,
    folder: Folder = FOLDER,
) -> int:
    """Change plans and certificates at random, and see that both verifiers agree on each."""
    from experiments.library.tampering import summary
    from experiments.library.tampering import tamper as tampered

    lines, agreed = summary(tampered(Library(folder), count, seed))
    print("\n".join(lines))
    return manners.DONE if agreed else manners.NOT_ACHIEVED


@app.command()
def policies(names: Names = None, folder: Folder = FOLDER) -> int:
    """Fill policies.csv: what online policies make of the instances."""
    library = Library(folder)
    cells = [
        (name, policy)
        for name in names or library.entries
        for policy in (*DEFAULT_POLICIES, *BATCHING_POLICIES)
        if library.entries[name].tasks <= _FEW_TASKS or policy not in _SLOW
    ]
    Study(page.PolicyResult, 2, partial(_serve, library), results=POLICIES).fill(cells, folder)
    return manners.DONE


def _serve(library: Library, name: str, policy: str) -> Iterator[page.PolicyResult]:
    """Yield what a policy makes of an instance."""
    try:
        value: float | None = tn.simulate(library.scenario(name), policy).value
    except (InstanceError, PolicyError):
        value = None
    yield page.PolicyResult(name, policy, value)


@app.command(name="draw")
def draw_instances(folder: Folder = FOLDER) -> int:
    """Write the instances that are not there yet; the others stay as they are."""
    from experiments.library.drawing import draw_into, drawn

    for name in draw_into(Library(folder), drawn()):
        print(f"wrote {name}")
    return manners.DONE


main = partial(manners.run, app)

if __name__ == "__main__":
    sys.exit(main())
