"""From a log to files, summary, plan and simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import truenorth as tn
from tests.command import BAD_INPUT, DONE, app, run
from tests.planner.inputs.importers.small import GENTD26, table, written
from truenorth.executor.policies.options import option, switch
from truenorth.models import Edge, Task, Workflow, check
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.command.verbs.logs import _FORMATS
from truenorth.planner.inputs.importers import workload
from truenorth.planner.inputs.importers.format import Format, Hardware, Override
from truenorth.planner.inputs.importers.formats import FORMATS
from truenorth.planner.inputs.importers.rows import Tally
from truenorth.planner.inputs.importers.tables import DagJobs, Requests
from truenorth.planner.show.inputs import figure, summary_rows

ROWS = ("0,a,10", "30,b,20", "59.999999,a,30", "60,a,40", "120,c,20")


def test_the_files_load_and_say_what_they_are(tmp_path: Path) -> None:
    made = tn.import_trace("gentd26", [written(tmp_path, GENTD26)])
    paths = made.save(tmp_path / "hour.yaml")
    assert paths == [tmp_path / "hour.yaml", tmp_path / "hour.trace.csv"]
    assert paths[1].read_text().splitlines() == [
        "time_us,workflow,line,label",
        "0,M0001 30 s,2,M0001",
        "1000000,M0006 25 s,3,M0006",
        "6000000,M0001 25 s,6,M0001",
        "9000000,M0002 14.5 s,5,M0002",
        "61000000,M0002 9 s,8,M0002",
    ]
    scenario = load_scenario(paths[0])
    assert scenario.name == "hour"
    assert [job.release_us for job in scenario.instance.jobs] == made.workload.release_us.tolist()
    assert [job.workflow.tasks[0].models for job in scenario.instance.jobs][:2] == [("M0001",), ("M0006",)]
    instance = scenario.instance
    assert [instance.run_time(task, 0) / 1e6 for task in range(5)] == [30, 25, 25, 14.5, 9]
    assert "# - run times are whole seconds and partly contain switching" in paths[0].read_text()


def test_the_scenario_in_memory_is_the_one_in_the_file(tmp_path: Path) -> None:
    log = written(tmp_path, "release,model,runtime,due\n0.5,a,1,9\n2,b,3,1\n")
    made = tn.import_trace("table:deadline=due", [log])
    assert made.scenario.instance == load_scenario(made.save(tmp_path / "a.yaml")[0]).instance


def test_json_says_the_same_as_yaml(tmp_path: Path) -> None:
    made = tn.import_trace("gentd26", [written(tmp_path, GENTD26)])
    one, other = (load_scenario(made.save(tmp_path / f"a.{kind}")[0]).instance for kind in ("yaml", "json"))
    assert one.jobs == other.jobs
    assert one.cluster == other.cluster


def test_the_summary_is_right(tmp_path: Path) -> None:
    summary = tn.import_trace("table", [written(tmp_path, table(*ROWS))]).summary.as_dict()
    assert (summary["jobs"], summary["workflows"], summary["models"], summary["length_s"]) == (5, 5, 3, 120.0)
    assert summary["arrivals_per_minute"] == {"mean": 2.5, "max": 3}  # three in the first minute, 59.999999 s included
    # The ceil(q n)-th smallest of 10, 20, 20, 30, 40.
    assert summary["runtime_s"] == {"mean": 24, "min": 10, "p10": 10, "p50": 20, "p90": 40, "p99": 40, "max": 40}
    assert summary["model_shares"] == {"a": 0.6, "b": 0.2, "c": 0.2}
    # 120 s of work, and 5 loads of 1 s, in 120 s on two GPUs.
    assert summary["fluid_load"] == 0.5
    assert summary["load_of_loads"] == pytest.approx(5 / 240)


def test_one_is_not_several(tmp_path: Path) -> None:
    made = tn.import_trace("table", [written(tmp_path, table("0,a,1", "1,a,1"))], runtime_classes="1")
    assert summary_rows(made)["jobs"] == "2 in 1 s, 1 workflow; run times as they are"
    made = tn.import_trace("table", [written(tmp_path, table("0,a,1", "1,a,2", "1,a,3"))], runtime_classes="1")
    said = "run times rounded up to 1 class per model, the slowest per cent as they are (3 distinct before)"
    assert summary_rows(made)["jobs"] == f"3 in 1 s, 2 different workflows; {said}"


def test_the_length_of_a_window_is_the_window(tmp_path: Path) -> None:
    made = tn.import_trace("table", [written(tmp_path, table(*ROWS))], window=("0 s", "60 s"), rate_factor=Fraction(2))
    assert made.summary.fluid_load == 1.0  # 60 s of work in 30 s on two GPUs
    assert "100% of the GPUs' time;" in summary_rows(made)["fluid load"]


def test_at_one_instant_there_is_no_load(tmp_path: Path) -> None:
    made = tn.import_trace("table", [written(tmp_path, table("0,a,1"))])
    assert made.summary.fluid_load is None
    assert summary_rows(made)["arrivals"] == "all at once"
    assert summary_rows(made)["fluid load"] == "1 s of work at once"


def test_plan_and_simulation_of_an_import_keep_every_rule(tmp_path: Path) -> None:
    scenario = load_scenario(tn.import_trace("gentd26", [written(tmp_path, GENTD26)]).save(tmp_path / "a.yaml")[0])
    for policy in ("compass", "srpt"):
        simulation = tn.simulate(scenario, policy)
        assert check(simulation.instance, simulation.timeline) == []
    planned = tn.plan(scenario, time_limit=2, workers=1)
    assert planned.timeline is not None
    assert check(scenario.instance, planned.timeline) == []


def test_an_override_replaces_what_is_documented() -> None:
    documented = Hardware(24 * 10**9, 6 * 10**9, Fraction(10**9), servers=2)
    assert Override().apply(documented) == documented
    made = Override(servers=3, gpus_per_server=4, memory="40 GB", weights="10 GB", network_bandwidth="8 Gbit/s")
    changed = made.apply(documented)
    assert (changed.gpus, changed.memory_bytes, changed.weight_bytes) == (12, 40 * 10**9, 10**10)
    assert (changed.network_bandwidth, changed.load_us) == (Fraction(10**9), 10_000_000)
    assert Override(load_time="3 s", weights="7 GB").apply(documented).load_us == 3_000_000
    assert Override(load_bandwidth="2 GB/s").apply(documented).load_us == 3_000_000


@pytest.mark.parametrize("load_us", [1, 3, 7_777_777, 8_454_000, 123_456_789])
def test_a_load_time_is_kept_to_the_microsecond(load_us: int) -> None:
    assert Hardware(24 * 10**9, 6_543_210_987, Fraction(1)).with_load_time(load_us).load_us == load_us


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (Override(memory="24"), "memory: '24' is no size"),
        (Override(memory="0 GB"), "memory: '0 GB' is no positive quantity"),
        (Override(load_time="-1 s"), "load_time: '-1 s' is no positive quantity"),
        (Override(load_time="1 s", load_bandwidth="1 GB/s"), "load_time: load_bandwidth is given as well"),
    ],
)
def test_what_no_override_may_say(override: Override, message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        override.apply(Hardware(1, 1, Fraction(1)))


def test_a_cluster_of_ones_own_is_noted(tmp_path: Path) -> None:
    log = written(tmp_path, table(*ROWS))
    asked = "cluster and sizes are those asked for, not the documented ones"
    assert asked not in tn.import_trace("table", [log]).notes
    notes = tn.import_trace("table", [log], override=Override(servers=3).apply).notes
    assert notes == [
        "where options say nothing, sizes are assumed: models of 6 GB that load at 6 GB/s, GPUs of 24 GB",
        asked,
    ]


def test_a_model_that_fits_no_gpu_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="allowed are at most 5000000000 bytes"):
        tn.import_trace("gentd26", [written(tmp_path, GENTD26)], override=Override(memory="5 GB").apply)


HARDWARE = Hardware(8 * 10**9, 4 * 10**9, Fraction(10**9))


@dataclass(frozen=True, slots=True)
class _Dags:
    """Yields two DAGs in two chunks, or, with `clash`, two different ones of one name."""

    clash: bool = option(False, switch)

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests | DagJobs]:
        chain = (Task("x", {"*": 5}, ("m",)), Task("y", {"*": 7}, ("n",), (Edge("x", 3),)))
        yield DagJobs((Workflow("pair", chain),), np.array([9]))
        yield DagJobs(
            (Workflow("pair" if self.clash else "single", chain[:1]), Workflow("pair", chain)), np.array([0, 4])
        )


def test_a_format_may_yield_dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "dags", Format("dags", "DAGs", "here", (), _Dags, HARDWARE))
    made = tn.import_trace("dags", [tmp_path])
    scenario = load_scenario(made.save(tmp_path / "dags.yaml")[0])
    assert [(job.release_us, job.workflow.name) for job in scenario.instance.jobs] == [
        (0, "single"),
        (4, "pair"),
        (9, "pair"),
    ]
    assert scenario.instance.jobs[2].workflow.tasks[1].inputs == (Edge("x", 3),)
    assert made.summary.model_requests == {"m": 3, "n": 2}
    assert made.summary.job_work_us.tolist() == [5, 12, 12]
    with pytest.raises(InputError, match="two different workflows are named 'pair'"):
        tn.import_trace("dags:clash=on", [tmp_path])


def test_requests_on_several_gpus_become_tasks_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wide(_Dags):
        def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests | DagJobs]:
            two = np.array([10, 10])
            models = np.array(["a", "a"], dtype=np.object_)
            yield Requests(np.array([0, 1]), models, two, None, np.array([1, 3]), split=True)

    monkeypatch.setitem(FORMATS, "wide", Format("wide", "wide jobs", "here", (), Wide, HARDWARE))
    made = tn.import_trace("wide", [tmp_path])
    assert [workflow.name for workflow in made.workload.workflows] == ["a 0.00001 s", "a 0.00001 s x 3"]
    assert [len(workflow.tasks) for workflow in made.workload.workflows] == [1, 3]
    assert made.summary.job_work_us.tolist() == [10, 30]


def test_the_command_writes_only_what_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path, table(*ROWS))
    assert run(app, ["import", "table", str(log), "--servers", "4"]) == DONE
    assert "25% of the GPUs' time" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [log]
    scenario, picture = tmp_path / "a.yaml", tmp_path / "a.png"
    command = ["import", "table", str(log), "-o", str(scenario), "--figure", str(picture), "--json"]
    assert run(app, [*command, "--window", "0 s", "61 s", "--rate-factor", "0.5"]) == DONE
    document = json.loads(capsys.readouterr().out)
    assert document["jobs"] == 4
    assert document["length_s"] == 122.0
    assert document["written"] == [str(path) for path in (scenario, tmp_path / "a.trace.csv", picture)]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_s_legends_stand_beside_its_data(tmp_path: Path) -> None:
    made = tn.import_trace("table", [written(tmp_path, table(*ROWS))])
    drawn = figure(made.summary, "a $x^2_$ log")
    drawn.draw_without_rendering()
    legends = [legend for axes in drawn.axes if (legend := axes.get_legend()) is not None]
    assert [text.get_text() for legend in legends for text in legend.get_texts()] == [
        "requests", "run time", "what the GPUs can do"
    ]  # fmt: skip
    boxes = [axes.get_window_extent() for axes in drawn.axes]
    assert not any(legend.get_window_extent().overlaps(box) for legend in legends for box in boxes)


def test_a_log_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path, table(*ROWS), "a.trace.csv")
    assert run(app, ["import", "table", str(log), "-o", str(tmp_path / "a.yaml")]) == BAD_INPUT
    assert "is both read and written" in capsys.readouterr().err
    assert log.read_text() == table(*ROWS)
    assert run(app, ["import", "table", str(log), "-o", str(tmp_path / ("a" * 160 + ".yaml"))]) == BAD_INPUT
    assert "its name cannot be used" in capsys.readouterr().err


def test_a_line_break_in_a_log_s_name_stays_in_the_comment(tmp_path: Path) -> None:
    made = tn.import_trace("table", [written(tmp_path, table(*ROWS), "a\nb: c.csv")])
    assert len(load_scenario(made.save(tmp_path / "a.yaml")[0]).instance.jobs) == 5


def test_more_requests_than_memory_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "MOST_READ", 4)
    with pytest.raises(InputError, match="more than 4 requests"):
        tn.import_trace("table", [written(tmp_path, table(*ROWS))])


@pytest.mark.parametrize(
    "options",
    [
        ["--rate-factor", "fast"],
        ["--window", "5 s", "1 s"],
        ["--weights", "6"],
        ["--load-time", "1 s", "--load-bandwidth", "1 GB/s"],
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    assert run(app, ["import", "table", str(written(tmp_path, table(*ROWS))), *options]) == BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"truenorth: error: {options[0]}: ")
    assert err.count("\n") == 1


def test_help_and_page_name_every_format() -> None:
    page = (Path(__file__).parents[5] / "docs" / "public_traces.md").read_text()
    assert ", ".join(FORMATS) == _FORMATS
    assert all(f"`{name}`" in page for name in FORMATS)
