"""One cell of a sweep: a changed scenario and a verb; its answer in rows of plain figures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from executor import PolicyError
from models.errors import QuestionError
from models.scenario import InputError, scenario_from
from models.scenario.errors import Source
from models.scenario.section import validate
from planner.answers.policies.parse import is_own
from planner.answers.versions import versions
from planner.answers.whatif.verbs import VERBS, Row, Verb


@dataclass(frozen=True, slots=True)
class CellCall:
    """What a cell asks: plain data, so that it can be sent to another process and hashed.

    Parameters
    ----------
    data, folder
        The scenario with the keys of a scenario file, and what paths in it are relative to.
    verb, settings
        What is done with it, and what the verb is told.
    """

    data: Mapping[str, object]
    folder: str
    verb: str
    settings: Mapping[str, object]

    def told(self) -> Verb:
        """Return the verb with its settings.

        Raises
        ------
        InputError
            If a setting is wrong.
        """
        return validate(VERBS[self.verb], self.settings, Source(self.verb, Path(self.folder)))

    def key(self) -> str:
        """Return the SHA-256 of all that the answer depends on: scenario, verb, trace, policies, versions.

        A policy of the user's counts with the file that defines it, not with what that file imports.
        """
        files = [_digest(path) for path in (*self._traces(), *self._policy_files())]
        text = json.dumps([versions(), self.verb, self.settings, self.data, files])
        return hashlib.sha256(text.encode()).hexdigest()

    def _traces(self) -> list[Path]:
        workload = self.data.get("workload")
        trace = workload.get("trace") if isinstance(workload, Mapping) else None
        file = trace.get("file") if isinstance(trace, Mapping) else None
        return [Path(self.folder) / file] if isinstance(file, str) else []

    def _policy_files(self) -> list[Path]:
        """Return the files of policies of the user's."""
        own = [name for name in self.told().policy_names() if is_own(name) and ":" in name]
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
    """What a cell came to: its rows, or why its scenario or policy cannot be used."""

    rows: tuple[Row, ...]
    error: str | None = None


def answer(call: CellCall) -> CellAnswer:
    """Return the answer of a cell; that a scenario or a policy is refused is an answer too."""
    try:
        verb, scenario = call.told(), scenario_from(call.data, call.folder)
        verb.warm_up(scenario)
        return CellAnswer(tuple(verb.rows(scenario)))
    except (InputError, PolicyError, QuestionError) as refused:
        return CellAnswer((), " ".join(str(refused).split()))
