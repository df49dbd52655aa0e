"""The library: its files are what its page says, nothing that is not so enters, and what enters was computed again."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from experiments.library import __main__ as command
from experiments.library import page
from experiments.library.drawing import Drawn, draw_into
from experiments.library.improving import Attempt, work_on
from experiments.library.page import PolicyResult, ratios
from experiments.library.store import CERTIFICATE, FOLDER, PLAN, Found, Known, Library, NotEnteredError, packed, path_of
from truenorth.models import scenario_hash
from truenorth.models.objective import Objective
from truenorth.models.scenario import InputError, scenario_from
from truenorth.models.scenario.files import read_text
from truenorth.planner.command import manners
from truenorth.solvers.bounds.certificate import closed_form_document, refutation_document

# One GPU that loads a model in 10 us (10 B at 1 MB/s); a job of 100 us from 0 on, and one of 50 us from 20 on. No run
# begins before 10. The long one first: they end at 110 and 160. The short one first, at its release: at 170 and 70.
JOBS = [{"release": "0 us", "workflow": "long"}, {"release": "20 us", "workflow": "short"}]
CONTENT: dict[str, Any] = {
    "cluster": {
        "servers": 1,
        "gpu": {"kind": "any", "memory": "10 B", "load_bandwidth": "1 MB/s"},
        "network": {"bandwidth": "1 MB/s"},
    },
    "models": {"m": {"weights": "10 B"}},
    "workflows": {
        "long": {"tasks": {"run": {"models": ["m"], "runtime": "100 us"}}},
        "short": {"tasks": {"run": {"models": ["m"], "runtime": "50 us"}}},
    },
    "workload": {"jobs": JOBS},
    "objective": "mean_latency",
}
RESIDENCY = {"gpu": "s0/g0", "model": "m", "slot": None, "load_start_us": 0, "ready_us": 10, "end_us": None}


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Return a library of one instance of which nothing is known."""
    folder = tmp_path / "library"
    folder.mkdir()
    assert list(draw_into(Library(folder), [Drawn("two", "tiny", "", "", scenario_from(CONTENT))])) == ["two"]
    return Library(folder)


LONG_FIRST = [(0, 10, 110), (1, 110, 160)]  # worth (110 + 140) / 2 = 125 us
SHORT_FIRST = [(0, 70, 170), (1, 20, 70)]  # worth (170 + 50) / 2 = 110 us, the optimum
ALONE_US = 80  # critical paths: the load is over at 10, so jobs alone take 110 and 50 us


def plan(library: Library, runs: Sequence[tuple[int, int, int]], value: float, **changes: Any) -> dict[str, Any]:
    """Return a plan as somebody sends it: jobs with start and end, and what it says that it is worth."""
    made = {
        "schema_version": 1,
        "scenario_hash": library.entries["two"].scenario_hash,
        "objective": {"name": "mean_latency", "value": value},
        "tasks": [
            {"job": job, "task": "run", "gpu": "s0/g0", "start_us": begin, "end_us": end} for job, begin, end in runs
        ],
        "residencies": [RESIDENCY],
    }
    return {**made, **changes}


def submit(library: Library, file: Path) -> int:
    """Return the exit code of ``submit``."""
    return manners.run(command.app, ["submit", str(file), "--folder", str(library.folder)])


def sent(library: Library, document: object) -> Path:
    """Return a file beside the library that holds a document."""
    path = library.folder.parent / "sent.json"
    path.write_text(json.dumps(document))
    return path


def content(library: Library) -> dict[str, bytes]:
    """Return every file of a library."""
    return {str(path): path.read_bytes() for path in library.folder.rglob("*") if path.is_file()}


def certificate(library: Library, claim_us: int, **changes: Any) -> dict[str, Any]:
    """Return a certificate by critical paths."""
    instance = library.scenario("two").instance
    made = closed_form_document(instance, Objective.MEAN_LATENCY, "critical_path", Fraction(claim_us))
    return {**made, **changes}


def test_a_plan_enters_and_only_a_better_one_takes_its_place(library: Library) -> None:
    worse, best = plan(library, LONG_FIRST, 125e-6), plan(library, SHORT_FIRST, 110e-6)
    assert submit(library, sent(library, worse)) == 0
    assert library.known("two").value == 125
    assert submit(library, sent(library, best)) == 0
    before = content(library)
    assert submit(library, sent(library, worse)) == submit(library, sent(library, best)) == 1
    assert content(library) == before
    known = library.known("two")
    assert known.value == 110
    assert known.planned is not None
    assert known.planned.by == "submitted"


