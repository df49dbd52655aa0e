"""What-if: a grid of changes to a scenario, each cell answered by a verb, in one tidy table.

Every cell runs once, on worker processes or on Ray; what is finished is kept.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from truenorth.executor import StoppedError
from truenorth.models.errors import QuestionError
from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import Scenario, load_scenario, scenario_from
from truenorth.models.scenario.changes import plain
from truenorth.models.scenario.errors import Source
from truenorth.models.scenario.section import validate
from truenorth.planner.answers.ask import budget_of
from truenorth.planner.answers.kept import locked
from truenorth.planner.answers.pool import as_finished
from truenorth.planner.answers.pool.processes import Outcome, describe_error
from truenorth.planner.answers.whatif.cell import CellAnswer, CellCall, Store, answer
from truenorth.planner.answers.whatif.grid import Grid, SweepDocument, WorkloadValues, grid_over, read_grid, read_sweep
from truenorth.planner.answers.whatif.result import Counts, Sweep, sweep_of, write_tables
from truenorth.planner.questions.question import Question
from truenorth.solvers.budget import Budget, interruptible, own_interrupts, tell_nobody

Watch = Callable[[Counts], None]
_HERE_S = 0.5
"""So long cells are answered in this process, which takes less than starting another one."""


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
        If somebody else is at work in the folder, or there is no such Ray cluster.
    """
    document, base, source = read_sweep(Path(file))
    name = document.name or Path(file).stem
    asked = _Run(name, document.verb, base, read_grid(document, base, source), folder, str(file))
    return _run_watched(asked, workers, watch, stop, ray)


def whatif(
    scenario: Scenario | str | Path | Mapping[str, object],
    grid: Mapping[str, object],
    *,
    verb: str = "simulate",
    replications: int | None = None,
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
    replications
        Every cell is answered in so many windows: arrival seeds, or windows of the trace.
    settings
        What the verb is told in every cell, as in a sweep file: ``policy="compass"``, ``time_limit="10 s"``.

    Raises
    ------
    InputError
        With the field that is wrong.
    """
    source = Source("what-if", Path())
    data = {"scenario": "-", "verb": verb, "settings": settings, "grid": grid, "replications": replications}
    document = validate(SweepDocument, plain(data), source)
    if isinstance(scenario, Mapping):
        scenario = scenario_from(scenario)
    base = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    asked = _Run(base.name, verb, base, read_grid(document, base, source), folder)
    return _run_watched(asked, workers, watch, stop, ray)


def _run_watched(
    asked: _Run, workers: int, watch: Watch | None, stop: threading.Event | None, ray: str | None
) -> Sweep:
    """Run the cells until they are answered, `stop` is set, or, if there is none, somebody interrupts."""
    with interruptible(*(own_interrupts() if stop is None else ())) as interrupted:
        budget = Budget(workers=workers, watch=watch or tell_nobody, stop=stop or interrupted)
        made = _run(asked, budget, ray)
    return replace(made, interrupted=budget.stop.is_set() and not made.complete)


def ask_each(
    question: Question,
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
    ((path, values),) = windows.axis.items()
    grid = grid_over(scenario, path, values, question.alone())
    asked = _Run(scenario.name, question.verb, scenario, grid, folder)
    return _run_watched(asked, budget_of(question).workers, watch, getattr(question, "stop", None), ray)


@dataclass(frozen=True, slots=True)
class _Run:
    """The cells of a sweep, where they are kept, and the sweep file that asks for them."""

    name: str
    verb: str
    base: Scenario
    grid: Grid
    folder: str | Path | None
    file: str | None = None


def _run(asked: _Run, budget: Budget, ray: str | None) -> Sweep:
    """Run the cells that are not known yet."""
    grid, folder = asked.grid, asked.folder
    if folder is not None and any(cell.call.only_here for cell in grid.cells):
        problem = "a policy of __main__ lies in no file that tells whether it has changed"
        raise QuestionError(f"{problem}; allowed is one of a module, or to keep nothing", "folder")
    # Cells that ask the same have the same key, and are answered once.
    keys = [cell.call.key() for cell in grid.cells]
    store = None if folder is None else Store(Path(folder))
    with ExitStack() as held:
        changed = False
        if store is not None:
            held.enter_context(locked(store.folder))
            changed = store.begin(asked.name, asked.verb, asked.file, keys, scenario_hash(asked.base.instance))
        calls = {key: cell.call for key, cell in zip(keys, grid.cells, strict=True)}
        known = {key: found for key in calls if store is not None and (found := store.read(key)) is not None}
        tally = Counts(len(keys), 0, 0, 0)
        multiplicity = Counter(keys)
        for key, found in known.items():
            tally = tally.after(multiplicity[key], found.error is not None, known=True)
        budget.watch(tally)
        for key, found in _finished({key: call for key, call in calls.items() if key not in known}, store, budget, ray):
            known[key] = found
            tally = tally.after(multiplicity[key], found.error is not None)
            budget.watch(tally)
        made = sweep_of(asked.name, asked.verb, grid, [known.get(key) for key in keys], tally, changed, store)
        if store is not None and made.complete:
            write_tables(made, store)
    return made


def _finished(
    calls: Mapping[str, CellCall], store: Store | None, budget: Budget, ray: str | None
) -> Iterator[tuple[str, CellAnswer]]:
    """Yield every cell that ends, once it is kept; a crash is not kept, so that the next run tries the cell again."""
    left = dict(calls)
    for key, outcome in _answered(left, store is None, budget, ray):
        known = replace(outcome.value or CellAnswer((), outcome.failure), seconds=outcome.seconds)
        if store is not None and outcome.value is not None:
            store.keep(key, known)
        yield key, known


def _answered(
    calls: dict[str, CellCall], keep: bool, budget: Budget, ray: str | None
) -> Iterator[tuple[str, Outcome[CellAnswer]]]:
    """Yield what becomes of cells: of quick ones in this process, as long as that takes little, then on workers."""
    enough = threading.Event()
    timer = threading.Timer(_HERE_S, enough.set)
    # It must not keep a process alive that has nothing left to do.
    timer.daemon = True
    timer.start()
    try:
        for key, call in list(calls.items()):
            quick = ray is None and call.is_quick and not enough.is_set()
            if budget.stop.is_set() or not (quick or call.only_here):
                continue
            # One that takes longer than thought is begun anew on a worker.
            with suppress(StoppedError):
                outcome = _here(call, budget.stop if call.only_here else enough, keep)
                del calls[key]
                yield key, outcome
    finally:
        timer.cancel()
    keys, left = list(calls), list(calls.values())
    stays = not any(call.own_policies for call in left)
    ask = partial(answer, keep=keep)
    for outcome in as_finished(ask, left, workers=budget.workers, ray=ray, stop=budget.stop, stays=stays):
        yield keys[outcome.index], outcome


def _here(call: CellCall, stop: threading.Event, keep: bool) -> Outcome[CellAnswer]:
    """Return what becomes of a cell in this process; a policy of the user's that fails costs its cell alone."""
    begun = time.perf_counter()
    try:
        return Outcome(0, answer(call, stop, keep=keep), None, time.perf_counter() - begun)
    except StoppedError:
        raise
    except Exception as error:  # whatever the policy raises
        return Outcome(0, None, describe_error(error), time.perf_counter() - begun)


__all__ = ["Counts", "Sweep", "sweep", "whatif"]
