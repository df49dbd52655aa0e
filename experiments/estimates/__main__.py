"""``python -m experiments.estimates``: errors and coverage of estimates on GenTD26, out of time, rung by rung."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.estimates import trace
from planner.inputs.estimate.estimate import Estimate
from planner.inputs.estimate.ladder import Fitted, Recipe, fit_rungs
from planner.inputs.estimate.run import score
from planner.inputs.estimate.rungs import BACK_OFF
from planner.inputs.estimate.tasks import History

_KINDS = ("exact key", "boosted", BACK_OFF, "retrieval")
_HIDDEN = 4
"""Every how many-th model is hidden to see how unseen ones fare."""


def main() -> None:
    """Print one row per estimator."""
    parser = argparse.ArgumentParser(prog="python -m experiments.estimates", description=__doc__)
    parser.add_argument("--trace", type=Path, default=trace.TRACE, help="lora_request_trace.csv.gz")
    parser.add_argument(
        "--window", type=float, nargs=2, default=(0.8, 1.0), help="shares of the requests that are estimated"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-hidden", action="store_true", help="leave out the last part, unseen models")
    arguments = parser.parse_args()
    whole = trace.requests(arguments.trace)
    past, asked = trace.split(whole, *arguments.window)
    print(f"{len(past)} past requests, {len(asked)} estimated, {len(set(past.tasks.text(trace.MODEL)))} models\n")
    print("".join(f"{name:>{width}}" for name, width in _COLUMNS))
    for by, name in (((), "median of all"), ((trace.MODEL,), "median of the model")):
        _row(f"naive: {name}", trace.naive(past, asked.tasks, by), asked)
    fitted = fit_rungs(past, Recipe(trace.COLUMNS, seed=arguments.seed))
    for online in (False, True):
        print(
            "\nonline: run times become known as they end" if online else "\nfrozen: nothing is known after the split"
        )
        for name, estimates in _ladders(fitted, whole, asked, online=online):
            _row(name, estimates, asked)
    if not arguments.without_hidden:
        print(f"\nunseen: every {_HIDDEN}th model hidden from the history, and only those estimated")
        _hidden(past, asked, arguments.seed)


def _ladders(fitted: Fitted, whole: History, asked: History, *, online: bool) -> Iterator[tuple[str, list[Estimate]]]:
    """Yield the estimates of the ladder, of each rung with nothing but the default, and of the ladder less each."""
    names = frozenset(rung.name for rung in fitted.rungs)
    kinds = {kind: frozenset(name for name in names if name.startswith(kind)) for kind in _KINDS}
    variants = {"ladder": frozenset[str]()}
    variants |= {f"only {kind}": names - own for kind, own in kinds.items()} | {"only default": names}
    variants |= {f"ladder without {kind}": own for kind, own in kinds.items()}
    for name, without in variants.items():
        ladder = fitted.ladder(online=online, without=without)
        estimates = ladder.predict_all(asked.tasks, whole if online else None)
        yield name, estimates
        if name == "ladder":
            print(f"    asked in this order: {', '.join(rung.name for rung in ladder.rungs)}")
            for source in (rung.name for rung in ladder.rungs):
                rows = np.flatnonzero([estimate.source == source for estimate in estimates])
                if len(rows):
                    _row(f"of it, {source}", [estimates[row] for row in rows], asked.take(rows))


def _hidden(past: History, asked: History, seed: int) -> None:
    hidden = sorted(set(past.tasks.text(trace.MODEL)))[::_HIDDEN]
    seen, unseen = (np.isin(h.tasks.text(trace.MODEL).astype(str), hidden) for h in (past, asked))
    ladder = fit_rungs(past.take(~seen), Recipe(trace.COLUMNS, seed=seed)).ladder()
    few = asked.take(unseen)
    _row("ladder", ladder.predict_all(few.tasks), few)
    _row("naive: median of all", trace.naive(past.take(~seen), few.tasks, ()), few)


_COLUMNS = [("", 34), ("requests", 9), ("Spearman", 9), ("R2 in s", 8), ("error", 8), ("covered", 8)]
_COLUMNS += [("below", 7), ("above", 7), ("width", 6)]


def _row(name: str, estimates: Sequence[Estimate], asked: History) -> None:
    found = score(estimates, asked.runtime_us.astype(np.float64))
    if found is None:
        raise ValueError("every past request has a run time")
    print(
        f"{name:>34}{found.cases:9}{found.spearman:9.3f}{found.r2:8.3f}{found.median_error:8.1%}{found.covered:8.1%}"
        f"{found.below:7.1%}{found.above:7.1%}{found.width:6.2f}"
    )


if __name__ == "__main__":
    main()
