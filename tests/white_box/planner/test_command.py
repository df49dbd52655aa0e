"""The command as other tools call it: keys, exit codes, one line per error."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.command import app, run
from truenorth.models import Objective
from truenorth.planner.answers.versions import versions
from truenorth.planner.command import manners
from truenorth.planner.command.console import ProgressLine
from truenorth.planner.show.table import Column, Table, terminal
from truenorth.solvers.clock import Clock
from truenorth.solvers.incumbents import Progress

SIMULATE_KEYS = {"policy", "objective", "metrics"}
PLAN_KEYS = {
    "status", "objective", "lower_bound", "bound_method", "gap", "runtime_s", "cpu_s", "within_time_limit",
    "converged", "fell_back", "left_out", "jobs_apart", "proved_by", "confirmed_by", "faults",
    "incumbents", "metrics", "plan",
}  # fmt: skip


class Command:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        code = run(app, [str(argument) for argument in arguments])
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def json(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        found, out, err = self(*arguments, "--json")
        assert (found, err) == (code, "")
        document: dict[str, Any] = json.loads(out)
        return document

    def error(self, *arguments: object) -> str:
        code, out, err = self(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("truenorth: error: ")
        assert err.count("\n") == 1
        return err


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_plan_prints_and_writes_the_proved_optimum(command: Command, scenario_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    document = command.json("plan", scenario_file, "-o", plan)
    assert set(document) == PLAN_KEYS
    assert document["status"] == "OPTIMAL"
    assert document["objective"] == {"name": "mean_slowdown", "value": 1.4}
    assert (document["lower_bound"], document["gap"], document["plan"]) == (1.4, 0.0, str(plan))
    assert document["metrics"]["slo_attainment"] == 1.0
    assert document["incumbents"][-1][1:] == [1.4, 1.4]


def test_check_accepts_the_plan_and_refuses_a_changed_one(
    command: Command, scenario_file: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    command.json("plan", scenario_file, "-o", plan)
    verdict = command.json("check", scenario_file, plan)
    assert (verdict["valid"], verdict["violations"]) == (True, [])
    assert verdict["objective"] == {"name": "mean_slowdown", "value": 1.4}
    document = json.loads(plan.read_text())
    first = next(entry for entry in document["tasks"] if entry["job"] == 0 and entry["task"] == "a")
    first["start_us"], first["end_us"] = 3, 6  # the model is ready at 4
    plan.write_text(json.dumps(document))
    verdict = command.json("check", scenario_file, plan, code=1)
    assert verdict["valid"] is False
    assert [violation["rule"] for violation in verdict["violations"]] == ["R3"]


def test_replaying_a_plan_gives_its_value(command: Command, scenario_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command.json("plan", scenario_file, "-o", plan)
    document = command.json("simulate", scenario_file, "--policy", plan)
    assert set(document) == SIMULATE_KEYS
    assert document["objective"]["value"] == 1.4


@pytest.mark.parametrize("verb", [("plan", "--time-limit", 2, "--seed", 7), ("simulate", "--policy", "jit")])
def test_a_file_says_how_it_was_made(
    command: Command, scenario_file: Path, tmp_path: Path, verb: tuple[object, ...]
) -> None:
    name, *options = verb
    written = tmp_path / "a plan.json"
    command.json(name, scenario_file, "-o", written, *options)
    document = json.loads(written.read_text())
    typed = ["truenorth", name, scenario_file, "-o", written, *options, "--json"]
    assert document["command"] == shlex.join(map(str, typed))
    assert document["seed"] == (7 if name == "plan" else None)
    assert set(versions()) <= set(document["versions"])
    root = Path(__file__).parents[3]
    if (root / ".git").exists():
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)  # noqa: S603, S607
        assert head.stdout.startswith(document["versions"]["commit"].removesuffix("-dirty"))


def test_a_simulated_timeline_passes_the_check(command: Command, scenario_file: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    value = command.json("simulate", scenario_file, "--policy", "jit", "-o", timeline)["objective"]
    assert command.json("check", scenario_file, timeline)["objective"] == value


def test_the_twin_of_compass_released_is_checked_as_such(command: Command, scenario_file: Path, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    value = command.json("simulate", scenario_file, "--policy", "compass-released", "-o", timeline)["objective"]
    assert json.loads(timeline.read_text())["realised"] is True
    verdict = command.json("check", scenario_file, timeline)
    assert (verdict["valid"], verdict["objective"], verdict["header"]["checked"]) == (True, value, ["value"])
    assert verdict["times"]["from"] == "the file"


def test_a_plan_starts_from_a_hint(command: Command, scenario_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command.json("plan", scenario_file, "-o", plan)
    arguments = ("plan", scenario_file, "--hint", plan, "--method", "search", "--iterations", 1, "--time-limit", 1)
    assert command.json(*arguments)["objective"]["value"] == 1.4


def test_compare_prints_rows_and_a_bound(command: Command, scenario_file: Path) -> None:
    document = command.json("compare", scenario_file, "--policies", "jit,hash", "--time-limit", 20)
    assert {"rows", "lower_bound", "best"} <= set(document)
    assert (document["best"], document["lower_bound"]) == ("plan", 1.4)
    assert {row["policy"] for row in document["rows"]} == {"plan", "jit", "hash"}


def test_tables_are_for_people(command: Command, scenario_file: Path) -> None:
    code, out, _ = command("compare", scenario_file, "--policies", "jit", "--time-limit", 20)
    assert code == 0
    assert "the future" in out
    assert "1.4" in out


def test_schema_is_json(command: Command) -> None:
    assert command.json("schema")["type"] == "object"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan",), "Missing argument 'SCENARIO'"),
        (("plan", "missing.yaml"), "missing.yaml"),
        (("plan", "{}", "--method", "magic"), "--method: 'magic' is unknown; allowed are auto"),
        (("plan", "{}", "--time-limit", "-1"), "--time-limit: '-1' is no time limit; write seconds"),
        (("plan", "{}", "--time-limit", "nan"), "--time-limit"),
        (("plan", "{}", "--workers", "0"), "--workers: '0' is no such number"),
        (("plan", "{}", "-o", "/nowhere/plan.json"), "/nowhere/plan.json:1: file: cannot be written"),
        (("plan", "{}", "-o", "/"), "/:1: file: cannot be written"),
        (("plan", "{}", "--hint", "missing.json"), "missing.json"),
        (("simulate", "{}", "--policy", "compas"), "unknown policy 'compas' (did you mean compass?)"),
        (("simulate", "{}", "--policy", "jit", "--warmup", "1.5"), "--warmup: '1.5' is no share"),
        (("simulate", "{}", "--policy", "jit", "--warmup", "nan"), "--warmup: 'nan' is no share"),
        (("simulate", "{}", "--policy", "jit", "--noise", "loud"), "loud"),
        (("compare", "{}", "-o", "{}"), "no folder can be made here"),
        (("compare", "{}", "--policies", "jit,hahs"), "unknown policy 'hahs'"),
        (("launch",), "launch"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    command: Command, scenario_file: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert message in command.error(*(str(scenario_file) if a == "{}" else a for a in arguments))


def test_an_error_in_a_scenario_names_file_line_and_remedy(command: Command, scenario_file: Path) -> None:
    text = scenario_file.read_text()
    scenario_file.write_text(text.replace("runtime: 3 us", "runtimes: 3 us"))
    error = command.error("plan", scenario_file)
    line = text.splitlines().index("      a: {models: [m], runtime: 3 us, output: 2 B}") + 1
    assert f"{scenario_file}:{line}:" in error
    assert "did you mean 'runtime'" in error


def test_a_plan_of_another_scenario_is_refused(command: Command, scenario_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command.json("plan", scenario_file, "-o", plan)
    scenario_file.write_text(scenario_file.read_text().replace("weights: 4 B", "weights: 5 B"))
    assert "scenario" in command.error("check", scenario_file, plan)


LONG = """\
import os, sys
from truenorth.planner.command import manners
from truenorth.planner.command.console import ProgressLine
from truenorth.planner.show.table import Column, Table, terminal
from truenorth.planner.command.start import main
note, numbers = ProgressLine.watch, [{number}]
def interrupt(line, progress):
    note(line, progress)
    if numbers:
        os.kill(os.getpid(), numbers.pop())
