"""Any CSV file with a release, a model and a run time per row: logs that were prepared by hand or by another tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from executor.policies.options import one_of, option
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.tables import Requests
from planner.inputs.importers.tally import Tally


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads the columns that its options name.

    Parameters
    ----------
    release, model, runtime
        Columns of every row.
    deadline
        Column of the deadlines, relative to the release; a request without one has none. Empty: no such column.
    unit
        Of all times: ``s``, ``ms`` or ``us``.
    """

    release: str = option("release", str)
    model: str = option("model", str)
    runtime: str = option("runtime", str)
    deadline: str = option("", str)
    unit: str = option("s", one_of("s", "ms", "us"))

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return two GPUs of 24 GB and models of 6 GB that load at 6 GB/s."""
        return Hardware(24 * 10**9, 6 * 10**9, Fraction(6 * 10**9), servers=2)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the requests of the files, none of which may be named twice."""
        columns = [self.release, self.model, self.runtime, *filter(None, [self.deadline])]
        for path in files:
            for rows in csv_rows(path, columns, tally):
                yield rows.requests(
                    rows.times(self.release, self.unit),
                    rows.names(self.model),
                    rows.times(self.runtime, self.unit, least_us=1),
                    rows.optional_times(self.deadline, self.unit) if self.deadline else None,
                )


FORMAT = Format(
    name="table",
    title="a CSV file with a release, a model and a run time per row; options name the columns and the unit",
    source="your own log",
    notes=("sizes are assumed: models of 6 GB that load at 6 GB/s, GPUs of 24 GB",),
    reader=TableReader,
)
