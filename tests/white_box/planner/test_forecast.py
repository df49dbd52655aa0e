"""Predictions from samples: what they say of one GPU, derived by hand, and of measured runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.executor.devices.small import BYTES, gpus, instance
from tests.instances import chain, task
from truenorth.executor import parse_policy
from truenorth.executor.samples import Spread
from truenorth.models.errors import QuestionError
from truenorth.planner.answers.forecast import Forecast, forecast, measured_latencies
from truenorth.planner.inputs.samples import Samples


def test_runs_and_loads_are_those_of_the_samples() -> None:
    """One job after the other: the first waits for a load of 50 us, and every run takes 100 or 300 us."""
    on = instance([chain(task("x", 10, ["m"])) for _ in range(2)], ["m"], gpus(1, BYTES))
    name = on.workflows[0].name
    samples = Samples({(name, "x"): Spread.of([100, 300])}, {"m": Spread.of([50])})
    found = forecast(on, parse_policy("jit"), samples, draws=64)
    assert {tuple(row) for row in found.latency_us.tolist()} == {(150, 250), (150, 450), (350, 450), (350, 650)}
    again = forecast(on, parse_policy("jit"), samples, draws=64)
    assert (again.latency_us == found.latency_us).all()


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
