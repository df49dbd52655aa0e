"""Profiles: what was measured becomes a scenario, and the command says what it measured."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from tests.command import app, run
from tests.executor.devices.small import BYTES, KV_BYTES, WIDTH, Decoding, Small
from tests.night import by_day
from truenorth.executor.devices.profiling import (
    WARMUP_ROUNDS,
    LiveTimes,
    Measurements,
    RoundSamples,
    StreamTimes,
    _Bench,
    measure,
    measure_live,
)
from truenorth.executor.devices.run import LiveSettings
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station, StationWork
from truenorth.executor.devices.streams import Span
from truenorth.executor.errors import DeviceError, StoppedError
from truenorth.executor.runners.factory import FactoryRunner
from truenorth.executor.samples import FittedLine, Spread
from truenorth.models import (
    GPU,
    WHOLE,
    BatchClass,
    Cluster,
    Edge,
    Instance,
    Job,
    Link,
    MLModel,
    Network,
    Task,
    Workflow,
)
from truenorth.models.scenario import InputError, Scenario, load_scenario, scenario_from
from truenorth.models.streams import StreamSpeed
from truenorth.planner.answers.profile import Profile, profile, typical_requests
from truenorth.planner.answers.profile_document import measured_document
from truenorth.planner.inputs.samples import Dispatch, read_samples
from truenorth.planner.inputs.told import read_quantiles
from truenorth.planner.questions.devices import ProfileQuestion
from truenorth.planner.show.profile import profile_view

SCENARIO = """
cluster:
  groups:
    - {count: 1, gpu: {kind: A, memory: 10 MB, load_bandwidth: 1 GB/s, load_overhead: 5 us}}
    - {count: 2, gpu: {kind: B, slots: [4 MB, 2 MB], load_bandwidth: 1 GB/s}}
  network: {bandwidth: 1 GB/s, latency: 1 ms, staged: true}
models: {m: {weights: 1 MB}, n: {weights: 100 KB}, unused: {weights: 7 B}}
workflows:
  two:
    tasks:
      first: {models: [m], runtime: {A: 3 ms, B: 4 ms, C: 5 ms}, output: 1 KB}
      "2": {models: [m, n], runtime: 2 ms, after: {first: 2 KB}}
  one:
    tasks:
      only: {runtime: {B: 1 ms}}
workload:
  trace: {file: arrivals.csv}
