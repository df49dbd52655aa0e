"""Priorities in queues, workflows that go first or have nodes of their own, and turns of models on a node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.streams.worlds import chats, cluster, random_chats
from truenorth.executor import PolicyError, parse_policy, simulate
from truenorth.executor.policies.parse import suited
from truenorth.models import Instance, Job, MLModel, StreamClass, Task, Tokens, Workflow, check
from truenorth.models.objective import completion_us
from truenorth.models.streams import StreamSpeed

ONE = Tokens(10, 10, 1)
"""A request of one iteration, of 10 us on a node of `ALONE`."""
ALONE = StreamSpeed(Fraction(1_000_000), 10, 1, {1: 10})


def urgent(instance: Instance, priorities: Sequence[int]) -> Instance:
    """Return an instance whose jobs have these priorities."""
    jobs = zip(instance.jobs, priorities, strict=True)
    return replace(instance, jobs=tuple(replace(job, priority=priority) for job, priority in jobs))


def ends(instance: Instance, policy: str) -> list[int]:
    """Return when every job ends, in microseconds; the timeline keeps all rules."""
    timeline = simulate(instance, parse_policy(policy))
    assert not check(instance, timeline)
    return [int(end) for end in completion_us(instance, timeline)]


@pytest.mark.parametrize("policy", ["least_tokens", "round_robin", "turns"])
def test_the_most_urgent_that_waits_joins_next(policy: str) -> None:
    """One seat, 10 us each: the first is served at once, then priorities 2, 1, 1 in order of arrival, and 0."""
    instance = chats(cluster(1), {"A": ALONE}, [(0, ONE), (1, ONE), (2, ONE), (3, ONE), (4, ONE)])
    assert ends(instance, policy) == [10, 20, 30, 40, 50]
    assert ends(urgent(instance, [0, 0, 1, 2, 1]), policy) == [10, 50, 30, 20, 40]


def test_an_urgent_task_passes_those_that_wait_for_a_gpu() -> None:
    """Tasks of 10 us on one GPU: what comes last goes second; the model of the one in turn is loaded all the same.

    Loads of `m` take 5 us: the first task runs from 0, `m` is ready at 6 for the second, which the third passes.
    `lru` loads nothing while a task runs: the load begins at 20.
    """
    on = cluster(1)
    first, needs = (Workflow(name, (Task("t", {"A": 10}, models),)) for name, models in (("plain", ()), ("m", ("m",))))
    jobs = (Job(first, 0), Job(needs, 1), Job(first, 2, priority=1))
    instance = Instance(on, (MLModel("m", 5),), jobs)
    for policy in ("jit", "compass", "heft"):
        assert ends(instance, policy) == [10, 30, 20], policy
    assert ends(instance, "lru") == [10, 35, 20]


@pytest.mark.parametrize("seed", range(60))
def test_nobody_joins_before_one_that_is_more_urgent_and_waits_there(seed: int) -> None:
    rng = random.Random(seed)
    instance = random_chats(rng, 25, measured=bool(seed % 2))
    instance = urgent(instance, [rng.choice((0, 0, 1, 3)) for _ in instance.jobs])
    timeline = simulate(instance, parse_policy(rng.choice(("least_tokens", "round_robin", "least_work", "turns"))))
    assert not check(instance, timeline)
    place, start, release = timeline.place.tolist(), timeline.start_us.tolist(), instance.job_release_us.tolist()
    for one, job in enumerate(instance.jobs):
        for other, less in enumerate(instance.jobs):
            if place[one] == place[other] and less.priority < job.priority and start[other] < start[one]:
                # It had not come by then, but for the way from its ingress, of which there is none.
                assert start[other] <= release[one]


def test_policies_without_a_queue_per_gpu_refuse_priorities() -> None:
    instance = urgent(chats(cluster(1), {"A": ALONE}, [(0, ONE)]), [1])
    plain = replace(instance, jobs=(Job(Workflow("plain", (Task("t", {"A": 10}),)), 0, priority=1),))
    with pytest.raises(PolicyError, match="priorities"):
        simulate(plain, parse_policy("srpt"))


def of_two_workflows(requests: Sequence[tuple[int, str]], nodes: int = 1) -> Instance:
    """Return requests of one iteration of the workflows that are named, on nodes of one seat."""
    chat = StreamClass("chat", {"A": ALONE})
    flows = {name: Workflow(name, (Task.of_stream("answer", chat),)) for name in ("talk", "file")}
    jobs = tuple(Job(flows[name], release, tokens={"answer": ONE}) for release, name in requests)
    return Instance(cluster(nodes), (), jobs, catalogue=tuple(flows.values()))


def test_workflows_go_first_where_the_policy_names_them() -> None:
    """As by priorities, whatever the scenario's are: `talk` passes two files; an asterisk names it, too."""
    instance = of_two_workflows([(0, "file"), (1, "file"), (2, "file"), (3, "talk")])
    assert ends(instance, "least_tokens") == [10, 20, 30, 40]
    for order in ("talk", "ta*"):
        assert ends(instance, f"least_tokens:urgent={order}") == [10, 30, 40, 20]
        assert ends(urgent(instance, [5, 0, 0, 0]), f"least_tokens:urgent={order}") == [10, 30, 40, 20]


