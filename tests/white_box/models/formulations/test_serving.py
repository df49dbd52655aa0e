"""Batches, shares and memory of tasks in the exact solvers: by hand, against the oracle, and against what is known."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from ortools.sat.python import cp_model

from tests.instances import chain, cluster, gpu, instance, network, random_instance, random_serving_instance, task
from tests.models.formulations.cases import Case, case
from truenorth.models import WHOLE, BatchClass, Cluster, Edge, Instance, Job, Objective, Task, Timeline, check, measure
from truenorth.models.formulations.cp_sat import formulate
from truenorth.models.formulations.cp_sat_plans import add_hint, read_timeline
from truenorth.models.formulations.normal_form import restrict
from truenorth.models.instance import UnsupportedInstanceError
from truenorth.solvers.exact import arc_flow, cp_sat, exhaustive, milp

# Alone 4 us, two together 5, three 9: a batch of two is the best use of the GPU.
CLASS = BatchClass("c", {"*": {1: 4, 2: 5, 3: 9}})


def served(*tasks: Task, release: int = 0, models: dict[str, int] | None = None, **options: object) -> Instance:
    """Return an instance of single tasks, all released at once."""
    jobs = [Job(chain(task, name=f"w{index}"), release) for index, task in enumerate(tasks)]
    return instance(jobs, models, **options)  # type: ignore[arg-type]


def members(count: int, batch: BatchClass = CLASS, **options: object) -> Instance:
    return served(*(Task.of_class(f"t{index}", batch) for index in range(count)), **options)  # type: ignore[arg-type]


def shared(runtime: int, share: int, memory: int = 0, needs: tuple[str, ...] = (), name: str = "t") -> Task:
    return Task(name, {"*": runtime}, needs, share=share, memory_bytes=memory)


CASES = (
    case("T3b alone", 4, members(1)),
    case("T3b two at once", 5, members(2)),
    # 2 + 2 take 5 + 5, 3 + 1 take 9 + 4.
    case("T3b four in pairs", 10, members(4)),
    # Completions 5, 5, 9 (two, then one) rather than 9, 9, 9: mean 19 / 3.
    case("T3b latency", "19/3", members(3), Objective.MEAN_LATENCY),
    # A second GPU: {0, 1} and {2}.
    case("T3b two GPUs", 5, members(3, on=cluster(2))),
    # The second comes at 3: wait for it and end both at 3 + 5, or run alone: 4 and 8. Sum of latencies 8 + 5 > 4 + 5.
    case(
        "T3b not worth waiting",
        "9/2",
        instance([Job(chain(Task.of_class("t", CLASS)), release) for release in (0, 3)]),
        Objective.MEAN_LATENCY,
    ),
    # Batches need their model once: load 4, then two together.
    case("T3b one load", 9, members(2, replace(CLASS, models=("m",)), models={"m": 4})),
    # Of one job, b after a: no batch can hold both, 4 + 4.
    case(
        "T3b not with a predecessor",
        8,
        instance([Job(chain(Task.of_class("a", CLASS), Task.of_class("b", CLASS, (Edge("a", 0),))), 0)]),
    ),
    # Shares 0.6 + 0.4 fit beside each other, 0.6 + 0.5 do not.
    case("T3c side by side", 5, served(shared(5, 6_000), shared(5, 4_000))),
    case("T3c one after the other", 10, served(shared(5, 6_000), shared(5, 5_000))),
    # Batches of share 0.5 of one class start 1 us apart: 4 tasks as {0, 1} over [0, 5) and {2, 3} over [1, 6).
    case("T3b starts apart", 6, members(4, replace(CLASS, runtime_us={"*": {1: 4, 2: 5}}, share=5_000))),
    # 4 + 4 bytes of tasks fit in 10, 6 + 6 do not.
    case("R2 memory of two", 5, served(shared(5, 5_000, 4), shared(5, 5_000, 4))),
    case("R2 memory of one", 10, served(shared(5, 5_000, 6), shared(5, 5_000, 6))),
    # m (4) is loaded by 4 and used until 7; the other task holds 7 bytes for 3 us, so before or after: 7 + 3.
    case("R7 a run evicts", 10, served(task("t", 3, ["m"]), shared(3, WHOLE, 7), models={"m": 4})),
    # 3 bytes each beside m (4): two fit in 10, three do not, so 4 + 5 + 4 though three are listed.
    case(
        "R2 memory of members",
        13,
        members(3, BatchClass("c", {"*": {1: 4, 3: 5}}, ("m",), memory_bytes=3), models={"m": 4}),
    ),
    # A GPU with slots cannot hold the task's memory, the slower one can.
    case(
        "R2 slots",
        9,
        served(
            Task("t", {"A": 2, "B": 9}, memory_bytes=1),
            on=replace(cluster(2), gpus=(gpu(0, slots=(5, 5)), gpu(1, kind="B"))),
        ),
    ),
    # The load of 4 and a run of 8 beside each other, then a run of 3 beside the rest of it.
    case("R5 overlap", 8, served(shared(8, 1_000), shared(3, 1_000, needs=("m",)), models={"m": 4})),
    # Without overlap a load takes all compute, also from a task of share 0.1: load 4, then runs of 8 and 3 together.
    case(
        "R5 no overlap",
        12,
        served(shared(8, 1_000), shared(3, 1_000, needs=("m",)), models={"m": 4}, overlap_loads=False),
    ),
    # One load serves two tasks that run beside each other, the second from 5 to 9 while the first runs from 4 to 10.
    case(
        "R3 one residency for overlapping tasks",
        10,
        instance(
            [Job(chain(shared(6, 5_000, needs=("m",))), 0), Job(chain(shared(4, 5_000, needs=("m",))), 5)], {"m": 4}
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimum_derived_by_hand(case: Case) -> None:
    assert exhaustive.solve(case.instance, case.objective).value == case.optimum
    result = cp_sat.solve(case.instance, case.objective, 20, workers=1)
    assert (result.value, result.lower_bound) == (case.optimum, case.optimum)


def test_the_oracle_and_cp_sat_agree() -> None:
    """A sample in which larger batches, shares and memory all matter."""
    seen: Counter[str] = Counter()
    for seed in range(42):
        built = random_serving_instance(random.Random(seed), 4, restricted=seed % 3 == 2)
        objective = list(Objective)[seed % len(Objective)]
        best, joint = exhaustive.solve(built, objective), cp_sat.solve(built, objective, 20, workers=1)
        assert (best.status, best.value) == (joint.status, joint.value)
        if joint.timeline is not None and best.timeline is not None:
            assert check(built, joint.timeline) == []
            seen.update({"batch"} if (measure(built, best.timeline).mean_batch_size or 0) > 1 else ())
            seen.update({"memory"} if built.template_memory.any() else ())
            seen.update({"share"} if (built.template_share < WHOLE).any() else ())
    assert (seen["batch"] >= 5, seen["memory"] >= 15, seen["share"] >= 15) == (True, True, True)


@pytest.mark.parametrize("seed", range(14))
def test_hints_are_complete_and_feasible_and_are_read_back(seed: int) -> None:
    built = random_serving_instance(random.Random(seed), 4, restricted=seed % 2 == 1)
    plan = exhaustive.solve(built, Objective.MAKESPAN).timeline
    if plan is None:
        return
    formulation = formulate(built, list(Objective)[seed % 7], plan)
    add_hint(formulation, plan)
    hint = formulation.model.proto.solution_hint
    assert sorted(hint.vars) == [*range(len(formulation.model.proto.variables))]
    solver = cp_model.CpSolver()
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.num_workers = 1
    assert solver.status_name(solver.solve(formulation.model)) == "OPTIMAL"
    values = dict(zip(hint.vars, hint.values, strict=True))
    read = read_timeline(formulation, [values[index] for index in range(len(values))])
    assert check(built, read) == []
    assert sorted(read.start_us.tolist()) == sorted(plan.start_us.tolist())


@pytest.mark.parametrize("own", CASES, ids=lambda own: own.name)
def test_the_milp_refuses_in_one_sentence_what_only_cp_sat_plans(own: Case) -> None:
    with pytest.raises(UnsupportedInstanceError, match=r"the MILP has no support for (batches|shares|memory)"):
        milp.solve(own.instance, own.objective, 20, workers=1)


def test_slots_of_two_gpus_are_not_confused_however_many_there_are() -> None:
    # Each GPU has one slot for the model, the last of 1,001 and the first of one: both load for 5 us and run for 4.
    gpus = gpu(0, memory_bytes=1005, slots=(*[1] * 1000, 5)), gpu(1, memory_bytes=5, slots=(5,))
    in_class = Task.of_class("t", BatchClass("c", {"*": {1: 4}}, ("m",)))
    built = instance([Job(chain(in_class), 0)] * 2, {"m": 5}, Cluster(gpus, network()))
    assert cp_sat.solve(built, Objective.MAKESPAN, 20, workers=1).value == 9


def test_what_is_left_of_a_batch_is_shorter() -> None:
    built = members(3)
    whole = Timeline.build(3, exhaustive.solve(built, Objective.MAKESPAN).timeline.placements, [])  # type: ignore[union-attr]
    part = replace(built, jobs=built.jobs[:1])
    assert restrict(built, whole, part).end_us.tolist() == [int(whole.start_us[0]) + 4]


def _least_by_runs_of_releases(releases: list[int], times: list[int], makespan: bool) -> int:
    """Return the least sum of completions (or makespan) of one class on one GPU: batches are runs of releases.

    A dynamic programme over (tasks done, time free): Pareto sets of the time and the sum.
    """
    done: list[set[tuple[int, int]]] = [{(0, 0)}] + [set() for _ in releases]
    for first in range(len(releases)):
        for free, total in done[first]:
            for size in range(1, min(len(times), len(releases) - first) + 1):
                end = max(free, releases[first + size - 1]) + times[size - 1]
                done[first + size].add((end, total + size * end))
    return min(end if makespan else total for end, total in done[-1])


@pytest.mark.parametrize("seed", range(6))
def test_one_class_on_one_gpu_is_a_dynamic_programme(seed: int) -> None:
    rng = random.Random(seed)
    times = sorted(rng.randint(1, 9) for _ in range(3))
    releases = sorted(rng.randint(0, 15) for _ in range(6))
    batch = BatchClass("c", {"*": {1: times[0], 2: times[1], 3: times[2]}})
    built = instance([Job(chain(Task.of_class("t", batch)), release) for release in releases])
    least = _least_by_runs_of_releases(releases, times, makespan=False)
    assert cp_sat.solve(built, Objective.MEAN_LATENCY, 20, workers=1).value == Fraction(least - sum(releases), 6)
    makespan = _least_by_runs_of_releases(releases, times, makespan=True)
    assert cp_sat.solve(built, Objective.MAKESPAN, 20, workers=1).value == makespan


@pytest.mark.parametrize("seed", range(4))
def test_tasks_of_a_kth_of_a_gpu_run_as_on_k_gpus(seed: int) -> None:
    rng = random.Random(seed)
    k = rng.choice((2, 3))
    drawn = [(rng.randint(1, 9), rng.randint(0, 6)) for _ in range(6)]
    drawn.sort(key=lambda pair: pair[1])

    def jobs(share: int) -> list[Job]:
        return [Job(chain(shared(runtime, share)), release) for runtime, release in drawn]

    together = cp_sat.solve(instance(jobs(WHOLE // k)), Objective.MEAN_LATENCY, 20, workers=1)
    apart = cp_sat.solve(instance(jobs(WHOLE), on=cluster(k)), Objective.MEAN_LATENCY, 20, workers=1)
    assert together.value == together.lower_bound == apart.value


@pytest.mark.parametrize("seed", range(8))
def test_a_class_of_size_1_is_a_plain_task(seed: int) -> None:
    rng = random.Random(seed)
    plain = random_instance(rng, 4)
    classes = {
        id(t): BatchClass(f"{w.name}/{t.name}", {kind: {1: us} for kind, us in t.runtime_us.items()}, t.models)
        for w in plain.workflows
        for t in w.tasks
    }
    workflows = [
        chain(*(Task.of_class(t.name, classes[id(t)], t.inputs) for t in w.tasks), name=w.name) for w in plain.workflows
    ]
    jobs = tuple(
        replace(job, workflow=workflows[index])
        for job, index in zip(plain.jobs, plain.job_workflow.tolist(), strict=True)
    )
    batched, objective = replace(plain, jobs=jobs), list(Objective)[seed % 7]
    assert not batched.one_at_a_time
    best = exhaustive.solve(plain, objective)
    for solve in (exhaustive.solve, lambda a, b: cp_sat.solve(a, b, 20, workers=1)):
        assert solve(batched, objective).value == best.value


def test_a_makespan_of_batches_is_no_packing() -> None:
    assert arc_flow.applies(served(task("t", 5)), Objective.MAKESPAN)
    assert not arc_flow.applies(members(2), Objective.MAKESPAN)
    assert not arc_flow.applies(served(shared(5, 5_000)), Objective.MAKESPAN)
