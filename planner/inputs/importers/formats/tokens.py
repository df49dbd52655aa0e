"""Logs of requests to language models: when each came, its prompt and its answer in tokens, perhaps hashes of blocks.

Shapes that are known by their columns:

- Azure's LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset);
- Mooncake's traces of FAST'25 (github.com/kvcache-ai/Mooncake): milliseconds, blocks of 512 tokens;
- what vLLM and other servers of OpenAI's interface answer, an object per line with ``created`` and ``usage``;
- runs of vLLM that were stamped with times, of which `truenorth fit` makes a catalogue.

Options name the columns of any other log, and change those of a known one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truenorth.executor.policies.options import count_from_1, one_of, option
from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.quantities import MAX_TOKENS
from truenorth.planner.inputs.importers.formats.table import read_releases, tell_clock
from truenorth.planner.inputs.importers.json_files import columns_of, table_rows
from truenorth.planner.inputs.importers.rows import Rows, Tally
from truenorth.planner.inputs.importers.tables import TokenRequests

NAME = "tokens"
_MOST_BLOCK = 10**6


class LogShape(NamedTuple):
    """A known sort of log: its columns, the unit of plain releases, and tokens per block."""

    title: str
    release: str
    prompt: str
    output: str
    unit: str = "s"
    model: str = ""
    hashes: str = ""
    block: int = 512


VLLM_RUN = LogShape("a run of vLLM with its time stamps", "queued_ts", "input_toks", "output_toks")
SHAPES = (
    LogShape("Azure's LLM inference trace", "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    LogShape("Mooncake's trace", "timestamp", "input_length", "output_length", "ms", hashes="hash_ids"),
    LogShape(
        "answers of vLLM or OpenAI's interface",
        "created",
        "usage.prompt_tokens",
        "usage.completion_tokens",
        "s",
        "model",
    ),
    VLLM_RUN,
)


@dataclass(frozen=True, slots=True)
class TokenReader:
    """Reads the columns, or in JSON Lines the keys, that its options or the log's shape name.

    Parameters
    ----------
    release, prompt, output
        Columns of every row; empty: the shape's. Keys in objects are written as ``usage.prompt_tokens``.
    model
        Column of the models; empty: the shape's, or the catalogue's only model.
    workflow, user
        Columns of what asks, which levels may be about, and of who asks, for the notes; empty: none.
    hashes
        Column of the hashes of a prompt's blocks, a list; empty: the shape's.
    block
        Tokens per block.
    unit
        Of releases that are plain numbers: ``s``, ``ms`` or ``us``; empty: the shape's.
    """

    release: str = option("", str)
    prompt: str = option("", str)
    output: str = option("", str)
    model: str = option("", str)
    workflow: str = option("", str)
    user: str = option("", str)
    hashes: str = option("", str)
    block: int = option(0, count_from_1(_MOST_BLOCK))
    unit: str = option("", one_of("s", "ms", "us"))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[TokenRequests]:
        """Yield the requests of the files, which are all of the first one's shape."""
        named = self._named(files[0], tally)
        clock = tell_clock(files[0], named.release, named.unit)
        tally.notes += [f"releases are {clock}"] if clock else []
        columns = [named.release, named.prompt, named.output, named.model, named.workflow, named.user, named.hashes]
        for path in files:
            given = list(dict.fromkeys(filter(None, columns)))
            lists = [named.hashes] if named.hashes else []
            for rows in table_rows(path, given, tally, lists, lists):
                yield named.requests(rows, clock)

    def clock(self, files: Sequence[Path]) -> str:
        """Return which clock releases are of; InputError if the file cannot be read, or nobody names its columns."""
        named = self._named(files[0], Tally())
        return tell_clock(files[0], named.release, named.unit)

    def _named(self, path: Path, tally: Tally) -> TokenReader:
        """Return this reader with the columns that the shape of a file adds."""
        if self.release and self.prompt and self.output:
            return replace(self, unit=self.unit or "s", block=self.block or SHAPES[0].block)
        found = columns_of(path, [name for shape in SHAPES for name in shape[1:4]])
        shape = next((shape for shape in SHAPES if set(shape[1:4]) <= set(found)), None)
        if shape is None:
            known = ", or ".join(", ".join(shape[1:4]) for shape in SHAPES)
            problem = f"of no known shape, with {', '.join(map(quote, found))[:200]}; allowed are {known}"
            raise InputError(str(path), 1, "columns", f"{problem}, or release=, prompt= and output= with their names")
        tally.notes.append(f"{path.name} has the shape of {shape.title}")
        known_columns: dict[str, Any] = {
            key: getattr(self, key) or getattr(shape, key) for key in ("release", "prompt", "output", "unit", "block")
        }
        optional: dict[str, Any] = {
            key: getattr(self, key) or (getattr(shape, key) if getattr(shape, key) in found else "")
            for key in ("model", "hashes")
        }
        return replace(self, **known_columns, **optional)

    def requests(self, rows: Rows, clock: str) -> TokenRequests:
        """Return the rows that are well formed and ask for anything."""
        release_us = read_releases(rows, self.release, self.unit, clock)
        prompt = rows.wholes(self.prompt, 0, MAX_TOKENS)
        output = rows.wholes(self.output, 0, MAX_TOKENS)
        texts = {key: rows.names(getattr(self, key)) for key in ("model", "workflow", "user") if getattr(self, key)}
        blocks = rows.lists(self.hashes) if self.hashes else None
        if blocks is not None:
            listed = np.fromiter((len(text.replace(",", " ").split()) for text in blocks), np.int64, len(blocks))
            most = f"at most one per {self.block} prompt tokens; block=N says how many tokens a block has"
            rows.refuse(listed > -(-prompt // self.block), self.hashes, "are more blocks than the prompt has", most)
        rows.leave_out(prompt == 0, "of 0 prompt tokens")
        rows.leave_out(output == 0, "of 0 output tokens")
        unnamed = np.full(len(release_us), "", np.object_)
        made = TokenRequests(
            release_us,
            texts.get("model", unnamed),
            prompt,
            output,
            texts.get("workflow"),
            texts.get("user"),
            blocks,
            np.full(len(release_us), rows.file, np.object_),
            rows.line,
            self.prompt,
            self.block,
        )
        return made.at(rows.kept)
