"""Fit, where there is a table in place of a log: the steps behind times per token that others measured or estimated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truenorth.models.errors import QuestionError
from truenorth.models.scenario import write_atomically
from truenorth.models.scenario.quantities import MAX_NUMBER
from truenorth.models.streams import BLOCK, StreamSpeed
from truenorth.models.units import QuantityError, parse_rate
from truenorth.planner.answers.fit import catalogue_of
from truenorth.planner.answers.shown import Answer, frame_of_document
from truenorth.planner.answers.versions import provenance
from truenorth.planner.inputs.engine_log import LogColumns
from truenorth.planner.inputs.step_tables import PLAIN, MeasuredPoint, StepTable, read_step_table
from truenorth.solvers.fitting.closed_loop import LoopTimes, law_of_loops, speed_by_steps

if TYPE_CHECKING:
    import pandas as pd


WARN_ABOVE = 0.05
"""Relative errors that a warning names."""


@dataclass(frozen=True, slots=True)
class ComparedPoint:
    """A point of a table beside the same benchmark, simulated by the law."""

    point: MeasuredPoint
    simulated: LoopTimes

    @property
    def first_error(self) -> float:
        """Relative error of the mean first token."""
        return self.simulated.first_us / self.point.first_us - 1

    @property
    def token_error(self) -> float:
        """Relative error of the mean time per token."""
        return self.simulated.token_us / self.point.token_us - 1


@dataclass(frozen=True, slots=True)
class FittedTable(Answer):
    """A law made from a table.

    Parameters
    ----------
    files, table
        Where it comes from.
    speed
        The law, and how the engine was started.
    kv_tokens
        Tokens of KV of an engine; None: never scarce.
    compared
        Every point with what the law makes of it; empty where the table says how long steps are by themselves.
    notes
        What the table cannot tell, and what was found while reading it.
    """

    files: tuple[Path, ...]
    table: StepTable
    speed: StreamSpeed
    kv_tokens: int | None
    compared: tuple[ComparedPoint, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<FittedTable of {self.name}>"

    def frame(self) -> pd.DataFrame:
        """Return one row per point that was compared; empty where the table says how long steps are by themselves."""
        return frame_of_document(*self.compared)

    @property
    def name(self) -> str:
        """What the law is made from, in words."""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.files[0].name}{more} ({self.table.source})"

    @property
    def worst_error(self) -> float | None:
        """The greatest relative error of a mean; None where nothing was compared."""
        errors = [abs(error) for each in self.compared for error in (each.first_error, each.token_error)]
        return max(errors, default=None)

    @property
    def warnings(self) -> list[str]:
        """Which means the law misses by more than is usual."""
        return [
            f"{what} at {each.point.at_once} requests at once is {error:+.1%} off"
            for each in self.compared
            for what, error in (("mean first token", each.first_error), ("mean time per token", each.token_error))
            if abs(error) > WARN_ABOVE
        ]

    def as_dict(self, written: Path | None = None) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {
            "files": [str(path) for path in self.files],
            "source": self.table.source,
            "law": {
                "prefill_per_s": float(self.speed.prefill_rate),
                "step_us": {str(count): us for count, us in self.speed.step_us.items()},
            },
            "points": [
                {
                    "requests_at_once": each.point.at_once,
                    "mean_time_per_token_s": each.point.token_us / 1e6,
                    "simulated_time_per_token_s": each.simulated.token_us / 1e6,
                    "time_per_token_error": each.token_error,
                    "mean_first_token_s": each.point.first_us / 1e6,
                    "simulated_first_token_s": each.simulated.first_us / 1e6,
                    "first_token_error": each.first_error,
                }
                for each in self.compared
            ],
            "worst_error": self.worst_error,
            "notes": list(self.notes),
            "warnings": self.warnings,
            "catalogue": None if written is None else str(written),
        }

    def catalogue(self) -> str:
        """Return the text of the catalogue: one kind, one model with its stream, and where the numbers come from."""
        method = "steps of which a simulated benchmark has the same times per token" if self.compared else "as given"
        errors = [
            f"at {each.point.at_once} requests at once time per token {each.token_error:+.1%}, first token "
            f"{each.first_error:+.1%}"
            for each in self.compared
        ]
        head = [
            f"Made by `truenorth fit` ({provenance()['truenorth']}) from {self.name}",
            f"Method: {method}",
            *([f"Errors of means: {'; '.join(errors)}"] if errors else []),
            *self.notes,
        ]
        served = [point.requests for point in self.table.points]
        fitted = [f"log: {json.dumps(self.name)}", *([f"requests: {sum(served)}"] if all(served) else [])]
        fitted += [] if self.worst_error is None else [f"mean_error: {self.worst_error:.6f}"]
        return catalogue_of(self.speed, self.kv_tokens, 1, head, ", ".join(fitted))

    def save(self, path: Path) -> None:
        """Write the catalogue."""
        write_atomically(path, self.catalogue())


def fit_table(
    files: Sequence[str | Path],
    *,
    seats: int,
    budget: int,
    prefill: str | None = None,
    kv_tokens: int | None = None,
    block: int = BLOCK,
    columns: str = "",
    tp: int | None = None,
) -> FittedTable | None:
    """Return the step law behind times per token at several numbers of requests at once; None for a log of requests.

    Parameters
    ----------
    files
        Results of ``vllm bench serve --save-result``, or estimates of AIConfigurator, or a table of step times.
    seats, budget, kv_tokens, block
        As of `fit`.
    prefill
        Prompt tokens per second, such as ``8000 /s``: where a table says nothing of first tokens.
    columns
        Such as ``batch=bs,step=latency,unit=ms``, for a table of step times.
    tp
        Which of AIConfigurator's estimates: those of engines of so many GPUs; None: those of most rows.

    Raises
    ------
    InputError
        With file and line of what is wrong in a table.
    QuestionError
        If there are fewer than two points, or a rate is missing or given twice.
    """
    paths = tuple(map(Path, files))
    table = read_step_table(paths, LogColumns.parse(columns), tp)
    if table is None:
        return None
    if min(seats, block) < 1 or budget <= seats:
        problem = f"a budget of {budget} tokens for {seats} requests at once, blocks of {block}"
        raise QuestionError(f"{problem}; allowed is a budget above the seats, and at least 1 of each", "budget")
    if kv_tokens is not None and kv_tokens < block:
        raise QuestionError(f"{kv_tokens} tokens are less than a block; allowed is at least {block}", "kv_tokens")
    usable = [point for point in table.points if table.source != PLAIN or point.at_once <= seats]
    if len(usable) < 2:
        problem = f"says how long steps are at {len(usable)} number of requests at once up to {seats}"
        raise QuestionError(f"{problem}; allowed is a table of two or more", str(paths[0]))
    if (table.source == PLAIN) is (prefill is None):
        said = "is missing, and step times say nothing of prompts" if prefill is None else "is in the table already"
        instead = "--prefill '8000 /s'" if prefill is None else "to leave it out"
        raise QuestionError(f"{said}; allowed is {instead}", "prefill")
    compared: list[ComparedPoint] = []
    if prefill is None:
        speed, times = law_of_loops(table.points, budget, seats)
        compared = [ComparedPoint(*each) for each in zip(table.points, times, strict=True)]
    else:
        steps = {point.at_once: point.token_us for point in usable}
        speed = speed_by_steps(steps, float(1_000_000 / _rate(prefill)), budget, seats)
    notes = (*table.notes, *_unknown(table, seats))
    return FittedTable(paths, table, replace(speed, block=block), kv_tokens, tuple(compared), notes)


def _rate(text: str) -> Fraction:
    try:
        rate = parse_rate(text)
    except QuantityError:
        rate = Fraction(0)
    if not Fraction(1, MAX_NUMBER) <= rate <= MAX_NUMBER:
        raise QuestionError(f"{text[:40]!r} is no rate of prompt tokens; write for example '8000 /s'", "prefill")
    return rate


def _unknown(table: StepTable, seats: int) -> list[str]:
    """Return, in words, what a table cannot tell."""
    least, most = table.points[0].at_once, table.points[-1].at_once
    notes = []
    if least > 1:
        notes.append(f"the fewest requests at once are {least}: steps of fewer follow the nearest line")
    if most < seats:
        notes.append(f"the most requests at once are {most}: steps of more, up to {seats}, follow the nearest line")
    if table.source != PLAIN:
        notes.append("steps are those of contexts as long as in the table, and first tokens hold what a client adds")
    return notes