def test_a_certificate_enters_and_a_gap_is_between_what_was_checked(library: Library) -> None:
    assert submit(library, sent(library, certificate(library, ALONE_US))) == 0
    assert submit(library, sent(library, plan(library, SHORT_FIRST, 110e-6))) == 0
    known = library.known("two")
    assert (known.bound, known.method) == (Fraction(ALONE_US), "critical_path")
    assert known.gap == pytest.approx(30 / 110)
    assert not known.closed
    assert not library.is_closed("two")


def test_of_what_a_stranger_does_not_know_it_may_compute_less(tmp_path: Path) -> None:
    # With a model each, in turn, and no load beside a run: 10 + 100 + 10 + 50 us. Formulas know of one load.
    models = {"m": {"weights": "10 B"}, "n": {"weights": "10 B"}}
    short = {"tasks": {"run": {"models": ["n"], "runtime": "50 us"}}}
    workflows = {"long": CONTENT["workflows"]["long"], "short": short}
    changes = {"models": models, "workflows": workflows, "objective": "makespan", "options": {"overlap_loads": False}}
    assert list(draw_into(Library(tmp_path), [Drawn("two", "tiny", "", "", scenario_from(CONTENT | changes))])) == [
        "two"
    ]
    library = Library(tmp_path)
    instance = library.scenario("two").instance
    known_us = closed_form_document(instance, Objective.MAKESPAN, "energetic", Fraction(160))
    document = refutation_document(instance, Objective.MAKESPAN, Fraction(170), [[1]], known_us)
    entered = library.enter_certificate("two", document, Found("somebody"))
    assert (entered.bound, entered.method) == (Fraction(170), "refutation")
    assert entered.strangers is not None
    assert entered.strangers < 170e-6
    assert f"{entered.strangers:.7g}" in page.instances([entered])


def test_what_a_plan_says_of_all_plans_is_left_out(library: Library) -> None:
    said = {"status": "OPTIMAL", "lower_bound": 110e-6, "bound_method": "trust me", "gap": 0.0}
    assert submit(library, sent(library, plan(library, SHORT_FIRST, 110e-6, **said))) == 0
    known = library.known("two")
    assert known.claimed is None
    assert not known.closed_uncertified


def _another_hash(library: Library) -> object:
    return plan(library, SHORT_FIRST, 110e-6, scenario_hash="0" * 64)


