"""Names are data: in the terminal, in pictures and in what is written nothing is read into them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.by_hand import TEXT
from tests.command import app, run

NAMES = ["a[/red]b", "prod [eu-west]", "$x^2_$", "<b>x</b>", ":smile:", "</script>", "[link=x]"]


def scenario(folder: Path, name: str) -> Path:
    """Write the scenario solved by hand under a name that stands everywhere."""
    quoted = json.dumps(name)
    text = TEXT.replace("name: by-hand", f"name: {quoted}").replace("  m: {weights", f"  {quoted}: {{weights")
    text = text.replace("models: [m]", f"models: [{quoted}]").replace("  w:\n", f"  {quoted}:\n")
    path = folder / "scenario.yaml"
    path.write_text(text.replace("workflow: w}", f"workflow: {quoted}}}"))
    return path


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_shows_a_name_as_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(app, ["compare", str(scenario(tmp_path, name)), "--policies", "jit", "--time-limit", "2"]) == 0
    assert f"{name}: mean slowdown" in capsys.readouterr().out


def test_pictures_are_drawn_whatever_the_names(tmp_path: Path) -> None:
    path, folder = scenario(tmp_path, "$x^2_$"), tmp_path / "compared"
    assert run(app, ["compare", str(path), "--policies", "jit", "--time-limit", "2", "-o", str(folder)]) == 0
    assert (folder / "gantt_plan.png").stat().st_size > 0
    log = tmp_path / "log.csv"
    log.write_text("release,model,runtime\n0,$x^2_$,1\n1,a[/red]b,2\n")
    assert run(app, ["import", "table", str(log), "--figure", str(tmp_path / "log.png")]) == 0


def test_control_characters_of_a_log_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("release,model,runtime\n0,red\x1b[31m\x07,1\n")
    run(app, ["import", "table", str(log)])
    run(app, ["simulate", str(scenario(tmp_path, "a")), "--policy", "\x1b[2J"])
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert r"\x1b[2J" in shown.err


def test_a_closed_standard_output_is_no_error(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    path, program = scenario(tmp_path, "a"), "from truenorth.planner.command.start import main; main()"
    words = [sys.executable, "-c", program, "simulate", str(path), "--policy", "jit", "-o", str(plan)]
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", '"$@" >&-', "sh", *words], stderr=subprocess.PIPE, env=os.environ, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(json.loads(plan.read_text())["tasks"]) == 4


def test_what_is_read_is_not_overwritten(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "comparison.json").read_bytes()
    assert run(app, ["report", str(folder), "-o", str(folder / "comparison.json")]) == 2
    assert "comparison.json:1: file: is both read and written; allowed is another" in capsys.readouterr().err
    assert (folder / "comparison.json").read_bytes() == before
    path, arrivals = tmp_path / "scenario.yaml", tmp_path / "table.csv"
    arrivals.write_text("time_ms,workflow\n0,w\n")
    traced = TEXT.split("workload:")[0] + "workload:\n  trace: {file: table.csv}\n"
    path.write_text(traced)
    for verb in (["compare", "--policies", "jit", "-o", str(tmp_path)], ["plan", "-o", str(arrivals)]):
        assert run(app, [verb[0], str(path), "--time-limit", "1", *verb[1:]]) == 2
    assert arrivals.read_text() == "time_ms,workflow\n0,w\n"
    assert capsys.readouterr().err.count("is both read and written") == 2
