"""What ``compare -o`` writes: a certificate that verifies, the noise in every table, percentiles of the objective."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import truenorth as tn
from truenorth.models.objective import Objective
from truenorth.planner.show.comparison import contenders

SCENARIO = {
    "cluster": {"servers": 1, "gpu": {"kind": "G", "memory": "4 GB", "load_bandwidth": "1 GB/s"}},
    "workflows": {"w": {"tasks": {"r": {"runtime": "2 s"}}}},
    "workload": {"jobs": [{"release": f"{at} s", "workflow": "w"} for at in (0, 1, 1)]},
    "objective": "mean_latency",
}


def test_the_certificate_of_a_comparison_verifies(tmp_path: Path) -> None:
    made = tn.compare(SCENARIO, ["jit"], time_limit=2)
    tn.save(made, tmp_path)
    document = json.loads((tmp_path / "certificate.json").read_text())
    verdict = tn.verify(SCENARIO, document)
    # One after the other: 2, 3 and 5 s.
    assert (verdict.valid, verdict.lower_bound) == (True, document["lower_bound"])
    assert document["lower_bound"] == made.certified_lower_bound == made.record.certified_lower_bound
    assert document["lower_bound"] == pytest.approx(10 / 3)
    assert "certificate.json, written by -o, proves this bound." in (tmp_path / "table.md").read_text()


def test_a_bound_that_no_certificate_proves_is_told_from_the_one_that_does(tmp_path: Path) -> None:
    made = tn.compare(SCENARIO, ["jit"], time_limit=2)
    assert made.certifiable is not None
    formula = Fraction(2_000_000), "critical_path"
    weaker = replace(made, certifiable=replace(made.certifiable, formula=formula, priced=None))
    assert "certificate.json, written by -o, proves 2 s (critical path, a formula)." in weaker.proof


def test_every_table_names_the_noise(tmp_path: Path) -> None:
    tn.save(tn.compare(SCENARIO, ["jit"], time_limit=2, noise="told=lognormal:0.5"), tmp_path)
    for name in ("table.md", "table.tex"):
        assert "told=lognormal:0.5" in (tmp_path / name).read_text()
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert {row["noise"] for row in rows} == {"told=lognormal:0.5"}


@pytest.mark.parametrize("objective", list(Objective))
def test_percentiles_are_of_what_the_objective_is_about(objective: Objective) -> None:
    record = tn.compare(SCENARIO, ["jit"], time_limit=2).record
    (row, *_) = (row for row in record.rows if row.policy == "jit")
    columns = {each.name: each for each in contenders(replace(record, objective=objective)).columns}
    said = [columns[name].say(columns[name].value(row)) for name in ("p95", "p99")]
    if "slowdown" in objective:
        assert (said, "p50 slowdown" in columns) == (["2.5", "2.5"], True)
    else:
        assert (said, "p50 latency" in columns) == (["5 s", "5 s"], True)