"""

MEASURED = Measurements(
    device="bench",
    weight_bytes={"m": 1_000_123, "n": 99_999},
    runs={
        ("two", "first"): Spread((1234.5, 2000.0)),
        ("two", "2"): Spread((20.4, 30.0)),
        ("one", "only"): Spread((0.2, 0.3)),
    },
    memory_bytes={("two", "first"): 300_000, ("two", "2"): 1000, ("one", "only"): 0},
    batches={},
    loads={"m": Spread((100.0, 120.0)), "n": Spread((20.0, 21.0))},
    transfers={},
    load=FittedLine(12.4, 9.87654e9),
    transfer=FittedLine(45.6, 3.21e9),
    copy_peak=1.1e10,
    live=LiveTimes({("one", "only"): Spread((0.4, 0.5))}, {"idle": Spread((300.0, 310.0))}),
)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "arrivals.csv").write_text("time_ms,workflow\n0,two\n1,one\n")
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return load_scenario(tmp_path / "scenario.yaml")


def saved(scenario: Scenario, path: Path) -> Scenario:
    document = measured_document(scenario, MEASURED)
    Profile(scenario, MEASURED, document, scenario, "cpu", "synthetic", 3).save(path)
    return load_scenario(path)


def test_measured_figures_take_the_place_of_given_ones(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    made = saved(scenario, tmp_path / "elsewhere" / "profiled.yaml").instance
    assert [model.weight_bytes for model in made.models] == [1_000_123, 99_999, 7]
    assert {gpu.load_bandwidth for gpu in made.cluster.gpus} == {Fraction("9.877e9")}
    assert {gpu.load_overhead_us for gpu in made.cluster.gpus} == {12}
    two, one = (job.workflow for job in made.jobs)  # so the trace was found from the other folder
    # 1234.5 us is half way between two microseconds, and the even one is written; C is not in the cluster.
    assert dict(two.tasks[0].runtime_us) == {"A": 1234, "B": 1234, "C": 5000}
    assert dict(two.tasks[1].runtime_us) == {"*": 20}
    assert dict(one.tasks[0].runtime_us) == {"B": 1}  # never 0; A stays ineligible


@pytest.mark.parametrize(
    ("old", "new", "within", "staged"),
    [
        ("", "", Link(1000, Fraction(10**9)), True),  # the copies by way of the hosts come on top: nothing is known
        (", staged: true", "", Link(46, Fraction("3.21e9")), False),
        (
            "    - {count: 2, gpu: {kind: B, slots: [4 MB, 2 MB], load_bandwidth: 1 GB/s}}\n",
            "",
            Link(46, Fraction("3.21e9")),
            False,
        ),
    ],
    ids=["staged", "not staged", "one server"],
)
def test_copies_in_this_machine_are_no_network_between_servers(
    scenario: Scenario, tmp_path: Path, old: str, new: str, within: Link, staged: bool
) -> None:
    # The `only` task runs on kind B alone; without it, it takes its time from kind A.
    text = SCENARIO.replace(old, new) if old else SCENARIO
    given = tmp_path / "given.yaml"
    given.write_text(text.replace("runtime: {B: 1 ms}", "runtime: 1 ms"))
    network = saved(load_scenario(given), tmp_path / "profiled.yaml").instance.cluster.network
    assert network.between == Link(1000, Fraction(10**9))
    assert (network.within, network.staged) == (within, staged)


def test_everything_else_stays(scenario: Scenario, tmp_path: Path) -> None:
    made = saved(scenario, tmp_path / "profiled.yaml")
    assert made.objective == scenario.objective
    assert [gpu.slots for gpu in made.instance.cluster.gpus] == [gpu.slots for gpu in scenario.instance.cluster.gpus]
    assert [task.inputs for task in made.instance.jobs[0].workflow.tasks] == [(), (Edge("first", 2000),)]
    assert made.instance.jobs[0].workflow.position == {"first": 0, "2": 1}
    assert scenario.instance.models[0].weight_bytes == 1_000_000


def test_comments_say_how_it_was_measured(scenario: Scenario, tmp_path: Path) -> None:
    saved(scenario, tmp_path / "profiled.yaml")
    lines = (tmp_path / "profiled.yaml").read_text().splitlines()
    assert lines[0].startswith("# Measured by truenorth profile on ")
    assert "# medians of 3 rounds; every sample is in profiled.samples.json." in lines
    assert "# Best bare copy of the largest model: 11 GB/s." in lines
    assert "      first: {models: [m], runtime: {A: 1.234 ms, B: 1.234 ms, C: 5 ms}, output: 1 KB}" in lines


def test_a_person_sees_measured_beside_given(scenario: Scenario) -> None:
    """Fits: 12.4 us and 1,000,123 and 99,999 bytes at 9.87654 GB/s."""
    console = Console(width=100, record=True, file=StringIO())
    console.print(profile_view(Profile(scenario, MEASURED, {}, scenario, "cpu", "synthetic", 3)))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["two/first", "1.234", "2.000", "3.000"] in lines
    assert ["m", "1.0", "0.100", "0.120", "0.114"] in lines
    assert ["n", "0.1", "0.020", "0.021", "0.023"] in lines
    assert ["transfer:", "45.6", "us", "+", "bytes", "/", "(3.21", "GB/s)"] in lines
    assert ["dispatch,", "medians:", "idle", "300", "us"] in lines


def test_a_scenario_of_data_is_measured_as_well() -> None:
    scenario = scenario_from(
        {
            "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "1 MB", "load_bandwidth": "1 GB/s"}},
            "workflows": {"w": {"tasks": {"t": {"runtime": "1 ms"}}}},
            "workload": {"jobs": [{"release": "0 s", "workflow": "w"}]},
        }
    )
    found = replace(MEASURED, weight_bytes={}, runs={}, batches={})
    assert measured_document(scenario, found)["cluster"]["servers"] == 1


CHAIN = Workflow(
    "w", (Task("a", {"*": 50}, ("m",)), Task("b", {"*": 50}, ("n", "m"), (Edge("a", 64),)), Task("c", {"*": 1}))
)
MODELS = [MLModel("m", 5), MLModel("n", 5), MLModel("unused", 5)]


def test_every_task_load_and_transfer_is_measured_after_the_warm_up() -> None:
    """Weights count with their real bytes; m is loaded for a and for b."""
    calls: list[tuple[int, str, int]] = []
    runner = Small(lambda call: calls.append((call.job, call.task, call.run_us)))
    done: list[int] = []
    found = measure(MODELS[:2], [CHAIN], runner, "cpu", rounds=3, watch=done.append)
    assert done == [1, 2, 3, 4, 5]
    assert len(calls) == (WARMUP_ROUNDS + 1 + 3) * 3  # a round says what they take beside the weights
    assert set(calls[:3]) == {(0, "a", 50), (0, "b", 50), (0, "c", 1)}
    assert dict(found.weight_bytes) == {"m": BYTES, "n": BYTES}
    assert set(found.runs) == {("w", "a"), ("w", "b"), ("w", "c")}
    assert set(found.loads) == {"m", "n"}
    # One size of model, one of edge: another of each was copied, which tells overhead from bandwidth.
    assert set(found.transfers) == {64, 16 * 64}
    assert found.load is not None
    assert found.transfer is not None
    # Numbers of four bytes, 16 at a time: inputs, product, sum, hyperbolic tangent.
    assert set(found.memory_bytes) == set(found.runs)
    assert all(4 * WIDTH <= taken <= 40 * WIDTH for taken in found.memory_bytes.values())


def test_other_models_pass_through_the_caches_before_a_run() -> None:
    """Task a needs m, so n passes; c, which is next, needs none; b needs both."""
    seen: dict[str, Tensor] = {}
    runner = Small(lambda call: seen.update({call.task: bench._elsewhere[: 2 * BYTES].clone()}))
    bench = _Bench(MODELS[:2], [CHAIN], (), runner, "cpu")
    bench.round(0)
    m, n = (weights[:BYTES] for weights in bench._host.flat)
    assert torch.equal(seen["a"][:BYTES], n)
    assert torch.equal(seen["c"], torch.cat([m, n]))
    assert torch.equal(seen["b"], seen["c"])


def test_another_gpu_does_the_same_meanwhile() -> None:
    """The first run waits until somebody else runs too; what the others take is measured nowhere."""
    own, beside = threading.get_ident(), threading.Event()

    def meet(call: RunnerCall) -> None:
        if threading.get_ident() != own:
            beside.set()
        assert beside.wait(10)

    found = measure(MODELS[:2], [CHAIN], Small(meet), "cpu", rounds=2, beside=1)
    assert [len(spread.samples_us) for spread in found.runs.values()] == [2, 2, 2]


PAIRS = BatchClass("pairs", {"A": {1: 50, 4: 90}, "B": {1: 60, 2: 70}}, ("m",), WHOLE // 2)
"""Half a GPU; sizes 1, 2 and 4 over both kinds."""


def test_batches_are_measured_by_size_and_beside_each_other() -> None:
    """Two copies of every size at a time, each in one pass with distinct jobs; given is the fastest kind's time."""
    seen: list[tuple[int, tuple[int, ...]]] = []

    class Batching(Small):
        def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
            seen.append((calls[0].run_us, tuple(call.job for call in calls)))
            return super().run_batch(calls)

    found = measure(MODELS[:1], [Workflow("w", (Task.of_class("t", PAIRS),))], Batching(), "cpu", rounds=2)
    assert seen[:4] == [(90, (0, 1, 2, 3))] * 2 + [(70, (0, 1))] * 2
    assert {size: len(spread.samples_us) for size, spread in found.batches["pairs"].items()} == {1: 4, 2: 4, 4: 4}
    assert len(found.runs["w", "t"].samples_us) == 4
    # Each of four takes 64 bytes of values, put out by the layer, and put out; of those before only the last stay.
    assert found.memory_bytes == {("w", "t"): (3 * 64 + 3 * 64) // 4}


def test_no_more_copies_are_measured_beside_each_other_than_there_are_streams() -> None:
    """A share of 0.03 would let 33 run; a card has 32 streams, two of which copies take."""
    together: list[int] = []
    task = Task("t", {"*": 1}, ("m",), share=round(WHOLE * 0.03))
    measure(MODELS[:1], [Workflow("w", (task,))], Small(lambda call: together.append(call.job)), "cpu", rounds=1)
    assert len(together) == (WARMUP_ROUNDS + 1) * 30 + 1


def test_rounds_that_are_known_are_not_measured_again() -> None:
    """Three rounds are kept as they end; five then need two more, which are all that is new in what was measured."""
    kept: dict[int, RoundSamples] = {}
    first = measure(MODELS[:2], [CHAIN], Small(), "cpu", rounds=3, keep=kept.__setitem__)
    calls: list[str] = []
    runner = Small(lambda call: calls.append(call.task))
    again = measure(MODELS[:2], [CHAIN], runner, "cpu", rounds=5, known=list(kept.values()), keep=kept.__setitem__)
    assert (list(kept), first.rounds, again.rounds) == ([1, 2, 3, 4, 5], 3, 5)
    assert len(calls) == (WARMUP_ROUNDS + 1 + 2) * 3
    for key, spread in again.runs.items():
        assert sorted(spread.samples_us) == sorted(time for samples in kept.values() for time in samples["run", *key])


def test_a_measured_table_lists_the_given_sizes_and_never_falls(tmp_path: Path) -> None:
    path = tmp_path / "batched.yaml"
    classes = "batches: {c: {models: [m], runtime: {A: {1: 9 ms, 4: 9 ms}, B: {1: 9 ms, 2: 9 ms}, C: {1: 7 ms}}}}\n"
    tasks = "workflows: {w: {tasks: {t: {batch: c}}}}\nworkload: {jobs: [{release: 0 s, workflow: w}]}\n"
    path.write_text(SCENARIO.partition("workflows:")[0] + classes + tasks)
    sizes = {1: Spread((2000.0,)), 2: Spread((1500.0,)), 4: Spread((3000.0,))}
    measured = replace(MEASURED, runs={("w", "t"): sizes[1]}, batches={"c": sizes})
    document = measured_document(load_scenario(path), measured)
    assert document["batches"]["c"]["runtime"] == {
        "A": {"1": "2.000 ms", "4": "3.000 ms"},
        "B": {"1": "2.000 ms", "2": "2.000 ms"},  # size 2 was faster than size 1
        "C": {"1": "7 ms"},
    }


@pytest.mark.parametrize(("with_memory", "taken"), [(False, None), (True, "0.001 MB")])
def test_what_tasks_take_beside_the_weights_replaces_what_they_are_said_to_hold(
    tmp_path: Path, with_memory: bool, taken: str | None
) -> None:
    """Task `first` is said to hold 9 KB and takes 300 KB; `2` is said to hold nothing and takes 1 KB."""
    path = tmp_path / "given.yaml"
    text = SCENARIO.replace("first: {models: [m],", "first: {models: [m], memory: 9 KB,")
    path.write_text(text.replace("trace: {file: arrivals.csv}", JOBS))
    document = measured_document(load_scenario(path), MEASURED, with_memory)
    tasks = document["workflows"]["two"]["tasks"]
    assert (tasks["first"]["memory"], tasks["2"].get("memory")) == ("0.3 MB", taken)


def test_samples_lie_beside_the_profile(scenario: Scenario, tmp_path: Path) -> None:
    saved(scenario, tmp_path / "profiled.yaml")
    found = read_samples(tmp_path / "profiled.samples.json")
    assert found.runs["two", "first"] == Spread((1234.5, 2000.0))
    assert found.live == {("one", "only"): Spread((0.4, 0.5))}
    assert found.dispatch == Dispatch.model_validate({"idle": [300.0, 310.0]})
    (tmp_path / "older.samples.json").write_text('{"schema_version": 1, "runs": {}}')
    older = read_samples(tmp_path / "older.samples.json")
    assert (older.live, older.dispatch) == ({}, None)
    # Of two samples both p10 and p50 are the first; 1234.5 us round upwards.
    assert read_quantiles(tmp_path / "profiled.samples.json", scenario)["two", "first"] == (1235, 1235, 2000)
    for text in (
        "[]",
        '{"schema_version": 1, "runs": {"w": {"t": [0]}}}',
        '{"schema_version": 1, "runs": {"w": {"t": 3}}}',
        '{"schema_version": 1, "runs": {}, "dispatch": {"idle": []}}',
        '{"schema_version": 1, "runs": {}, "dispatch": {"queued": [-1]}}',
        '{"schema_version": 1, "runs": {}, "dispatch": {"idel": [1]}}',
    ):
        (tmp_path / "bad.samples.json").write_text(text)
        with pytest.raises(InputError, match="allowed"):
            read_samples(tmp_path / "bad.samples.json")


def test_work_without_models_or_edges_has_no_loads_and_no_transfers() -> None:
    found = measure([], [Workflow("w", (Task("t", {"*": 1}),))], Small(), "cpu", rounds=1)
    assert (found.load, found.transfer, found.copy_peak, dict(found.loads)) == (None, None, None, {})


def test_live_runs_show_how_late_every_run_and_load_starts() -> None:
    """Two rounds under two policies: 12 runs, some of them queued; each policy loads both models once."""
    gpu = GPU("s0/g0", 0, "A", 10 * BYTES, Fraction(10**9))
    link = Link(10, Fraction(10**9))
    models = tuple(MLModel(name, BYTES) for name in "mn")
    on = Instance(Cluster((gpu,), Network(link, link)), models, (Job(CHAIN, 0),))
    found = measure_live(on, Small, LiveSettings(), rounds=2)
    assert {key: len(spread.samples_us) for key, spread in found.runs.items()} == {("w", name): 4 for name in "abc"}
    late = {sort: len(spread.samples_us) for sort, spread in found.dispatch.items()}
    assert (late["idle"] + late["queued"], late["load"], late["moves"]) == (12, 4, 4)
    assert found.dispatch["moves"] == Spread((1, 1, 1, 1))  # there is room for both models


def test_batches_take_no_part_in_live_runs() -> None:
    link = Link(10, Fraction(10**9))
    gpu = GPU("s0/g0", 0, "A", 10, Fraction(10**9))
    work = Workflow("w", (Task.of_class("t", PAIRS),))
    on = Instance(Cluster((gpu,), Network(link, link)), (MLModel("m", 5),), (Job(work, 0),))
    assert measure_live(on, Small, LiveSettings(), rounds=1) == LiveTimes()


def test_no_rounds_and_no_device_are_refused() -> None:
    with pytest.raises(DeviceError, match="0 rounds measure nothing"):
        measure([], [CHAIN], Small(), "cpu", rounds=0)
    with pytest.raises(DeviceError, match="device 'tpu' is unknown; allowed are cpu, cuda"):
        measure([], [CHAIN], Small(), "tpu")


def test_a_model_that_no_longer_fits_is_blamed_on_the_scenario(tmp_path: Path) -> None:
    path = tmp_path / "tight.yaml"
    path.write_text(SCENARIO.replace("10 MB", "10 KB").replace("[4 MB, 2 MB]", "[1 KB]").replace("1 MB", "90 B"))
    path.write_text(path.read_text().replace("100 KB", "1 KB").replace("trace: {file: arrivals.csv}", JOBS))
    with pytest.raises(InputError, match=r"tight.yaml:7: models.m.weights: 400000 bytes are larger than every slot"):
        profile(ProfileQuestion("cpu", rounds=1), load_scenario(path), partial(FactoryRunner, wide))


JOBS = "jobs: [{release: 0 s, workflow: two}]"


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(100_000))

    def forward(self, data: Tensor) -> Tensor:
        return data


