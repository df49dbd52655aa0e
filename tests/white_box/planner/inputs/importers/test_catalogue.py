"""Catalogues: a log joined by model name with sizes, kinds, prices and run times, derived by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truenorth as tn
from tests.command import BAD_INPUT, DONE, app, run
from tests.planner.inputs.importers.small import written
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, load_scenario
from truenorth.planner.inputs.importers.catalogue import PACKAGED, load_catalogue
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.inputs.importers.trace import Imported

CATALOGUE = """\
kinds:
  L4: {memory: 24 GB, load_bandwidth: 12 GB/s, price_per_hour: 0.8, count: 3}
  H100: {memory: 80 GB, load_bandwidth: 24 GB/s, load_overhead: 10 ms, price_per_hour: 4, factor: 0.25, count: 2}
models:
  chat:
    weights: 12 GB
    aliases: [org/Chat-8B]
    tokens: {L4: {start: 5 ms, input: 1 ms, output: 20 ms}, H100: {input: 0.1 ms, output: 5 ms}}
  embed: {weights: 1 GB, batch: {L4: {1: 8 ms, 4: 20 ms}, H100: {1: 6 ms}}, share: 0.25}
  paint: {weights: 6 GB}
slo: [p95 latency of chat <= 2 s, no late jobs of embed]
"""
LOG = """\
at;who;in;out;took;due;worth
2026-11-20 09:00:00.5;org/Chat-8B;100;10;0;;1
2026-11-20 09:00:01;Embed;64;0;0;50;1
2026-11-20T09:00:02;chat;100;10;0;;2.5
2026-11-20 09:00:03;chat;200;1;0;;1
2026-11-20 09:00:04;paint;0;0;2000;;1
2026-11-20 09:00:05;riddle;0;0;1;;1
"""
COLUMNS = (
    "table:release=at,model=who,tokens_in=in,tokens_out=out,runtime=took,runtime_unit=ms,deadline=due,weight=worth"
)


def joined(folder: Path, log: str, options: str, catalogue: str = CATALOGUE, classes: str = "auto") -> Imported:
    known = Catalogued.load(written(folder, catalogue, "catalogue.yaml"))
    return tn.import_trace(options, [written(folder, log)], catalogue=known, runtime_classes=classes)


def test_a_raw_log_becomes_a_priced_scenario(tmp_path: Path) -> None:
    log = LOG.replace(";0;;", ";1;;").replace(";0;50;", ";1;50;")
    made = joined(tmp_path, log, f"{COLUMNS},deadline_unit=ms")
    scenario = load_scenario(made.save(tmp_path / "made.yaml")[0])
    # L4: 5 + 100 + 200 ms and 5 + 200 + 20 ms; H100: 10 + 50 and 20 + 5.
    runtimes = {workflow.name: dict(workflow.tasks[0].runtime_us) for workflow in scenario.instance.catalogue}
    assert runtimes == {
        "chat 1 of 2": {"L4": 225_000, "H100": 25_000},
        "chat 2 of 2": {"L4": 305_000, "H100": 60_000},
        "embed": {"L4": 8_000, "H100": 6_000},
        "paint": {"L4": 2_000_000, "H100": 500_000},
    }
    jobs = scenario.instance.jobs
    assert [(job.release_us, job.workflow.name) for job in jobs] == [
        (0, "chat 2 of 2"),
        (500_000, "embed"),
        (1_500_000, "chat 2 of 2"),
        (2_500_000, "chat 1 of 2"),
        (3_500_000, "paint"),
    ]
    assert [float(job.weight) for job in jobs] == [1, 1, 2.5, 1, 1]
    assert [job.deadline_us for job in jobs] == [None, 50_000, None, None, None]
    batch = jobs[1].workflow.tasks[0].batch
    assert batch is not None
    assert (batch.runtime_us["L4"], batch.share) == ({1: 8_000, 4: 20_000}, 2_500)
    groups = [(group.count, group.gpu.kind, group.price_per_hour) for group in scenario.document.cluster.server_groups]
    assert [(count, kind, float(price or 0)) for count, kind, price in groups] == [(3, "L4", 0.8), (2, "H100", 4)]
    assert [model.weight_bytes for model in scenario.instance.models] == [12 * 10**9, 10**9, 6 * 10**9]
    # A level of a model is over every workflow that was made of it.
    assert str(scenario.slo) == "p95 latency of chat * <= 2 s and no late jobs of embed"
    assert made.as_dict()["unmatched"] == {"riddle": 1}
    assert made.tally.left_out == {"of riddle, which the catalogue does not have": 1}
    assert made.notes == [
        "releases are dates with a time of day",
        "fields of log.csv are separated by semicolons",
        "run times of embed are taken to hold beside 3 more of its requests, which its share lets run",
    ]
    assert made.scenario.instance == scenario.instance


def test_run_times_by_kind_and_classes(tmp_path: Path) -> None:
    log = (
        "release,model,a,b,n\n" + "".join(f"{at},paint,{at + 1},{2 * at},1\n" for at in range(1, 9)) + "9,paint,4,4,2\n"
    )
    options = "table:runtime=L4:a+H100:b,gpus=n,user=n"
    auto = joined(tmp_path, log, options)
    assert [dict(workflow.tasks[0].runtime_us) for workflow in auto.workload.workflows] == [
        *({"L4": (at + 1) * 10**6, "H100": 2 * at * 10**6} for at in range(1, 9)),
        {"L4": 4_000_000, "H100": 4_000_000},
    ]
    assert [len(workflow.tasks) for workflow in auto.workload.workflows] == [1] * 8 + [2]
    # Eight of nine requests have 1 in the column of users, the last has 2.
    assert auto.notes[0] == "requests are of 2 users: 1 88.9%, 2 11.1%"
    one = joined(tmp_path, log, options, classes="1").workload
    # The slowest of eight stays; the other seven run as long as the longest of them, on either kind.
    assert [(workflow.name, dict(workflow.tasks[0].runtime_us)) for workflow in one.workflows] == [
        ("paint 1 of 2", {"L4": 8_000_000, "H100": 14_000_000}),
        ("paint 2 of 2", {"L4": 9_000_000, "H100": 16_000_000}),
        ("paint x 2", {"L4": 4_000_000, "H100": 4_000_000}),
    ]
    assert one.rounding is not None
    # 2 s on H100 became 14 s; the quicker of both kinds are 2, 3, 4, ... and 4, 4 s at 2 GPUs.
    assert one.rounding.most == 6
    assert one.rounding.exact_us.tolist() == [us * 10**6 for us in (2, 3, 4, 5, 6, 7, 8, 9, 4)]


def test_memory_of_the_log_stands_beside_prices(tmp_path: Path) -> None:
    log = "release,model,runtime,held\n0,paint,2,500\n1,paint,2,700\n"
    made = joined(tmp_path, log, "table:memory=held")
    tasks = [workflow.tasks[0] for workflow in made.workload.workflows]
    assert [(task.memory_bytes, task.runtime_us["L4"], task.runtime_us["H100"]) for task in tasks] == [
        (500, 2_000_000, 500_000),
        (700, 2_000_000, 500_000),
    ]
    assert made.scenario.document.cluster.server_groups[0].price_per_hour is not None
    with pytest.raises(QuestionError, match="embed has batches, whose requests hold equally much"):
        joined(tmp_path, "release,model,runtime,held\n0,embed,2,500\n", "table:memory=held")
    with pytest.raises(QuestionError, match="brings shares and batches"):
        joined(tmp_path, "release,model,runtime,part\n0,paint,2,0.5\n", "table:share=part")


def test_unix_times_and_tabs(tmp_path: Path) -> None:
    made = joined(
        tmp_path, "release\tmodel\truntime\n1700000000000\tpaint\t3000\n1700000000250\tpaint\t1000\n", "table:unit=ms"
    )
    assert made.workload.release_us.tolist() == [0, 250_000]
    assert made.notes[:2] == ["releases are times since 1970", "fields of log.csv are separated by tabs"]
    assert made.notes[2] == "no request is of a model of the level 'p95 latency of chat <= 2 s', which is left out"
    assert made.scenario.slo is None
    plain = tn.import_trace("table", [written(tmp_path, "release,model,runtime\n2,a,1\n5,a,1\n")])
    assert (plain.workload.release_us.tolist(), plain.tally.notes) == ([2_000_000, 5_000_000], [])


@pytest.mark.parametrize(
    ("log", "options", "message"),
    [
        ("release,model,runtime\n0,a,1\n", "table", "catalogue: has none of the log's models, such as 'a'"),
        ("release,model\n0,paint\n", "table:runtime=", "catalogue: paint has no run times, nor has the log"),
        ("release,model,runtime\n0,chat,1\n", "table", "catalogue: chat has rates per token, but the log's tokens"),
        ("release,model,x\n0,paint,1\n", "table:runtime=A100:x", "catalogue: has no kind 'A100' of the log"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, log: str, options: str, message: str) -> None:
    with pytest.raises(QuestionError) as error:
        joined(tmp_path, log, options)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("weights: 1 GB,", "weights: 1 GB, runtime: 1 s,", "9: models.embed: has runtime and batch"),
        ("{start: 5 ms, ", "{begin: 5 ms, ", "8: models.chat.tokens.L4.begin: unknown key"),
        ("H100: {input", "H200: {input", "8: models.chat.tokens.H200: unknown kind; did you mean 'H100'?"),
        ("aliases: [org/Chat-8B]", "aliases: [paint]", "models.paint: 'paint' also names chat"),
        (
            "    aliases",
            "    share: 0.1\n    aliases",
            "models.chat.share: lets 10 prefills run side by side, each at the rate measured beside 0 on L4; "
            "allowed is without share, or rates measured so (beside: 9)",
        ),
        ("kinds:", "include: all\nkinds:", "1: include: unknown catalogue 'all'; allowed is open-models"),
    ],
)
def test_a_catalogue_is_read_like_a_scenario(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        load_catalogue(written(tmp_path, CATALOGUE.replace(old, new), "catalogue.yaml"))
    assert message in str(error.value)


def test_rates_measured_beside_others_may_share_a_gpu(tmp_path: Path) -> None:
    shared = CATALOGUE.replace("    aliases", "    share: 0.3333\n    aliases").replace("output:", "beside: 2, output:")
    made = joined(tmp_path, "release,model,i,o\n0,chat,100,10\n", "table:runtime=,tokens_in=i,tokens_out=o", shared)
    (task,) = made.workload.workflows[0].tasks
    assert (task.share, dict(task.runtime_us)) == (3333, {"L4": 305_000, "H100": 60_000})
    assert made.notes[0] == (
        "run times of chat are taken to hold beside 2 more of its requests, which its share lets run"
    )
    # Without input tokens there is no prefill to share.
    free = CATALOGUE.replace("    aliases", "    share: 0.1\n    aliases").replace("input: 1 ms", "input: 0 ms")
    assert load_catalogue(written(tmp_path, free.replace("input: 0.1 ms", "input: 0 ms"), "free.yaml"))


def test_the_packaged_catalogue(tmp_path: Path) -> None:
    packaged, _ = load_catalogue(Path(PACKAGED))
    assert all(kind.source for kind in packaged.kinds.values())
    assert all(model.source for model in packaged.models.values())
    for model in packaged.models.values():
        fits = {kind for kind, section in packaged.kinds.items() if section.memory > model.weights}
        assert set(model.tokens or model.runtime or ()) == fits
    # 16.06 GB at 70 % of 300 GB/s take 76.476 ms, and 5 ms on top.
    rates = packaged.models["llama-3.1-8b"].tokens
    assert rates is not None
    assert rates["L4"].output == 81_476
    own = (
        "include: open-models\nkinds: {L4: {memory: 22 GB, load_bandwidth: 25 GB/s}}\nmodels: {sdxl: {weights: 7 GB}}\n"
    )
    mine, _ = load_catalogue(written(tmp_path, own, "own.yaml"))
    assert (list(mine.kinds), mine.models["sdxl"].weights, "phi-3-mini" in mine.models) == (["L4"], 7 * 10**9, True)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, known = written(tmp_path, "release,model\n0,sdxl\n1,SDXL\n"), tmp_path / "made.yaml"
    command = ["import", "table:runtime=", str(log), "--catalogue", "open-models"]
    assert run(app, [*command, "-o", str(known), "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["workflows"] == 1
    assert run(app, [*command, "--servers", "3"]) == BAD_INPUT
    assert "--catalogue: brings kinds" in capsys.readouterr().err
    assert run(app, ["import", "table:runtime=", str(log)]) == BAD_INPUT
    assert "the log has no run times" in capsys.readouterr().err
    assert run(app, ["schema", "--catalogue"]) == DONE
    assert json.loads(capsys.readouterr().out)["title"] == "Truenorth catalogue"
