"""Azure Functions: an invocation is released duration before its end, and runs its app."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError, load_scenario

HEADER = "app,func,end_timestamp,duration\n"
LOG = (
    HEADER
    + """\
shop,pay,10.5,0.5
shop,browse,11.000000499,2
mail,send,12,0.25
mail,send,3,4.5
mail,send,13,0.0
"""
)
"""The fourth invocation began before the clock's zero; the last ran for no time."""


def test_releases_are_ends_less_durations_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    made = tn.import_trace("azure-functions-2021", [written(tmp_path, LOG)])
    # 11.000000499 s rounds to 11,000,000 us.
    assert jobs(made) == [(9_000_000, "shop 2 s"), (10_000_000, "shop 0.5 s"), (11_750_000, "mail 0.25 s")]
    assert made.tally.read == 5
    assert made.tally.left_out == {"ran for 0 s": 1, "began before the trace's time zero": 1}


def test_a_model_is_an_app_or_a_function(tmp_path: Path) -> None:
    made = tn.import_trace("azure-functions-2021:model=function", [written(tmp_path, LOG, "log.csv.gz")])
    assert made.summary.model_requests == {"shop/pay": 1, "shop/browse": 1, "mail/send": 1}
    scenario = load_scenario(made.save(tmp_path / "scenario.yaml")[0])
    # 4 GB at 10 GB/s.
    assert (len(scenario.instance.jobs), scenario.instance.load_time(0, 0)) == (3, 400_000)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("shop,pay,10,-1", r"log.csv:2: duration: '-1' is no time in range"),
        ("shop,pay,ten,1", r"log.csv:2: end_timestamp: 'ten' is no time in range"),
        ("shop,pay,nan,1", r"log.csv:2: end_timestamp: 'nan' is no time in range"),
        ("shop,pay,1e400,1", r"log.csv:2: end_timestamp: '1e400' is no time in range"),
        (",pay,10,1", r"log.csv:2: app: '' is no name"),
        ("shop,pay,10", r"log.csv:2: row: has 3 fields; allowed are 4"),
    ],
)
def test_malformed_rows_are_refused_by_line_or_counted(tmp_path: Path, row: str, message: str) -> None:
    log = written(tmp_path, HEADER + row + "\nmail,send,12,1\n")
    with pytest.raises(InputError, match=message):
        tn.import_trace("azure-functions-2021", [log])
    made = tn.import_trace("azure-functions-2021", [log], skip_malformed=True)
    assert (made.tally.refused.total(), jobs(made)) == (1, [(11_000_000, "mail 1 s")])


def test_names_that_grow_too_long_together_are_refused(tmp_path: Path) -> None:
    log = written(tmp_path, HEADER + f"{'a' * 80},{'f' * 80},10,1\n")
    with pytest.raises(InputError, match=r"log.csv:2: func: 'f+\.\.\.' makes a name of more than 150 characters"):
        tn.import_trace("azure-functions-2021:model=function", [log])


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:1: header: has no column 'end_timestamp'"):
        tn.import_trace("azure-functions-2021", [written(tmp_path, LOG.replace("end_timestamp", "end"))])
