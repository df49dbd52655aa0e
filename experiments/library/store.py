"""What the library holds: instances, each with its best plan and bound; nothing enters that was not checked.

Who found a plan or a bound stands in its file, so that one rename enters both or neither.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from truenorth.models.objective import Objective, gap, proves, reported_bound, reported_value, timeline_value
from truenorth.models.scenario import (
    InputError,
    Scenario,
    TimelineHeader,
    load_scenario,
    read_timeline,
    timeline_document,
    write_atomically,
)
from truenorth.models.scenario.files import PACKED, read_text
from truenorth.models.scenario.reading import NUMBERS, JSONText
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.check import checked
from truenorth.planner.answers.verify import verify_file

Data = dict[str, Any]

FOLDER = Path(__file__).parent
VERIFIER = FOLDER / "verifier.py"
INSTANCE, PLAN, CERTIFICATE = "instances", "plans", "certificates"
_PACKED_TASKS = 1_000
"""Instances of so many tasks, and their plans, are packed; certificates always are."""
_MOST_BYTES = 2_000_000
"""Of a packed file, so that the library stays small enough for a clone."""
_ROUNDING = 1e-9
_LONGEST_CHECK_S = 600


class NotEnteredError(Exception):
    """What was submitted does not hold, or is no better than what is known; the message says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """Who found a plan or a bound, and with what."""

    by: str
    commit: str | None = None
    seed: int | None = None
    seconds: float | None = None
    machine: str | None = None
    date: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An instance as the catalogue has it; `known` is what the literature knows of its optimum: bound and value."""

    name: str
    sort: str
    words: str
    source: str
    scenario_hash: str
    tasks: int
    known: tuple[float, float] | None = None


def path_of(folder: Path, sort: str, entry: Entry) -> Path:
    """Return where an instance, its plan or its certificate lies."""
    packed = sort == CERTIFICATE or entry.tasks >= _PACKED_TASKS
    return folder / sort / f"{entry.name}.json{PACKED if packed else ''}"


def packed(path: Path, text: str) -> bytes:
    """Return what a file holds: the text, packed if its name says so; the same text gives the same bytes."""
    return gzip.compress(text.encode(), mtime=0) if path.suffix == PACKED else text.encode()


@dataclass(frozen=True)
class Known:
    """What is known of an instance: its best plan and bound as computed again, and what its plan's finder claims.

    `claimed` is a bound, in the objective's unit, that a solver proved without a certificate; `strangers` what the
    stranger's verifier computes from the certificate, which may not know all methods.
    """

    entry: Entry
    objective: Objective
    jobs: int
    value: Fraction | None = None
    bound: Fraction | None = None
    method: str = ""
    claimed: float | None = None
    claimed_method: str = ""
    planned: Found | None = None
    proved: Found | None = None
    strangers: float | None = None

    @property
    def gap(self) -> float | None:
        """The gap between plan and certified bound."""
        return None if self.value is None else gap(self.value, self.bound)

    @property
    def closed(self) -> bool:
        """Whether the certified bound meets the plan."""
        return proves(self.value, self.bound)

    @property
    def closed_uncertified(self) -> bool:
        """Whether a bound without certificate meets the plan."""
        return not self.closed and self.value is not None and proves(self._reported, _fraction(self.claimed))

    @cached_property
    def _reported(self) -> Fraction | None:
        return None if self.value is None else Fraction(reported_value(self.objective, self.value))

    @property
    def shown(self) -> tuple[float | None, float | None]:
        """Value and bound in the objective's unit."""
        value = None if self.value is None else reported_value(self.objective, self.value)
        return value, None if self.bound is None else reported_bound(self.objective, self.bound)


def _fraction(value: float | None) -> Fraction | None:
    return None if value is None else Fraction(value)


