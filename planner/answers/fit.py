"""Fit: an engine's step law from a log of what it served, how wrong it is, and the catalogue that it makes.

The law of the earlier half of the requests alone, driven by the whole log's arrivals, says how wrong such a law is
about requests that it has not seen; the law of all requests is the one that is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truenorth.models.errors import QuestionError
from truenorth.models.scenario import write_atomically
from truenorth.models.streams import BLOCK, PICOSECONDS, StreamSpeed
from truenorth.planner.answers.shown import Answer, frame_of
from truenorth.planner.answers.versions import provenance
from truenorth.planner.inputs.engine_log import LogColumns, read_engine_log
from truenorth.planner.inputs.importers.rows import Tally
from truenorth.solvers.bounds.stream_costs import Floats
from truenorth.solvers.fitting.engine_kernel import EngineLimits, StepLaw
from truenorth.solvers.fitting.law import Fitted, LawNumbers, ServedLog, fit_law, is_nearer, predict

if TYPE_CHECKING:
    import pandas as pd


FIGURES = (
    "mean_first_token_s", "p95_first_token_s", "mean_time_per_token_s", "p95_time_per_token_s", "mean_latency_s",
    "p95_latency_s",
)  # fmt: skip
"""The figures that are compared, by their names in the metrics."""
WARN_ABOVE = 0.05
"""Relative errors that a warning names."""
_ENDLESS = 1 << 40
_SHORT = 0.8
"""KV that nobody named is taken to be short if the loss is below so many times that of KV without end."""
_WEIGHTS_BYTES, _TOKEN_BYTES = 1_000_000_000, 1000


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure: as it was measured, and by the laws of the earlier half and of all requests."""

    figure: str
    measured: float
    half: float
    whole: float

    @property
    def half_error(self) -> float:
        """Relative error of what the law of the earlier half says of the whole log."""
        return self.half / self.measured - 1 if self.measured else 0.0

    @property
    def whole_error(self) -> float:
        """Relative error of what the law of all requests says."""
        return self.whole / self.measured - 1 if self.measured else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Fit(Answer):
    """A law with its errors.

    Parameters
    ----------
    log
        The file.
    engines, limits
        How many engines served, and what each was started with.
    kv_tokens
        Tokens of KV of an engine, by what was fitted to all requests; None: never scarce.
    half, whole
        What was fitted to the earlier half, and to all requests.
    figures
        What it says beside what was measured.
    preemptions
        Of the whole log, by the law of all requests.
    notes
        What the log cannot tell, and what was found while reading it.
    """

    log: Path
    engines: int
    requests: int
    limits: EngineLimits
    kv_tokens: int | None
    half: Fitted
    whole: Fitted
    figures: tuple[Compared, ...]
    preemptions: int
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Fit of {self.log.name}: {self.requests} requests, worst error {self.worst_error:.1%}>"

    def frame(self) -> pd.DataFrame:
        """Return one row per figure: measured, and what the laws say."""
        return frame_of(self.figures)

    @property
    def worst_error(self) -> float:
        """The greatest error of a figure, of the law of the earlier half."""
        return max(abs(each.half_error) for each in self.figures)

    @property
    def warnings(self) -> list[str]:
        """Which figures the law of the earlier half misses by more than is usual."""
        return [
            f"{each.figure} of the whole log is {each.half_error:+.1%} off by the law of its earlier half"
            for each in self.figures
            if abs(each.half_error) > WARN_ABOVE
        ]

    def as_dict(self, written: Path | None = None) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {
            "log": str(self.log),
            "requests": self.requests,
            "engines": self.engines,
            "law": self.whole.numbers._asdict(),
            "law_of_half": self.half.numbers._asdict(),
            "kv_tokens": self.kv_tokens,
            "loss": self.whole.loss,
            "loss_of_half": self.half.loss,
            "figures": {
                each.figure: {
                    "measured": each.measured,
                    "half": each.half,
                    "half_error": each.half_error,
                    "all": each.whole,
                    "all_error": each.whole_error,
                }
                for each in self.figures
            },
            "worst_error": self.worst_error,
            "preemptions": self.preemptions,
            "notes": list(self.notes),
            "warnings": self.warnings,
            "catalogue": None if written is None else str(written),
        }

    def catalogue(self) -> str:
        """Return the text of the catalogue: one kind, one model with its stream, and where the numbers come from."""
        errors = ", ".join(f"{each.figure} {each.half_error:+.1%}" for each in self.figures)
        worst = {
            rank: max(abs(each.half_error) for each in self.figures if each.figure.startswith(rank))
            for rank in ("mean", "p95")
        }
        head = [
            f"Fitted by `truenorth fit` ({provenance()['truenorth']}) to {self.log.name}, {self.requests} requests",
            "Method: five numbers of a step law, so that simulated first tokens and ends are those of the log",
            f"Errors about the whole log of the law of its earlier half: {errors}",
            *self.notes,
        ]
        fitted = (
            f"log: {json.dumps(self.log.name)}, requests: {self.requests}, "
            f"mean_error: {worst['mean']:.6f}, p95_error: {worst['p95']:.6f}"
        )
        return catalogue_of(_speed(self.whole.numbers, self.limits), self.kv_tokens, self.engines, head, fitted)

    def save(self, path: Path) -> None:
        """Write the catalogue."""
        write_atomically(path, self.catalogue())


