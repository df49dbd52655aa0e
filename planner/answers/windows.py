"""Which windows replicate a scenario's: the next arrival seeds, or the next windows of its trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import QuestionError
from models.scenario import Scenario


@dataclass(frozen=True, slots=True)
class WorkloadValues:
    """The values of one key of a workload, the first as it stands in the scenario.

    Parameters
    ----------
    section, key
        Of the workload, what differs.
    values
        Seeds, or pairs of begin and end in microseconds.
    what
        The same in words.
    """

    section: str
    key: str
    values: tuple[int, ...] | tuple[tuple[int, int], ...]
    what: str

    @property
    def axis(self) -> dict[str, Sequence[object]]:
        """The same as the axis of a sweep: values by path in the scenario, windows as text with units."""
        values = [v if isinstance(v, int) else [f"{time_us} us" for time_us in v] for v in self.values]
        return {f"workload.{self.section}.{self.key}": values}


def windows_of(scenario: Scenario, count: int) -> WorkloadValues:
    """Return so many windows.

    Raises
    ------
    QuestionError
        If the workload is a list of jobs, or a trace without a window.
    """
    workload = scenario.document.workload
    if workload.poisson is not None:
        first = workload.poisson.seed
        return WorkloadValues("poisson", "seed", tuple(range(first, first + count)), "arrival seeds")
    if workload.trace is None or workload.trace.window is None:
        raise QuestionError("need poisson arrivals, or a trace with a window that others follow", "replications")
    begin, end = workload.trace.window
    steps = [index * (end - begin) for index in range(count)]
    return WorkloadValues("trace", "window", tuple((begin + s, end + s) for s in steps), "windows of the trace")
