"""Where a trial and a profile keep what they measure: one question per folder, and a file per run as it ends.

Whatever ends a process leaves the runs that had ended, and who asks the same again goes on behind them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from truenorth.models.errors import QuestionError
from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import InputError, Scenario, write_atomically

_QUESTION = "question.json"


class KeptRuns:
    """The runs of one question.

    Parameters
    ----------
    folder
        Where they lie; made if it is not there.
    question
        What was asked, as JSON data: whatever decides what is measured.

    Raises
    ------
    QuestionError
        If the runs there are of another question.
    """

    def __init__(self, folder: Path, question: Mapping[str, Any]) -> None:
        self.folder = folder
        self._full: InputError | None = None
        asked = json.loads(json.dumps(question))
        before = self._read(folder / _QUESTION)
        if before is None:
            for path in self._files():
                path.unlink()  # nobody knows of which question
            self.write_first(partial(write_atomically, folder / _QUESTION, json.dumps(asked, indent=1) + "\n"))
        elif before != asked:
            key = next(key for key in {**before, **asked} if before.get(key) != asked.get(key))
            problem = f"holds runs of another question ({key}: {before.get(key)}, now {asked.get(key)})"
            raise QuestionError(f"{folder}: {problem}; allowed are that question and another folder")

    def write_first(self, write: Callable[[], object]) -> None:
        """Write what all runs are of; where that cannot be, the first run is measured, and told, and not kept."""
        try:
            write()
        except InputError as error:
            self._full = error

    def read(self, number: int) -> dict[str, Any] | None:
        """Return a run that has ended, by its number from 1 on; None if it has not, or its file is damaged."""
        return self._read(self._path(number))

    def keep(self, number: int, document: Mapping[str, Any]) -> None:
        """Write a run that has ended.

        Raises
        ------
        InputError
            If it cannot be written, or what it is of could not.
        """
        if self._full is not None:
            raise self._full
        write_atomically(self._path(number), json.dumps(document) + "\n")

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:04}.json"

    def _files(self) -> list[Path]:
        return list(self.folder.glob("*.json"))

    @staticmethod
    def _read(path: Path) -> dict[str, Any] | None:
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


@contextmanager
def keeping(folder: Path | None, question: Mapping[str, Any]) -> Iterator[KeptRuns | None]:
    """Open the folder of a question, and keep others out of it; without a folder nothing is kept.

    Raises
    ------
    QuestionError
        If somebody else is at work there, or its runs are of another question.
    """
    if folder is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        yield KeptRuns(folder, question)


def forget(folder: Path) -> None:
    """Remove runs that are kept elsewhere."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others out of a folder; the lock goes with the process, however it ends.

    Raises
    ------
    QuestionError
        If somebody else is at work in it.
    """
    with (folder / ".lock").open("w") as file:
        try:
            # The kernel lets it go with the process, even one that is killed; a file that says "busy" would stay.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = "somebody else is at work in this folder; wait for it, or name another folder"
            raise QuestionError(f"{folder}: {problem}") from None
        yield


def identity(scenario: Scenario) -> dict[str, str]:
    """Return what tells a scenario and its objective from others."""
    return {"scenario": scenario_hash(scenario.instance), "objective": str(scenario.objective)}


def digest_of_file(path: Path) -> str:
    """Return what tells the content of a file from others."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
