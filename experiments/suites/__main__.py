"""``python -m experiments suites [SUITE ...]``: plans instances whose optima are known; shows value, bound and time.

Finished instances are kept in results.csv, so that an interrupted run goes on where it was; results.md holds the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from experiments.bench import Study, ask
from experiments.suites import case, graphs, paging, shops, tool_switching
from experiments.suites.case import KNOWN_OPTIMA, Case, FirstFilling, Suite
from truenorth.models.scenario import write_atomically
from truenorth.solvers.warm_up import warm_up


def suites(
    suite: Annotated[tuple[Suite, ...], f"{', '.join(Suite)}; all if none is named"],
    time_limit: Annotated[float, "seconds per instance"] = 20.0,
    output: Annotated[Path, "folder of results.csv and results.md"] = Path("build/suites"),
    data: Annotated[Path, "folder of the collected instances"] = KNOWN_OPTIMA,
    ipmtc: Annotated[tuple[Path, ...], "files or folders for tool-switching, in place of draws"] = (),
    first_filling: Annotated[
        FirstFilling, "whether a magazine's first filling costs its loads", tuple(FirstFilling)
    ] = FirstFilling.BOTH,
    workers: int = 2,
) -> None:
    """Plan instances with known optima as a user would, and show value, bound, best known and time."""
    of: Mapping[str, Callable[[], Iterator[Case]]] = {
        Suite.HEFT: graphs.heft_cases,
        Suite.ASYNC_HOW: partial(graphs.async_how_cases, data),
        Suite.FLEXIBLE_JOB_SHOP: partial(shops.job_shop_cases, data),
        Suite.PARALLEL_MACHINES: partial(shops.parallel_machine_cases, data),
        Suite.TRIPLETS: shops.triplet_cases,
        Suite.PAGING: paging.cases,
        Suite.TOOL_SWITCHING: partial(tool_switching.cases, first_filling, ipmtc),
    }
    warm = cache(warm_up)  # or the first case pays for compiling
    cases = {(case.suite, case.name, time_limit): case for name in dict.fromkeys(suite or of) for case in of[name]()}

    def measure(*cell: Any) -> list[case.SuiteRow]:
        warm()
        made = case.planned(cases[cell], time_limit, workers)
        print(case.line(made), file=sys.stderr, flush=True)
        return [made]

    table = case.markdown(Study(case.SuiteRow, 3, measure).fill(cases, output))
    write_atomically(output / "results.md", table)
    print(table, end="")


main = partial(ask, suites)

if __name__ == "__main__":
    main()
