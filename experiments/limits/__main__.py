"""``python -m experiments.limits``: ask random questions for some minutes, and print every limit that is not kept."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from experiments import bench
from experiments.limits.ask import ask


def limits(
    minutes: float = 10.0,
    first: Annotated[int, "the first seed"] = 0,
    keep: Annotated[Path | None, "a folder for the scenarios that were asked about"] = None,
) -> None:
    """Print what was found; exit with 1 if anything was."""
    end_s, seed, wrong, asked = time.monotonic() + 60 * minutes, first, 0, Counter[str]()
    with TemporaryDirectory() as folder:
        kept = keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        while time.monotonic() < end_s:
            words, found = ask(seed, kept)
            asked[words.split()[0]] += 1
            for fault in found:
                print(f"{fault.problem}\n    {fault.asked}", flush=True)
            wrong += bool(found)
            seed += 1
    print(f"{sum(asked.values())} questions, {wrong} of them with faults: {dict(asked.most_common())}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    bench.ask(limits)
