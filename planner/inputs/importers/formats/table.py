"""Any CSV file with a release, a model and a run time per row: logs that were prepared by hand or by another tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from executor.policies.options import one_of, option
from models.instance import Ints
from models.scenario.quantities import MAX_BATCH, MAX_SIZE_BYTES
from models.workload import WHOLE
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.rows import Rows
from planner.inputs.importers.tables import Requests, Serving
from planner.inputs.importers.tally import Tally


def _columns_by_size(text: str) -> tuple[tuple[int, str], ...]:
    """Read columns by batch size.

    >>> _columns_by_size("4:four+2:pair")
    ((2, 'pair'), (4, 'four'))
    """
    found: dict[int, str] = {}
    for item in text.split("+"):
        size, _, column = item.partition(":")
        if not (size.isascii() and size.isdigit() and 2 <= int(size[:5]) <= MAX_BATCH and column) or int(size) in found:
            raise ValueError(f"{item!r} is no size with its column; allowed is such as 2:pair+4:four, each size once")
        found[int(size)] = column
    return tuple(sorted(found.items()))


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
    share, memory
        Columns of the share of a GPU that a request takes, and of the bytes that it holds while it runs; empty: none.
    batch
        Columns of the run times of batches by size, as ``2:pair+4:four``; empty: requests run alone.
    """

    release: str = option("release", str)
    model: str = option("model", str)
    runtime: str = option("runtime", str)
    deadline: str = option("", str)
    unit: str = option("s", one_of("s", "ms", "us"))
    share: str = option("", str)
    memory: str = option("", str)
    batch: tuple[tuple[int, str], ...] = option((), _columns_by_size)

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return two GPUs of 24 GB and models of 6 GB that load at 6 GB/s."""
        return Hardware(24 * 10**9, 6 * 10**9, Fraction(6 * 10**9), servers=2)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the requests of the files, none of which may be named twice."""
        optional = [self.deadline, self.share, self.memory, *(name for _, name in self.batch)]
        columns = [self.release, self.model, self.runtime, *filter(None, optional)]
        for path in files:
            for rows in csv_rows(path, columns, tally):
                release_us, model = rows.times(self.release, self.unit), rows.names(self.model)
                runtime_us = rows.times(self.runtime, self.unit, least_us=1)
                yield rows.requests(
                    release_us,
                    model,
                    runtime_us,
                    rows.optional_times(self.deadline, self.unit) if self.deadline else None,
                    serving=self._serving(rows, runtime_us) if self.share or self.memory or self.batch else None,
                )

    def _serving(self, rows: Rows, runtime_us: Ints) -> Serving:
        """Return shares, memory and times of batches, which may not fall with the size."""
        count, before_us, batch_us = len(runtime_us), runtime_us, {}
        for size, name in self.batch:
            batch_us[size] = rows.times(name, self.unit, least_us=1)
            rows.refuse(
                batch_us[size] < before_us, name, "is less than a smaller batch takes", "a time that does not fall"
            )
            before_us = batch_us[size]
        return Serving(
            rows.shares(self.share) if self.share else np.full(count, WHOLE, np.int64),
            rows.wholes(self.memory, 0, MAX_SIZE_BYTES) if self.memory else np.zeros(count, np.int64),
            batch_us,
        )


FORMAT = Format(
    name="table",
    title="a CSV file with a release, a model and a run time per row; options name the columns and the unit",
    source="your own log",
    notes=("sizes are assumed: models of 6 GB that load at 6 GB/s, GPUs of 24 GB",),
    reader=TableReader,
)