@dataclass(frozen=True)
class Library:
    """A folder with instances, plans and certificates."""

    folder: Path = FOLDER

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """The catalogue, by name."""
        path = self.folder / "instances.json"
        listed = json.loads(read_text(path)) if path.exists() else {}
        return {name: Entry(**entry) for name, entry in listed.items()}

    def instance_path(self, name: str) -> Path:
        """Return where an instance lies."""
        return self._path(INSTANCE, name)

    def _path(self, sort: str, name: str) -> Path:
        return path_of(self.folder, sort, self.entries[name])

    def scenario(self, name: str) -> Scenario:
        """Return an instance."""
        return load_scenario(self.instance_path(name))

    def known(self, name: str) -> Known:
        """Check again what is known of an instance.

        Raises
        ------
        NotEnteredError
            If a plan or certificate does not hold.
        """
        scenario, entry = self.scenario(name), self.entries[name]
        found: Data = {}
        paths = {sort: path for sort in (PLAN, CERTIFICATE) if (path := self._path(sort, name)).exists()}
        if PLAN in paths:
            value, header = check_plan(scenario, paths[PLAN])
            found = {"value": value, "planned": _found(paths[PLAN])}
            found |= {"claimed": header.lower_bound, "claimed_method": header.bound_method or ""}
        if CERTIFICATE in paths:
            bound, method = check_certificate(scenario, paths[CERTIFICATE])
            found |= {"bound": bound, "method": method, "proved": _found(paths[CERTIFICATE])}
        known = Known(entry, scenario.objective, len(scenario.instance.jobs), **found)
        shown = dict(zip((PLAN, CERTIFICATE), known.shown, strict=True))
        its = ask_stranger(self.instance_path(name), paths, shown)
        return replace(known, strangers=its.get(CERTIFICATE))

    def plan(self, name: str) -> Timeline | None:
        """Return the best known plan of an instance."""
        path = self._path(PLAN, name)
        return read_timeline(path, self.scenario(name).instance).timeline if path.exists() else None

    def enter_plan(self, name: str, timeline: Timeline, header: TimelineHeader, found: Found) -> Known:
        """Enter a plan if every check holds and it is better than the best known one.

        Raises
        ------
        NotEnteredError
            If not; the library is then as it was.
        """
        scenario = self.scenario(name)
        return self._enter(PLAN, name, timeline_document(scenario.instance, timeline, header), found)

    def submit_plan(self, name: str, path: Path, found: Found) -> Known:
        """Enter a plan of anybody's: what it says of its timeline must be so, what it says of all plans is left out.

        Raises
        ------
        InputError
            If the file is no plan.
        NotEnteredError
            As `enter_plan`.
        """
        scenario = self.scenario(name)
        value, header = check_plan(scenario, path)
        said = {key: getattr(header, key) for key in ("solver", "seed", "runtime_s", "versions")}
        kept = TimelineHeader(
            status="FEASIBLE",
            objective=str(scenario.objective),
            value=reported_value(scenario.objective, value),
            **said,
        )
        return self.enter_plan(name, read_timeline(path, scenario.instance).timeline, kept, found)

    def enter_certificate(self, name: str, document: Data, found: Found) -> Known:
        """Enter a certificate if every check holds and it proves more than is known; NotEnteredError if not."""
        return self._enter(CERTIFICATE, name, document, found)

    def _enter(self, sort: str, name: str, document: Data, found: Found) -> Known:
        target = self._path(sort, name)
        text = json.dumps({**document, "found": asdict(found)}, separators=(",", ":"), allow_nan=False)
        data = packed(target, text)
        if len(data) > _MOST_BYTES:
            raise NotEnteredError(f"{name}: takes {len(data)} bytes; allowed are {_MOST_BYTES}")
        with self._alone(), tempfile.TemporaryDirectory() as aside:
            # The candidate is judged where nobody takes it for a part of the library, by those who judge the rest.
            candidate = Library(self._beside(Path(aside), name))
            candidate._path(sort, name).write_bytes(data)
            try:
                judged = candidate.known(name)
            except NotEnteredError as refused:
                raise NotEnteredError(str(refused).replace(f"{aside}/", "")) from None
            self._compare(name, sort, document)
            target.parent.mkdir(exist_ok=True)
            write_atomically(target, data)
        return judged

    def _compare(self, name: str, sort: str, document: Data) -> None:
        """Refuse what is no better than what is known, or contradicts it; what lies here was checked when it came."""
        plan, certificate = self.stored(PLAN, name), self.stored(CERTIFICATE, name)
        known = plan if sort == PLAN else certificate
        if known and _merit(sort, document) <= _merit(sort, known):
            raise NotEnteredError(f"{name}: holds, but is no better than the {_number(sort, known):.9g} that is known")
        plan, certificate = (document, certificate) if sort == PLAN else (plan, document)
        if plan and certificate and _number(PLAN, plan) < _number(CERTIFICATE, certificate) * (1 - _ROUNDING):
            raise NotEnteredError(f"{name}: plan and bound contradict each other; one of the checks is wrong")

    def stored(self, sort: str, name: str) -> Data:
        """Return the file of the best plan or certificate of an instance as it lies here; empty if there is none."""
        path = self._path(sort, name)
        return json.loads(read_text(path)) if path.exists() else {}

    def is_closed(self, name: str) -> bool:
        """Say whether the certified bound meets the best plan, as their files say."""
        plan, certificate = self.stored(PLAN, name), self.stored(CERTIFICATE, name)
        if not plan or not certificate:
            return False
        return proves(Fraction(_number(PLAN, plan)), Fraction(_number(CERTIFICATE, certificate)))

    def _beside(self, aside: Path, name: str) -> Path:
        """Return a library of one instance, of which nothing is known."""
        for sort in (INSTANCE, PLAN, CERTIFICATE):
            (aside / sort).mkdir()
        for path in (self.folder / "instances.json", self.instance_path(name)):
            (aside / path.relative_to(self.folder)).symlink_to(path.resolve())
        return aside

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others out between comparing and writing, or the worse of two could be written last."""
        with (self.folder / "instances.json").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _found(path: Path) -> Found:
    return Found(**json.loads(read_text(path))["found"])


def known_of(asked: tuple[Path, str]) -> Known:
    """Check again what is known of an instance of a library."""
    folder, name = asked
    return Library(folder).known(name)


def _number(sort: str, document: Data) -> float:
    """Return the value of a plan or the bound of a certificate."""
    return float(document["objective"]["value"] if sort == PLAN else document["lower_bound"])


def _merit(sort: str, document: Data) -> tuple[float, float]:
    """Return what is larger the better a claim is; of equal plans the one whose finder proved more."""
    number = _number(sort, document)
    return (-number, document["lower_bound"] or 0) if sort == PLAN else (number, 0)


def check_plan(scenario: Scenario, path: Path) -> tuple[Fraction, TimelineHeader]:
    """Return the value of a plan and what its file says of it; NotEnteredError if a rule or a claim is broken."""
    file = read_timeline(path, scenario.instance)
    if file.timeline.realised:
        raise NotEnteredError(f"{path}: is what happened; allowed is a plan, in the given times")
    if file.header.objective != str(scenario.objective) or file.header.value is None:
        raise NotEnteredError(
            f"{path}: is a plan for {file.header.objective}; allowed is {scenario.objective}, with value"
        )
    found = checked(scenario.objective, scenario.instance, file)
    if found.violations:
        more = f" (and {len(found.violations) - 1} more)" if len(found.violations) > 1 else ""
        raise NotEnteredError(f"{path}: {found.violations[0]}{more}")
    return timeline_value(scenario.objective, scenario.instance, file.timeline), file.header


def check_certificate(scenario: Scenario, path: Path) -> tuple[Fraction, str]:
    """Return the bound that a certificate proves, computed again, and its method; NotEnteredError if it claims more."""
    verdict = verify_file(scenario, path)
    if not verdict.valid or verdict.lower_bound is None:
        raise NotEnteredError(f"{path}: {verdict.reason}")
    document = json.loads(read_text(path))
    if document["objective"] != str(scenario.objective):
        raise NotEnteredError(f"{path}: bounds {document['objective']}; allowed is {scenario.objective}")
    return verdict.lower_bound, document["method"]


def ask_stranger(
    instance: Path, paths: Mapping[str, Path], shown: Mapping[str, float | None]
) -> Mapping[str, float | None]:
    """Have the verifier that shares no line with the project judge files of an instance; return what it computes.

    Raises
    ------
    NotEnteredError
        If it refuses one, or computes another value; of a method that it does not know it may compute less.
    """
    if not paths or not VERIFIER.exists():
        return {}
    command = [sys.executable, str(VERIFIER), str(instance), *map(str, paths.values())]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_CHECK_S, check=False)  # noqa: S603
    said = [json.loads(line) for line in asked.stdout.splitlines()]
    if len(said) != len(paths):
        raise NotEnteredError(f"{instance}: the stranger's verifier fails: {asked.stderr.strip().splitlines()[-1:]}")
    computed: dict[str, float | None] = {}
    for (sort, path), verdict in zip(paths.items(), said, strict=True):
        if verdict["holds"] is False:
            raise NotEnteredError(f"{path}: refused by the stranger's verifier: {verdict['reason']}")
        mine, its = shown[sort], verdict.get("value" if sort == PLAN else "lower_bound")
        known = verdict["holds"] is not None
        if mine is not None and its is not None:
            differs, slack = (abs(its - mine) if known else its - mine), _ROUNDING * max(1, abs(mine))
            if differs > slack:
                raise NotEnteredError(f"{path}: is {mine!r} here and {its!r} to the stranger's verifier")
        computed[sort] = its
    return computed


def read_claim(path: Path) -> Data:
    """Return what a file that somebody submits says.

    Raises
    ------
    InputError
        If it cannot be read, is too large, or is no JSON object.
    """
    data = JSONText(read_text(path), str(path)).data(NUMBERS)
    if not isinstance(data, dict):
        raise InputError(str(path), 1, "file", "is no object; allowed is a plan or a certificate")
    return data