def wide(name: str) -> nn.Module:
    return Wide()


def test_the_command_prints_and_writes_what_it_measured(
    scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made.yaml"
    arguments = ["profile", scenario.source.file, "--device", "cpu", "--rounds", "1", "-o", str(made), "--json"]
    assert run(app, arguments) == 0
    output = capsys.readouterr()
    assert output.err.count("wrote ") == 2
    document = json.loads(output.out)
    assert set(document) == {
        "device", "kind", "runner", "rounds", "beside", "models", "tasks", "batches", "load", "transfer", "dispatch",
        "streams", "profile", "samples",
    }  # fmt: skip
    assert (document["kind"], document["runner"], document["rounds"]) == ("cpu", "synthetic", 1)
    assert document["profile"] == str(made)
    assert {name: model["weight_bytes"] for name, model in document["models"].items()} == {"m": 1_000_000, "n": 100_000}
    assert [(task["workflow"], task["task"]) for task in document["tasks"]] == [
        ("two", "first"), ("two", "2"), ("one", "only"),
    ]  # fmt: skip
    written = load_scenario(made).instance
    medians = [round(task["run_median_us"]) for task in document["tasks"]]
    runs = [task.runtime_on("B") for job in written.jobs for task in job.workflow.tasks]
    assert runs == pytest.approx(medians, abs=1)


@pytest.mark.parametrize(("at", "measured"), by_day([(WARMUP_ROUNDS + 2, 2), (WARMUP_ROUNDS, 0)], 1))
@pytest.mark.parametrize("number", by_day([signal.SIGTERM, signal.SIGINT], 1))
def test_an_interruption_keeps_the_rounds_that_have_ended(
    scenario: Scenario,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    at: int,
    measured: int,
) -> None:
    """The signal comes with the first run of a round; task `first` runs once a round, and all of that round counts."""
    made, runs, original = tmp_path / "made.yaml", list[str](), Station.run

    def interrupt(station: Station, works: Sequence[StationWork], **told: int) -> tuple[list[Tensor], Span]:
        runs.extend(work.task for work in works)
        if runs.count("first") == at + (measured > 0) and works[0].task == "first":
            signal.raise_signal(number)
        return original(station, works, **told)

    monkeypatch.setattr(Station, "run", interrupt)
    arguments = ["profile", scenario.source.file, "--device", "cpu", "--rounds", "9", "-o", str(made), "--json"]
    assert run(app, arguments) == 130
    output = capsys.readouterr()
    assert runs.count("first") == at + (measured > 0)  # one said what it takes beside the weights
    if not measured:
        assert (output.out, output.err) == ("", "truenorth: interrupted; no round had ended\n")
        assert not made.exists()
    else:
        assert f"truenorth: interrupted; {measured} of 9 rounds had ended" in output.err
        assert json.loads(output.out)["rounds"] == measured
        assert "medians of 2 rounds" in made.read_text()
        samples = json.loads((tmp_path / "made.samples.json").read_text())
        assert len(samples["runs"]["two"]["first"]) == measured
        # Asked again, it goes on: the rounds that had ended count, and what was kept of them is then in the samples.
        monkeypatch.setattr(Station, "run", original)
        before = samples["runs"]["two"]["first"]
        assert run(app, arguments) == 0
        after = json.loads((tmp_path / "made.samples.json").read_text())["runs"]["two"]["first"]
        assert (len(after), set(before) <= set(after)) == (9, True)
        assert not (tmp_path / "made.rounds").exists()


def test_an_interruption_of_live_runs_keeps_all_rounds_and_is_said(
    scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes once every round has ended; nothing of live runs is written."""

    def interrupt(*told: object, stop: Callable[[], bool], **more: object) -> LiveTimes:
        signal.raise_signal(signal.SIGINT)
        assert stop()
        raise StoppedError("told to end")

    monkeypatch.setattr("truenorth.planner.answers.profile.measure_live", interrupt)
    made = tmp_path / "made.yaml"
    assert (
        run(app, ["profile", scenario.source.file, "--device", "cpu", "--rounds", "1", "-o", str(made), "--json"])
        == 130
    )
    output = capsys.readouterr()
    assert "truenorth: interrupted; 1 of 1 rounds had ended" in output.err
    assert (json.loads(output.out)["rounds"], json.loads(output.out)["dispatch"]) == (1, {})
    samples = json.loads((tmp_path / "made.samples.json").read_text())
    assert (len(samples["runs"]["two"]["first"]), samples["live"]) == (1, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "tpu"], "--device: 'tpu' is unknown; allowed are cpu, cuda"),
        ([], "Missing option '--device'"),
        (["--device", "cpu", "-o", "profile.json"], "a profile is written as YAML; name it profile.yaml"),
        (["--device", "cpu", "--runner", "synthetics"], "unknown runner 'synthetics' (did you mean synthetic?)"),
        (["--device", "cpu", "--runner", "transformers"], "model m: no architecture 'm'"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(
    arguments: list[str], message: str, scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(app, ["profile", scenario.source.file, *arguments]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert message in output.err


def test_a_profile_of_streams_is_a_scenario_with_measured_tables(tmp_path: Path) -> None:
    """A and B have a table each; C, which the cluster lacks, keeps its own. No step is below one of fewer requests."""
    (tmp_path / "chats.yaml").write_text("""
cluster:
  groups:
    - {count: 1, gpu: {kind: A, memory: 1 MB, load_bandwidth: 1 GB/s}}
    - {count: 1, gpu: {kind: B, memory: 1 MB, load_bandwidth: 1 GB/s}}
  network: {bandwidth: 1 GB/s}
models: {llm: {weights: 100 KB}}
workflows: {chat: {tasks: {answer: {stream: chat, prompt: 20, output_tokens: 4}}}}
streams:
  chat:
    models: [llm]
    prefill: {A: 10000 /s, B: 5000 /s, C: 77 /s}
    chunk: 8
    concurrency: 3
    step: {A: {1: 1 ms, 3: 2 ms}, B: {1: 1 ms, 2: 2 ms, 3: 3 ms}, C: {1: 7 ms, 3: 9 ms}}
workload: {jobs: [{release: 0 ms, workflow: chat}]}
""")
    made = profile(ProfileQuestion("cpu", rounds=3), load_scenario(tmp_path / "chats.yaml"), Decoding)
    made.save(tmp_path / "measured.yaml")
    measured = load_scenario(tmp_path / "measured.yaml").instance
    assert measured.streams is not None
    (stream,) = measured.streams.classes
    found = made.measurements.streams["chat"]
    assert stream.speeds["C"] == StreamSpeed(Fraction(77), 8, 3, {1: 7000, 3: 9000}, KV_BYTES)
    for kind, listed in (("A", (1, 3)), ("B", (1, 2, 3))):
        speed = stream.speeds[kind]
        assert float(speed.prefill_rate) == pytest.approx(found.prefill_rate, rel=1e-5)
        assert (speed.chunk, speed.seats, speed.kv_bytes) == (8, 3, KV_BYTES)
        highest = 0.0
        for k in listed:
            highest = max(highest, found.steps[k].median_us)
            assert speed.tau[k] == pytest.approx(highest, abs=1)
    assert measured.models[0].weight_bytes == made.measurements.weight_bytes["llm"]


def test_what_contexts_and_prompts_add_is_measured_apart_where_a_class_says_so(tmp_path: Path) -> None:
    """Steps hold what contexts add to them, and would count it twice beside the `context` that the scenario had.

    A step of two takes 5 ms at a context of 81 tokens each, and 1 ms at one of 1: 4 ms for 2 x 80 tokens are 25 us
    each; that of one 2 ms less. Without contexts a step takes 0.95 ms, and with a prompt an iteration 0.5 ms more.
    """
    (tmp_path / "chats.yaml").write_text("""
cluster: {servers: 1, gpu: {kind: A, memory: 1 MB, load_bandwidth: 1 GB/s}, network: {bandwidth: 1 GB/s}}
models: {llm: {weights: 100 KB}}
workflows: {chat: {tasks: {answer: {stream: chat, prompt: 80, output_tokens: 2}}}}
streams:
  chat:
    models: [llm]
    prefill: 10000 /s
    chunk: 40
    concurrency: 2
    step: {1: 1 ms, 2: 2 ms}
    context: 7 us
    mixed: 7 ms
workload: {jobs: [{release: 0 ms, workflow: chat}]}
""")
    scenario = load_scenario(tmp_path / "chats.yaml")
    (asked,) = typical_requests(scenario.instance)
    assert (asked.context, asked.first_chunk, asked.apart) == (81, 40, True)
    short = {1: Spread.of([975.0]), 2: Spread.of([1000.0])}
    steps = {1: Spread.of([2975.0]), 2: Spread.of([5000.0])}
    mixed = (Spread.of([5475.0]), Spread.of([975.0]))
    times = StreamTimes(asked, Spread.of([8000.0]), steps, KV_BYTES, short, mixed)
    assert (times.context_us, times.mixed_us) == (25, 500)
    made = profile(ProfileQuestion("cpu", rounds=2), scenario, Decoding)
    found = made.measurements.streams["chat"]
    assert (set(found.short), found.mixed is None) == ({1, 2}, False)
    document = measured_document(scenario, replace(made.measurements, streams={"chat": times}))
    (stream,) = scenario_from(document).instance.streams.classes  # type: ignore[union-attr]
    assert stream.speeds["*"].step_us == {1: 950, 2: 950}
    assert (stream.speeds["*"].context_ps, stream.speeds["*"].mixed_us) == (25_000_000, 500)
    made.save(tmp_path / "measured.yaml")
    (stream,) = load_scenario(tmp_path / "measured.yaml").instance.streams.classes  # type: ignore[union-attr]
    assert stream.speeds["*"].mixed_us == round(found.mixed_us)
    assert stream.speeds["*"].context_ps == pytest.approx(1e6 * found.context_us, abs=1)
