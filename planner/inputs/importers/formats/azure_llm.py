"""Azure LLM inference traces of 2023 and 2024: when a request came, how many tokens went in and how many came out.

Run times are not in the trace. A linear rule makes them of the tokens: ``start + prefill x context + decode x
(generated - 1)``, since the prefill gives the first token. Its default figures are those that the authors of Splitwise
measured for Llama2-70B on eight H100 in tensor parallel, one request at a time (github Mutinifni/splitwise-sim, commit
8f99e7dc, data/perf_model.csv): a line through the median prompt times of 128 to 4,096 tokens, and the median time per
token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from executor.policies.options import duration, option
from planner.inputs.importers.csv_files import csv_rows
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.quantities import seconds
from planner.inputs.importers.tables import Requests
from planner.inputs.importers.tally import Tally

MOST_TOKENS = 10_000_000
_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_LONGEST_STEP_US = 60_000_000


def _step(text: str) -> int:
    """Read a time of at most a minute."""
    value = duration(text)
    if value > _LONGEST_STEP_US:
        raise ValueError(f"{text!r} is out of range; allowed is 0 s to {_LONGEST_STEP_US / 1e6:g} s")
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
    """

    start: int = option(14_500, _step)
    prefill: int = option(85, _step)
    decode: int = option(29_800, _step)
    model: str = option("", str)

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
        for path in files:
            model = self.model or path.name.split(".")[0]
            for rows in csv_rows(path, _COLUMNS, tally):
                release = rows.moments("TIMESTAMP")
                context = rows.wholes("ContextTokens", 0, MOST_TOKENS)
                generated = rows.wholes("GeneratedTokens", 0, MOST_TOKENS)
                runtime = self.start + self.prefill * context + self.decode * np.maximum(generated - 1, 0)
                names = np.full(len(release), model, dtype=np.object_)
                yield rows.requests(release, names, np.maximum(runtime, 1))


FORMAT = Format(
    name="azure-llm",
    title="requests to language models at Azure, with their numbers of tokens (2023 and 2024)",
    source="github.com/Azure/AzurePublicDataset (CC-BY 4.0); Patel et al., Splitwise, ISCA 2024",
    notes=(
        "the trace has no run times: they follow from the numbers of tokens by a linear rule",
        "a GPU stands for a server of eight, which runs one request at a time: no batching",
        "each file is a service with a model of its own (model=NAME: all share one) of 140 GB, loaded at 200 GB/s "
        "(assumed: eight links of 25 GB/s)",
    ),
    reader=AzureLLM,
    dated=True,
)