ProgressLine.watch = interrupt
sys.argv[1:] = {arguments!r}
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_and_writes_the_best_plan(tmp_path: Path, number: signal.Signals) -> None:
    scenario = Path(__file__).parents[3] / "experiments" / "scenarios" / "azure.yaml"
    plan = tmp_path / "plan.json"
    arguments = ["plan", str(scenario), "-o", str(plan), "--time-limit", "300", "--json"]
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", LONG.format(arguments=arguments, number=int(number))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    out, err = process.communicate(timeout=250)
    assert (process.returncode, err) == (130, f"truenorth: interrupted; the best plan found is in {plan}\n")
    document = json.loads(out)
    assert document["plan"] == str(plan)
    assert json.loads(plan.read_text())["objective"]["value"] == document["objective"]["value"]


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'ortools', 'numba', 'pandas', 'matplotlib', 'pydantic', 'numpy'}"
    script = (
        "import sys; from truenorth.planner.command import cli, manners; manners.run(cli.app, ['--help']);"
        f"sys.exit(len({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)  # noqa: S603
    assert done.returncode == 0


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    script = (
        "import sys; from truenorth.planner.command import cli, manners; sys.exit(manners.run(cli.app, ['schema']))"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(5) == b'{\n  "'
        process.stdout.close()  # the schema is longer than what a pipe holds
        assert (process.stderr.read(), process.wait()) == (b"", 0)


@pytest.mark.parametrize("verb", ["plan", "bound", "compare", "servers"])
@pytest.mark.parametrize("limit", ["inf", "nan", "0", "-1"])
def test_a_time_limit_that_is_none_is_refused(command: Command, scenario_file: Path, verb: str, limit: str) -> None:
    error = command.error(verb, scenario_file, "--time-limit", limit)
    assert "--time-limit" in error
    assert "0.1" in error  # the least that is allowed


def test_a_limit_that_the_first_plan_misses_is_said_to_be(
    command: Command, scenario_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clock, "elapsed_s", 61.0)  # every step comes after the limit of 60 s
    code, out, err = command("plan", scenario_file, "--json")
    document = json.loads(out)
    assert (code, document["status"], document["within_time_limit"]) == (0, "OPTIMAL", False)
    assert "the time limit was too short for a first plan; it was made all the same" in err


def test_the_progress_line_says_at_once_that_no_plan_will_be_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ProgressLine(Objective.MAKESPAN, "planning", 3.0)
    assert "too short" not in str(line)
    monkeypatch.setattr(ProgressLine, "elapsed_s", 3.1)
    assert "the limit of 3 s is too short for a first plan, which follows" in str(line)
    line.watch(Progress(3.2, Fraction(1), None))
    assert "too short" not in str(line)


def test_nothing_of_a_table_is_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column[int](f"column{at:02}", lambda _: "cell" * 3) for at in range(20)]
    manners._show_in_words(terminal(Table("wide", columns, [0])))
    shown = capsys.readouterr().out.splitlines()
    assert "column19" in shown[2]
    assert len(shown[2]) == 20 * 15 + 1
