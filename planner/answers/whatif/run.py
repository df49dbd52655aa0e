"""Run a sweep: every cell once, on worker processes or on Ray; what is finished is kept, and tidy tables at the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from models.identity import scenario_hash
from models.scenario import Scenario
from models.scenario.errors import Source
from models.scenario.section import validate
from planner.answers.pool.calls import as_finished
from planner.answers.whatif.cell import CellAnswer, CellCall, answer
from planner.answers.whatif.document import Base, SweepDocument, base_of, base_of_file, base_of_loaded, read_sweep
from planner.answers.whatif.grid import read_grid
from planner.answers.whatif.result import Counts, Sweep, sweep_of, write_tables
from planner.answers.whatif.store import Store, StoredCell

Watch = Callable[[Counts], None]


def sweep(
    file: str | Path,
    folder: str | Path | None = None,
    *,
    workers: int = 2,
    ray: str | None = None,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
) -> Sweep:
    """Run the sweep of a file, or go on with it.

    Parameters
    ----------
    file
        A sweep file; see docs/sweep.md.
    folder
        Where finished cells and tables are kept; cells found there are not run again. None: nothing is kept.
    workers
        Worker processes on this machine.
    ray
        Address of a Ray cluster to use in their place.
    watch
        Called at the start and whenever a cell ends.
    stop
        Set it to end early; running cells are given up, finished ones are kept.

    Raises
    ------
    InputError
        With file and line of what is wrong.
    QuestionError
        If another sweep is at work in the folder, or there is no such Ray cluster.
    """
    document, base, source = read_sweep(Path(file))
    name = document.name or Path(file).stem
    return _run(name, document, base, source, folder, _Execution(workers, ray, watch, stop, str(file)))


def whatif(
    scenario: Scenario | str | Path | Mapping[str, object],
    grid: Mapping[str, object],
    *,
    verb: str = "simulate",
    folder: str | Path | None = None,
    workers: int = 2,
    ray: str | None = None,
    watch: Watch | None = None,
    stop: threading.Event | None = None,
    **settings: object,
) -> Sweep:
    """Answer every cell of a grid over a scenario; `sweep` without a sweep file.

    Parameters
    ----------
    scenario
        A scenario file, a scenario that was read from one, or a mapping with the keys of one.
    grid
        Values by dotted path or by setting of the verb, as in a sweep file.
    settings
        What the verb is told in every cell, as in a sweep file: ``policy="compass"``, ``time_limit="10 s"``.

    Raises
    ------
    InputError
        With the field that is wrong.
    """
    source = Source("what-if", Path())
    data = {"scenario": "-", "verb": verb, "settings": settings, "grid": grid}
    document = validate(SweepDocument, data, source)
    if isinstance(scenario, Scenario):
        base = base_of_loaded(scenario)
    elif isinstance(scenario, Mapping):
        base = base_of(scenario, Source("scenario", Path()))
    else:
        base = base_of_file(Path(scenario))
    return _run(base.scenario.name, document, base, source, folder, _Execution(workers, ray, watch, stop))


@dataclass(frozen=True, slots=True)
class _Execution:
    """How the cells are run, and the sweep file that asks for it."""

    workers: int
    ray: str | None
    watch: Watch | None
    stop: threading.Event | None
    file: str | None = None


def _run(
    name: str, document: SweepDocument, base: Base, source: Source, folder: str | Path | None, way: _Execution
) -> Sweep:
    """Run the cells that are not known yet."""
    grid = read_grid(document, base, source)
    keys = [cell.call.key() for cell in grid.cells]
    store = None if folder is None else Store(Path(folder))
    with ExitStack() as held:
        changed = False
        if store is not None:
            held.enter_context(store.locked())
            changed = store.begin(name, document.verb, way.file, keys, scenario_hash(base.scenario.instance))
        calls = {key: cell.call for key, cell in zip(keys, grid.cells, strict=True)}
        known = {key: found for key in calls if store is not None and (found := store.read(key)) is not None}
        tally = Counts(len(keys), 0, 0, 0)
        multiplicity = Counter(keys)
        for key, found in known.items():
            tally = tally.after(multiplicity[key], found.answer.error is not None, known=True)
        if way.watch is not None:
            way.watch(tally)
        for key, found in _finished({key: call for key, call in calls.items() if key not in known}, store, way):
            known[key] = found
            tally = tally.after(multiplicity[key], found.answer.error is not None)
            if way.watch is not None:
                way.watch(tally)
        made = sweep_of(name, document.verb, grid, [known.get(key) for key in keys], tally, changed, store)
        if store is not None and made.complete:
            write_tables(made, store)
    return made


def _finished(calls: Mapping[str, CellCall], store: Store | None, way: _Execution) -> Iterator[tuple[str, StoredCell]]:
    """Yield every cell that ends, once it is kept; a crash is not kept, so that the next run tries the cell again."""
    keys = list(calls)
    for outcome in as_finished(answer, list(calls.values()), workers=way.workers, ray=way.ray, stop=way.stop):
        key = keys[outcome.index]
        known = StoredCell(outcome.value or CellAnswer((), outcome.failure), outcome.seconds)
        if store is not None and outcome.value is not None:
            store.keep(key, known)
        yield key, known
