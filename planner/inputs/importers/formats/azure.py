"""Azure's public traces: requests to language models of 2023 and 2024, and invocations of functions of 2021.

Of a request to a language model: when it came, how many tokens went in and how many came out. Run times are not in the
trace. A linear rule makes them of the tokens: ``start + prefill x context + decode x (generated - 1)``, since the
prefill gives the first token. Its default figures are those that the authors of Splitwise measured for Llama2-70B on
eight H100 in tensor parallel, one request at a time (github Mutinifni/splitwise-sim, commit 8f99e7dc,
data/perf_model.csv): a line through the median prompt times of 128 to 4,096 tokens, and the median time per token.

Several requests at a time follow one of two rules. As *shares* (``concurrency``), each takes 1/N of the GPU, at the
rates that hold beside N - 1 others, which have to be given: prefills share a GPU's compute. As *batches* (``batch``),
prefills come one after the other, since they are bound by compute, and each further request lengthens every token by
``crowding``: by 1.6 %, tokens take twice as long at a batch of 64. Either way a request holds its KV cache from start
to end, ``kv`` bytes per token of context and answer: Llama2-70B in 16 bits has 80 layers x 8 heads x 128 numbers x 2
(keys and values) x 2 B = 327,680 B.

Invocations of functions (AzureFunctionsInvocationTrace2021.md, revision 1, commit b469a113): columns app, func,
end_timestamp and duration, both in seconds, on a clock of the trace's own. The file is the unpacked
AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt, sorted by end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from truenorth.executor.policies.options import count_from_1, duration, factor, one_of, option
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario.quantities import MAX_BATCH
from truenorth.models.units import parse_size, seconds
from truenorth.models.workload import WHOLE
from truenorth.planner.inputs.importers.csv_files import csv_rows
from truenorth.planner.inputs.importers.rows import Tally, join_names
from truenorth.planner.inputs.importers.tables import Requests

MOST_TOKENS = 10_000_000
MEASURED = {"start": 14_500, "prefill": 85, "decode": 29_800}
"""Microseconds that the authors of Splitwise measured, of one request at a time."""
_LLM = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_LONGEST_STEP_US = 60_000_000
_MOST_CROWDING = 10
_LARGEST_TOKEN = 10**9


def _step(text: str) -> int:
    """Read a time of at most a minute."""
    value = duration(text)
    if value > _LONGEST_STEP_US:
        raise ValueError(f"{text!r} is out of range; allowed is 0 s to {_LONGEST_STEP_US / 1e6:g} s")
    return value


def _crowding(text: str) -> float:
    """Read a share of at most ten."""
    value = factor(text)
    if value > _MOST_CROWDING:
        raise ValueError(f"{text!r} is out of range; allowed is 0 to {_MOST_CROWDING}")
    return value


def _size(text: str) -> int:
    """Read the bytes of a token: a size of at most a gigabyte."""
    value = parse_size(text)
    if not 0 <= value <= _LARGEST_TOKEN:
        raise ValueError(f"{text!r} is out of range; allowed is 0 B to {_LARGEST_TOKEN // 10**9} GB")
    return value


@dataclass(frozen=True, slots=True)
class AzureLLM:
    """Reads the traces; each file is a service with a model of its own.

    Parameters
    ----------
    start, prefill, decode
        Microseconds per request, per token of context, and per generated token after the first; None: as `MEASURED`.
    model
        Name of the one model that all files share; empty: each file's own, named like the file.
    concurrency
        So many requests run at a time on a GPU, each as a share of it; takes rates measured so.
    batch
        Most requests in a batch; 1: no batches.
    crowding
        By which share of itself a token takes longer for each further request in its batch.
    kv
        Bytes of KV cache per token.
    """

    start: int | None = option(None, _step)
    prefill: int | None = option(None, _step)
    decode: int | None = option(None, _step)
    model: str = option("", str)
    concurrency: int = option(1, count_from_1(WHOLE))
    batch: int = option(1, count_from_1(MAX_BATCH))
    crowding: float = option(0.016, _crowding)
    kv: int = option(0, _size)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the requests of the files."""
        self._refuse_rates_of_one()
        start, prefill, decode = (self._rate(name) for name in MEASURED)
        rule = f"{seconds(start)} + {seconds(prefill)} x context + {seconds(decode)} x (generated - 1)"
        tally.notes.append(f"run times of the log: {rule} ({self._sources})")
        if self.concurrency > 1:
            beside = f"prefill and decode are taken to be those beside {self.concurrency - 1} others"
            tally.notes.append(f"{self.concurrency} requests at a time on a GPU; {beside}")
        if self.batch > 1:
            tally.notes.append(
                f"batches of up to {self.batch}: prefills add up, and each further request makes every token take "
                f"{self.crowding:.4g} times its time longer"
            )
        if self.kv:
            tally.notes.append(f"a request holds {self.kv} bytes of KV cache per token from start to end")
        for path in files:
            model = self.model or path.name.split(".")[0]
            for rows in csv_rows(path, _LLM, tally):
                release = rows.moments("TIMESTAMP")
                context = rows.wholes("ContextTokens", 0, MOST_TOKENS)
                generated = rows.wholes("GeneratedTokens", 0, MOST_TOKENS)
                runtime = start + prefill * context + decode * np.maximum(generated - 1, 0)
                names = np.full(len(release), model, dtype=np.object_)
                serving = self._serving(context, generated) if self._serves_several else {}
                yield rows.requests(
                    release, names, np.maximum(runtime, 1), tokens_in=context, tokens_out=generated, **serving
                )

    def _rate(self, name: str) -> int:
        """Return a rate in microseconds: the one asked for, or the measured one."""
        asked: int | None = getattr(self, name)
        return MEASURED[name] if asked is None else asked

    @property
    def _sources(self) -> str:
        """Where the rates come from, in words."""
        known = [name for name in MEASURED if getattr(self, name) is None]
        measured = "Llama2-70B on eight H100, measured by the authors of Splitwise"
        if not known:
            return "rates as asked for"
        return measured if len(known) == len(MEASURED) else f"{' and '.join(known)}: {measured}; the rest as asked for"

    def _refuse_rates_of_one(self) -> None:
        """Refuse rates of one request at a time for several, whose prefills would all run at full speed.

        Raises
        ------
        QuestionError
            If several requests run at a time and their prefill or decode is not given.
        """
        if self.concurrency > 1 and (self.prefill is None or self.decode is None):
            beside = f"allowed is with prefill= and decode= as measured beside {self.concurrency - 1} others"
            problem = (
                f"prefills share a GPU's compute, and the rates are of one request at a time; {beside}, or batch=, "
                "or truenorth import tokens, which serves by continuous batching"
            )
            raise QuestionError(problem, "concurrency")

    @property
    def _serves_several(self) -> bool:
        """Whether requests have their GPUs to themselves no more."""
        return self.concurrency > 1 or self.batch > 1 or self.kv > 0

    def _serving(self, context: Ints, generated: Ints) -> dict[str, Any]:
        """Return share, KV cache and times of batches of requests with so many tokens."""
        start, prefill, decode = (self._rate(name) for name in MEASURED)
        batch_us = {}
        for size in _sizes(self.batch):
            token_us = decode * (1 + self.crowding * (size - 1))
            answer_us = np.ceil(token_us * np.maximum(generated - 1, 0)).astype(np.int64)
            batch_us[size] = np.maximum(start + size * prefill * context + answer_us, 1)
        share = np.full(len(context), WHOLE // self.concurrency, np.int64)
        return {"share": share, "memory_bytes": self.kv * (context + generated), "batch_us": batch_us}


def _sizes(most: int) -> list[int]:
    """Return the sizes of a table above 1: the powers of two, and the largest.

    >>> _sizes(12), _sizes(1)
    ([2, 4, 8, 12], [])
    """
    return sorted({most, *(2**power for power in range(1, most.bit_length()))} - {1})


@dataclass(frozen=True, slots=True)
class AzureFunctions:
    """Reads the trace of invocations.

    Parameters
    ----------
    model
        What is loaded: the ``app``, which Azure deploys as a whole, or every ``function`` on its own.
    """

    model: str = option("app", one_of("app", "function"))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the invocations of the files."""
        for path in files:
            for rows in csv_rows(path, ("app", "func", "end_timestamp", "duration"), tally):
                model = rows.names("app") if self.model == "app" else join_names(rows, "app", "func")
                duration_us, end_us = rows.times("duration"), rows.times("end_timestamp")
                rows.leave_out(duration_us == 0, "ran for 0 s")
                rows.leave_out(end_us < duration_us, "began before the trace's time zero")
                yield rows.requests(end_us - duration_us, model, duration_us)
