"""``python -m experiments.limits``: ask random questions for so many minutes, and print every limit that is not kept."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.limits.ask import ask


def main() -> None:
    """Print what was found; exit with 1 if anything was."""
    parser = argparse.ArgumentParser(prog="python -m experiments.limits", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--keep", type=Path, help="a folder for the scenarios that were asked about")
    given = parser.parse_args()
    end_s, seed, wrong, asked = time.monotonic() + 60 * given.minutes, given.first, 0, Counter[str]()
    with TemporaryDirectory() as folder:
        kept = Path(folder) if given.keep is None else given.keep
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
    main()
