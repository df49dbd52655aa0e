"""A feature that nobody lists is refused by every method and bound; the page says what the methods say."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.instances import chain, instance, task
from tests.random_instances import random_serving_instance
from tests.streams.worlds import random_chats
from truenorth.executor import parse_policy, simulate
from truenorth.models import BatchClass, Instance, Job, Objective, Task, UnsupportedInstanceError
from truenorth.models.errors import QuestionError
from truenorth.models.features import PRESENT, Feature, features_of
from truenorth.models.scenario import PlanFile, TimelineHeader
from truenorth.planner.answers.check import checked
from truenorth.solvers import confirming, portfolio
from truenorth.solvers.bounds import closed_form, refutation
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.lagrangian import improve
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.exact import arc_flow, consecutive, cp_sat, exhaustive, milp, start_orders
from truenorth.solvers.first_use import compile_once
from truenorth.solvers.reductions import Visits, lanes_of, ticks_of
from truenorth.solvers.result import Search
from truenorth.solvers.search import beam
from truenorth.solvers.search.decoder import Decoder
from truenorth.solvers.search.queues import new_queues
from truenorth.solvers.supports import supports, table
from truenorth.solvers.trust import CP_SAT

MEAN, MAKESPAN = Objective.MEAN_LATENCY, Objective.MAKESPAN


class Strange(StrEnum):
    """A feature that no method has heard of."""

    THING = "strange things"


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(dict[StrEnum, Any], PRESENT), Strange.THING, lambda _: True)


def runs(**options: Any) -> Instance:
    """Return two runs of 2 ms beside nothing, or as the options say."""
    return instance([Job(chain(Task("t", {"*": 2_000}, **options)), 0)] * 2)


def in_class() -> Instance:
    return instance([Job(chain(Task.of_class("t", BatchClass("c", {"*": {1: 4, 2: 5}}))), 0)] * 2)


def test_the_page_says_what_the_methods_say() -> None:
    assert table() in (Path(__file__).parents[2] / "docs" / "how_it_works.md").read_text()


def test_every_feature_is_seen_in_an_instance_and_supported_somewhere() -> None:
    assert list(PRESENT) == list(Feature)
    # Which engines there are is chosen before anything is planned.
    assert frozenset().union(*supports().values()) == frozenset(Feature) - {Feature.DEGREES}


def test_features_are_what_a_window_has() -> None:
    assert features_of(runs()) == []
    assert features_of(runs(share=5_000, memory_bytes=1)) == [Feature.SHARES, Feature.MEMORY]
    assert features_of(in_class()) == [Feature.BATCHES]
    chained = chain(task("a", 2, ["m"]), task("b", 2, after={"a": 1}))
    assert features_of(instance([Job(chained, 0)], {"m": 1})) == [Feature.WORKFLOWS, Feature.MODELS]


def plan_by(method: Method) -> object:
    return portfolio.solve(runs(), MEAN, Budget(5.0, method))


REFUSING: dict[str, Callable[[], object]] = {
    "cp-sat": lambda: cp_sat.solve(runs(), MAKESPAN, 5, workers=1),
    "milp": lambda: milp.solve(runs(), MAKESPAN, 5, workers=1),
    "exhaustive": lambda: exhaustive.solve(runs(), MAKESPAN),
    "local search": lambda: Decoder(runs(), MEAN),
    "servers that come and go": lambda: Visits.of(runs()),
    "formulas": lambda: closed_form.best(runs(), MEAN),
    "bound": lambda: portfolio.bound(runs(), MEAN, Budget(5.0, workers=1)),
    **{method: partial(plan_by, method) for method in Method},
}
"""What raises, since whoever asks wants this method."""


@pytest.mark.usefixtures("strange")
@pytest.mark.parametrize("name", REFUSING)
def test_what_is_asked_for_by_name_refuses_in_one_sentence(name: str) -> None:
    with pytest.raises(UnsupportedInstanceError, match=r"^[^\n]* has no support for strange things; [^\n]*$"):
        REFUSING[name]()


OF_WINDOWS: dict[str, Callable[[], object]] = {
    "start orders": lambda: start_orders.applies(runs(), MEAN),
    "refutation": lambda: refutation.applies(runs(), MAKESPAN),
    "arc flow": lambda: arc_flow.applies(runs(), MAKESPAN),
    "consecutive batches": lambda: consecutive.applies(in_class(), MEAN),
    "beams": lambda: beam.applies(runs(), MEAN),
    "lanes": lambda: lanes_of(runs(share=5_000)),
    "ticks": lambda: ticks_of(runs(), MEAN),
    "queues": lambda: new_queues(random_chats(random.Random(0), 4), MEAN),
    "a second opinion of the MILP": lambda: "milp" in dict(confirming._others(CP_SAT, runs(), milp_tasks=20)),
}
"""What is tried where it suits the window."""


@pytest.mark.parametrize("name", OF_WINDOWS)
def test_what_suits_a_window_suits_it_no_more_with_a_feature_it_does_not_list(
    name: str, request: pytest.FixtureRequest
) -> None:
    assert OF_WINDOWS[name]()
    request.getfixturevalue("strange")
    assert not OF_WINDOWS[name]()


def test_no_prices_are_made_of_a_window_with_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    climbed: list[object] = []
    monkeypatch.setattr(improve, "_climb", lambda *told: climbed.append(told))
    improve.improve(Search(runs(), MEAN, 20))
    assert len(climbed) == 1
    request.getfixturevalue("strange")
    assert improve.improve(Search(runs(), MEAN, 20)) is None
    assert len(climbed) == 1


@pytest.mark.parametrize("method", ["critical_path", "mean_busy_time"])
def test_no_certificate_is_believed_of_a_window_with_it(method: str, request: pytest.FixtureRequest) -> None:
    proved = closed_form.METHODS[method](runs(), MEAN)
    assert proved is not None
    document = closed_form_document(runs(), MEAN, method, proved)
    assert verify(runs(), document).valid
    request.getfixturevalue("strange")
    refused = verify(runs(), document)
    assert (refused.valid, refused.reason) == (False, f"{method} has no support for strange things")


def test_no_plan_is_called_valid_in_a_window_with_it(request: pytest.FixtureRequest) -> None:
    file = PlanFile(TimelineHeader(), simulate(runs(), parse_policy("jit")))
    assert checked(MEAN, runs(), file).violations == []
    request.getfixturevalue("strange")
    with pytest.raises(UnsupportedInstanceError, match=r"^the checker has no support for strange things; [^\n]*$"):
        checked(MEAN, runs(), file)


def test_a_method_that_does_not_suit_names_those_that_do() -> None:
    with pytest.raises(QuestionError) as refused:
        portfolio.solve(in_class(), MAKESPAN, Budget(5.0, Method.MILP))
    assert str(refused.value) == "method: milp has no support for batches; allowed are auto, cp-sat, search"
    with pytest.raises(QuestionError, match=r"^method: milp has no support for batches"):
        compile_once(in_class(), lambda: pytest.fail("compiles kernels first"), "milp")
    with pytest.raises(QuestionError) as refused:
        portfolio.solve(random_chats(random.Random(0), 4), MEAN, Budget(5.0, Method.CP_SAT))
    assert str(refused.value) == "method: cp-sat has no support for continuous batching; allowed are auto, search"


def test_the_milp_refuses_whatever_does_not_run_one_at_a_time() -> None:
    for seed in range(5):
        drawn = random_serving_instance(random.Random(seed), 3)
        assert drawn.one_at_a_time is not any(
            feature in features_of(drawn) for feature in (Feature.BATCHES, Feature.SHARES, Feature.MEMORY)
        )
