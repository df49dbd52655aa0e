"""Gateways that weigh nodes by their step laws: by hand, by draw, and asked only where nodes are unlike."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tests.streams.worlds import POLICIES, chats, cluster, random_chats, recorded_chats
from truenorth.executor import parse_policy, simulate
from truenorth.executor.policies.parse import suited
from truenorth.models import Instance, Tokens, check
from truenorth.models.objective import completion_us
from truenorth.models.streams import StreamSpeed


def nodes_of(instance: Instance, policy: str) -> str:
    """Return to which node each request goes, in the order of release."""
    return "".join("AB"[gpu] for gpu in simulate(instance, parse_policy(f"{policy}:known=yes")).place.tolist())


def burst(a: StreamSpeed, b: StreamSpeed, tokens: Tokens, count: int) -> Instance:
    """Return so many requests alike that come at once, before a node of each speed."""
    return chats(cluster(2, 10_000, ("A", "B")), {"A": a, "B": b}, [(0, tokens)] * count)


def speed(rate: int, step: dict[int, int], seats: int = 8, **more: int) -> StreamSpeed:
    """Return a speed of so many prompt tokens per second, in chunks of a hundred."""
    return StreamSpeed(Fraction(rate), 100, seats, step, **more)  # type: ignore[arg-type]


def test_work_is_shared_as_nodes_are_fast() -> None:
    """B takes 2.1 times as long: of A and B, in us per request 120 and 251, the least each time is A twice, then B.

    120 < 251; 240 < 251; 360 > 251; 360 < 502; 480 < 502; 600 > 502.
    """
    instance = burst(speed(1_000_000, {1: 10, 8: 10}), speed(500_000, {1: 21, 8: 21}), Tokens(10, 10, 11), 6)
    assert nodes_of(instance, "least_work") == "AABAAB"
    assert nodes_of(instance, "least_tokens").count("A") == 3


def test_decodes_count_at_the_step_that_the_node_would_have() -> None:
    """Steps of A are 10 us alone and 30 us of two, those of B 18 us: 11 tokens take 110, 22 take 660; 198 each on B.

    With a prompt of 1 us each: 111 < 199; 662 > 199; 662 > 398; 662 > 597; 662 < 796.
    """
    instance = burst(speed(1_000_000, {1: 10, 2: 30}, 2), speed(1_000_000, {1: 18, 2: 18}, 2), Tokens(1, 1, 11), 5)
    assert nodes_of(instance, "least_work") == "ABBBA"


def test_contexts_and_mixed_iterations_count() -> None:
    """Of prompts of 250 tokens in chunks of 100, and answers of 2, A takes 250 + 3 x 40 + 2 x 10; B 250 + 2 x (10 + d).

    d is that of 251 tokens of context at 0.25 us: B 395.5, so that A (390) is first, and 780 > 395.5.
    """
    a, b = speed(1_000_000, {1: 10, 8: 10}, mixed_us=40), speed(1_000_000, {1: 10, 8: 10}, context_ps=250_000)
    assert nodes_of(burst(a, b, Tokens(250, 250, 2), 2), "least_work") == "AB"
    assert nodes_of(burst(b, a, Tokens(250, 250, 2), 2), "least_work") == "BA"


def test_delay_counts_what_a_request_costs_the_others() -> None:
    """A's steps are 10 us alone and 20 us of two, B's 25 us; prompts take 100 us on A and B, answers have 11 tokens.

    The second request on A: prompts 200 + 11 x 20 of its own, and of the first 100 + 11 x 10: 630; on B 100 + 275.
    By work A has 200 + 22 x 20 = 640 against 375. The third on A is the same 630; on B 200 + 275 and 100 for the
    second, which is 575; by work 200 + 550 = 750 against 640 on A.
    """
    a, b = speed(1_000_000, {1: 10, 8: 80}), speed(1_000_000, {1: 25, 8: 25})
    instance = burst(a, b, Tokens(100, 100, 11), 3)
    assert nodes_of(instance, "least_work") == "ABA"
    assert nodes_of(instance, "least_delay") == "ABB"


@pytest.mark.parametrize("policy", ["least_work", "least_delay"])
def test_unlike_nodes_are_used_better_than_by_tokens(policy: str) -> None:
    """Over draws of one node beside one of a third of its speed the mean latency falls, by a tenth at least."""
    total = {policy: 0, "least_tokens": 0}
    for seed in range(20):
        rng = random.Random(seed)
        quick, slow = speed(3_000_000, {1: 4, 8: 12}), speed(1_000_000, {1: 12, 8: 36})
        requests = [(40 * at, Tokens(n := rng.randint(10, 90), n, rng.randint(2, 20))) for at in range(60)]
        instance = chats(cluster(2, 10_000, ("A", "B")), {"A": quick, "B": slow}, requests)
        for name in total:
            ended = completion_us(instance, simulate(instance, parse_policy(name)))
            total[name] += int((ended - instance.job_release_us).sum())
    assert total[policy] < 0.9 * total["least_tokens"]


def test_only_unlike_nodes_are_weighed_where_none_is_named() -> None:
    assert suited(recorded_chats(3, 20)) == ()
    unlike = burst(speed(2, {1: 1, 8: 1}), speed(1, {1: 1, 8: 1}), Tokens(1, 1, 1), 1)
    assert suited(unlike) == ("least_delay", "least_work")
    assert suited(random_chats(random.Random(0), 3, 1)) == ()


@pytest.mark.parametrize("block", [0, 4])
def test_fewer_requests_than_seats_are_served_at_once(block: int) -> None:
    """Steps are 10 us alone and 30 us of two; prompts take 1 us. Together: 2 + 10 x 30 = 302 us for both.

    One after the other: 1 + 10 x 10 = 101, and 101 more. The timeline keeps the limit, by which it is checked.
    """
    two = speed(1_000_000, {1: 10, 2: 30}, 2, kv_bytes=1, block=block)
    instance = chats(cluster(1, 10_000), {"A": two}, [(0, Tokens(1, 1, 11))] * 2)
    for policy, ends, limits in (("limit=1", [101, 202], {0: 1}), ("limit=2", [302, 302], {}), ("", [302, 302], {})):
        timeline = simulate(instance, parse_policy(f"least_tokens:{policy}"))
        assert timeline.end_us.tolist() == ends
        assert timeline.served is not None
        assert timeline.served.limits == limits
        assert check(instance, timeline) == []


def test_a_limited_node_is_weighed_by_the_step_that_it_can_have() -> None:
    """As above by decodes, but A's step stays at 10 us: by work it takes 110 per request, B 198: A, then A (222 > 199).

    1 + 110 = 111 < 199; 2 + 220 = 222 > 199; 222 < 2 + 2 x 198 = 398; 333 < 398; 444 > 398.
    """
    instance = burst(speed(1_000_000, {1: 10, 2: 30}, 2), speed(1_000_000, {1: 18, 2: 18}, 2), Tokens(1, 1, 11), 5)
    nodes = simulate(instance, parse_policy("least_work:known=yes,limit=1")).place.tolist()
    assert "".join("AB"[gpu] for gpu in nodes) == "ABAAB"


def test_limits_keep_to_the_rules_over_draws() -> None:
    """With and without measured keys: the checker finds nothing, and no more than the limit run at once."""
    for seed in range(30):
        rng = random.Random(seed)
        instance = random_chats(rng, 25, measured=bool(seed % 2))
        timeline = simulate(instance, parse_policy(f"{rng.choice(POLICIES[1:3])}:limit={rng.randint(1, 4)}"))
        assert check(instance, timeline) == []
