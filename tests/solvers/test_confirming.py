"""Second opinions: true proofs are confirmed by somebody else, false ones contradicted by a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.instances import chain, cluster, instance, task
from truenorth.models import Instance, Job, Objective, Placement, Timeline
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.objective import Status
from truenorth.solvers.budget import Budget
from truenorth.solvers.confirming import confirm
from truenorth.solvers.exact import arc_flow, exhaustive
from truenorth.solvers.result import Search
from truenorth.solvers.trust import SolverFaultWarning
from truenorth.solvers.tuning import Tuning

OPTIONS = Budget(20, workers=1)


def two_runs(*there: tuple[int, int]) -> Instance:
    """Return two runs of 4 us with a model that loads in 3, on one GPU."""
    available = Availability.of(there or [(0, FOREVER)])
    jobs = [Job(chain(task("t", 4, ["m"])), 0)] * 2
    return instance(jobs, {"m": 3}, cluster(1, available=available))


def claimed(built: Instance, plan: Timeline | None, bound: int | None, by: str = "cp-sat") -> Search:
    """Return a search in which a solver has claimed that a plan is optimal, or that there is none."""
    search = Search(built, Objective.MAKESPAN, 20)
    if plan is None or bound is None:
        search.deny(by)
    else:
        search.offer(plan)
        search.offer_bound(Fraction(bound), by)
    return search


def best(built: Instance) -> Timeline:
    found = exhaustive.solve(built, Objective.MAKESPAN).timeline
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("by", "most_tasks", "confirmed_by"),
    [("cp-sat", 20, "milp"), ("cp-sat", 0, "cp-sat without presolve"), ("milp", 20, "cp-sat")],
)
def test_a_true_optimum_is_confirmed(by: str, most_tasks: int, confirmed_by: str) -> None:
    options = replace(OPTIONS, tuning=Tuning("others", milp_tasks=most_tasks))
    search = claimed(two_runs(), best(two_runs()), 11, by)  # 3 + 4 + 4
    confirm(search, options)
    result = search.result("test", {})
    assert result.value == 11
    assert (result.status, result.proved_by, result.confirmed_by) == (Status.OPTIMAL, by, confirmed_by)


def test_windows_confirm_what_they_show() -> None:
    # One run alone takes 3 + 4: nothing below is possible, and nobody need be asked.
    built = instance([Job(chain(task("t", 4, ["m"])), 0)], {"m": 3})
    search = claimed(built, best(built), 7)
    confirm(search, OPTIONS)
    assert search.confirmed_by == "time windows"


@pytest.mark.parametrize(("by", "most_tasks"), [("cp-sat", 20), ("cp-sat", 0), ("milp", 20)])
def test_a_false_optimum_gives_way_to_a_better_plan(by: str, most_tasks: int) -> None:
    options = replace(OPTIONS, tuning=Tuning("others", milp_tasks=most_tasks))
    built = instance([Job(chain(task("t", 4)), 0)] * 2, on=cluster(2))
    poor = Timeline.build(2, [Placement(0, 0, 0, 4), Placement(1, 0, 4, 8)], ())  # beside each other: 4
    search = claimed(built, poor, 8, by)
    search.offer_bound(Fraction(3), "critical path")
    with pytest.warns(SolverFaultWarning, match="denies a plan"):
        confirm(search, options)
    result = search.result("test", {})
    assert (float(result.value or 0), float(result.lower_bound or 0)) == (4, 3)
    assert (result.status, result.bound_method, result.confirmed_by) == (Status.FEASIBLE, "critical path", None)
    assert len(result.faults) == 1


def test_what_cannot_be_is_confirmed_and_what_can_is_found() -> None:
    # Loaded at 3, a GPU that goes at 10 has time for one run, and one that goes at 11 for both.
    impossible, possible = claimed(two_runs((0, 10)), None, None), claimed(two_runs((0, 11)), None, None)
    confirm(impossible, OPTIONS)
    assert impossible.result("test", {}).status is Status.INFEASIBLE
    assert impossible.confirmed_by == "cp-sat without presolve"  # the MILP has no servers that leave
    with pytest.warns(SolverFaultWarning, match="denies a plan"):
        confirm(possible, OPTIONS)
    assert possible.value == 11
    assert not possible.infeasible


def test_a_packing_is_asked_about_without_presolve() -> None:
    # 3 + 3 + 2 into two bins: 5 is the least, and 4 too little for eight.
    built = instance([Job(chain(task("t", size), name=str(i)), 0) for i, size in enumerate((3, 3, 2))], on=cluster(2))
    search = claimed(built, best(built), 5, "arc-flow")
    confirm(search, OPTIONS)
    assert search.confirmed_by == "arc-flow without presolve"
    poor = Timeline.build(3, [Placement(0, 0, 0, 3), Placement(1, 0, 3, 6), Placement(2, 1, 0, 2)], ())
    false = claimed(built, poor, 6, "arc-flow")
    with pytest.warns(SolverFaultWarning, match="denies a plan"):
        confirm(false, OPTIONS)
    assert false.value == 5


def test_a_second_opinion_on_a_packing_hears_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that is asked whether two runs of 4 us fit into 7 us is stopped before it can say that they do not."""
    search = Search(instance([Job(chain(task("t", 4)), 0)] * 2, {}, cluster(1)), Objective.MAKESPAN, 20)

    def answer(over: Callable[[], bool], *_: object) -> str:
        search.clock.set()
        return "UNKNOWN" if over() else "INFEASIBLE"

    monkeypatch.setattr(arc_flow, "solve_until", answer)
    arc_flow.look_within(search, Fraction(7), workers=1, seed=0)
    assert not search.infeasible
