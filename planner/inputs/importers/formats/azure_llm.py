"""Azure LLM inference traces of 2023 and 2024: when a request came, how many tokens went in and how many came out.

Run times are not in the trace. A linear rule makes them of the tokens: ``start + prefill x context + decode x
(generated - 1)``, since the prefill gives the first token. Its default figures are those that the authors of Splitwise
measured for Llama2-70B on eight H100 in tensor parallel, one request at a time (github Mutinifni/splitwise-sim, commit
8f99e7dc, data/perf_model.csv): a line through the median prompt times of 128 to 4,096 tokens, and the median time per
token.

Several requests at a time follow one of two rules. As *shares* (``concurrency``), each takes 1/N of the GPU, at the
rates that hold beside N - 1 others. As *batches* (``batch``), prefills come one after the other, since they are bound
by compute, and each further request lengthens every token by ``crowding``: by 1.6 %, tokens take twice as long at a
batch of 64. Either way a request holds its KV cache from start to end, ``kv`` bytes per token of context and answer:
Llama2-70B in 16 bits has 80 layers x 8 heads x 128 numbers x 2 (keys and values) x 2 B = 327,680 B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from executor.policies.options import count_from_1, duration, factor, option
from models.instance import Ints
from models.scenario.quantities import MAX_BATCH
from models.units import parse_size
from models.workload import WHOLE
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.quantities import seconds
from planner.inputs.importers.tables import Requests, Serving
from planner.inputs.importers.tally import Tally

MOST_TOKENS = 10_000_000
_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
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
        Microseconds per request, per token of context, and per generated token after the first.
    model
        Name of the one model that all files share; empty: each file's own, named like the file.
    concurrency
        So many requests run at a time on a GPU, each as a share of it.
    batch
        Most requests in a batch; 1: no batches.
    crowding
        By which share of itself a token takes longer for each further request in its batch.
    kv
        Bytes of KV cache per token.
    """

    start: int = option(14_500, _step)
    prefill: int = option(85, _step)
    decode: int = option(29_800, _step)
    model: str = option("", str)
    concurrency: int = option(1, count_from_1(WHOLE))
    batch: int = option(1, count_from_1(MAX_BATCH))
    crowding: float = option(0.016, _crowding)
    kv: int = option(0, _size)

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return servers of eight H100 that count as one GPU each, and models of 70 billion parameters of two bytes."""
        return Hardware(
            memory_bytes=640 * 10**9,
            weight_bytes=140 * 10**9,
            load_bandwidth=Fraction(200 * 10**9),
            servers=40,
            kind="8xH100",
        )

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests]:
        """Yield the requests of the files."""
        rule = [
            f"{seconds(self.start)} + {seconds(self.prefill)} x context",
            f"{seconds(self.decode)} x (generated - 1)",
        ]
        tally.notes.append(
            f"run time: {' + '.join(rule)} (Llama2-70B on eight H100, measured by the authors of Splitwise)"
        )
        if self.concurrency > 1:
            tally.notes.append(f"{self.concurrency} requests at a time on a GPU; the rates are taken to hold then")
        if self.batch > 1:
            tally.notes.append(
                f"batches of up to {self.batch}: prefills add up, and each further request makes every token take "
                f"{self.crowding:.4g} times its time longer"
            )
        if self.kv:
            tally.notes.append(f"a request holds {self.kv} bytes of KV cache per token from start to end")
        for path in files:
            model = self.model or path.name.split(".")[0]
            for rows in csv_rows(path, _COLUMNS, tally):
                release = rows.moments("TIMESTAMP")
                context = rows.wholes("ContextTokens", 0, MOST_TOKENS)
                generated = rows.wholes("GeneratedTokens", 0, MOST_TOKENS)
                runtime = self.start + self.prefill * context + self.decode * np.maximum(generated - 1, 0)
                names = np.full(len(release), model, dtype=np.object_)
                serving = self._serving(context, generated) if self._serves_several else None
                yield rows.requests(release, names, np.maximum(runtime, 1), serving=serving)

    @property
    def _serves_several(self) -> bool:
        """Whether requests have their GPUs to themselves no more."""
        return self.concurrency > 1 or self.batch > 1 or self.kv > 0

    def _serving(self, context: Ints, generated: Ints) -> Serving:
        """Return share, KV cache and times of batches of requests with so many tokens."""
        batch_us = {}
        for size in _sizes(self.batch):
            token_us = self.decode * (1 + self.crowding * (size - 1))
            answer_us = np.ceil(token_us * np.maximum(generated - 1, 0)).astype(np.int64)
            batch_us[size] = np.maximum(self.start + size * self.prefill * context + answer_us, 1)
        share = np.full(len(context), WHOLE // self.concurrency, np.int64)
        return Serving(share, self.kv * (context + generated), batch_us)


def _sizes(most: int) -> list[int]:
    """Return the sizes of a table above 1: the powers of two, and the largest.

    >>> _sizes(12), _sizes(1)
    ([2, 4, 8, 12], [])
    """
    return sorted({most, *(2**power for power in range(1, most.bit_length()))} - {1})


FORMAT = Format(
    name="azure-llm",
    title="requests to language models at Azure, with their numbers of tokens (2023 and 2024)",
    source="github.com/Azure/AzurePublicDataset (CC-BY 4.0); Patel et al., Splitwise, ISCA 2024",
    notes=(
        "the trace has no run times: they follow from the numbers of tokens by a linear rule",
        "a GPU stands for a server of eight, which runs one request at a time unless options say otherwise",
        "each file is a service with a model of its own (model=NAME: all share one) of 140 GB, loaded at 200 GB/s "
        "(assumed: eight links of 25 GB/s)",
    ),
    reader=AzureLLM,
    dated=True,
)