BAD = {
    "a plan for another scenario": (2, _another_hash),
    "a value that its timeline does not have": (1, lambda library: plan(library, SHORT_FIRST, 109e-6)),
    "a run before the load is over": (1, lambda library: plan(library, [(0, 70, 170), (1, 9, 59)], 104.5e-6)),
    "two runs at a time": (1, lambda library: plan(library, [(0, 10, 110), (1, 20, 70)], 80e-6)),
    "a job left out": (1, lambda library: plan(library, SHORT_FIRST[:1], 170e-6)),
    "what happened": (1, lambda library: plan(library, SHORT_FIRST, 110e-6, realised=True)),
    "a value of another objective": (
        1,
        lambda library: plan(library, SHORT_FIRST, 0, objective={"name": "makespan", "value": 170e-6}),
    ),
    "an unknown GPU": (
        2,
        lambda library: plan(library, SHORT_FIRST, 110e-6, residencies=[{**RESIDENCY, "gpu": "s7/g0"}]),
    ),
    "a certificate that claims more": (1, lambda library: certificate(library, ALONE_US + 1)),
    "a certificate of another objective": (1, lambda library: certificate(library, 1, objective="makespan")),
    "a certificate by an unknown method": (1, lambda library: certificate(library, 1, method="faith")),
    "neither": (1, lambda library: {"scenario_hash": library.entries["two"].scenario_hash}),
    "a list": (2, lambda library: []),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_hold_is_refused_in_one_line_and_changes_nothing(
    library: Library, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = BAD[case]
    assert submit(library, sent(library, plan(library, LONG_FIRST, 125e-6))) == 0
    before = content(library)
    capsys.readouterr()
    assert submit(library, sent(library, document(library))) == code
    assert content(library) == before
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_is_no_file_of_a_claim_is_refused(library: Library, capsys: pytest.CaptureFixture[str]) -> None:
    huge, text = library.folder.parent / "huge.json", library.folder.parent / "text.json"
    with huge.open("wb") as file:
        file.truncate(2_000_000_000)  # sparse: it takes no room
    text.write_text('{"scenario_hash": ')
    before = content(library)
    for path in (huge, text, library.folder, library.folder / "nowhere.json"):
        assert submit(library, path) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert content(library) == before


def test_tampered_files_are_refused_or_worth_what_they_say(library: Library) -> None:
    """Every number of plan and certificate is changed at random: nothing is accepted that was not computed again."""
    assert submit(library, sent(library, plan(library, SHORT_FIRST, 110e-6))) == 0
    assert submit(library, sent(library, certificate(library, ALONE_US))) == 0
    rng, refused = random.Random(0), 0
    for sort, worth in ((PLAN, Fraction(110)), (CERTIFICATE, Fraction(ALONE_US))):
        path = path_of(library.folder, sort, library.entries["two"])
        whole = path.read_bytes()
        for _ in range(40):
            document = library.stored(sort, "two")
            _change_a_number(document, rng)
            path.write_bytes(packed(path, json.dumps(document)))
            try:
                known = library.known("two")
            except (NotEnteredError, InputError):
                refused += 1
            else:
                assert worth == (known.value if sort == PLAN else known.bound)
            path.write_bytes(whole)
    assert refused > 40


def _change_a_number(document: dict[str, Any], rng: random.Random) -> None:
    """Add 1 or 10 to one of a document's numbers, or take as much away; but for those that say who found it."""
    places: list[tuple[Any, Any]] = []
    parts: list[tuple[Any, Any]] = [(document, key) for key in document if key != "found"]
    while parts:
        owner, key = parts.pop()
        inside = owner[key]
        if isinstance(inside, dict | list):
            parts += [(inside, each) for each in (inside if isinstance(inside, dict) else range(len(inside)))]
        elif isinstance(inside, int | float) and not isinstance(inside, bool):
            places.append((owner, key))
    owner, key = rng.choice(places)
    owner[key] += rng.choice((-10, -1, 1, 10)) * (1 if isinstance(owner[key], int) else 1e-6)


def test_an_attempt_closes_what_it_can_prove(tmp_path: Path) -> None:
    # A single job of 100 us behind a load of 10 us: it ends at 110 us, as its critical path says.
    content = {**CONTENT, "workload": {"jobs": JOBS[:1]}}
    folder = tmp_path / "library"
    folder.mkdir()
    library = Library(folder)
    assert list(draw_into(library, [Drawn("one", "tiny", "", "", scenario_from(content))])) == ["one"]
    attempt = Attempt.of(Library(folder), "one", {}, 1.0)
    assert work_on(attempt) == "one: plan 0.00011; bound 0.00011 (critical_path)"
    known = Library(folder).known("one")
    assert known.closed
    assert known.value == known.bound == 110
    assert attempt.tried == {"runs": 1, "longest_s": 1.0}
    assert command._open(Library(folder), ["one"], 1.0) == []


def test_the_page_counts_what_is_closed_and_how_far_policies_are(library: Library) -> None:
    entry = library.entries["two"]
    closed = Known(entry, Objective.MEAN_LATENCY, 2, Fraction(100), Fraction(100))
    word = Known(entry, Objective.MEAN_LATENCY, 2, Fraction(100), Fraction(80), claimed=100e-6)
    still = Known(entry, Objective.MEAN_LATENCY, 2, Fraction(100), Fraction(90))
    assert [each.closed for each in (closed, word, still)] == [True, False, False]
    assert [each.closed_uncertified for each in (closed, word, still)] == [False, True, False]
    # Mean of gaps of 20 and 10 per cent.
    assert "| tiny | 3 | 1 | 1 | 15.00 % |" in page.classes([closed, word, still])
    other = replace(closed, entry=replace(entry, name="other"))
    results = [
        PolicyResult("two", "jit", 200e-6),
        PolicyResult("other", "jit", 800e-6),
        PolicyResult("two", "lru", None),
    ]
    assert ratios([closed, other], results) == {"jit": {"tiny": pytest.approx(4)}}  # the root of 2 x 8


_TIME, _SIZE = re.compile(r"\d+ us|end"), re.compile(r"\d+ B(/s)?")
_QUANTITIES = {
    **dict.fromkeys(("release", "deadline", "load_overhead", "latency"), _TIME),
    **dict.fromkeys(("weights", "memory", "load_bandwidth", "bandwidth"), _SIZE),
}


def _quantities(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every quantity of an instance with its key."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key in _QUANTITIES:
                yield key, inside
            yield from _quantities(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from _quantities(inside)


@pytest.mark.parametrize("name", Library().entries)
def test_instances_are_what_the_catalogue_and_the_page_say(name: str) -> None:
    library = Library()
    entry = library.entries[name]
    text = read_text(library.instance_path(name))
    written = json.loads(text)
    scenario = scenario_from(written)
    assert (scenario.name, scenario_hash(scenario.instance), scenario.instance.n_tasks) == (
        name,
        entry.scenario_hash,
        entry.tasks,
    )
    assert list(written["workload"]) == ["jobs"]
    assert all(_QUANTITIES[key].fullmatch(value) for key, value in _quantities(written))
    releases = [job.release_us for job in scenario.instance.jobs]
    assert [int(job["release"].removesuffix(" us")) for job in written["workload"]["jobs"]] == sorted(releases)


def test_the_library_is_small_enough_for_a_clone() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 9_000_000
