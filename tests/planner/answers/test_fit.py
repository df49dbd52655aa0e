"""A law is fitted to a log, and its catalogue gives the log's figures by import and simulate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import truenorth as tn
from tests.command import app, run
from tests.solvers.fitting.test_engine_kernel import LAW, requests, served
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError
from truenorth.models.streams import Fitted
from truenorth.planner.answers.fit import FIGURES
from truenorth.solvers.fitting.engine_kernel import EngineLimits

KEYS = ("queued_ts", "input_toks", "output_toks", "first_token_ts", "last_token_ts")
LIMITS = EngineLimits(32, 512, 16, 300)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of 120 requests on an engine with 4,800 tokens of KV, which preempts; its clock began before."""
    made = served(requests(120, 3, 60_000), LIMITS, LAW)
    columns = (made.requests.arrival_us, made.requests.prompt, made.requests.output, made.first_us, made.end_us)
    path = tmp_path_factory.mktemp("run") / "requests.jsonl"
    with path.open("w") as file:
        for arrival, prompt, output, first, end in zip(*(column.tolist() for column in columns), strict=True):
            seconds = [round(27_000 + us / 1e6, 6) for us in (arrival, first, end)]
            file.write(json.dumps(dict(zip(KEYS, (seconds[0], prompt, output, *seconds[1:]), strict=True))) + "\n")
    return path


