from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import truenorth as tn
from tests.command import app, run
from tests.instances import chain, cluster, instance, task
from tests.planner.show.report import hostile
from truenorth.models import Job, Placement, Residency, Timeline
from truenorth.models.errors import QuestionError
from truenorth.models.identity import scenario_hash
from truenorth.models.record import encode
from truenorth.models.scenario import InputError
from truenorth.planner.answers.compare import Comparison
from truenorth.planner.answers.shown import Shown
from truenorth.planner.show.timelines import timelines_of, write

LARGEST_PAGE = 3_000_000


class Elements(HTMLParser):
    """Counts the elements of a page, and keeps its scripts and what it refers to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""
        self._in_script = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        assert not any(name.startswith("on") for name in named)
        self._in_script = tag == "script"
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False


def test_a_page_answers_its_question(comparison: Comparison, folder: Path) -> None:
    # The plan is proved at 1.4; JIT is whatever the comparison says (tests/planner), relative to that.
    jit = comparison.rows[1].objective or 0.0
    (section,) = tn.report([folder]).sections
    assert section.question == "by-hand: how far from the least possible mean slowdown are online policies?"
    assert section.answer == (
        "The plan's mean slowdown of 1.4 is proved to be the least possible; "
        f"the best online policy, jit, is at {jit:.4g}, {jit / 1.4:.2f} times the plan."
    )
    (contenders, losses) = section.tables
    assert [row[:3] for row in contenders.cells(unit=False)] == [
        ["plan", "clairvoyant", "1.4"],
        ["jit", "queue lengths", f"{jit:.5g}"],
        ["lower bound", "-", "1.4"],
    ]
    proof = "Lower bound: critical path, a formula; gap of the plan: 0.0 %."
    assert contenders.note == f"{proof} Service level: p99 slowdown <= 2."
    parts = ("residency", "order", "placement", "open")
    assert [row[:2] for row in losses.cells()] == [["jit", part] for part in parts]


def test_a_page_says_how_to_repeat_it(comparison: Comparison, folder: Path) -> None:
    (section,) = tn.report([folder]).sections
    source = comparison.scenario.source.file
    assert section.reproduce["command"] == (
        f"truenorth compare '{source}' --policies jit --time-limit 20 --warmup 0 --workers 2 --seed 0"
    )
    assert section.reproduce["scenario hash (sha256)"] == scenario_hash(comparison.scenario.instance)
    assert "ortools" in section.reproduce["versions"]


def test_a_page_needs_no_network_and_runs_its_own_script_only(folder: Path) -> None:
    found = Elements(tn.report([folder, folder]).html)
    assert found.links == ["data:,"]
    assert "url(" not in tn.report([folder]).html
    digest = base64.b64encode(hashlib.sha256(found.scripts[-1].encode()).digest()).decode()
    assert found.policy.startswith(f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; ")


def test_names_stay_text(folder: Path, hostile_folder: Path) -> None:
    made = tn.report([hostile_folder])
    assert made.sections[0].question.startswith(f"{hostile.NAMES['by-hand']}: ")
    expected, found = Elements(tn.report([folder]).html), Elements(made.html)
    drawn = ("path", "text", "g")  # how many ticks a figure has depends on how long the search took
    assert [tag for tag in found.tags if tag not in drawn] == [tag for tag in expected.tags if tag not in drawn]
    assert found.scripts[-1] == expected.scripts[-1]
    data = json.loads(found.scripts[0])
    assert data["instances"][0]["models"][0]["name"] == hostile.NAMES["m"]


def test_timelines_hold_what_a_chart_shows() -> None:
    # a needs m (4 bytes, loaded in [0, 4)) and runs in [4, 7) on GPU 0; b runs in [10, 12) on GPU 1. P = 5, F = 12.
    window = instance([Job(chain(task("a", 3, ["m"]), task("b", 2, after={"a": 2})), 0)], {"m": 4}, on=cluster(2))
    timeline = Timeline.build(2, [Placement(0, 0, 4, 7), Placement(1, 1, 10, 12)], [Residency(0, 0, 0, 4)])
    made = encode(timelines_of([Shown("plan", True, window, timeline), Shown("jit", False, window, timeline)]))
    (described,) = made["instances"]
    assert described["gpus"] == [
        {"id": f"s{index}/g0", "kind": "A", "memory_bytes": 10, "slots": []} for index in range(2)
    ]  # fmt: skip
    assert described["workflows"] == [
        {"name": "w", "tasks": [{"name": "a", "models": [0]}, {"name": "b", "models": []}]}
    ]
    assert made["timelines"][1] == {
        "name": "jit",
        "clairvoyant": False,
        "instance": 0,
        "slowdown": [2.4],
        "latency_us": [12],
        "gpu": [0, 1],
        "start_us": [4, 10],
        "run_us": [3, 2],
        "residencies": [[0, 0, 0, 4, None, None, False]],
    }


def wide_folder(folder: Path, source: Path, n_tasks: int = 10_000, contenders: int = 9) -> Path:
    """Return a copy of a comparison whose timelines have many tasks: one job each, half a second apart in time."""
    folder.mkdir()
    (folder / "comparison.json").write_bytes((source / "comparison.json").read_bytes())
    runs = chain(task("a", 400_000, ["m"]))
    window = instance([Job(runs, 100_000 * index) for index in range(n_tasks)], {"m": 4, "n": 7}, on=cluster(5))
    places = [Placement(j, j % 5, 100_000 * j + 4, 100_000 * j + 400_004) for j in range(n_tasks)]
    stays = [Residency(j % 2, j % 5, 500_000 * j, 500_000 * j + 4, 500_000 * (j + 5)) for j in range(n_tasks // 5)]
    timeline = Timeline.build(n_tasks, places, stays)
    write(folder, [Shown(f"policy {index}", index == 0, window, timeline) for index in range(contenders)])
    return folder


def test_ten_thousand_tasks_fit_in_three_megabytes(folder: Path, tmp_path: Path) -> None:
    made = tn.report([wide_folder(tmp_path / "wide", folder)])
    assert len(made.html.encode()) <= LARGEST_PAGE
    shown = json.loads(Elements(made.html).scripts[0])["timelines"]
    left_out = re.findall(r"policy \d", made.sections[0].remarks[-1])
    assert [entry["name"] for entry in shown] + left_out == [f"policy {index}" for index in range(9)]
    assert len(shown) >= 3
    drawn = " ".join(curve.name for curve in made.sections[0].figures[0].curves)
    assert [f"policy {index}" in drawn for index in range(9)] == [True] * 9  # every policy's slowdowns are drawn


def test_timelines_without_room_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truenorth.planner.show.report.TIMELINES_BYTES", 10)
    (section,) = tn.report([folder]).sections
    assert section.timelines is None
    assert section.remarks[-1] == "To keep this page small its timelines leave out plan, jit."


def test_a_folder_without_results_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(QuestionError, match=r"nowhere: does not exist; allowed are folders"):
        tn.report([tmp_path / "nowhere"])
    with pytest.raises(QuestionError, match=r"holds no comparison\.json"):
        tn.report([tmp_path])
    (tmp_path / "comparison.json").write_text('{"rows": [],\n  "objective":}')
    with pytest.raises(InputError, match=r"comparison.json:2: file: is no JSON"):
        tn.report([tmp_path])
    (tmp_path / "comparison.json").write_text('{"objective": "makespan"}')
    with pytest.raises(InputError, match=r"comparison.json:1: rows: Field required; allowed is what -o wrote"):
        tn.report([tmp_path])
    (tmp_path / "comparison.json").write_bytes((folder / "comparison.json").read_bytes())
    (tmp_path / "timelines.json").write_text('{"schema_version": 2, "instances": [], "timelines": []}')
    with pytest.raises(InputError, match=r"timelines.json:1: schema_version: is 2; allowed is 1"):
        tn.report([tmp_path])


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("comparison.json", "runtime_s", "soon"),
        ("comparison.json", "gap", {}),
        ("comparison.json", "rows", [1]),
        ("comparison.json", "lower_bound", 10**400),
        ("comparison.json", "versions", None),
        ("timelines.json", "timelines", [{}]),
        ("timelines.json", "instances", 7),
    ],
)
def test_any_other_value_is_named_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, key: str, value: object
) -> None:
    for file in ("comparison.json", "timelines.json"):
        text = (folder / file).read_text()
        (tmp_path / file).write_text(json.dumps(json.loads(text) | {key: value}) if file == name else text)
    assert run(app, ["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"truenorth: error: {tmp_path / name}:1: {key}")
    assert err.count("\n") == 1


def test_the_command_writes_the_page_and_says_what_is_in_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    assert run(app, ["report", str(folder), "-o", str(target), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["report"] == str(target)
    assert summary["bytes"] == target.stat().st_size
    assert summary["sections"][0]["answer"].startswith("The plan's mean slowdown of 1.4 is proved")
    assert run(app, ["report", str(tmp_path), "-o", str(target)]) == 2
    assert capsys.readouterr().err.startswith("truenorth: error: ")


def test_a_page_names_its_author_day_and_scenario(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert run(app, ["report", str(folder), "--by-line", "A <team>", "-o", str(target)]) == 0
    byline = r'<p class="note">A &lt;team&gt; · \d{4}-\d\d-\d\d · scenario by-hand[^<]*</p>'
    assert re.search(byline, target.read_text()) is not None
