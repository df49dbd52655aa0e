"""Logs of requests to language models: when each came, its prompt and its answer in tokens, perhaps hashes of blocks.

Sorts of logs that are known by their columns are listed in `shapes.TOKENS`. Options name the columns of any other log,
and change those of a known one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from truenorth.executor.policies.options import count_from_1, one_of, option
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.quantities import MAX_TOKENS
from truenorth.planner.inputs.importers.formats.shapes import TOKENS, names_of, no_column, shape_of, unit_in
from truenorth.planner.inputs.importers.formats.table import UNITS, Clock, words_in
from truenorth.planner.inputs.importers.log_files import columns_of, table_rows
from truenorth.planner.inputs.importers.rows import SUCCESS, Rows, Tally
from truenorth.planner.inputs.importers.tables import Texts, TokenRequests

NAME = "tokens"
_BLOCK, _MOST_BLOCK = 512, 10**6


@dataclass(frozen=True, slots=True)
class TokenReader:
    """Reads the columns, or in JSON the keys, that its options or the log's shape name.

    Parameters
    ----------
    release, prompt, output
        Columns of every row. Keys in objects are written as ``usage.prompt_tokens``. An empty release: the log has no
        arrivals, and all requests are released at time zero.
    model
        Column of the models; empty: the catalogue's only model.
    workflow, user
        Columns of what asks, which levels may be about, and of who asks, for the notes; empty: none.
    hashes
        Column of the hashes of a prompt's blocks, a list; empty: none.
    block
        Tokens per block.
    session, end
        Columns of the conversation or run that a request is a call of, and of when it ended: calls of one session are a
        job, each after the one before it and what passed between them. Empty: each request is a job.
    cached
        Column of the prompt tokens that were cached, with `session`: the KV of the call before it is held that long.
    unit
        Of releases that are plain numbers: ``s``, ``ms``, ``us`` or ``ns``; empty: what the name of the column ends in,
        else s.
    status, success
        Column that says whether a request succeeded, and the words that say so; others are left out. Empty: all count.
    """

    release: str | None = option(None, str)
    prompt: str | None = option(None, str)
    output: str | None = option(None, str)
    model: str | None = option(None, str)
    workflow: str = option("", str)
    user: str = option("", str)
    hashes: str | None = option(None, str)
    block: int = option(_BLOCK, count_from_1(_MOST_BLOCK))
    session: str = option("", str)
    end: str = option("", str)
    cached: str = option("", str)
    unit: str | None = option(None, one_of(*UNITS))
    status: str | None = option(None, str)
    success: tuple[str, ...] | None = option(None, words_in)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[TokenRequests]:
        """Yield the requests of the files, which are all of the first one's shape."""
        if bool(self.session) != bool(self.end) or (self.cached and not self.session):
            problem = "session= is about calls whose ends are known, and cached= about those of sessions"
            raise QuestionError(f"{problem}; allowed are session= and end= together, and cached= with them", "format")
        named = self._named(files[0], tally)
        clock = named._clock(told=bool(self.unit)).look(files[0])
        tally.notes += clock.words
        # What a request that failed may lack: an object without tokens has none.
        counts = (named.prompt, named.output, named.end, named.cached)
        sparse = [named.hashes, named.session, named.status, *(counts if named.status else (named.cached,))]
        columns = [
            named.release,
            named.prompt,
            named.output,
            named.model,
            named.workflow,
            named.user,
            named.end,
            *sparse,
        ]
        for path in files:
            given = list(dict.fromkeys(filter(None, columns)))
            lists = [named.hashes] if named.hashes else []
            for rows in table_rows(path, given, tally, list(filter(None, sparse)), lists):
                yield named._requests(rows, clock)
        clock.settle(files[0])

    def clock(self, files: Sequence[Path]) -> str:
        """Return which clock releases are of; InputError if the file cannot be read, or its columns are not known."""
        return self._named(files[0], Tally())._clock(told=True).look(files[0]).sort

    def _clock(self, told: bool) -> Clock:
        column = self.release or ""
        return Clock(column, self.unit or unit_in(column) or "s", told, "unit=")

    def _named(self, path: Path, tally: Tally) -> TokenReader:
        """Return this reader with the columns that the shape of a file adds."""
        given = list(filter(None, (self.release, self.prompt, self.output)))
        found = columns_of(path, [*given, *names_of(TOKENS)])
        shape = shape_of(TOKENS, found, ("prompt", "output"))
        known: dict[str, Any] = {"release": ""} if shape is None else {"release": ""} | shape.options(found)
        made = replace(self, **{name: of for name, of in known.items() if getattr(self, name) is None})
        if shape is None and not (self.prompt and self.output and self.release is not None):
            problem = f"of no known shape, with {', '.join(map(quote, found))[:400]}"
            likely = no_column(path, "", found, NAME, ("release", "prompt", "output", "model"))
            if "its columns" not in likely.problem:
                raise likely
            shapes = ", ".join(shape.title for shape in TOKENS)
            allowed = (
                f"{likely.problem[likely.problem.index('allowed is') :]} (without arrivals: release=), or {shapes}"
            )
            raise InputError(str(path), 1, "columns", f"{problem}; {allowed}")
        tally.notes += [] if shape is None else [f"{path.name} has the shape of {shape.title}"]
        return made

    def _requests(self, rows: Rows, clock: Clock) -> TokenRequests:
        """Return the rows that are well formed and ask for anything."""
        if self.status:
            rows.leave_out_failed(self.status, SUCCESS if self.success is None else self.success)
        release_us = clock.read(rows)
        prompt = rows.wholes(self.prompt or "", 0, MAX_TOKENS)
        output = rows.wholes(self.output or "", 0, MAX_TOKENS)
        texts = {key: rows.names(getattr(self, key)) for key in ("model", "workflow", "user") if getattr(self, key)}
        blocks = rows.lists(self.hashes) if self.hashes else None
        if blocks is not None:
            listed = np.fromiter((len(text.replace(",", " ").split()) for text in blocks), np.int64, len(blocks))
            most = f"at most one per {self.block} prompt tokens; block=N says how many tokens a block has"
            more = listed > -(-prompt // self.block)
            if more.any():
                row = int(np.argmax(more))
                fits = (size for size in (256, 128, 64, 32, 16, 8, 4, 2) if -(-prompt[row] // size) >= listed[row])
                most += f" (here {next(fits, 1)} would fit)"
            rows.refuse(more, self.hashes or "", "are more blocks than the prompt has", most)
        session, end_us, cached = self._calls(rows, clock, release_us)
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
            self.prompt or "",
            self.block,
            session,
            end_us,
            cached,
        )
        return made.at(rows.kept)

    def _calls(self, rows: Rows, clock: Clock, release_us: Ints) -> tuple[Texts | None, Ints | None, Ints | None]:
        """Return the sessions of rows, when each ended, and what it found cached; None without sessions."""
        if not self.session:
            return None, None, None
        session = np.array([text.strip() for text in rows.columns[self.session]], np.object_)
        end_us = clock.times(rows, self.end)
        rows.refuse(end_us < release_us, self.end, "is before the request came", "an end at its release or later")
        if not self.cached:
            return session, end_us, None
        rows.columns[self.cached] = np.array([text.strip() or "0" for text in rows.columns[self.cached]], np.object_)
        return session, end_us, rows.wholes(self.cached, 0, MAX_TOKENS)