def test_import_and_simulate_give_the_figures_of_the_fit(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalogue, scenario = tmp_path / "catalogue.yaml", tmp_path / "run.yaml"
    options = ["--seats", "32", "--budget", "512", "--kv-tokens", "4800"]
    assert run(app, ["fit", str(log), *options, "-o", str(catalogue), "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert fitted["requests"] == 120
    assert fitted["preemptions"] > 0
    assert run(app, ["import", "tokens", str(log), "--catalogue", str(catalogue), "-o", str(scenario)]) == 0
    simulated = tn.simulate(scenario, "least_tokens")
    figures = {name: getattr(simulated.metrics, name) for name in FIGURES}
    said = {name: fitted["figures"][name]["all"] for name in FIGURES}
    assert figures == pytest.approx(said, rel=0.01)
    assert simulated.metrics.preemptions == pytest.approx(fitted["preemptions"], abs=3)  # type: ignore[attr-defined]
    assert "# Errors about the whole log of the law of its earlier half: mean_first_token_s" in catalogue.read_text()


def test_answers_say_what_the_law_was_fitted_to_and_how_far_off_it_is(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From one place: `simulate`, `servers` and the page of its folder, which say that KV grows, and preemptions."""
    catalogue, scenario, folder = tmp_path / "catalogue.yaml", tmp_path / "run.yaml", tmp_path / "order"
    options = ["--seats", "32", "--budget", "512", "--kv-tokens", "4800"]
    assert run(app, ["fit", str(log), *options, "-o", str(catalogue), "--json"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    assert run(app, ["import", "tokens", str(log), "--catalogue", str(catalogue), "-o", str(scenario)]) == 0
    worst = {
        rank: max(abs(said["half_error"]) for name, said in fitted["figures"].items() if name.startswith(rank))
        for rank in ("mean", "p95")
    }
    simulated = tn.simulate(scenario, "least_tokens")
    (law,) = simulated.fitted
    assert (law.stream, law.kind, law.log, law.requests) == ("model", "*", "requests.jsonl", 120)
    assert (law.mean_error, law.p95_error) == pytest.approx((worst["mean"], worst["p95"]), abs=1e-6)
    sentence = (
        f"The step law of model is fitted to requests.jsonl (120 requests): fitted to the earlier half alone, means "
        f"are off by at most {law.mean_error:.1%}, p95 by at most {law.p95_error:.1%} over the whole log"
    )
    assert str(law) == sentence
    capsys.readouterr()
    assert run(app, ["simulate", str(scenario), "--policy", "least_tokens", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fitted"] == [
        {"stream": "model", "kind": "*", "log": "requests.jsonl", "requests": 120, **errors_of(law)}
    ]
    assert run(app, ["simulate", str(scenario), "--policy", "least_tokens"]) == 0
    assert sentence in " ".join(capsys.readouterr().out.split())
    asked = ["servers", str(scenario), "--slo", "p95 latency <= 10 min", "--policies", "least_tokens"]
    assert run(app, [*asked, "--time-limit", "10", "-o", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert sentence in said
    answer = json.loads((folder / "answer.json").read_text())
    assert answer["fitted"][0]["log"] == "requests.jsonl"
    preemptions = answer["alternatives"][0]["metrics"]["preemptions"]
    assert preemptions > 0
    assert f"with {preemptions:,} preemptions of requests for want of KV memory" in said
    page = tmp_path / "order.html"
    assert run(app, ["report", str(folder), "-o", str(page)]) == 0
    text = page.read_text()
    assert sentence in text
    assert "KV grows with each request" in text
    assert "KV is reserved from start to end" not in text


def errors_of(law: Fitted) -> dict[str, float | None]:
    """Return the errors of a law by their keys."""
    return {"mean_error": law.mean_error, "p95_error": law.p95_error}


def test_kv_that_nobody_named_is_found_in_the_log(log: Path) -> None:
    """The engine had 4,800 tokens of KV; what was named wrongly by 3 % comes right, what was named rightly stays."""
    unnamed, wrong = (tn.fit(log, seats=32, budget=512, kv_tokens=kv_tokens) for kv_tokens in (None, 4960))
    assert unnamed.kv_tokens == pytest.approx(4800, rel=0.01)
    assert any("waited while seats were free" in note for note in unnamed.notes)
    assert wrong.kv_tokens == pytest.approx(4800, rel=0.01)
    assert any("explain the log best" in note for note in wrong.notes)
    for found in (unnamed, wrong):
        assert found.whole.loss < 0.03  # 0.14 where KV has no end
        assert f"memory: {1_000_000_000 + found.kv_tokens * 1000} B" in found.catalogue()  # type: ignore[operator]
    assert tn.fit(log, seats=8, budget=512).kv_tokens is None  # seats are what is short


def test_errors_name_the_row_and_what_is_allowed(log: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows[4]["first_token_ts"] = rows[4]["queued_ts"] - 1
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=r"broken.jsonl:5: first_token_ts: .*is before the request came"):
        tn.fit(broken, seats=32, budget=512)
    with pytest.raises(QuestionError, match="a budget above the seats"):
        tn.fit(log, seats=32, budget=32)
    with pytest.raises(QuestionError, match="allowed is at least"):
        tn.fit(log, seats=32, budget=512, kv_tokens=100)
    with pytest.raises(QuestionError, match="unknown"):
        tn.fit(log, seats=32, budget=512, columns="frist=first_token_ts")


def test_other_columns_and_several_engines(log: Path, tmp_path: Path) -> None:
    """Two engines that served the same, in a CSV of milliseconds, are fitted as the one."""
    rows = [json.loads(line) for line in log.read_text().splitlines()][:60]
    table = tmp_path / "two.csv"
    lines = ["node,at,in,out,first,last"]
    for row in rows:
        at, first, last = (f"{row[key] * 1000:.3f}" for key in ("queued_ts", "first_token_ts", "last_token_ts"))
        lines += [f"{node},{at},{row['input_toks']},{row['output_toks']},{first},{last}" for node in "ab"]
    table.write_text("\n".join(lines))
    columns = "release=at,prompt=in,output=out,first=first,last=last,engine=node,unit=ms"
    found = tn.fit(table, seats=32, budget=512, kv_tokens=4800, columns=columns)
    assert found.engines == 2
    assert found.requests == 120
    assert "count: 2}" in found.catalogue()
    firsts = np.array([row["first_token_ts"] - row["queued_ts"] for row in rows])
    assert found.figures[0].measured == pytest.approx(firsts.mean(), abs=1e-5)
