"""What others measured of an engine, or estimated: times per token at several numbers of requests at once.

Three sorts are known: what ``vllm bench serve --save-result`` saves, estimates of AIConfigurator (``pareto.csv``,
``best_config_topn.csv``), and a plain table of batch sizes and step times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import Source
from truenorth.models.scenario.files import read_text
from truenorth.models.scenario.quantities import MAX_BATCH, MAX_TOKENS
from truenorth.models.scenario.reading import NUMBERS, JSONText
from truenorth.models.scenario.section import Record, validate
from truenorth.models.streams import Tokens
from truenorth.planner.inputs.engine_log import LogColumns
from truenorth.planner.inputs.importers.csv_files import open_text
from truenorth.planner.inputs.importers.json_files import JSONSort, json_lines, json_sort
from truenorth.planner.inputs.importers.log_files import columns_of, table_rows
from truenorth.planner.inputs.importers.rows import Rows, Tally

VLLM, AICONFIGURATOR, PLAIN = "vllm bench serve", "AIConfigurator's estimates", "a table of steps"
_OF_AICONFIGURATOR = ("concurrency", "isl", "osl", "ttft", "request_latency")
_DEPLOYMENT = ("model", "system", "backend", "version", "parallel", "tp", "pp", "dp", "gemm", "kvcache")
_BATCHES = ("batch", "batch_size", "requests", "concurrency", "num_seqs")
_STEPS = {f"{name}_{unit}": unit for name in ("step", "step_time") for unit in ("us", "ms", "s")}
_LONGEST_MS = 1e7


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """Times at so many requests at once, in microseconds.

    Parameters
    ----------
    at_once
        Requests that run at once, each replaced by the next one when it ends.
    token_us, first_us
        Mean time per token behind the first, and until the first; 0: not known.
    tokens
        Those of the requests, or of one as they are in the mean; none: not known.
    requests
        How many were served; 0: it is no measurement.
    """

    at_once: int
    token_us: float
    first_us: float = 0.0
    tokens: tuple[Tokens, ...] = ()
    requests: int = 0


@dataclass(frozen=True, slots=True)
class StepTable:
    """A table, its points in the order of requests at once, what made it, and what was found while reading it."""

    source: str
    points: tuple[MeasuredPoint, ...]
    notes: tuple[str, ...] = ()


def read_step_table(files: Sequence[Path], columns: LogColumns, tp: int | None = None) -> StepTable | None:
    """Return what files say of steps; None if they are no such table, but a log of requests.

    Parameters
    ----------
    tp
        Of AIConfigurator's estimates those of engines of so many GPUs; None: of the deployment with most rows.

    Raises
    ------
    InputError
        With file and line of what is wrong in a table.
    QuestionError
        If two files or rows are about the same number of requests at once, files are of several sorts, or no row is of
        so many GPUs.
    """
    sorts = [_sort_of(path, columns) for path in files]
    if set(sorts) == {None} and len(files) == 1:
        return None
    if len(set(sorts)) > 1 or sorts[0] is None or (sorts[0] != VLLM and len(files) > 1):
        problem = f"{len(files)} files are given; allowed is one log or table, or results of vllm bench serve alone"
        raise QuestionError(problem, "REQUESTS")
    if tp is not None and sorts[0] != AICONFIGURATOR:
        raise QuestionError(f"picks rows of {AICONFIGURATOR}, and these are {sorts[0]}; leave it out", "tp")
    tally = Tally(False)
    if sorts[0] == VLLM:
        found, notes = [point for path in files for point in _of_vllm(path)], list[str]()
    elif sorts[0] == AICONFIGURATOR:
        found, notes = _of_aiconfigurator(files[0], tally, tp)
    else:
        found, notes = _of_table(files[0], columns, tally), []
    found.sort(key=lambda point: point.at_once)
    twice = [at_once for at_once, times in Counter(point.at_once for point in found).items() if times > 1]
    if twice:
        problem = f"has {twice[0]} requests at once twice; allowed is one result for each number of them"
        raise QuestionError(problem, str(files[0]) if len(files) == 1 else "REQUESTS")
    return StepTable(sorts[0], tuple(found), tuple(notes))


def _sort_of(path: Path, columns: LogColumns) -> str | None:
    """Return what made a table, None for a log of requests."""
    if columns.batch or columns.step:
        return PLAIN
    sort = json_sort(path)
    if sort is not None:
        with open_text(path) as file:
            # A log may be long: of lines the first one tells.
            text = file.read() if sort is JSONSort.DOCUMENT else next(json_lines(file, str(path))).text
        return VLLM if sort is not JSONSort.LIST and '"mean_tpot_ms"' in text else None
    header = columns_of(path, (*_OF_AICONFIGURATOR, *_BATCHES, *_STEPS))
    if set(_OF_AICONFIGURATOR) <= set(header):
        return AICONFIGURATOR
    return PLAIN if set(_BATCHES) & set(header) and set(_STEPS) & set(header) else None


_Milliseconds = Annotated[float, Field(gt=0, le=_LONGEST_MS)]
_Length = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
_Count = Annotated[int, Field(ge=1, le=10**9)]


class _Result(Record):
    """What is read of a result of ``vllm bench serve``."""

    max_concurrency: Annotated[int, Field(ge=1, le=MAX_BATCH)] | None
    request_rate: float | str
    completed: _Count
    total_input_tokens: _Count
    total_output_tokens: _Count
    mean_ttft_ms: _Milliseconds
    mean_tpot_ms: _Milliseconds
    input_lens: tuple[_Length, ...] = ()
    output_lens: tuple[_Length, ...] = ()

    @property
    def tokens(self) -> tuple[Tokens, ...]:
        """Those of every request that was served, where they are saved in detail, else of one as in the mean."""
        lengths = zip(self.input_lens, self.output_lens, strict=False)
        listed = tuple(Tokens(prompt, prompt, output) for prompt, output in lengths if prompt and output)
        if any(tokens.output > 1 for tokens in listed):
            return listed
        prompt = max(1, round(self.total_input_tokens / self.completed))
        return (Tokens(prompt, prompt, max(2, round(self.total_output_tokens / self.completed))),)


def _of_vllm(path: Path) -> Iterator[MeasuredPoint]:
    """Yield the points of a file of results, one or, appended, several on lines of their own."""
    if json_sort(path) is JSONSort.LINES:
        with open_text(path) as file:
            texts = list(json_lines(file, str(path)))
    else:
        texts = [JSONText(read_text(path), str(path))]
    for text in texts:
        data = text.data(NUMBERS)
        try:
            result = _Result.model_validate(data)
        except ValidationError:  # read a second time, with the lines of its values
            result = validate(_Result, data, Source(str(path), path.parent, text.nodes()))
        if str(result.request_rate) != "inf":
            problem = f"{result.request_rate} requests per second are no fixed number at once"
            raise text.error(("request_rate",), f"{problem}; allowed is 'inf', with --max-concurrency")
        if result.max_concurrency is None:
            problem = "is not set; run vllm bench serve with --max-concurrency N, once for each of several N"
            raise text.error(("max_concurrency",), problem)
        yield MeasuredPoint(
            result.max_concurrency,
            1000 * result.mean_tpot_ms,
            1000 * result.mean_ttft_ms,
            result.tokens,
            result.completed,
        )


def _of_aiconfigurator(path: Path, tally: Tally, tp: int | None) -> tuple[list[MeasuredPoint], list[str]]:
    """Return the estimates of the deployment of one engine for which a file has most of them, and which that is.

    `tp` is of how many GPUs it is; None: of any number.
    """
    header = columns_of(path, _OF_AICONFIGURATOR)
    if "(d)workers" in header:
        problem = "is of workers that prefill and workers that decode, which are no engine of one law"
        raise InputError(str(path), 1, "header", f"{problem}; allowed is the CSV of an aggregated deployment (agg)")
    told = [*(name for name in _DEPLOYMENT if name in header), "isl", "osl"]
    cached = [name for name in ("prefix",) if name in header]
    points, deployments = list[MeasuredPoint](), list[tuple[str, ...]]()
    for rows in table_rows(path, [*_OF_AICONFIGURATOR, *told[:-2], *cached], tally):
        points += _estimates(rows, rows.wholes("prefix", 0, MAX_TOKENS) if cached else np.zeros_like(rows.line))
        deployments += zip(*(rows.text(name).tolist() for name in told), strict=True)
    if tp is not None:
        sizes = [row[told.index("tp")] for row in deployments] if "tp" in told else []
        if str(tp) not in sizes:
            there = f"; allowed are {', '.join(sorted(set(sizes)))}" if sizes else ", as it has no such column"
            raise QuestionError(f"has no row of tp {tp}{there}", str(path))
        of_size = [each for each, size in zip(deployments, sizes, strict=True) if size == str(tp)]
    chosen, count = Counter(deployments if tp is None else of_size).most_common(1)[0]
    said = ", ".join(f"{name} {value}" for name, value in zip(told, chosen, strict=True))
    notes = [f"{count} of {len(points)} rows are of {said}, and are read"]
    return [point for point, of in zip(points, deployments, strict=True) if of == chosen], notes


def _estimates(rows: Rows, cached: Ints) -> list[MeasuredPoint]:
    at_once, prompt, output = (
        rows.wholes(column, least, most)
        for column, least, most in (("concurrency", 1, MAX_BATCH), ("isl", 1, MAX_TOKENS), ("osl", 2, MAX_TOKENS))
    )
    first_ms, whole_ms = (rows.numbers(column, 1e-3, _LONGEST_MS) for column in ("ttft", "request_latency"))
    rows.refuse(whole_ms <= first_ms, "request_latency", "is no longer than ttft", "a latency that has steps behind it")
    rows.refuse(cached >= prompt, "prefix", "leaves nothing of isl to work off", "a whole number below isl")
    rows.settle()
    # From the latency: tpot may or may not have a share of the first token, as its options say.
    token_us = 1000 * (whole_ms - first_ms) / (output - 1)
    tokens = map(Tokens, prompt.tolist(), (prompt - cached).tolist(), output.tolist())
    columns = (column.tolist() for column in (at_once, token_us, 1000 * first_ms))
    points = zip(*columns, tokens, strict=True)
    return [MeasuredPoint(count, step_us, first_us, (each,)) for count, step_us, first_us, each in points]


def _of_table(path: Path, columns: LogColumns, tally: Tally) -> list[MeasuredPoint]:
    """Return the points of a plain table: of columns that are named, or that name themselves."""
    header = columns_of(path, (*_BATCHES, *_STEPS))
    batch = columns.batch or next((name for name in _BATCHES if name in header), _BATCHES[0])
    step = columns.step or next((name for name in _STEPS if name in header), next(iter(_STEPS)))
    unit, found = columns.unit if columns.step else _STEPS[step], list[MeasuredPoint]()
    for rows in table_rows(path, [batch, step], tally):
        at_once, step_us = rows.wholes(batch, 1, MAX_BATCH), rows.times(step, unit, 1)
        rows.settle()
        found += map(MeasuredPoint, at_once.tolist(), step_us.tolist())
    return found
