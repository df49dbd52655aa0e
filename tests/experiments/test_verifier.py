"""The stranger's verifier: examples by hand, every rule broken once, hostile files, never another answer than ours."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.library.drawing import Drawn, draw_into
from experiments.library.improving import Attempt, work_on
from experiments.library.store import CERTIFICATE, PLAN, VERIFIER, Library
from experiments.library.tampering import asked, tamper
from experiments.library.verifier import METHODS, Window, judge, main, read
from tests.experiments import closed_forms, drawn_windows
from truenorth.models.instance import InstanceError
from truenorth.models.scenario import InputError, scenario_from

PAGE = Path(__file__).parents[2] / "docs" / "certificate.md"


def library_of(folder: Path, **contents: Any) -> Library:
    """Return a library of these scenarios."""
    folder.mkdir(exist_ok=True)
    drawn = [Drawn(name, "tiny", "", "", scenario_from(content)) for name, content in contents.items()]
    assert list(draw_into(Library(folder), drawn)) == list(contents)
    return Library(folder)


def window_of(library: Library, name: str) -> Window:
    return Window(read(str(library.instance_path(name))))


def judged(window: Window, content: Any, folder: Path) -> dict[str, Any]:
    """Return what the verifier says of a file with this content."""
    file = folder / "judged.json"
    file.write_text(json.dumps(content))
    return judge(window, str(file))


def by_hand(name: str) -> str:
    """Return a file of docs/certificate.md."""
    found = re.search(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def example() -> dict[str, Any]:
    """Return the window of the page; in the library a network has a bandwidth, which nothing here uses."""
    content: dict[str, Any] = yaml.safe_load(by_hand("two.yaml"))
    return content | {"cluster": content["cluster"] | {"network": {"bandwidth": "1 MB/s"}}}


@pytest.fixture
def two(tmp_path: Path) -> Window:
    """Return the window of the page's example: a load of 3 us, then two runs of 4 us."""
    return window_of(library_of(tmp_path / "library", two=example()), "two")


def test_the_example_of_the_page_proves_nine_microseconds(two: Window, tmp_path: Path) -> None:
    certificate = json.loads(by_hand("by_hand.json")) | {"scenario_hash": two.hash}
    found = judged(two, certificate, tmp_path)
    assert (found["holds"], found["lower_bound"]) == (True, 0.000008999999999999999)  # 9 / 1,000,000, rounded down
    refused = judged(two, certificate | {"lower_bound": 9}, tmp_path)
    assert (refused["holds"], refused["lower_bound"]) == (False, 0.000008999999999999999)
    # One price of compute less: the jobs pay 10 with delay 3 and 11 with delay 4, the model earns 2, compute costs 1.
    certificate["prices"]["compute"][0][4] = 0
    assert judged(two, certificate, tmp_path)["lower_bound"] == 8.5e-06  # (2 x 10 - 2 - 1) / 2


# Two GPUs of 10 bytes on two servers, 1 B/us to load and 1 B/us + 2 us between them; m has 5 bytes, n 6.
CONTENT = {
    "cluster": {
        "groups": [
            {
                "count": 2,
                "gpus_per_server": 1,
                "gpu": {"kind": "G", "memory": "10 B", "load_bandwidth": "1 MB/s"},
                "available": [["0 us", "100 us"], ["200 us", "end"]],
            }
        ],
        "network": {"latency": "2 us", "bandwidth": "1 MB/s"},
    },
    "models": {"m": {"weights": "5 B"}, "n": {"weights": "6 B"}},
    "batches": {"c": {"models": ["m"], "runtime": {"*": {"1": "10 us", "2": "15 us"}}, "share": 0.5, "memory": "1 B"}},
    "workflows": {
        "pair": {"tasks": {"a": {"batch": "c"}, "b": {"models": ["n"], "runtime": "20 us", "after": {"a": "4 B"}}}},
        "one": {"tasks": {"a": {"batch": "c"}}},
    },
    "workload": {"jobs": [{"release": "0 us", "workflow": "pair"}, {"release": "3 us", "workflow": "one"}]},
    "objective": "mean_latency",
    "options": {"initial_residency": [{"gpu": "s0/g0", "model": "m"}]},
}


