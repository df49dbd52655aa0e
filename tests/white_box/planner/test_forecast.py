"""Predictions from samples: what they say of one GPU, derived by hand, and of measured runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.executor.devices.small import BYTES, gpus, instance
from tests.instances import chain, task
from truenorth.executor import parse_policy
from truenorth.executor.samples import Spread
from truenorth.models import Cluster
from truenorth.models.errors import QuestionError
from truenorth.planner.answers.forecast import Forecast, forecast, measured_latencies
from truenorth.planner.inputs.samples import Dispatch, Samples


def test_runs_and_loads_are_those_of_the_samples() -> None:
    """One job after the other: the first waits for a load of 50 us, and every run takes 100 or 300 us."""
    on = instance([chain(task("x", 10, ["m"])) for _ in range(2)], ["m"], gpus(1, BYTES))
    name = on.workflows[0].name
    samples = Samples({(name, "x"): Spread.of([100, 300])}, {"m": Spread.of([50])})
    found = forecast(on, parse_policy("jit"), samples, draws=64)
    assert {tuple(row) for row in found.latency_us.tolist()} == {(150, 250), (150, 450), (350, 450), (350, 650)}
    again = forecast(on, parse_policy("jit"), samples, draws=64)
    assert (again.latency_us == found.latency_us).all()
    live = replace(samples, live={(name, "x"): Spread.of([70])})
    assert forecast(on, parse_policy("jit"), live, draws=1).latency_us.tolist() == [[50 + 70, 50 + 70 + 70]]


LATE = Dispatch.model_validate({"idle": [30], "queued": [4], "load": [7], "moves": [2]})


@pytest.mark.parametrize(
    ("policy", "packed", "ends"),
    [
        # The load ends at 7 + 2 + 50 = 59, the first x, ordered then, at 189. The other x lay behind it, then both y.
        ("jit", False, [59 + 130 + 104 + 104, 59 + 130 + 104 + 104 + 104]),
        ("jit", True, [57 + 130 + 104 + 104, 57 + 130 + 104 + 104 + 104]),
        # Every run is ordered when the GPU idles: x and y of one job, then of the other.
        ("srpt", False, [59 + 130 + 130, 59 + 130 + 130 + 130 + 130]),
    ],
)
def test_what_starts_late_adds_as_policies_queue(policy: str, packed: bool, ends: list[int]) -> None:
    """Two jobs of x before y, of one model, on one GPU: runs take 100 us, the load 50."""
    on = instance(
        [chain(task("x", 10, ["m"]), task("y", 10, ["m"], {"x": 1})) for _ in range(2)], ["m"], gpus(1, BYTES)
    )
    runs = {(on.workflows[0].name, of): Spread.of([100]) for of in "xy"}
    samples = Samples(runs, {"m": Spread.of([50])}, {}, LATE)
    found = forecast(on, parse_policy(policy), samples, packed=packed, draws=2)
    assert found.latency_us.tolist() == [ends, ends]
    punctual = forecast(on, parse_policy(policy), replace(samples, dispatch=None), packed=packed, draws=1)
    assert max(punctual.latency_us[0]) == 50 + 4 * 100


def test_a_transfer_takes_at_least_the_way_there() -> None:
    """Where x runs y cannot: its output is there 1001 us later as given, or, if that is more, when it starts late."""
    runtimes = {"x": {"a": 10}, "y": {"b": 10}}
    tasks = [task("x", runtimes["x"], ["m"]), task("y", runtimes["y"], ["n"], {"x": 1})]
    sorts = (replace(gpu, kind=kind) for gpu, kind in zip(gpus(2, BYTES).gpus, "ab", strict=True))
    on = instance([chain(*tasks)], ["m", "n"], Cluster(tuple(sorts), gpus(2, BYTES).network))
    runs = {(on.workflows[0].name, of): Spread.of([100]) for of in runtimes}
    samples = Samples(runs, {"m": Spread.of([50]), "n": Spread.of([50])}, {}, LATE)
    assert on.transfer_time(0, 0, 1) == 1001
    x_ends = 59 + 130
    assert forecast(on, parse_policy("jit"), samples, draws=1).latency_us.tolist() == [[x_ends + 1001 + 59 + 130]]
    later = Dispatch.model_validate({"idle": [2000]})
    found = forecast(on, parse_policy("jit"), replace(samples, dispatch=later), draws=1).latency_us.tolist()
    assert found == [[50 + 2100 + 2000 + 50 + 2100]]


def test_a_delay_passes_between_predicted_runs() -> None:
    """The load ends at 50, x at 150; 500 us of the job's own delay; y runs until 750."""
    on = instance([chain(task("x", 10, ["m"]), task("y", 10, ["m"], {"x": 1}))], ["m"], gpus(1, BYTES))
    on = replace(on, jobs=tuple(replace(job, delays_us={"y": 500}) for job in on.jobs))
    samples = Samples({(on.workflows[0].name, of): Spread.of([100]) for of in "xy"}, {"m": Spread.of([50])})
    assert forecast(on, parse_policy("jit"), samples, draws=1).latency_us.tolist() == [[750]]


def test_measured_runs_are_compared_with_all_draws() -> None:
    """Two jobs: means 100 and 300 us. Two runs: the mean job is 10 % late, each off by 10 and 30 us of 400."""
    found = Forecast(np.array([[90, 290], [110, 310]] * 50))
    compared = found.compare(np.array([[110, 330], [110, 330]]))
    assert compared.mean_latency_s.mean == pytest.approx(200e-6)
    assert [compared.error, compared.job_error] == pytest.approx([0.1, 40 / 400])
    assert compared.own_job_error == pytest.approx(0)  # of each pair of draws the mean is just what is expected
    assert compared.inside == 0.5
    assert Forecast(found.latency_us).compare(measured_latencies([np.array([1])], 2)).error is None


def test_what_was_not_measured_is_refused() -> None:
    on = instance([chain(task("x", 10, ["m"]))], ["m"], gpus(1, BYTES))
    with pytest.raises(QuestionError, match=r"hold no runs of .*/x; allowed are those of its profile"):
        forecast(on, parse_policy("jit"), Samples({}, {"m": Spread.of([50])}))
    runs = {(on.workflows[0].name, "x"): Spread.of([100])}
    with pytest.raises(QuestionError, match="hold no loads of a model that the scenario has"):
        forecast(on, parse_policy("jit"), Samples(runs, {}))
