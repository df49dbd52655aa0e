"""``python -m experiments.suites [SUITE ...]``: plans every instance, and shows value, bound, best known and time.

Finished instances are kept in results.csv, so that an interrupted run goes on where it was; results.md holds the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.study import Study
from experiments.suites import async_how, flexible_job_shop, heft, paging, parallel_machines, tool_switching
from experiments.suites.case import KNOWN_OPTIMA, Case, FirstFilling, Suite
from truenorth.planner.command import manners
from truenorth.planner.command.options import TimeLimit, Workers

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def suites(
    names: Annotated[list[Suite] | None, typer.Argument(metavar="[SUITE]...", help="All if none is named.")] = None,
    time_limit: TimeLimit = 20.0,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="Holds results.csv and results.md.")
    ] = Path("build/suites"),
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Collected instances; default: shared beside the clone.")
    ] = None,
    ipmtc: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", exists=True, help="Files or folders for tool-switching, in place of draws."),
    ] = None,
    first_filling: Annotated[
        FirstFilling, typer.Option(help="Whether the first filling of a magazine costs its loads.")
    ] = FirstFilling.BOTH,
    workers: Workers = 2,
) -> int:
    """Plan instances with known optima as a user would, and show value, bound, best known and time."""
    from experiments.suites import rows
    from truenorth.models.scenario import write_atomically
    from truenorth.solvers.warm_up import warm_up

    manners.prepare_folder(output)
    warm = cache(warm_up)  # or the first case pays for compiling
    cases = {
        (case.suite, case.name, time_limit): case
        for suite in dict.fromkeys(names or Suite)
        for case in cases_of(suite, data or KNOWN_OPTIMA, ipmtc or (), first_filling)
    }

    def measure(*cell: Any) -> list[rows.SuiteRow]:
        warm()
        made = rows.planned(cases[cell], time_limit, workers)
        manners.say(rows.text([made]).splitlines()[1])
        return [made]

    wanted = Study(rows.SuiteRow, 3, measure).fill(cases, output)
    write_atomically(output / "results.md", rows.markdown(wanted))
    print(rows.text(wanted))
    print("\n".join(["", *rows.summary(wanted)]))
    return manners.DONE


def cases_of(suite: Suite, data: Path, ipmtc: Sequence[Path], filling: FirstFilling) -> Iterator[Case]:
    """Return the cases of a suite, made one by one.

    Raises
    ------
    InputError
        If a file is missing or damaged.
    """
    match suite:
        case Suite.HEFT:
            return heft.cases()
        case Suite.ASYNC_HOW:
            return async_how.cases(data)
        case Suite.FLEXIBLE_JOB_SHOP:
            return flexible_job_shop.cases(data)
        case Suite.PARALLEL_MACHINES:
            return parallel_machines.cases(data)
        case Suite.TRIPLETS:
            return parallel_machines.triplet_cases()
        case Suite.PAGING:
            return paging.cases()
        case Suite.TOOL_SWITCHING:
            return tool_switching.cases(filling, ipmtc)


if __name__ == "__main__":
    sys.exit(manners.run(app))