def stay(gpu: str, model: str, start: int, ready: int, end: int | None, **more: Any) -> dict[str, Any]:
    return {"gpu": gpu, "model": model, "slot": None, "load_start_us": start, "ready_us": ready, "end_us": end, **more}


def run(job: int, task: str, gpu: str, start: int, end: int) -> dict[str, Any]:
    return {"job": job, "task": task, "gpu": gpu, "start_us": start, "end_us": end}


# Both tasks of the class together from 3 to 18; 4 bytes are at the other GPU at 18 + 2 + 4 = 24; n is there from 6.
TASKS = [run(0, "a", "s0/g0", 3, 18), run(1, "a", "s0/g0", 3, 18), run(0, "b", "s1/g0", 24, 44)]
STAYS = [stay("s0/g0", "m", 0, 0, 100, initial=True), stay("s1/g0", "n", 0, 6, 100)]


def plan_of(
    window: Window, tasks: Any = TASKS, stays: Any = STAYS, value: float = 29.5e-6, **more: Any
) -> dict[str, Any]:
    objective = {"name": "mean_latency", "value": value}  # (44 + 15) / 2
    made = {
        "schema_version": 1,
        "scenario_hash": window.hash,
        "objective": objective,
        "tasks": tasks,
        "residencies": stays,
    }
    return made | more


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "1 left out": ("a task is missing", {"tasks": TASKS[:2]}),
    "1 twice": ("runs twice", {"tasks": [*TASKS, TASKS[0]]}),
    "1 before its release": ("no whole number", {"tasks": [TASKS[0], run(1, "a", "s1/g0", 2, 12), TASKS[2]]}),
    "2": ("before the output of a", {"tasks": [*TASKS[:2], run(0, "b", "s1/g0", 23, 43)]}),
    "3 too short": ("takes not 15 us", {"tasks": [run(0, "a", "s0/g0", 3, 13), *TASKS[1:]]}),
    "3 other size": ("takes not 10 us", {"tasks": [TASKS[0], run(1, "a", "s0/g0", 19, 34), TASKS[2]]}),
    "5 too fast": ("to load", {"stays": [STAYS[0], stay("s1/g0", "n", 1, 6, 100)]}),
    "5 two at a time": ("loads on s1/g0", {"stays": [*STAYS, stay("s1/g0", "m", 5, 10, 10)]}),
    "6 never there": ("n is not on s1/g0", {"stays": STAYS[:1]}),
    "6 too late": ("n is not on s1/g0", {"stays": [STAYS[0], stay("s1/g0", "n", 19, 25, 100)]}),
    "6 ends too soon": ("n is not on s1/g0", {"stays": [STAYS[0], stay("s1/g0", "n", 0, 6, 43)]}),
    "7": ("model m on s0/g0", {"stays": [*STAYS, stay("s0/g0", "m", 50, 55, 100)]}),
    "8 weights": ("memory on s1/g0", {"stays": [*STAYS, stay("s1/g0", "m", 6, 11, 100)]}),
    "8 a slot where there is none": ("no slot", {"stays": [STAYS[0], {**STAYS[1], "slot": 0}]}),
    "9": ("not there initially", {"stays": [STAYS[0], stay("s1/g0", "n", 0, 0, 100, initial=True)]}),
    "9 with a load": ("to load", {"stays": [stay("s0/g0", "m", 0, 5, 100, initial=True), STAYS[1]]}),
    "10 a run": (
        "s1/g0 goes away",
        {"tasks": [*TASKS[:2], run(0, "b", "s1/g0", 90, 110)], "stays": [STAYS[0], stay("s1/g0", "n", 0, 6, 110)]},
    ),
    "10 a residency": ("goes away", {"stays": [STAYS[0], stay("s1/g0", "n", 0, 6, 101)]}),
    "10 for ever": ("goes away", {"stays": [STAYS[0], stay("s1/g0", "n", 0, 6, None)]}),
    "the value": ("it is 2.95e-05", {"value": 29.4e-6}),
    "no number": ("no number", {"value": True}),
    "another window": ("another window", {"scenario_hash": "0" * 64}),
    "another objective": ("for makespan", {"objective": {"name": "makespan", "value": 44e-6}}),
    "what happened": ("what happened", {"realised": True}),
    "true for 1": ("no whole number", {"schema_version": True}),
    "1.0 for 1": ("no whole number", {"tasks": [{**TASKS[0], "job": 0.0}, *TASKS[1:]]}),
    "an unknown GPU": ("KeyError", {"tasks": [{**TASKS[0], "gpu": "s9/g9"}, *TASKS[1:]]}),
    "no list": ("no list", {"tasks": {}}),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return library_of(tmp_path_factory.mktemp("pair") / "library", pair=CONTENT)


