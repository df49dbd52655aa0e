"""Jobs that nothing tells apart begin in order, in every formulation, and no plan is lost by it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests import instances as make
from truenorth.models import Instance, Job, Objective, Timeline, check, timeline_value
from truenorth.models.formulations.cp_sat import formulate
from truenorth.models.formulations.equal_jobs import equal_jobs, job_before, sort_equal_jobs
from truenorth.models.formulations.milp import formulate as formulate_milp
from truenorth.models.formulations.milp_plans import start_values
from truenorth.solvers.exact import cp_sat, exhaustive, milp

A, B = make.chain(make.task("t", 2, ["a"]), name="a"), make.chain(make.task("t", 2, ["b"]), name="b")


def swapping(gpus: int = 1) -> Instance:
    """Three jobs of each of two models of 10 bytes, of which a GPU holds one; a load takes 10 us."""
    return make.instance([Job(A, 0), Job(B, 0)] * 3, {"a": 10, "b": 10}, make.cluster(gpus))


def backwards(plan: Timeline) -> Timeline:
    """Return the plan with the jobs of each model in the opposite order."""
    order = np.array([4, 5, 2, 3, 0, 1])
    return Timeline(plan.place[order], plan.start_us[order], plan.end_us[order], plan.residencies)


def test_jobs_are_equal_if_no_rule_and_no_objective_tells_them_apart() -> None:
    jobs = [
        Job(A, 0),
        Job(A, 0, weight=Fraction(2)),
        Job(A, 0, deadline_us=5),
        Job(A, 1),
        Job(A, 0, ingress=0),
        Job(B, 0),
        Job(A, 0),
    ]
    of = make.instance(sorted(jobs, key=lambda job: job.release_us), {"a": 10, "b": 10}, make.cluster(2))
    # In order of release, the job released at 1 is the last. Nothing is brought along, so the ingress does not matter.
    assert equal_jobs(of, Objective.MEAN_LATENCY) == [[0, 1, 2, 3, 5]]
    assert equal_jobs(of, Objective.WEIGHTED_LATENCY) == [[0, 2, 3, 5]]
    assert equal_jobs(of, Objective.LATE_JOBS) == [[0, 1, 3, 5]]
    assert equal_jobs(of, Objective.WEIGHTED_TARDINESS) == [[0, 1, 3, 5]]
    assert job_before(of, Objective.WEIGHTED_LATENCY).tolist() == [-1, -1, 0, 2, -1, 3, -1]


def test_what_a_job_brings_along_tells_servers_apart() -> None:
    fed = make.chain(make.task("t", 2, input_bytes=5))
    of = make.instance([Job(fed, 0, ingress=0), Job(fed, 0, ingress=1), Job(fed, 0, ingress=0)], on=make.cluster(2))
    assert equal_jobs(of, Objective.MAKESPAN) == [[0, 2]]


@pytest.mark.parametrize("objective", Objective)
def test_a_plan_in_any_order_is_sorted_and_stays_one_of_its_value(objective: Objective) -> None:
    of = swapping()
    plan = exhaustive.solve(of, objective).timeline
    assert plan is not None
    turned = backwards(plan)
    ordered = sort_equal_jobs(of, objective, turned)
    assert check(of, ordered) == []
    assert timeline_value(objective, of, ordered) == timeline_value(objective, of, turned)
    assert (np.diff(ordered.start_us[::2]) > 0).all()
    assert (np.diff(ordered.start_us[1::2]) > 0).all()


@pytest.mark.parametrize("gpus", [1, 2])
def test_optima_are_those_of_the_exhaustive_search_from_a_plan_in_the_wrong_order(gpus: int) -> None:
    of = swapping(gpus)
    for objective in (Objective.MEAN_LATENCY, Objective.MAKESPAN):
        best = exhaustive.solve(of, objective)
        assert best.timeline is not None
        hint = backwards(best.timeline)
        assert check(of, hint) == []
        for solver in (cp_sat, milp):
            found = solver.solve(of, objective, 60.0, hint)
            assert (found.value, found.lower_bound) == (best.value, best.value)


def test_names_of_the_constraint_stand_in_every_formulation() -> None:
    of = swapping()
    names = {each.name for each in formulate(of, Objective.MAKESPAN).model.proto.constraints}
    assert {"equal_jobs[0,2]", "equal_jobs[2,4]", "equal_jobs[1,3]", "equal_jobs[3,5]"} <= names
    problem = formulate_milp(of, Objective.MAKESPAN).problem
    assert sum(row.name.startswith("equal_jobs") for row in problem.constraints()) == 4


def test_starts_of_the_milp_satisfy_the_order_whatever_the_plan() -> None:
    of = swapping()
    plan = exhaustive.solve(of, Objective.MAKESPAN).timeline
    assert plan is not None
    formulation = formulate_milp(of, Objective.MAKESPAN)
    values = start_values(formulation, backwards(plan))
    for variable in formulation.problem.variables():
        variable.varValue = values[variable.name]
    assert formulation.problem.valid(1e-9)
