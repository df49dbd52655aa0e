"""One cell of a sweep: a changed scenario and a question, its answer in rows of plain figures, on a warm worker.

Finished cells are kept in a folder: one small file each, written whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truenorth.executor import POLICIES, PolicyError
from truenorth.models.errors import QuestionError
from truenorth.models.features import PRESENT, Feature
from truenorth.models.record import encode
from truenorth.models.scenario import InputError, Scenario, scenario_from, write_atomically
from truenorth.planner.answers.ask import ask_within, budget_of
from truenorth.planner.answers.policies.parse import is_own
from truenorth.planner.answers.versions import versions
from truenorth.planner.answers.whatif.verbs import VERBS, Row, policy_names
from truenorth.planner.questions.policies import SimulateQuestion
from truenorth.planner.questions.question import Question
from truenorth.planner.questions.searches import PlanQuestion


@dataclass(frozen=True, slots=True)
class CellCall:
    """What a cell asks: plain data, so that it can be sent to another process and hashed.

    Parameters
    ----------
    data, folder
        The scenario with the keys of a scenario file, and what paths in it are relative to.
    question
        What is asked of it.
    ideals_us
        What slowdowns divide by, by workflow, in place of its own critical paths.
    """

    data: Mapping[str, object]
    folder: str
    question: Question
    ideals_us: Mapping[str, int] = field(default_factory=dict)

    def key(self) -> str:
        """Return the SHA-256 of all that the answer depends on: scenario, question, trace, policies, versions.

        A policy of the user's counts with the file that defines it, not with what that file imports.
        """
        files = [_digest(path) for path in (*self._traces(), *self._policy_files())]
        reference = [self.ideals_us] if self.ideals_us else []
        text = json.dumps([versions(), self.question.key(), self.data, files, *reference])
        return hashlib.sha256(text.encode()).hexdigest()

    def _traces(self) -> list[Path]:
        workload = self.data.get("workload")
        trace = workload.get("trace") if isinstance(workload, Mapping) else None
        file = trace.get("file") if isinstance(trace, Mapping) else None
        return [Path(self.folder) / file] if isinstance(file, str) else []

    @property
    def own_policies(self) -> list[str]:
        """Policies of the user's, of which workers that are kept would not see a later version."""
        return [name.strip() for name in policy_names(self.question) if is_own(name) and ":" in name]

    @property
    def only_here(self) -> bool:
        """Whether no other process can answer: a notebook, or the program that runs, defines a policy."""
        return any(name.startswith(_MAIN) for name in self.own_policies)

    @property
    def is_quick(self) -> bool:
        """Whether it may well be answered before a worker has started: a simulation without a solver."""
        asked = self.question
        return isinstance(asked, SimulateQuestion) and asked.policy.strip().partition(":")[0] in POLICIES

    def _policy_files(self) -> list[Path]:
        """Return the files of policies of the user's."""
        own = [name for name in self.own_policies if not name.startswith(_MAIN)]
        found = [find_spec(name.partition(":")[0]) for name in own]
        return [Path(spec.origin) for spec in found if spec is not None and spec.origin is not None]


def _digest(path: Path) -> str | None:
    """Return a digest of a file; of one that cannot be read, or only once, as a pipe, there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class CellAnswer:
    """What a cell came to: its rows, or why it has none; the answer itself if it is kept, and how long it took."""

    rows: tuple[Row, ...]
    error: str | None = None
    made: Any = None
    seconds: float = 0.0


_MAIN = "__main__:"
"""What the names of policies begin with that no other process can import."""
_LONGEST_S = 2.0
"""Time limit of a plan that is made for the sake of what it loads."""
_warm: set[tuple[str, bool, bool]] = set()
"""What this process has planned before, by what decides which kernels it took: objective, batches, runs at a time."""


def answer(call: CellCall, stop: threading.Event | None = None, *, keep: bool = False) -> CellAnswer:
    """Return the answer of a cell, whose time runs once the process is warm; a refused scenario is an answer too.

    Raises
    ------
    StoppedError
        If a simulation was stopped.
    """
    try:
        question, scenario = call.question, scenario_from(call.data, call.folder).with_ideals(call.ideals_us)
        if hasattr(question, "time_limit_s"):
            warm_up(scenario, question.time_limit_s)
        budget = replace(budget_of(question), workers=1)
        made = ask_within(question, scenario, budget if stop is None else replace(budget, stop=stop))
        rows = map(encode, VERBS[question.verb].rows(question, made))
        said: Row = {"ideal_times": _whose(scenario, call.ideals_us)} if call.ideals_us else {}
        return CellAnswer(tuple({**row, **said} for row in rows), made=made if keep else None)
    except (InputError, PolicyError, QuestionError) as refused:
        return CellAnswer((), " ".join(str(refused).split()))


def _whose(scenario: Scenario, ideals_us: Mapping[str, int]) -> str:
    """Say by whose ideal times slowdowns are: the baseline's, unless workflows are new or have several."""
    names = [workflow.name for workflow in scenario.instance.catalogue]
    own = scenario.ideals_us
    return "baseline" if all(name in own and own[name] == ideals_us.get(name) for name in names) else "own"


def warm_up(scenario: Scenario, time_limit_s: float) -> None:
    """Plan the scenario, and throw the plan away, until a plan loads nothing more.

    Nothing is done if this process has planned its like before. A plan that has to compile what begins a search has no
    time left for what comes later, so that one of them is not enough.

    Parameters
    ----------
    time_limit_s
        How long is going to be planned: a shorter search takes other ways.
    """
    from truenorth.solvers.first_use import compile_once, count_loaded

    instance = scenario.instance
    like = (str(scenario.objective), bool(instance.batches), instance.one_at_a_time)
    if like in _warm:
        return
    compile_once(instance)
    if PRESENT[Feature.DEGREES](instance):  # of which there is no plan before engines are chosen
        return
    loaded = -1
    while loaded < (now := count_loaded()):
        loaded = now
        short = PlanQuestion(time_limit_s=min(time_limit_s, _LONGEST_S), workers=1)
        ask_within(short, scenario, budget_of(short))
    _warm.add(like)


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


class Store:
    """The folder of a sweep.

    ``cells/KEY.json`` holds one finished cell, and a checksum: a file that is damaged counts as missing.
    ``sweep.json`` says which cells the sweep consisted of when it ran last.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cells = folder / "cells"
        self._cells.mkdir(parents=True, exist_ok=True)

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

    def read(self, key: str) -> CellAnswer | None:
        """Return a finished cell; None if it is not there, or damaged."""
        try:
            document = json.loads((self._cells / f"{key}.json").read_bytes())
            if not isinstance(document, dict) or document.pop("checksum") != _checksum(document):
                return None
            if (document["schema_version"], document["key"]) != (SCHEMA_VERSION, key):
                return None
            return CellAnswer(tuple(document["rows"]), document["error"], seconds=document["seconds"])
        except (OSError, ValueError, KeyError, RecursionError):
            return None

    def keep(self, key: str, known: CellAnswer) -> None:
        """Write a finished cell."""
        document: dict[str, object] = {"schema_version": SCHEMA_VERSION, "key": key}
        document |= {"rows": known.rows, "error": known.error, "seconds": known.seconds}
        write_atomically(self._cells / f"{key}.json", json.dumps({**document, "checksum": _checksum(document)}))

    def write_table(self, name: str, content: bytes) -> Path:
        """Write one of the tables."""
        path = self.folder / name
        write_atomically(path, content)
        return path


def _checksum(document: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()
