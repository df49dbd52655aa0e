"""What building a model may take: memory by an estimate beforehand, time by looks at the clock while it goes on.

Every solver's model grows with what a window holds: a relaxation with instants, a programme with states, a formulation
with pairs of tasks. A window of three jobs may ask for terabytes. So whoever builds one says first how many terms it
will have, and gives up where these do not fit; how much memory there is is known here and nowhere else.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SHARE = 0.5
"""A model may take this share of the memory that is free: others are built beside it, and solvers copy it."""
_GB = 10**9


class GivenUpError(Exception):
    """A model is too large for the memory or the time that there is; the message says by how much."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The time and memory that a model may take.

    Parameters
    ----------
    left_s
        Returns how many seconds are left; 0 once somebody asked to stop.
    """

    left_s: Callable[[], float] = lambda: math.inf

    def fit(self, terms: int, bytes_each: int, s_each: float = 0.0) -> None:
        """Make sure that a model fits before it is built.

        Parameters
        ----------
        terms
            How many terms it will have.
        bytes_each, s_each
            What one takes, in memory and time, to build and to hand over.

        Raises
        ------
        GivenUpError
            If memory or time are short.
        """
        # Memory first: who runs out of it is killed, and says nothing.
        needed, free = terms * bytes_each, self.most(1)
        if needed > free:
            raise GivenUpError(f"{terms:.1e} terms take {needed / _GB:.3g} GB, of which {free / _GB:.3g} GB are free")
        self.go_on()
        takes_s, left_s = terms * s_each, self.left_s()
        if takes_s > left_s:
            raise GivenUpError(f"{terms:.1e} terms take {takes_s:.3g} s to build, of which {left_s:.3g} s are left")

    def most(self, bytes_each: int) -> int:
        """Return how many terms fit into memory."""
        return int(_SHARE * free_bytes()) // bytes_each

    def go_on(self) -> None:
        """Look at the clock while a model is built.

        Raises
        ------
        GivenUpError
            If no time is left.
        """
        if self.left_s() <= 0:
            raise GivenUpError("no time was left to build it")


UNLIMITED = Allowance()
"""As long as it takes, in the memory that there is."""


def free_bytes() -> int:
    """Return how much memory this process can still take: of the machine's, its container's, and its own limit."""
    return max(0, min(_rooms_of_this_process(), default=1 << 62))


def _rooms_of_this_process() -> Iterator[int]:
    """Yield the limits that this system tells of, less what is taken."""
    with suppress(OSError, ValueError):  # each file is Linux's
        limit, pages = resource.getrlimit(resource.RLIMIT_AS)[0], Path("/proc/self/statm").read_text().split()[0]
        if limit != resource.RLIM_INFINITY:
            yield limit - int(pages) * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        yield 1024 * int(lines["MemAvailable"].split()[0])
    with suppress(OSError, ValueError):  # "max" is no number
        group = Path("/sys/fs/cgroup")
        taken = int((group / "memory.current").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        yield int((group / "memory.max").read_text()) - taken + int(statistics["inactive_file"])
