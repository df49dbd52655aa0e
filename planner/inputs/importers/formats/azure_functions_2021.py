"""Azure Functions invocations of 2021: one row per invocation of a function, with its end and its duration.

Schema: github.com/Azure/AzurePublicDataset, AzureFunctionsInvocationTrace2021.md, revision 1 (commit b469a113): columns
app, func, end_timestamp and duration, both in seconds, on a clock of the trace's own. The file is the unpacked
AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt, sorted by end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from executor.policies.options import one_of, option
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.rows import Tally, join_names
from planner.inputs.importers.tables import Requests

_COLUMNS = ("app", "func", "end_timestamp", "duration")


@dataclass(frozen=True, slots=True)
class AzureFunctions:
    """Reads the trace of invocations.

    Parameters
    ----------
    model
        What is loaded: the ``app``, which Azure deploys as a whole, or every ``function`` on its own.
    """

    model: str = option("app", one_of("app", "function"))

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return two GPUs of 16 GB and models of 4 GB; the trace knows neither."""
        return Hardware(memory_bytes=16 * 10**9, weight_bytes=4 * 10**9, load_bandwidth=Fraction(10**10), servers=2)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the invocations of the files."""
        for path in files:
            for rows in csv_rows(path, _COLUMNS, tally):
                model = rows.names("app") if self.model == "app" else join_names(rows, "app", "func")
                duration_us, end_us = rows.times("duration"), rows.times("end_timestamp")
                rows.leave_out(duration_us == 0, "ran for 0 s")
                rows.leave_out(end_us < duration_us, "began before the trace's time zero")
                yield rows.requests(end_us - duration_us, model, duration_us)


FORMAT = Format(
    name="azure-functions-2021",
    title="invocations of Azure Functions, two weeks of January and February 2021",
    source="github.com/Azure/AzurePublicDataset, AzureFunctionsInvocationTrace2021 (CC-BY 4.0); "
    "Zhang et al., SOSP 2021",
    notes=(
        "functions of a cloud stand in for models: a model is an application, which is deployed as a whole "
        "(model=function: a function)",
        "a release is end_timestamp - duration; durations are those on the provider's processors, and invocations of "
        "0 s are left out",
    ),
    sizes="the trace has no sizes: every model weighs 4 GB, a GPU has 16 GB for weights",
    reader=AzureFunctions,
)