def test_a_plan_is_worth_what_its_rules_give(pair: Library, tmp_path: Path) -> None:
    window, file = window_of(pair, "pair"), tmp_path / "plan.json"
    assert window.hash == pair.entries["pair"].scenario_hash
    file.write_text(json.dumps(plan_of(window)))
    assert asked(pair.scenario("pair"), window, PLAN, file)["project"] == 29.5e-6
    found = {"sort": "plan", "holds": True, "objective": "mean_latency", "value": 29.5e-6, "reason": None}
    assert judge(window, str(file)) == {"file": str(file), **found}


@pytest.mark.parametrize("case", BROKEN)
def test_a_plan_that_breaks_a_rule_is_refused_by_both(pair: Library, case: str, tmp_path: Path) -> None:
    window, (reason, changes), file = window_of(pair, "pair"), BROKEN[case], tmp_path / "plan.json"
    file.write_text(json.dumps(plan_of(window, **changes)))
    said = asked(pair.scenario("pair"), window, PLAN, file)
    assert said["project"] is said["stranger"] is None
    assert reason in said["reasons"][1]


# Four tasks of share 0.4 at once on a GPU, of which two fit; and with 3 bytes each, of which one fits beside 5 bytes.
@pytest.mark.parametrize(
    ("body", "rule"), [({"share": 0.4}, "shares on"), ({"share": 0.1, "memory": "3 B"}, "memory on")]
)
def test_shares_and_memory_of_runs_add_up(tmp_path: Path, body: dict[str, Any], rule: str) -> None:
    task = {"models": ["m"], "runtime": "10 us", **body}
    jobs = [{"release": "0 us", "workflow": "w"}] * 3
    content = {**CONTENT, "workflows": {"w": {"tasks": {"a": task}}}, "workload": {"jobs": jobs}}
    library = library_of(tmp_path / "library", shared=content)
    window, file = window_of(library, "shared"), tmp_path / "plan.json"
    for begins, fits in (((0, 0, 0), False), ((0, 0, 10) if "memory" not in body else (0, 10, 20), True)):
        tasks = [run(job, "a", "s0/g0", begin, begin + 10) for job, begin in enumerate(begins)]
        file.write_text(json.dumps(plan_of(window, tasks, STAYS[:1], (sum(begins) + 30) / 3e6)))
        said = asked(library.scenario("shared"), window, PLAN, file)
        assert said["project"] == said["stranger"]
        assert (said["stranger"] is not None) is fits
        assert fits or rule in said["reasons"][1]


