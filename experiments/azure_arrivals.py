"""Turn the Azure LLM inference trace 2023 into arrivals of the Compass authors' four workflows.

Usage: ``python -m experiments.azure_arrivals TRACE.csv.gz MINUTES > arrivals.csv``

The trace has no workflows, so each request is given one by its number of generated tokens: the shortest
quarter of the requests becomes the workflow with the least work, the longest quarter the one with the most.
Ties at a quartile are broken by arrival. Arrival times are the trace's own, from its first request.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

BY_WORK = ("img_to_sound", "object_detection", "question_answer", "translation")
"""The authors' workflows, least total run time first (385, 430, 587 and 2,584 ms)."""


def requests(trace: Path) -> Iterator[tuple[Decimal, int]]:
    """Yield arrival in milliseconds since the first request, and generated tokens."""
    first: datetime | None = None
    with gzip.open(trace, "rt", newline="") as file:
        for row in csv.DictReader(file):
            # Seven decimals of a second: the datetime takes six, the seventh is a tenth of a microsecond.
            moment = datetime.fromisoformat(row["TIMESTAMP"][:26])
            first = first or moment
            elapsed = moment - first
            microseconds = elapsed.days * 86_400_000_000 + elapsed.seconds * 1_000_000 + elapsed.microseconds
            yield Decimal(microseconds) / 1000, int(row["GeneratedTokens"])


def arrivals(trace: Path, minutes: int) -> list[tuple[Decimal, str]]:
    """Return time in milliseconds and workflow of the requests in the first minutes."""
    kept = [(time, tokens) for time, tokens in requests(trace) if time < minutes * 60_000]
    rank = {index: place for place, index in enumerate(sorted(range(len(kept)), key=lambda i: (kept[i][1], i)))}
    return [(time, BY_WORK[4 * rank[index] // len(kept)]) for index, (time, _) in enumerate(kept)]


def main() -> None:
    """Write the arrivals as CSV to standard output."""
    trace, minutes = sys.argv[1:]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("time_ms", "workflow"))
    writer.writerows((f"{time:f}", name) for time, name in arrivals(Path(trace), int(minutes)))


if __name__ == "__main__":
    main()