def fit(
    log: str | Path,
    *,
    seats: int,
    budget: int,
    kv_tokens: int | None = None,
    engines: int = 1,
    block: int = BLOCK,
    columns: str = "",
    skip_malformed: bool = False,
    seed: int = 0,
) -> Fit:
    """Return the step law that makes of a log's arrivals what the log says came of them.

    Parameters
    ----------
    log
        CSV, or JSON Lines, plain or gzip: a request per row, with arrival, first and last token, and tokens.
    seats, budget
        Most requests at once of an engine, and tokens of an iteration (vLLM: max_num_seqs, max_num_batched_tokens).
    kv_tokens
        Tokens of KV of an engine; how many it seems to have is sought near that. None: never scarce, unless requests of
        the log waited while seats were free.
    engines
        How many engines took turns, unless a column says which served each request.
    block
        Tokens of a block of KV.
    columns
        Such as ``release=at,first=first_s,last=end_s,prompt=in,output=out,engine=node,unit=ms``.
    seed
        Of the search's starts.

    Raises
    ------
    InputError
        With file and line of what is wrong in the log.
    QuestionError
        If the options fit no engine, or the log.
    """
    path, tally = Path(log), Tally(skip_malformed)
    if min(seats, engines, block) < 1 or budget <= seats:
        problem = f"a budget of {budget} tokens for {seats} requests at once, blocks of {block}, {engines} engines"
        raise QuestionError(f"{problem}; allowed is a budget above the seats, and at least 1 of each", "budget")
    served = read_engine_log(path, LogColumns.parse(columns), engines, tally)
    if tally.left_out:
        tally.notes += [f"left out: {count} requests {reason}" for reason, count in tally.left_out.items()]
    limits = EngineLimits(seats, budget, block, _ENDLESS if kv_tokens is None else kv_tokens // block)
    least = -(-served.longest // block)
    if least > limits.room:
        problem = f"{kv_tokens} tokens of KV hold no request of {served.longest + 1} tokens, which the log has"
        raise QuestionError(f"{problem}; allowed is at least {least * block}", "kv_tokens")
    count = len(served.engine)
    half, whole = _fit_both(served, limits, seed, kv_tokens is not None)
    of_half, of_whole = (
        predict(served, limits._replace(room=found.room), _law(_speed(found.numbers, limits)))
        for found in (half, whole)
    )
    sides = ((served.first_us, served.end_us), of_half[:2], of_whole[:2])
    rows = zip(FIGURES, *(_figures(served, *side) for side in sides), strict=True)
    compared, preempted = tuple(Compared(*row) for row in rows), of_whole[2]
    notes = (*tally.notes, *_said_of_kv(whole, kv_tokens, block), *_unknown(served, limits, whole, preempted))
    n_engines = len(np.unique(served.engine))
    fitted_kv = None if whole.room == _ENDLESS else whole.room * block
    return Fit(path, n_engines, count, limits, fitted_kv, half, whole, compared, preempted, notes)


def _fit_both(log: ServedLog, limits: EngineLimits, seed: int, named: bool) -> tuple[Fitted, Fitted]:
    """Return the laws of the earlier half and of all requests, and how much room for KV there is by each.

    Parameters
    ----------
    named
        Whether somebody said how much KV there is.
    """
    count = len(log.engine)
    parts = [np.arange(count) < part for part in (count // 2, count)]
    held = log.held_in_want(limits.seats, limits.block)
    half, whole = (fit_law(log, limits, part, seed, near=named and held > 0) for part in parts)
    if named or not held:
        return half, whole
    short = limits._replace(room=-(-max(held, log.longest) // limits.block))
    if not is_nearer(log, short, whole):
        return half, whole
    short_half, short_whole = (fit_law(log, short, part, seed, near=True) for part in parts)
    return (short_half, short_whole) if short_whole.loss < _SHORT * whole.loss else (half, whole)


def _said_of_kv(found: Fitted, kv_tokens: int | None, block: int) -> list[str]:
    """Return, in words, how much KV there seems to be where that is not what was said."""
    tokens = found.room * block
    if found.room == _ENDLESS or (kv_tokens is not None and found.room == kv_tokens // block):
        return []
    if kv_tokens is None:
        return [
            f"requests waited while seats were free: {tokens} tokens of KV explain that best; an engine's log says it"
        ]
    return [f"{tokens} tokens of KV explain the log best ({tokens / kv_tokens - 1:+.1%} of what was said)"]


def _figures(log: ServedLog, first_us: Floats, end_us: Floats) -> list[float]:
    """Return mean and p95 of first tokens, times per token and latencies, in seconds."""
    requests = log.requests
    several = requests.output > 1
    per_token = (end_us - first_us)[several] / (requests.output[several] - 1)
    found = []
    for values in (first_us - requests.arrival_us, per_token, end_us - requests.arrival_us):
        ordered = np.sort(values) / 1e6 if len(values) else np.zeros(1)
        found += [float(ordered.mean()), float(ordered[-(-95 * len(ordered) // 100) - 1])]
    return found


def catalogue_of(speed: StreamSpeed, kv_tokens: int | None, engines: int, head: Iterable[str], fitted: str) -> str:
    """Return the text of a catalogue with one kind and one model, behind comments.

    Parameters
    ----------
    speed
        How the model runs; KV grows by its blocks.
    kv_tokens
        Tokens of KV of an engine; None: never scarce.
    fitted
        The entries of that key of the stream.
    """
    listed = ", ".join(f"{count}: {us} us" for count, us in speed.step_us.items())
    kv_bytes = 0 if kv_tokens is None else kv_tokens // speed.block * speed.block * _TOKEN_BYTES
    lines = [
        *(f"# {line}." for line in head),
        "# Sizes are put up: only how many tokens of KV fit beside the weights counts.",
        "kinds:",
        f"  node: {{memory: {_WEIGHTS_BYTES + kv_bytes} B, load_bandwidth: 10 GB/s, count: {engines}}}",
        "models:",
        "  model:",
        f"    weights: {_WEIGHTS_BYTES} B",
        "    resident: true",
        "    stream:",
        f"      prefill: {float(speed.prefill_rate):.9g} /s",
        f"      chunk: {speed.chunk}",
        f"      concurrency: {speed.seats}",
        f"      step: {{{listed}}}",
        f"      context: {speed.context_ps / PICOSECONDS:.6f} us",
        f"      mixed: {speed.mixed_us} us",
        "      budget: shared",
        "      kv: grows",
        f"      block: {speed.block}",
        f"      kv_per_token: {_TOKEN_BYTES if kv_bytes else 0} B",
        f"      fitted: {{{fitted}}}",
    ]
    return "\n".join(lines) + "\n"


def _speed(numbers: LawNumbers, limits: EngineLimits) -> StreamSpeed:
    """Return a law in the whole numbers of a stream class."""
    first_us = max(1, round(numbers.first_us))
    last_us = max(first_us, round(numbers.first_us + numbers.each_us * (limits.seats - 1)))
    return StreamSpeed(
        Fraction(f"{PICOSECONDS / numbers.prompt_us:.9g}"),
        limits.chunk,
        limits.seats,
        {1: first_us, limits.seats: last_us},
        0,
        round(numbers.context_us * PICOSECONDS),
        round(numbers.mixed_us),
        shared=True,
        block=limits.block,
    )


def _law(speed: StreamSpeed) -> StepLaw:
    prompt_us, context_us = float(PICOSECONDS / speed.prefill_rate), speed.context_ps / PICOSECONDS
    return StepLaw(np.array(speed.tau, np.float64), prompt_us, context_us, float(speed.mixed_us))


_SAID = {
    "first_us": "how long a step of one request takes",
    "each_us": "what each decode adds to a step",
    "prompt_us": "how fast prompts are worked off",
    "context_us": "what contexts add to a step",
    "mixed_us": "what prompts add to an iteration beside their tokens",
}


def _unknown(log: ServedLog, limits: EngineLimits, found: Fitted, preempted: int) -> list[str]:
    """Return, in words, what the log cannot tell."""
    notes = [
        f"the log says little of {_SAID[name]}: twice or half as much fits nearly as well" for name in found.unclear
    ]
    zero = [name for name, value in zip(LawNumbers._fields, found.numbers, strict=True) if value == 0]
    notes += [f"the log does not tell {_SAID[name]}, taken as 0" for name in zero]
    most = log.concurrency
    if most < limits.seats:
        notes.append(f"at most {most} requests ran at once: steps of more, up to {limits.seats}, follow the same line")
    if found.room < _ENDLESS and not preempted:
        notes.append("KV was never short: how the engine behaves when it is has not been seen")
    return notes
