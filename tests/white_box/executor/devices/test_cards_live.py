"""Whole runs on two cards that pretend, through engine, lanes and stations: what fails on a card costs what it must."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.executor.devices.pretended import ASSERT, FULL, HANGS, LOST, RECOVERS, PretendedCard, Wall
from tests.executor.devices.small import BYTES, Small, gpus, instance
from tests.executor.devices.together import Summed
from tests.instances import task
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.records import SET_ASIDE, STARTED_AGAIN
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.weights import aligned
from truenorth.models import Cluster, Edge, Instance, Task, Workflow, check
from truenorth.models.feasibility import exceeded_memory

JOBS = 8
ON_CARDS = LiveSettings("cuda", keep_outputs=True, limit_s=5.0)


def two_models(jobs: int = JOBS) -> Instance:
    """Return jobs of a task of m0, then one of m1, on two GPUs with room for one model each: loads all the time."""
    of = Workflow("w", (task("a", 2000, ["m0"]), task("b", 2000, ["m1"], {"a": 64})))
    return instance([of] * jobs, ["m0", "m1"], gpus(2, aligned(BYTES)))


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> tuple[PretendedCard, PretendedCard]:
    made = PretendedCard(0, clock=Wall()), PretendedCard(1, clock=Wall())
    monkeypatch.setattr("truenorth.executor.devices.physical.find_cards", lambda: made)
    return made


def failed(run: LiveRun) -> list[int]:
    return sorted(failure.job for failure in run.records.failures)


@pytest.mark.parametrize("policy", ["jit", "compass", "srpt", "plan"])
def test_a_run_keeps_every_rule_races_nowhere_and_puts_out_what_it_should(
    cards: tuple[PretendedCard, PretendedCard], policy: str
) -> None:
    """A race would fail its job. Copies in go through one engine per card, one after the other."""
    made = two_models()
    plan = simulate(made, parse_policy("srpt")) if policy == "plan" else None
    chosen = parse_policy(policy) if plan is None else replay(made, plan)
    run = run_live(made, chosen, Small, ON_CARDS, plan=plan)
    assert (run.records.failures, run.records.faults) == ([], [])
    assert check(made, run.timeline) == []
    assert run.devices == ("pretended card 0", "pretended card 1")
    assert different_outputs(made, Small, "cuda", run.outputs, 30) == []
    assert len(run.digests) == made.n_tasks
    if plan is not None:
        assert run.timeline.place.tolist() == plan.place.tolist()


def test_what_tasks_take_beside_the_weights_is_known_from_the_warm_up(
    cards: tuple[PretendedCard, PretendedCard],
) -> None:
    """Nothing that a run makes is freed before its end; each takes 64 bytes.

    That of a makes its values, what the layer puts out and its tangent; that of b copies 64 bytes of its input besides,
    and adds them to its values. Planned on GPUs of 1280 bytes, of which the model takes 1088, b has 192 left.
    """
    made = two_models()
    run = run_live(made, parse_policy("jit"), Small, ON_CARDS)
    assert run.held_bytes == {0: 192, 1: 320}
    found = list(exceeded_memory(made, run.timeline, np.array([192, 193])))
    assert {(violation.found, violation.allowed) for violation in found} == {(1088 + 193, 1280)}
    begun = zip(run.timeline.place[1::2], run.timeline.start_us[1::2], strict=True)  # every b
    assert {violation.subject for violation in found} == {f"s{gpu}/g0 at {start} us" for gpu, start in begun}
    assert len(found) == JOBS


def test_what_several_cards_put_out_stays_on_each_and_travels_from_the_first(
    cards: tuple[PretendedCard, PretendedCard],
) -> None:
    """Both run a with half of m each; c, on both, needs the outputs of a and of b, which ran on one, with all of m."""
    wide = Task("a", {"*": 2000}, ("m0",), gpus=2)
    alone = task("b", 2000, ["m0"], {"a": 64})
    last = Task("c", {"*": 2000}, ("m1",), (Edge("a", 64), Edge("b", 64)), gpus=2, copies=True)
    made = instance([Workflow("w", (wide, alone, last))] * 3, ["m0", "m1"], on_one_server(gpus(2, 2 * aligned(BYTES))))
    plan = simulate(made, parse_policy("fifo"))
    run = run_live(made, replay(made, plan), Summed, ON_CARDS, plan=plan)
    assert (run.records.failures, run.records.faults) == ([], [])
    assert check(made, run.timeline) == []
    assert run.timeline.place.tolist() == plan.place.tolist()
    assert len(run.records.transfers) == 3
    assert different_outputs(made, Summed, "cuda", run.outputs, 30) == []


def on_one_server(cluster: Cluster) -> Cluster:
    return replace(cluster, gpus=tuple(replace(gpu, server=0) for gpu in cluster.gpus))


@pytest.mark.parametrize("staged", [False, True])
def test_what_travels_between_cards_arrives(cards: tuple[PretendedCard, PretendedCard], staged: bool) -> None:
    """Task a runs on one card and b on the other, since their models may be on one each."""
    made = two_models()
    pins = {"m0": frozenset({0}), "m1": frozenset({1})}
    made = replace(made, restrictions=replace(made.restrictions, model_gpus=pins))
    network = replace(made.cluster.network, staged=staged)
    made = replace(made, cluster=replace(made.cluster, network=network))
    run = run_live(made, parse_policy("jit"), Small, ON_CARDS)
    assert (failed(run), len(run.records.transfers)) == ([], JOBS)
    assert different_outputs(made, Small, "cuda", run.outputs, 30) == []


@pytest.mark.parametrize(("how", "said"), [(RECOVERS, "AcceleratorError: CUDA error: device-side"), (FULL, "OutOfMem")])
def test_an_error_that_a_card_recovers_from_costs_its_job_alone(
    cards: tuple[PretendedCard, PretendedCard], how: str, said: str
) -> None:
    for card in cards:
        card.failing["job 3 w/b"] = how
    run = run_live(two_models(), parse_policy("jit"), Small, ON_CARDS)
    assert (failed(run), run.records.faults) == ([3], [])
    assert run.records.failures[0].message.startswith(said)
    assert different_outputs(two_models(), Small, "cuda", run.outputs, 30) == []


@pytest.mark.parametrize("how", [ASSERT, LOST, HANGS])
def test_what_a_card_does_not_recover_from_costs_its_job(cards: tuple[PretendedCard, PretendedCard], how: str) -> None:
    """Its process is started again, which has a card that serves; what lay on the one before is lost with it."""
    for card in cards:
        card.failing["job 3 w/b"] = how
    run = run_live(two_models(), parse_policy("jit"), Small, replace(ON_CARDS, limit_s=1.0))
    assert 3 in failed(run)
    # The run before it is on a card that is lost, too.
    said = {failure.message for failure in run.records.failures if failure.job != 3}
    assert how == LOST or said <= {WITH_IT, f"its input did not arrive: {WITH_IT}"}
    seen = [fault.what for fault in run.records.faults]
    assert seen.count(STARTED_AGAIN) == 1
    # What lay there and was to travel cannot, which may be noticed first.
    assert all(what == STARTED_AGAIN or what.startswith("transfer to ") for what in seen)
    whole = {task: out for task, out in run.outputs.items() if task // 2 not in failed(run)}
    assert whole  # of a job that did not fail, one at most that nobody needed any more was lost with the card
    assert different_outputs(two_models(), Small, "cuda", whole, 30) == []


WITH_IT = "its input was lost with the process that had it on its device"


def test_a_card_that_fails_again_and_again_is_left_and_the_other_goes_on(
    cards: tuple[PretendedCard, PretendedCard],
) -> None:
    """Every process of card 1 fails with its first job."""
    cards[1].failing["job"] = LOST
    run = run_live(two_models(40), parse_policy("jit"), Small, ON_CARDS)
    faults = [fault.what for fault in run.records.faults if not fault.what.startswith("transfer")]
    assert faults == [STARTED_AGAIN] * 4 + [SET_ASIDE]
    assert {fault.gpu for fault in run.records.faults} == {1}
    assert len([failure for failure in run.records.failures if WITH_IT not in failure.message]) == 4
    assert check(two_models(40), run.timeline) == []
