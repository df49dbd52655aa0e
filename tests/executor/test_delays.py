"""Time between steps (rule E5) as the engine lets it pass: no GPU waits, and no policy knows a job's own delay."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.instances import chain, cluster, instance, network, random_instance, task, with_delays
from truenorth.executor import PolicyError, parse_policy, replay, simulate
from truenorth.executor.policies.parse import POLICIES
from truenorth.models import Edge, Instance, Job, Objective, Task, Timeline, Workflow
from truenorth.models.branches import paths_of
from truenorth.models.feasibility import assert_feasible
from truenorth.models.features import Feature, missing
from truenorth.models.workload import Branch
from truenorth.solvers.search.dispatch import greedy

ONLINE = [name for name, of in POLICIES.items() if Feature.DELAYS in of.supports]


def agent(call_us: int, delay_us: int, again_us: int, name: str = "agent") -> Job:
    """Return a call, a tool that runs outside of the cluster, and another call."""
    again = Task("again", {"*": again_us}, inputs=(Edge("call", 0, delay_us=delay_us),))
    return Job(chain(task("call", call_us), again, name=name), 0)


def test_all_but_one_policy_for_tasks_know_time_between_steps() -> None:
    assert {name for name, of in POLICIES.items() if Feature.DELAYS not in of.supports} == {"compass-released"}


@pytest.mark.parametrize("policy", ONLINE)
def test_another_job_runs_while_a_tool_does(policy: str) -> None:
    # Call [0, 10), a tool of 100 until 110, the other job [10, 60), the second call [110, 130).
    built = instance([agent(10, 100, 20), Job(chain(task("t", 50), name="other"), 1)])
    timeline = simulate(built, parse_policy(policy))
    assert_feasible(built, timeline)
    assert timeline.start_us.tolist() == [0, 110, 10]


@pytest.mark.parametrize("policy", ONLINE)
def test_a_gpu_is_not_kept_for_a_tool_that_takes_longer_than_the_workflow_says(policy: str) -> None:
    # The workflow says 1 us, the job's tool takes 100: whoever booked the GPU for the second call gives it up.
    built = instance([replace(agent(10, 1, 20), delays_us={"again": 100}), Job(chain(task("t", 50), name="other"), 1)])
    timeline = simulate(built, parse_policy(policy))
    assert_feasible(built, timeline)
    assert timeline.start_us.tolist() == [0, 110, 10]


@pytest.mark.parametrize("policy", ONLINE)
def test_a_shorter_own_delay_is_used(policy: str) -> None:
    # The workflow says 100 us, the job's tool takes 5: nothing keeps the second call from starting at 15.
    built = instance([replace(agent(10, 100, 20), delays_us={"again": 5})])
    assert simulate(built, parse_policy(policy)).start_us.tolist() == [0, 15]


@pytest.mark.parametrize("policy", ONLINE)
def test_random_windows_keep_every_rule(policy: str) -> None:
    rng = random.Random(policy)
    for _ in range(25):
        built = with_delays(rng, random_instance(rng, 6))
        if missing(built, POLICIES[policy].supports):
            continue
        # Static pins cannot hold everything at once in so little memory.
        if policy != "static":
            assert_feasible(built, simulate(built, parse_policy(policy)))


def begun(timeline: Timeline, before_us: int) -> list[tuple[int, int, int]]:
    """Return where and when what began before an instant did."""
    rows = zip(timeline.start_us.tolist(), timeline.place.tolist(), range(len(timeline.place)), strict=True)
    return sorted(row for row in rows if row[0] < before_us)


@pytest.mark.parametrize("policy", ONLINE)
def test_a_jobs_own_delay_shows_when_it_has_passed_and_not_before(policy: str) -> None:
    rng = random.Random(policy)
    for _ in range(15):
        built = with_delays(rng, random_instance(rng, 6))
        late = {job: built.jobs[job] for job in range(len(built.jobs)) if built.jobs[job].delays_us}
        if not late or missing(built, POLICIES[policy].supports) or policy == "static":
            continue
        longer = tuple(
            replace(job, delays_us={name: us + 50 for name, us in job.delays_us.items()}) if job.delays_us else job
            for job in built.jobs
        )
        other = replace(built, jobs=longer)
        one, two = simulate(built, parse_policy(policy)), simulate(other, parse_policy(policy))
        # Until the first delay that differs is over in the one window nobody can tell them apart.
        passed = [
            int(one.end_us[source]) + int(built.delay_us[edge])
            for source, target, edge in zip(*(column.tolist() for column in built.edges()), strict=True)
            if built.task_name(target) in (built.jobs[built.task_job[target]].delays_us or {})
        ]
        assert begun(one, min(passed)) == begun(two, min(passed))


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_carried_out_as_it_stands(seed: int) -> None:
    rng = random.Random(seed)
    built = with_delays(rng, random_instance(rng, 6))
    plan = greedy(built, Objective.MEAN_LATENCY)
    assert plan is not None
    assert_feasible(built, plan)
    happened = simulate(built, replay(built, plan))
    assert_feasible(built, happened)
    assert (happened.end_us <= plan.end_us).all()


def test_an_output_travels_once_its_delay_has_passed() -> None:
    # The second call is sent to the other GPU, from which 2 bytes and 1 us of latency are under way: 10 + 7 + 3.
    far = Task("again", {"B": 5}, inputs=(Edge("call", 2, delay_us=7),))
    on = replace(cluster(2, network()), gpus=(cluster(2).gpus[0], replace(cluster(2).gpus[1], kind="B")))
    built = instance([Job(chain(task("call", {"A": 10}), far), 0)], on=on)
    assert simulate(built, parse_policy("jit")).start_us.tolist() == [0, 20]
    assert simulate(built, parse_policy("compass")).start_us.tolist() == [0, 20]


def test_who_refuses_says_who_does_not() -> None:
    built: Instance = instance([agent(10, 1, 20)])
    with pytest.raises(PolicyError, match=r"no support for time between steps; allowed are policies such as compass"):
        simulate(built, parse_policy("compass-released"))


@pytest.mark.parametrize("policy", ONLINE)
@pytest.mark.parametrize(("branch", "starts"), [(0, [0, 35, 70]), (1, [0, 20])])
def test_delays_of_branches_pass_where_the_job_takes_them(policy: str, branch: int, starts: list[int]) -> None:
    # Ask [0, 5). A search after 30 us: [35, 60), and the answer 10 us later. Without: the answer 15 us after asking.
    search = Task("search", {"*": 25}, inputs=(Edge("ask", 0, delay_us=30),))
    answer = Task("answer", {"*": 1}, inputs=(Edge("ask", 0, delay_us=15), Edge("search", 0, delay_us=10)))
    ways = (Branch(Fraction(1, 2), ("search",)), Branch(Fraction(1, 2), ()))
    whole = Workflow("w", (task("ask", 5), search, answer), ways)
    built = instance([Job(paths_of(whole)[branch], 0)], catalogue=(whole,))
    timeline = simulate(built, parse_policy(policy))
    assert_feasible(built, timeline)
    assert timeline.start_us.tolist() == starts
