"""``python -m experiments.suites [SUITE ...]``: plans every instance, and shows value, bound, best known and time.

Finished instances are kept in results.csv, so that an interrupted run goes on where it was; results.md holds the table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.suites.choice import FirstFilling, Suite
from planner.command import manners
from planner.command.options import TimeLimit, Workers

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
    from experiments.suites import rows, table
    from experiments.suites.catalogue import Sources, cases
    from experiments.suites.data import KNOWN_OPTIMA
    from models.scenario import write_atomically
    from solvers.warm_up import warm_up

    manners.prepare_folder(output)
    sources = Sources(data or KNOWN_OPTIMA, ipmtc or (), first_filling)
    kept = {row.key: row for row in rows.read(output / "results.csv")}
    warm_up()  # or the first case pays for compiling
    wanted = []
    for suite in dict.fromkeys(names or Suite):
        for case in cases(suite, sources):
            key = (case.suite, case.name, time_limit)
            if key not in kept:
                kept[key] = rows.planned(case, time_limit, workers)
                rows.write(output / "results.csv", list(kept.values()))
                manners.say(table.text([kept[key]]).splitlines()[1])
            wanted.append(kept[key])
    write_atomically(output / "results.md", table.markdown(wanted))
    print(table.text(wanted))
    print("\n".join(["", *table.summary(wanted)]))
    return manners.DONE


if __name__ == "__main__":
    sys.exit(manners.run(app))
