"""All suites, and what each makes of the same options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.suites import (
    async_how,
    flexible_job_shop,
    heft,
    paging,
    parallel_machines,
    tool_switching,
    triplets,
)
from experiments.suites.case import Case
from experiments.suites.choice import FirstFilling, Suite
from experiments.suites.data import KNOWN_OPTIMA


@dataclass(frozen=True, slots=True)
class Sources:
    """Where cases come from.

    Parameters
    ----------
    data
        The folder of collected instances.
    ipmtc
        Files or folders of tool-switching instances; none: seeded draws.
    filling
        Who pays for a magazine's first filling.
    """

    data: Path = KNOWN_OPTIMA
    ipmtc: Sequence[Path] = ()
    filling: FirstFilling = FirstFilling.BOTH


def cases(suite: Suite, sources: Sources) -> Iterator[Case]:
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
            return async_how.cases(sources.data)
        case Suite.FLEXIBLE_JOB_SHOP:
            return flexible_job_shop.cases(sources.data)
        case Suite.PARALLEL_MACHINES:
            return parallel_machines.cases(sources.data)
        case Suite.TRIPLETS:
            return triplets.cases()
        case Suite.PAGING:
            return paging.cases()
        case Suite.TOOL_SWITCHING:
            return tool_switching.cases(sources.filling, sources.ipmtc)
