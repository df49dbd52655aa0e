"""The search record keeps the best plan and the best bound, and refuses what cannot be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import pytest

from tests import instances as make
from truenorth.models import InfeasibleTimelineError, Instance, Job, Objective, Placement, Residency, Timeline
from truenorth.models.formulations.allowance import GivenUpError
from truenorth.models.objective import Status, proves
from truenorth.solvers.clock import Clock
from truenorth.solvers.incumbents import Progress
from truenorth.solvers.reductions import Visits
from truenorth.solvers.result import Result, Search
from truenorth.solvers.trust import SolverFaultWarning, UnsoundBoundError


@pytest.fixture
def world() -> Instance:
    """One job of 5 us that needs a (4 bytes, loads in 4 us): no plan is better than 9 us."""
    return make.instance([Job(make.chain(make.task("t", 5, ["a"])), 0)], {"a": 4, "b": 3}, make.cluster(1))


def plan(end: int, *more: Residency) -> Timeline:
    return Timeline.build(1, [Placement(0, 0, end - 5, end)], [Residency(0, 0, 0, 4), *more])


def search(world: Instance, **options: object) -> Search:
    return Search(world, Objective.MAKESPAN, 60.0, **options)  # type: ignore[arg-type]


def test_it_keeps_the_best_plan_and_says_so(world: Instance) -> None:
    running = search(world)
    assert running.offer(plan(12))
    assert not running.offer(plan(13))
    assert running.value == 12
    assert running.offer(plan(9))
    result = running.result("test", {"seed": 1})
    assert result.value == 9
    assert result.timeline is not None
    assert result.timeline.end_us.tolist() == [9]
    assert [moment.value for moment in result.incumbents] == [12, 9]
    assert (result.solver, result.options) == ("test", {"seed": 1})


def test_among_equal_plans_it_keeps_the_one_that_loads_fewer_bytes(world: Instance) -> None:
    running = search(world)
    wasteful = plan(12, Residency(1, 0, 4, 7))
    lean = plan(12)
    assert running.offer(wasteful)
    assert running.offer(lean)
    assert running.timeline is lean
    assert not running.offer(wasteful)
    assert not running.offer(plan(12))  # equal in everything: the first stays
    assert running.timeline is lean
    # A better value counts for more than bytes.
    assert running.offer(plan(11, Residency(1, 0, 4, 7)))


def test_an_infeasible_plan_raises_and_is_not_kept(world: Instance) -> None:
    running = search(world)
    with pytest.raises(InfeasibleTimelineError, match="R3"):
        running.offer(plan(8))
    assert running.timeline is None
    assert running.result("test", {}).status is Status.NO_SOLUTION


def test_it_keeps_the_best_bound_and_its_method(world: Instance) -> None:
    running = search(world)
    running.offer_bound(Fraction(5), "critical path")
    running.offer_bound(Fraction(4), "guess")
    assert (running.bound, running.bound_method) == (Fraction(5), "critical path")
    running.offer_bound(Fraction(7), "relaxation")
    result = running.result("test", {})
    assert (result.lower_bound, result.bound_method, result.value) == (Fraction(7), "relaxation", None)
    assert (result.status, result.gap) == (Status.NO_SOLUTION, None)
    assert [moment.bound for moment in result.incumbents] == [5, 7]


def test_a_negative_bound_says_zero(world: Instance) -> None:
    running = search(world)
    running.offer_bound(Fraction(-3), "dual")
    assert running.bound == 0


def test_an_unsound_bound_raises_and_is_not_kept(world: Instance) -> None:
    running = search(world)
    running.offer(plan(9))
    running.offer_bound(Fraction(9), "sound")
    with pytest.raises(UnsoundBoundError, match=r"bound 9\.5 \(wrong\) lies above the plan of value 9\.0"):
        running.offer_bound(Fraction(19, 2), "wrong")
    assert (running.bound, running.bound_method) == (Fraction(9), "sound")


def test_a_plan_below_the_bound_raises(world: Instance) -> None:
    running = search(world)
    running.offer_bound(Fraction(10), "wrong")
    with pytest.raises(UnsoundBoundError, match="wrong"):
        running.offer(plan(9))


def test_infeasibility_is_believed_only_without_a_plan(world: Instance) -> None:
    running = search(world)
    running.deny("enumeration")
    result = running.result("test", {})
    assert (result.status, result.proved_by) == (Status.INFEASIBLE, "enumeration")
    with pytest.raises(UnsoundBoundError, match=r"enumeration claims that there is no plan, but one of value 9\.0"):
        running.offer(plan(9))


def test_nothing_is_kept_of_a_solver_that_a_plan_contradicts(world: Instance) -> None:
    running = search(world)
    running.offer_bound(Fraction(6), "critical path")
    running.offer_bound(Fraction(10), "cp-sat")
    with pytest.warns(SolverFaultWarning, match=r"bound 10\.0 \(cp-sat\) lies above the plan of value 9\.0"):
        running.offer(plan(9))
    running.offer_bound(Fraction(8), "cp-sat")
    running.deny("arc-flow")
    result = running.result("test", {})
    assert (float(result.value or 0), float(result.lower_bound or 0)) == (9, 6)
    assert (result.status, result.bound_method, result.proved_by) == (Status.FEASIBLE, "critical path", None)
    assert [moment.bound for moment in result.incumbents] == [6, 6, 6]
    assert result.faults == ("bound 10.0 (cp-sat) lies above the plan of value 9.0",)


def test_a_method_that_proved_something_was_not_left_out(world: Instance) -> None:
    running = search(world)
    running.offer_bound(Fraction(6), "lagrangian")
    for method in ("lagrangian", "milp"):
        with running.giving_way(method):
            raise GivenUpError("no time was left to build it")
    assert running.result("test", {}).left_out == {"milp": "no time was left to build it"}


def test_what_a_part_of_a_search_forgets_the_search_forgets(world: Instance) -> None:
    running = search(world)
    running.offer_bound(Fraction(6), "critical path")
    twin = running.part(by=Visits.of(world))
    episode = twin.part(5.0)
    episode.offer_bound(Fraction(8), "cp-sat")
    assert running.bound == 8
    episode.forget("CP-SAT", "it contradicts itself on the first jobs")
    episode.offer_bound(Fraction(7), "cp-sat")
    assert [each.bound for each in (running, twin, episode)] == [6, 6, 6]
    assert all(each.faults == ["it contradicts itself on the first jobs"] for each in (running, twin, episode))


def test_who_hears_of_a_fault_in_a_part_of_a_search_gets_the_plan_that_shows_it(world: Instance) -> None:
    running = search(world)
    episode = running.part(5.0)
    episode.offer_bound(Fraction(10), "cp-sat")
    episode.offer_bound(Fraction(11), "arc-flow")  # on the word of the same solver: one fault
    with pytest.warns(SolverFaultWarning) as heard:
        episode.offer(plan(9))
    assert [_values_of(warning.message) for warning in heard] == [[9]]
    assert running.value == 9
    assert running.bound is None
    assert running.faults == episode.faults == ["bound 10.0 (cp-sat) lies above the plan of value 9.0"]


def _values_of(fault: object) -> list[int]:
    assert isinstance(fault, SolverFaultWarning)
    return [] if fault.timeline is None else fault.timeline.end_us.tolist()


@pytest.mark.parametrize("plan_first", [True, False])
def test_a_solver_that_denies_a_plan_is_not_believed(world: Instance, plan_first: bool) -> None:
    running = search(world)
    claims: list[Callable[[], object]] = [lambda: running.offer(plan(9)), lambda: running.deny("cp-sat")]
    first, second = claims if plan_first else reversed(claims)
    first()
    with pytest.warns(SolverFaultWarning, match="CP-SAT claims that there is no plan"):
        second()
    assert running.value == 9
    assert (running.infeasible, len(running.faults)) == (False, 1)


def test_a_proof_rests_on_a_solver_only_where_nothing_else_proves_it(world: Instance) -> None:
    running = search(world)
    running.offer(plan(9))
    running.offer_bound(Fraction(9), "cp-sat")
    assert running.rests_on == "cp-sat"
    running.offer_bound(Fraction(9) - Fraction(1, 1_000_000), "lagrangian")  # within the tolerance of a proof
    assert running.rests_on is None


@pytest.mark.parametrize(
    ("value", "bound", "status", "gap"),
    [
        (None, None, Status.NO_SOLUTION, None),
        (None, 5, Status.NO_SOLUTION, None),
        (10, None, Status.FEASIBLE, None),
        (10, 8, Status.FEASIBLE, 0.2),
        (10, 10, Status.OPTIMAL, 0.0),
        (0, 0, Status.OPTIMAL, 0.0),
        (1_000_000, 999_999, Status.OPTIMAL, 1e-6),  # a relative difference of 1e-6 still counts
        (1_000_000, 999_998, Status.FEASIBLE, 2e-6),
    ],
)
def test_status_and_gap(value: int | None, bound: int | None, status: Status, gap: float | None) -> None:
    exact = [None if number is None else Fraction(number) for number in (value, bound)]
    result = Result(Objective.MAKESPAN, None, exact[0], exact[1], None, False, 0.0, 60.0, (), "test")
    assert (result.status, result.gap) == (status, gap)
    assert proves(*exact) is (status is Status.OPTIMAL)


def test_proved_once_value_and_bound_meet(world: Instance) -> None:
    running = search(world)
    running.offer(plan(9))
    assert not running.proved
    running.offer_bound(Fraction(8), "weak")
    assert not running.proved
    running.offer_bound(Fraction(9), "exact")
    assert running.proved


def test_the_clock_and_the_stop() -> None:
    stop = threading.Event()
    clock = Clock(60.0, stop)
    assert 0 < clock.left_s <= 60
    assert clock.elapsed_s >= 0
    stop.set()
    assert clock.left_s == 0
    assert Clock(0.0).left_s == 0


def test_a_part_of_a_clock_has_no_more_time_than_the_clock() -> None:
    now, done = [0.0], list[bool]()
    whole = Clock(10.0, tell=lambda: now[0])
    part, long, answered = whole.child(4.0), whole.child(60.0), whole.child(is_done=lambda: bool(done))
    now[0] = 3.0
    assert [each.left_s for each in (whole, part, long, answered)] == [7, 1, 7, 7]
    assert part.passed == 0.75
    done.append(True)
    assert (answered.is_set(), answered.is_stopped) == (True, False)
    part.set()
    assert (part.left_s, part.passed, whole.left_s) == (0, 1, 7)
    now[0] = 10.0
    assert (long.left_s, long.is_set(), long.is_stopped) == (0, True, False)


def test_a_watcher_sees_every_improvement(world: Instance) -> None:
    seen: list[Progress] = []
    running = search(world, watch=seen.append)
    running.offer(plan(12))
    running.offer_bound(Fraction(5), "critical path")
    running.offer(plan(13))
    running.offer(plan(9))
    assert [moment.value for moment in seen] == [12, 12, 9]
    assert [moment.bound for moment in seen] == [None, 5, 5]
    assert tuple(seen) == running.result("test", {}).incumbents
    assert all(a.seconds <= b.seconds for a, b in pairwise(seen))
