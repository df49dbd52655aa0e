"""A law is made from what others measured at several numbers of requests at once, and says how far off it is."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import truenorth as tn
from tests.command import app, run
from truenorth.models import Tokens
from truenorth.models.errors import UserError
from truenorth.planner.answers.fit_table import FittedTable
from truenorth.planner.inputs.step_tables import MeasuredPoint
from truenorth.solvers.fitting.closed_loop import law_of_loops, serve_in_turn, speed_by_steps

RESULT = {
    "backend": "vllm", "model_id": "m", "request_rate": "inf", "max_concurrency": 1, "completed": 10,
    "total_input_tokens": 1000, "total_output_tokens": 110, "mean_ttft_ms": 100.0, "mean_tpot_ms": 10.0,
}  # fmt: skip
"""What `vllm bench serve --save-result` says, as far as it counts: prompts of 100 tokens, answers of 11."""
ESTIMATES = """model,isl,osl,prefix,concurrency,bs,ttft,tpot,request_latency,tp,system,backend
Q,100,11,0,1,1,100,18.2,200,1,h200,vllm
Q,100,11,0,2,2,200,29.1,320,1,h200,vllm
Q,100,11,0,2,1,80,9,170,2,h200,vllm
"""


def write(folder: Path, name: str, text: str) -> Path:
    """Write a file and return its path."""
    (folder / name).write_text(text)
    return folder / name


def results(folder: Path, **second: object) -> list[Path]:
    """Write results at one and at two requests at once, of which two prompts take 200 ms together, and steps 12 ms."""
    two = RESULT | {"max_concurrency": 2, "mean_ttft_ms": 200.0, "mean_tpot_ms": 12.0} | second
    return [write(folder, f"{number}.json", json.dumps(each)) for number, each in enumerate((RESULT, two), 1)]


def made(files: list[Path], **options: object) -> FittedTable:
    """Return the law of an engine with two seats."""
    found = tn.fit_table(files, seats=2, budget=512, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_benchmarks_at_two_concurrencies_give_steps_and_prefill(tmp_path: Path) -> None:
    """Alone 100 tokens in 100 ms, then steps of 10 ms. Two go in step: 200 ms for both prompts, then steps of 12 ms."""
    found = made(results(tmp_path))
    assert found.speed.step_us == {1: 10_000, 2: 12_000}
    assert float(found.speed.prefill_rate) == pytest.approx(1000)
    assert found.worst_error == pytest.approx(0, abs=1e-6)
    assert 'fitted: {log: "1.json and 1 more (vllm bench serve)", requests: 20, mean_error: 0.000000}' in (
        found.catalogue()
    )
    appended = write(tmp_path, "all.json", "\n".join(path.read_text() for path in results(tmp_path)))
    assert made([appended]).speed == found.speed


def test_estimates_are_those_of_the_deployment_with_most_rows(tmp_path: Path) -> None:
    """Time per token is (320 - 200) / 10 ms, whatever share of the first token their column has."""
    found = made([write(tmp_path, "pareto.csv", ESTIMATES)])
    assert found.speed.step_us == {1: 10_000, 2: 12_000}
    said = "2 of 3 rows are of model Q, system h200, backend vllm, tp 1, isl 100, osl 11, and are read"
    assert found.notes[0] == said
    assert "requests:" not in found.catalogue()


def test_estimates_of_engines_of_so_many_gpus(tmp_path: Path) -> None:
    """On two GPUs a prompt takes 80 ms and ten steps take 80 ms alone; of two it is 160 ms, and steps take 90 ms."""
    two = "Q,100,11,0,1,1,80,8,160,2,h200,vllm\nQ,100,11,0,2,2,160,9,250,2,h200,vllm\n"
    both = write(tmp_path, "pareto.csv", "".join(ESTIMATES.splitlines(keepends=True)[:3]) + two)
    assert made([both], tp=2).speed.step_us == {1: 8_000, 2: 9_000}
    assert made([both], tp=1).speed.step_us == {1: 10_000, 2: 12_000}
    with pytest.raises(UserError, match="has no row of tp 4; allowed are 1, 2"):
        made([both], tp=4)
    with pytest.raises(UserError, match="tp: picks rows of AIConfigurator's estimates, and these are vllm"):
        made(results(tmp_path), tp=2)


def test_a_table_of_steps_is_taken_as_it_is(tmp_path: Path) -> None:
    """Beyond the table steps follow its last line: 5 ms for two more from 2 on."""
    table = write(tmp_path, "steps.csv", "batch_size,step_ms\n2,15\n1,10\n")
    found = tn.fit_table([table], seats=4, budget=512, prefill="8000 /s")
    assert found is not None
    assert found.speed.step_us == {1: 10_000, 2: 15_000, 4: 25_000}
    assert (float(found.speed.prefill_rate), found.worst_error) == (8000, None)
    named = write(tmp_path, "named.csv", "b,us\n2,15000\n1,10000\n")
    again = tn.fit_table([named], seats=4, budget=512, prefill="8000 /s", columns="batch=b,step=us,unit=us")
    assert again is not None
    assert again.speed == found.speed


@pytest.mark.parametrize("seed", range(4))
def test_laws_behind_simulated_benchmarks_are_found(seed: int) -> None:
    """Over draws: steps within 1 %, though times per token are up to twice as long, and prompts within 2 %."""
    rng = random.Random(seed)
    steps = {1: rng.uniform(5e3, 20e3)}
    steps |= {count: steps[1] * (1 + rng.uniform(0.01, 0.05) * count) for count in (4, 16, 64)}
    steps = dict(zip(steps, sorted(steps.values()), strict=True))
    law = speed_by_steps(steps, rng.uniform(50, 200), 2048, 64)
    tokens = tuple(Tokens(n := rng.randint(200, 1500), n, rng.randint(50, 300)) for _ in range(100))
    points = []
    for count in steps:
        times = serve_in_turn(law, count, tokens, 20 * count)
        points.append(MeasuredPoint(count, times.token_us, times.first_us, tokens, 20 * count))
    found, _ = law_of_loops(points, 2048, 64)
    assert found.step_us == pytest.approx(law.step_us, rel=0.01)
    assert float(found.prefill_rate) == pytest.approx(float(law.prefill_rate), rel=0.02)


def test_the_catalogue_drives_an_import_and_its_errors_stand_in_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With first tokens of 180 ms at two the rate lies between: 180 is 10 % below 200, so that both are 5 % off."""
    files, catalogue, scenario = results(tmp_path, mean_ttft_ms=180.0), tmp_path / "c.yaml", tmp_path / "s.yaml"
    assert run(app, ["fit", *map(str, files), "--seats", "2", "--budget", "512", "-o", str(catalogue), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["warnings"][0].startswith("mean first token at 1 requests at once is -5.")
    log = write(tmp_path, "log.csv", "at,in,out\n0,100,11\n5,100,11\n")
    named = "tokens:release=at,prompt=in,output=out"
    assert run(app, ["import", named, str(log), "--catalogue", str(catalogue), "-o", str(scenario)]) == 0
    (law,) = tn.simulate(scenario, "least_tokens").fitted
    assert str(law) == (
        "The step law of model is made from 1.json and 1 more (vllm bench serve): its means, simulated, are off by at "
        f"most {said['worst_error']:.1%}; p95 was not compared"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", RESULT | {"request_rate": 5.0}, "a.json:1: request_rate: 5.0 requests per second are no fixed"),
        ("a.json", RESULT | {"max_concurrency": None}, "a.json:1: max_concurrency: is not set; run vllm bench serve"),
        ("a.json", RESULT | {"mean_tpot_ms": 0}, "a.json:1: mean_tpot_ms: the value '0' stands here; allowed is"),
        ("a.json", RESULT, "says how long steps are at 1 number of requests at once up to 2; allowed is a table"),
        ("a.csv", ESTIMATES.replace(",100,18.2", ",x,18.2"), "a.csv:2: ttft: 'x' is no number in range; allowed is"),
        ("a.csv", ESTIMATES.replace("bs", "(d)workers"), "a.csv:1: header: is of workers that prefill and workers"),
        ("a.csv", "batch,step_ms\n1,10\n2,x\n", "a.csv:3: step_ms: 'x' is no time in range; allowed is a plain"),
        ("a.csv", "batch,step_ms\n1,10\n2,12\n", "prefill: is missing, and step times say nothing of prompts"),
        ("a.csv", "batch,step_ms\n1,10\n1,12\n", "has 1 requests at once twice; allowed is one result for each"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path: Path, name: str, text: object, said: str) -> None:
    path = write(tmp_path, name, text if isinstance(text, str) else json.dumps(text))
    with pytest.raises(UserError) as refused:
        tn.fit_table([path], seats=2, budget=512)
    assert said in str(refused.value)


def test_files_of_several_sorts_are_refused(tmp_path: Path) -> None:
    files = [*results(tmp_path), write(tmp_path, "steps.csv", "batch,step_ms\n1,10\n")]
    with pytest.raises(UserError, match="3 files are given; allowed is one log or table, or results of vllm"):
        tn.fit_table(files, seats=2, budget=512)