def test_workflows_have_nodes_of_their_own() -> None:
    """Two nodes, the first for `talk` alone: the files share the second, though the first is idle until 50."""
    instance = of_two_workflows([(0, "file"), (0, "file"), (0, "file"), (50, "talk")], 2)
    assert ends(instance, "least_tokens") == [10, 10, 20, 60]
    timeline = simulate(instance, parse_policy("least_tokens:urgent=talk,apart=1"))
    assert timeline.place.tolist() == [1, 1, 1, 0]
    assert completion_us(instance, timeline).tolist() == [10, 20, 30, 60]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("urgent=tlk", "the catalogue has no 'tlk' (did you mean talk?)"),
        ("apart=1", "gives 1 number of nodes for 0 urgent workflows; allowed is at most one for each"),
        ("urgent=talk,apart=1+1", "gives 2 numbers of nodes for 1 urgent workflows"),
        ("urgent=talk,apart=0", "0 is not allowed; at least 1"),
        ("urgent=talk,apart=1", "takes 1 of 1 nodes; allowed is to leave one for the other requests"),
    ],
)
def test_orders_that_mean_nothing_are_refused(options: str, said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        simulate(of_two_workflows([(0, "file")]), parse_policy(f"least_tokens:{options}"))
    assert said in str(refused.value)


def of_two_models(requests: Sequence[tuple[int, str]], seats: int = 1) -> Instance:
    """Return requests of one iteration (10 us) of two models of which a node holds one; a load takes 100 us."""
    speed = replace(ALONE, seats=seats, step_us={1: 10, seats: 10})
    flows = {
        name: Workflow(name, (Task.of_stream("answer", StreamClass(name, {"A": speed}, (name,))),)) for name in "ab"
    }
    jobs = tuple(Job(flows[name], release, tokens={"answer": ONE}) for release, name in requests)
    return Instance(cluster(1, 150), tuple(MLModel(name, 100) for name in "ab"), jobs)


def test_a_model_is_served_in_turns() -> None:
    """First come first served swaps for each of a, b, a, b: 110, 220, 330, 440. In turns both of a come first.

    a: loaded at 100, ends at 110 and 120; b: loaded at 220, ends at 230 and 240.
    """
    instance = of_two_models([(0, "a"), (1, "b"), (2, "a"), (3, "b")])
    assert ends(instance, "least_tokens") == [110, 220, 330, 440]
    assert ends(instance, "turns") == [110, 230, 120, 240]


def test_a_turn_ends_when_it_has_lasted_and_another_class_waits() -> None:
    """Turns of 15 us from the first join at 100: of three of a two join, at 100 and 110; then b, and the third of a.

    a: 110, 120; b: loaded at 220, ends at 230; a: loaded at 330, ends at 340. In turns of 0 us one of each joins:
    a 110, b 220, a 330 and, as nobody else waits, 340.
    """
    instance = of_two_models([(0, "a"), (1, "b"), (2, "a"), (3, "a")])
    assert ends(instance, "turns:hold=15us") == [110, 230, 120, 340]
    assert ends(instance, "turns:hold=0us") == [110, 220, 330, 340]


def test_a_turn_waits_for_more_of_its_class_while_some_of_it_runs() -> None:
    """Two seats: a runs from 100 to 110, and another a that comes at 105 joins at 110 though b has waited since 1.

    Without it the node is empty at 110, and b's load takes until 210. With it b is loaded from 120 on, until 220.
    """
    assert ends(of_two_models([(0, "a"), (1, "b")], 2), "turns") == [110, 220]
    assert ends(of_two_models([(0, "a"), (1, "b"), (105, "a")], 2), "turns") == [110, 230, 120]


def test_turns_are_asked_for_where_a_node_cannot_hold_all_models() -> None:
    two = of_two_models([(0, "a"), (0, "b")])
    assert suited(two) == ("turns",)
    assert suited(replace(two, cluster=cluster(1, 200))) == ()
    assert suited(of_two_workflows([(0, "file")])) == ()


@pytest.mark.parametrize("seed", range(40))
def test_turns_keep_every_rule_and_serve_everybody(seed: int) -> None:
    rng = random.Random(seed)
    requests = sorted((rng.randint(0, 1_000), rng.choice("ab")) for _ in range(20))
    instance = of_two_models(requests, rng.choice((1, 2, 4)))
    policy = f"turns:hold={rng.choice((0, 10, 100, 400))}us"
    assert all(end > release for end, (release, _) in zip(ends(instance, policy), requests, strict=True))
