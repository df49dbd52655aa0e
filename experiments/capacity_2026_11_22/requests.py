"""The log that the study begins with: five minutes of a service with six models, drawn, in columns of its own."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

BEGIN = datetime(2026, 11, 20, 9, 0)
CUSTOMERS = ("acme", "birch", "cobalt", "dune", "elm")
ENDPOINTS = {
    # name in the log: share of the requests, median run time in s, spread (of its logarithm)
    "bge": (0.30, 0.030, 0.2),
    "whisper-large": (0.15, 0.45, 0.3),
    "sdxl": (0.08, 1.30, 0.05),
    "mistral-7b": (0.20, 0.70, 0.25),
    "llama-8b": (0.20, 0.80, 0.25),
    "qwen-20b": (0.07, 0.60, 0.3),
}


def rows(requests: int, per_second: float, seed: int) -> list[str]:
    """Return the log, its header first; in the middle third requests come half as often again."""
    rng = random.Random(seed)  # noqa: S311
    at, lines = 0.0, ["received;endpoint;customer;took ms"]
    for index in range(requests):
        busy = requests <= 3 * index < 2 * requests
        at += rng.expovariate(per_second * (1.5 if busy else 1.0))
        name = rng.choices(list(ENDPOINTS), [share for share, _, _ in ENDPOINTS.values()])[0]
        _, median, spread = ENDPOINTS[name]
        took = median * rng.lognormvariate(0, spread)
        customer = rng.choices(CUSTOMERS, [8, 4, 2, 1, 1])[0]
        moment = (BEGIN + timedelta(seconds=at)).isoformat(sep=" ", timespec="milliseconds")
        lines.append(f"{moment};{name};{customer};{1000 * took:.0f}")
    return lines


def write(folder: Path) -> None:
    """Write the log of the study and the small one of the pages."""
    for name, requests, seed in (("requests.csv", 1800, 1), ("small.csv", 60, 3)):
        (folder / name).write_text("\n".join(rows(requests, 6.0, seed)) + "\n")
