"""Run a sweep: every cell once, on worker processes or on Ray; what is finished is kept, and tidy tables at the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import Scenario, load_scenario, scenario_from
from truenorth.models.scenario.changes import plain
from truenorth.models.scenario.errors import Source
from truenorth.models.scenario.section import validate
from truenorth.planner.answers.pool.calls import as_finished
from truenorth.planner.answers.questions import Question
from truenorth.planner.answers.whatif.cell import CellAnswer, CellCall, answer
from truenorth.planner.answers.whatif.document import (
    Base,
    SweepDocument,
    WorkloadValues,
    base_of_loaded,
    read_sweep,
)
from truenorth.planner.answers.whatif.grid import Grid, grid_over, read_grid
from truenorth.planner.answers.whatif.result import Counts, Sweep, sweep_of, write_tables
from truenorth.planner.answers.whatif.store import Store, StoredCell
from truenorth.solvers.budget import Budget, tell_nobody

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
    asked = _Run(name, document.verb, base, read_grid(document, base, source), folder, str(file))
    return _run(asked, _budget(workers, watch, stop), ray)


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
        A scenario, the file of one, or a mapping with the keys of one.
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
    document = validate(SweepDocument, plain(data), source)
    if isinstance(scenario, Mapping):
        scenario = scenario_from(scenario)
    base = base_of_loaded(scenario if isinstance(scenario, Scenario) else load_scenario(scenario))
    asked = _Run(base.scenario.name, verb, base, read_grid(document, base, source), folder)
    return _run(asked, _budget(workers, watch, stop), ray)


def _budget(workers: int, watch: Watch | None, stop: threading.Event | None) -> Budget:
    return Budget(workers=workers, watch=watch or tell_nobody, stop=stop or threading.Event())


def ask_each(
    question: Question[Any],
    scenario: Scenario,
    windows: WorkloadValues,
    folder: str | Path | None = None,
    *,
    ray: str | None = None,
    watch: Watch | None = None,
) -> Sweep:
    """Ask the same question of a scenario in several windows, each of them a cell of a sweep.

    Parameters
    ----------
    question
        Its workers are the processes that answer, each on one core.
    windows
        What differs.
    folder, ray, watch
        As of `whatif`.

    Raises
    ------
    InputError
        If the scenario comes from no file, or the question cannot be asked.
    """
    base, budget = base_of_loaded(scenario), replace(question.budget(), watch=watch or tell_nobody)
    ((path, values),) = windows.axis.items()
    grid = grid_over(base, path, values, question.alone())
    return _run(_Run(scenario.name, question.verb, base, grid, folder), budget, ray)


@dataclass(frozen=True, slots=True)
class _Run:
    """The cells of a sweep, where they are kept, and the sweep file that asks for them."""

    name: str
    verb: str
    base: Base
    grid: Grid
    folder: str | Path | None
    file: str | None = None


def _run(asked: _Run, budget: Budget, ray: str | None) -> Sweep:
    """Run the cells that are not known yet."""
    grid, folder = asked.grid, asked.folder
    keys = [cell.call.key() for cell in grid.cells]
    store = None if folder is None else Store(Path(folder))
    with ExitStack() as held:
        changed = False
        if store is not None:
            held.enter_context(store.locked())
            changed = store.begin(asked.name, asked.verb, asked.file, keys, scenario_hash(asked.base.scenario.instance))
        calls = {key: cell.call for key, cell in zip(keys, grid.cells, strict=True)}
        known = {key: found for key in calls if store is not None and (found := store.read(key)) is not None}
        tally = Counts(len(keys), 0, 0, 0)
        multiplicity = Counter(keys)
        for key, found in known.items():
            tally = tally.after(multiplicity[key], found.answer.error is not None, known=True)
        budget.watch(tally)
        for key, found in _finished({key: call for key, call in calls.items() if key not in known}, store, budget, ray):
            known[key] = found
            tally = tally.after(multiplicity[key], found.answer.error is not None)
            budget.watch(tally)
        made = sweep_of(asked.name, asked.verb, grid, [known.get(key) for key in keys], tally, changed, store)
        if store is not None and made.complete:
            write_tables(made, store)
    return made


def _finished(
    calls: Mapping[str, CellCall], store: Store | None, budget: Budget, ray: str | None
) -> Iterator[tuple[str, StoredCell]]:
    """Yield every cell that ends, once it is kept; a crash is not kept, so that the next run tries the cell again."""
    keys = list(calls)
    for outcome in as_finished(answer, list(calls.values()), workers=budget.workers, ray=ray, stop=budget.stop):
        key = keys[outcome.index]
        known = StoredCell(outcome.value or CellAnswer((), outcome.failure), outcome.seconds)
        if store is not None and outcome.value is not None:
            store.keep(key, known)
        yield key, known
