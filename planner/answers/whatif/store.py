"""Where a sweep keeps what it knows: one small file per finished cell, written whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from truenorth.models.errors import QuestionError
from truenorth.models.record import encode
from truenorth.models.scenario import write_atomically
from truenorth.planner.answers.versions import versions
from truenorth.planner.answers.whatif.cell import CellAnswer

SCHEMA_VERSION = 2
TABLES = ("results.csv", "results.parquet", "times.csv")
"""What is written when every cell is known, and removed when that is no longer so."""


@dataclass(frozen=True, slots=True)
class SweepNote:
    """``sweep.json``: what a sweep is, and with which software; cells by their keys."""

    schema_version: int
    name: str
    verb: str
    file: str | None
    scenario_hash: str | None
    versions: Mapping[str, str]
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class StoredCell:
    """A finished cell: its answer, and how long it took."""

    answer: CellAnswer
    seconds: float


class Store:
    """The folder of a sweep.

    ``cells/KEY.json`` holds one finished cell, and a checksum: a file that is damaged counts as missing.
    ``sweep.json`` says which cells the sweep consisted of when it ran last.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cells = folder / "cells"
        self._cells.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps out of the folder; the lock goes with the process, however it ends.

        Raises
        ------
        QuestionError
            If another sweep is at work in it.
        """
        with (self.folder / ".lock").open("w") as file:
            try:
                # The kernel lets it go with the process, even one that is killed; a file that says "busy" would stay.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                problem = "another sweep is at work in this folder; wait for it, or name another folder"
                raise QuestionError(f"{self.folder}: {problem}") from None
            yield

    def begin(self, name: str, verb: str, file: str | None, keys: Sequence[str], scenario: str) -> bool:
        """Note what the sweep is, and with which software; say whether it had other cells before.

        Parameters
        ----------
        file
            The sweep file; None without one.
        keys
            One per cell.
        scenario
            Hash of the scenario that every cell changes.
        """
        # Of writers that were killed before they could put the file in its place.
        for left_over in self._cells.glob(".*.tmp"):
            left_over.unlink()
        path = self.folder / "sweep.json"
        now = encode(SweepNote(SCHEMA_VERSION, name, verb, file, scenario, versions(), keys))
        before = self._read_note(path)
        # Tables of other cells or another version must not stand beside this sweep.
        if before != now:
            self.drop_tables()
            write_atomically(path, json.dumps(now, indent=1))
        return before is not None and before.get("cells") != now["cells"]

    @staticmethod
    def _read_note(path: Path) -> dict[str, object] | None:
        """Return what the sweep was when it ran last: empty where the note is damaged, None where there is none."""
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def drop_tables(self) -> None:
        """Remove the tables, so that they never show anything but the whole sweep."""
        for table in TABLES:
            (self.folder / table).unlink(missing_ok=True)

    def read(self, key: str) -> StoredCell | None:
        """Return a finished cell; None if it is not there, or damaged."""
        try:
            document = json.loads((self._cells / f"{key}.json").read_bytes())
            if not isinstance(document, dict) or document.pop("checksum") != _checksum(document):
                return None
            if (document["schema_version"], document["key"]) != (SCHEMA_VERSION, key):
                return None
            return StoredCell(CellAnswer(tuple(document["rows"]), document["error"]), document["seconds"])
        except (OSError, ValueError, KeyError, RecursionError):
            return None

    def keep(self, key: str, known: StoredCell) -> None:
        """Write a finished cell."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "key": key,
            "rows": known.answer.rows,
            "error": known.answer.error,
            "seconds": known.seconds,
        }
        checked = {**document, "checksum": _checksum(document)}
        write_atomically(self._cells / f"{key}.json", json.dumps(checked))

    def write_table(self, name: str, content: bytes) -> Path:
        """Write one of the tables."""
        path = self.folder / name
        write_atomically(path, content)
        return path


def _checksum(document: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()