HOSTILE = {
    "not a number": b'{"tasks": NaN}',
    "an infinite claim": b'{"method": "critical_path", "lower_bound": 1e999}',
    "a key twice": b'{"tasks": [], "tasks": []}',
    "deep": b"[" * 100_000,
    "a huge number": b'{"tasks": ' + b"9" * 10_000 + b"}",
    "not text": b"\xff\xfe\x00",
    "cut": b'{"tasks": [',
    "a list": b"[]",
    "a word": b'"tasks"x',
    "neither": b"{}",
    "nothing": b"",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_that_cannot_be_read_is_one_line_and_exit_2(
    pair: Library, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, packed = tmp_path / "file.json", tmp_path / "file.json.gz"
    file.write_bytes(HOSTILE[case])
    packed.write_bytes(gzip.compress(HOSTILE[case])[:-1])
    for path in (file, packed):
        assert main(str(pair.instance_path("pair")), str(path)) == 2
        (line,) = capsys.readouterr().out.splitlines()
        assert json.loads(line)["holds"] is False


def test_what_is_no_plain_small_file_is_refused(
    pair: Library, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge, bomb = tmp_path / "huge.json", tmp_path / "bomb.json.gz"
    with huge.open("wb") as file:
        file.truncate(2_000_000_000)  # sparse: it takes no room
    bomb.write_bytes(gzip.compress(bytes(200_000_000), 1))
    instance = str(pair.instance_path("pair"))
    for path in (huge, bomb, tmp_path, tmp_path / "nowhere.json"):
        assert main(instance, str(path)) == main(str(path), instance) == 2
        assert len(capsys.readouterr().out.splitlines()) == 2


def test_it_runs_alone_and_says_how_each_file_fared(pair: Library, tmp_path: Path) -> None:
    window = window_of(pair, "pair")
    files = [tmp_path / name for name in ("good.json", "bad.json")]
    for file, value in zip(files, (29.5e-6, 1.0), strict=True):
        file.write_text(json.dumps(plan_of(window, value=value)))
    command = [sys.executable, "-I", str(VERIFIER), str(pair.instance_path("pair")), *map(str, files)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)  # noqa: S603
    assert [json.loads(line)["holds"] for line in asked.stdout.splitlines()] == [True, False]
    assert asked.returncode == 1


def test_it_shares_nothing_with_the_project() -> None:
    imported = set(re.findall(r"^(?:from|import) (\w+)", VERIFIER.read_text(), re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"numpy"}


@pytest.mark.parametrize("seed", range(60))
def test_two_verifiers_compute_the_same_bound_from_any_prices(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in (closed_forms.mean_busy_time, closed_forms.energetic, closed_forms.fluid):
        monkeypatch.setitem(METHODS, method.__name__, method)
    draw = random.Random(seed)
    try:
        library = library_of(tmp_path / "library", drawn=drawn_windows.scenario(draw))
    except (InputError, InstanceError):
        pytest.skip("the draw is no scenario")
    window, file = window_of(library, "drawn"), tmp_path / "certificate.json"
    assert window.hash == library.entries["drawn"].scenario_hash
    for _ in range(4):
        file.write_text(json.dumps(drawn_windows.certificate(draw, window)))
        said = asked(library.scenario("drawn"), window, CERTIFICATE, file)
        assert said["project"] == said["stranger"], said["reasons"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Return a library with plans and certificates of small windows of all sorts."""
    jobs = [{"release": f"{at} us", "workflow": "pair", "deadline": "40 us"} for at in (0, 3, 9)]
    late = {**CONTENT, "objective": "late_jobs", "workload": {"jobs": jobs}}
    library = library_of(tmp_path_factory.mktemp("filled") / "library", two=example(), pair=CONTENT, late=late)
    for name in library.entries:
        work_on(Attempt.of(library, name, {}, 1.0))
    return library


def test_tampered_files_are_refused_by_both_or_by_neither(filled: Library) -> None:
    outcomes = list(tamper(filled, 60))
    assert [each for each in outcomes if not each.agreed] == []
