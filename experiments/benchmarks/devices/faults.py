"""Inject faults into runs on cores, end heads by signals, fill disks; print what was lost, by kind of fault."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from experiments.bench import Figures, ask, bench
from experiments.benchmarks.devices.heads import SIGNALS, WRITERS, descendants, end_heads, fill_disks, left_behind
from experiments.benchmarks.devices.injection import KINDS, forks, injection, middle


def faults(
    runs: Annotated[int, "per kind of fault"] = 84,
    jobs: int = 10,
    gpus: int = 3,
    kinds: tuple[str, ...] = KINDS,
    limit: Annotated[float, "seconds until what hangs is given up"] = 2.0,
    heads: Annotated[int, "trials per signal, and commands per verb that find the disk full"] = 20,
) -> None:
    """Print a row per kind; exit with 1 if a job was lost that was not on a fault, or something is wrong, or left."""
    on = forks(jobs, gpus)

    def injected(kind: str) -> dict[str, Any]:
        before = os.listdir("/dev/shm")  # noqa: S108
        with injection(on, limit) as made:
            found = made.inject(kind, runs)
            family = [each for child in descendants(os.getpid()) for each in descendants(child)]
        names = ("runs", "struck", "lost", "spared", "undeserved", "wrong", "again")
        later = zip(("later", "low", "high"), middle(found.later), strict=True)
        return {name: getattr(found, name) for name in names} | {
            **{name: None if ratio is None else ratio - 1 for name, ratio in later},
            "left": left_behind(before, family),
        }

    rows = bench(
        ((kind, kind) for kind in kinds),
        injected,
        "{name:<13}{runs:>6}{struck:>8}{lost:>6}{spared:>8}{undeserved:>12}{wrong:>7}{again:>7}{later:>+8.1%}"
        " ({low:+.1%} to {high:+.1%}){left:>6}",
        f"{'kind':<13}{'runs':>6}{'struck':>8}{'lost':>6}{'spared':>8}{'undeserved':>12}{'wrong':>7}{'again':>7}"
        f"{'later runs':>26}{'left':>8}",
    )
    ended = [
        *_ends("signal", lambda number: end_heads(number, heads), {number.name: number for number in SIGNALS}),
        *_ends("full disk", lambda verb: fill_disks(verb, heads), {verb: verb for verb in WRITERS}),
    ]
    bad = sum(row["undeserved"] + row["wrong"] + row["left"] for row in rows)
    raise SystemExit(1 if bad + sum(row["left"] + row["runs"] - row["well"] for row in ended) else 0)


def _ends(what: str, end: Callable[[Any], Figures], kinds: dict[str, Any]) -> list[Figures]:
    """Print how commands end on which faults strike."""
    head = f"{what:<13}{'runs':>6}{'well':>8}{'left':>6}"
    return bench(kinds.items(), end, "{name:<13}{runs:>6}{well:>8}{left:>6}", head)


main = partial(ask, faults)
