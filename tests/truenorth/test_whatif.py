"""What-ifs of a notebook: an interrupt loses nothing, policies may be its own, answers lie behind the cells."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.planner.answers.whatif.small import SCENARIO
from truenorth.executor import QueuePolicy
from truenorth.solvers.budget import interruptible, own_interrupts
from truenorth.solvers.exact import exhaustive


@pytest.fixture
def scenario(tmp_path: Path) -> tn.Scenario:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return tn.load(path)


@pytest.fixture(autouse=True)
def _at_a_terminal() -> Iterator[None]:
    """Whatever starts tests in the background makes them deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt(known: object) -> None:
    """Press Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


class InterruptOnce:
    """Presses Ctrl-C when it is first told that something is found."""

    pressed = False

    def __call__(self, known: object) -> None:
        """Take note of progress."""
        if not self.pressed:
            self.pressed = True
            interrupt(known)


CALLS: dict[str, Callable[..., Any]] = {
    "plan": tn.plan,
    "bound": tn.bound,
    "compare": lambda scenario, **asked: tn.compare(scenario, "jit", **asked),
    "servers": lambda scenario, **asked: tn.servers(scenario, "p99 slowdown <= 3", policies="jit", **asked),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_interrupted_call_returns_what_it_has_found(scenario: tn.Scenario, call: Callable[..., Any]) -> None:
    made = call(scenario, time_limit="60 s", workers=1, watch=InterruptOnce())
    assert made.interrupted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not call(scenario, time_limit="1 s", workers=1).interrupted


def test_an_interrupted_plan_has_value_bound_and_trail_and_says_so(scenario: tn.Scenario) -> None:
    plan = tn.plan(scenario, time_limit="60 s", workers=1, watch=InterruptOnce())
    assert tn.check(scenario, plan).violations == []
    assert plan.incumbents[-1][1:] == (plan.value, plan.lower_bound)
    assert repr(plan).endswith(", interrupted>")


def test_a_second_interrupt_ends_at_once_and_handlers_of_others_stay() -> None:
    with interruptible(signal.SIGINT) as stop:
        interrupt(None)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            interrupt(None)
    assert own_interrupts() == (signal.SIGINT,)
    with interruptible(signal.SIGINT):  # whoever handles it already, as the command does
        assert own_interrupts() == ()


def test_an_interrupted_grid_keeps_the_cells_that_are_finished(scenario: tn.Scenario) -> None:
    found = tn.whatif(
        scenario,
        {"workload.poisson.seed": list(range(6))},
        policy="jit",
        workers=1,
        watch=lambda counts: interrupt(counts) if counts.finished == 2 else None,
    )
    assert (found.interrupted, found.complete, found.frame()["cell"].tolist()) == (True, False, [0, 1])
    assert not tn.whatif(scenario, {"policy": ["jit"]}, workers=1).interrupted


class FirstGPU(QueuePolicy):
    """Sends everything to the first GPU."""

    def runnable(self, task: int, server: int) -> None:
        """Place a task whose predecessors have finished."""
        self.place(task, 0)


def test_policies_of_the_notebook_answer_cells(
    scenario: tn.Scenario, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "FirstGPU", FirstGPU, raising=False)
    grid = {"cluster.servers": [1, 2], "policy": ["__main__:FirstGPU", "jit"]}
    values = tn.whatif(scenario, grid, workers=1).frame()["value"].tolist()
    alone = tn.simulate(scenario.changed({"cluster.servers": 1}), "__main__:FirstGPU").metrics.mean_slowdown
    assert values[0] == values[1] == values[2] == alone > values[3]  # on one GPU there is no choice
    with pytest.raises(tn.QuestionError, match="lies in no file that tells whether it has changed; allowed is one of"):
        tn.whatif(scenario, grid, folder=tmp_path / "kept")


def test_answers_lie_behind_the_cells_unless_a_folder_keeps_figures(scenario: tn.Scenario, tmp_path: Path) -> None:
    grid = {"cluster.servers": [1, 2]}
    found = tn.whatif(scenario, grid, policy="jit", workers=1)
    for cell, value in enumerate(found.frame()["value"]):
        assert found.answer(cell).jobs()["slowdown"].mean() == pytest.approx(value)
        assert tn.check(found.answer(cell).scenario, found.answer(cell)).violations == []
    assert found.answer(0).scenario.instance.n_gpus == 1
    planned = tn.whatif(scenario, grid, verb="plan", method="search", iterations=10, time_limit="9 s", workers=2)
    assert [planned.answer(cell).value for cell in (0, 1)] == planned.frame()["value"].tolist()
    with pytest.raises(tn.QuestionError, match="cell: 7 has no answer here; allowed are 0, 1"):
        found.answer(7)
    with pytest.raises(tn.QuestionError, match="none, since a folder keeps figures alone"):
        tn.whatif(scenario, grid, policy="jit", workers=1, folder=tmp_path / "kept").answer(0)


IDEAL = {
    "cluster": {"servers": 1, "gpu": {"kind": "A", "memory": "10 B", "load_bandwidth": "1 MB/s"}},
    "models": {"m": {"weights": "4 B"}},
    "workflows": {"w": {"tasks": {"a": {"models": ["m"], "runtime": "3 us"}}, "ideal": "6 us"}},
    "workload": {"jobs": [{"release": "0 us", "workflow": "w"}, {"release": "0 us", "workflow": "w"}]},
}
"""The model is loaded by 4, jobs end at 7 and 10: slowdowns of 7/3 and 10/3 by critical paths, 7/6 and 10/6 by 6 us."""


@pytest.mark.parametrize(("objective", "value"), [("mean_slowdown", 17 / 12), ("max_slowdown", 10 / 6)])
def test_slowdowns_divide_by_the_ideal_time_of_their_workflow(objective: str, value: float) -> None:
    scenario = tn.load(IDEAL | {"objective": objective})
    plan = tn.plan(scenario, time_limit="9 s", workers=1)
    assert plan.result.status is tn.Status.OPTIMAL
    assert plan.value == pytest.approx(value)
    assert plan.metrics is not None
    assert (plan.metrics.mean_slowdown, plan.metrics.max_slowdown) == pytest.approx((17 / 12, 10 / 6))
    assert plan.jobs()["slowdown"].tolist() == pytest.approx([7 / 6, 10 / 6])
    proved = tn.bound(scenario, time_limit="5 s", workers=1)
    assert tn.verify(scenario, proved).valid
    assert proved.record().lower_bound <= value
    assert tn.simulate(scenario, "jit").value == pytest.approx(value)
    own = scenario.changed({"workflows.w.ideal": None})
    assert tn.simulate(own, "jit").value == pytest.approx(value * 2)


@pytest.mark.parametrize("method", ["auto", "cp-sat", "milp", "exhaustive"])
@pytest.mark.parametrize(("objective", "value"), [("mean_slowdown", 19 / 12), ("max_slowdown", 7 / 3)])
def test_jobs_may_have_ideal_times_of_their_own(method: str, objective: str, value: float) -> None:
    """The second job goes first: 7/3 and 10/12, where the other order makes 10/3 and 7/12."""
    jobs = [{"release": "0 us", "workflow": "w", "ideal": f"{ideal} us"} for ideal in (12, 3)]
    scenario = tn.load(IDEAL | {"workload": {"jobs": jobs}, "objective": objective})
    assert tn.load(scenario.data()).instance.job_ideal_us.tolist() == [12, 3]
    if method == "exhaustive":
        assert float(exhaustive.solve(scenario.instance, scenario.objective).value or 0) == pytest.approx(value)
        return
    plan = tn.plan(scenario, time_limit="9 s", workers=1, method=method)
    assert plan.result.status is tn.Status.OPTIMAL
    assert plan.value == pytest.approx(value)
    if objective == "mean_slowdown":  # for the largest alone the second job may also be slower than need be
        assert plan.jobs()["slowdown"].tolist() == pytest.approx([10 / 12, 7 / 3])


def test_grids_divide_by_the_ideal_times_of_the_baseline_and_say_so() -> None:
    grid = {"workflows.w.tasks.a.runtime": ["x0.5", "x1"]}
    base = tn.load(IDEAL).changed({"workflows.w": {"tasks": {"a": {"models": ["m"], "runtime": "4 us"}}}})
    # Loaded by 4: ends at 6 and 8 with half the run time, at 8 and 12 as it is; over 4 us each.
    found = tn.whatif(base, grid, policy="jit", workers=1)
    assert found.frame()["value"].tolist() == [1.75, 2.5]
    assert found.frame()["ideal_times"].tolist() == ["baseline", "baseline"]
    assert found.note == "Slowdowns divide by the ideal times of the scenario as it was, before changes."
    assert tn.whatif(base, {"cluster.servers": [1]}, policy="jit", workers=1).note == ""
    half = base.changed({"workflows.w.tasks.a.runtime": "x0.5"})
    assert tn.simulate(half, "jit").value == 3.5
    compared = tn.compare(half, "jit", reference=base, time_limit="5 s", workers=1)
    assert compared.frame()["value"].tolist() == [1.75, 1.75]
    assert "Slowdowns divide by the ideal times that the scenario names." in compared.note
    branches = [{"probability": 0.5, "tasks": [name]} for name in ("a", "b")]
    branching = {"workflows.w.tasks.b": {"runtime": "4 us"}, "workflows.w.branches": branches}
    added = {"case": {"branching": branching}}
    assert tn.whatif(base, added, policy="jit", workers=1).frame()["ideal_times"].tolist() == ["own"]


def test_cells_are_set_against_a_baseline_in_the_same_replication(scenario: tn.Scenario) -> None:
    found = tn.whatif(scenario, {"cluster.servers": [1, 2], "policy": ["jit", "hash"]}, replications=3, workers=1)
    rows = found.against({"cluster.servers": 2})
    alone = [
        [
            tn.simulate(scenario.changed({"cluster.servers": n, "workload.poisson.seed": seed}), "jit").value
            for n in (1, 2)
        ]
        for seed in (1, 2, 3)
    ]
    first = rows.iloc[0]
    assert (first["cluster.servers"], first["policy"], first["replications"]) == (1, "jit", 3)
    assert first["value"] == pytest.approx(sum(one for one, _ in alone) / 3)
    assert first["difference"] == pytest.approx(sum(one - two for one, two in alone) / 3)
    assert first["difference_low"] <= first["difference"] <= first["difference_high"]
    assert rows["difference"].tolist()[2:] == [0, 0]
    by_policy = found.against({"policy": "jit"})
    assert by_policy["difference"].tolist()[::2] == [0, 0]
    with pytest.raises(tn.QuestionError, match=r"baseline: cluster\.servers 7 is in no row; allowed are 1, 2"):
        found.against({"cluster.servers": 7})
    with pytest.raises(tn.QuestionError, match=r"server 2 is in no row; allowed are cluster\.servers, policy"):
        found.against({"server": 2})
