"""Workers elsewhere: what they find is used, what is lost costs no more than itself, and prices join."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests import instances as make
from truenorth.models import Instance, Job, Objective, assert_feasible
from truenorth.solvers.bounds.lagrangian import sections
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, exact_bound, round_prices
from truenorth.solvers.bounds.lagrangian.improve import Priced, prepare
from truenorth.solvers.bounds.lagrangian.sections import (
    PricedSection,
    Pricing,
    join,
    price,
    raise_in_sections,
    slot_unit_us,
)
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.portfolio import solve
from truenorth.solvers.remote import Looking, look, search_remotely
from truenorth.solvers.result import Search

OBJECTIVE = Objective.MEAN_LATENCY


@dataclass
class Lossy:
    """Workers of this thread, which lose every second call from the first or the second on."""

    workers: int = 2
    kept: int = 0
    asked: list[Any] = field(default_factory=list)

    def gather(
        self, call: Callable[[Any], Any], items: Sequence[Any], stop: threading.Event
    ) -> Iterator[tuple[int, Any]]:
        """Yield what calls return, but for those that are lost."""
        for index, item in enumerate(items):
            self.asked.append(item)
            value = call(item) if len(self.asked) % 2 == self.kept else None
            if value is not None:
                yield index, value


def bursts() -> Instance:
    """Two bursts of jobs on a GPU, so far apart that neither feels the other: 1 to 5 ms, and 2 to 6, all at once."""
    early = [Job(make.chain(make.task("t", 1000 * run), name=f"a{run}"), 0) for run in (1, 2, 3, 4, 5)]
    late = [Job(make.chain(make.task("t", 1000 * run), name=f"b{run}"), 1_000_000) for run in (2, 3, 4, 5, 6)]
    return make.instance([*early, *late], on=make.cluster(1))


def bound_of(instance: Instance, parts: dict[PricedSection, Priced], whole: Priced | None = None) -> Fraction:
    """Return what joined prices prove."""
    prepared = prepare(instance, OBJECTIVE)
    assert prepared is not None
    relaxation, flat = join(prepared[0], OBJECTIVE, parts, whole)
    bound = exact_bound(relaxation, round_prices(Prices.split(flat, relaxation), relaxation))
    assert bound is not None
    return bound


def priced_alone(instance: Instance, section: PricedSection) -> Priced:
    """Return the prices of a section."""
    found = price(Pricing(section.cut(instance), OBJECTIVE, slot_unit_us(instance), 1.0))
    assert found is not None
    return found


def test_joined_prices_prove_what_the_sections_do() -> None:
    # Shortest first: latencies of 1, 3, 6, 10, 15 ms and of 2, 5, 9, 14, 20, in the mean 7 and 10, together 8.5.
    of = bursts()
    parts = {section: priced_alone(of, section) for section in (PricedSection(0, 5, 0, 5), PricedSection(5, 10, 5, 10))}
    early, late = (part.bound for part in parts.values())
    assert 5000 < early <= 7000
    assert 8000 < late <= 10_000
    joined = bound_of(of, parts)
    assert float(joined) == pytest.approx(float(early + late) / 2, rel=1e-3)
    # A section that is lost has no prices: its jobs still take their run times, 4 ms in the mean.
    alone = bound_of(of, dict(list(parts.items())[:1]))
    assert float(alone) == pytest.approx(float(early) / 2 + 2000, rel=1e-3)


def test_one_section_proves_what_the_whole_does() -> None:
    of = bursts()
    whole = priced_alone(of, PricedSection(0, 10, 0, 10))
    assert 6500 < whole.bound <= 8500
    assert float(bound_of(of, {PricedSection(0, 10, 0, 10): whole})) == pytest.approx(float(whole.bound), abs=1)
    assert float(bound_of(of, {}, whole)) == pytest.approx(float(whole.bound), abs=1)


def test_one_job_is_one_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "LEAST_TASKS", 1)
    one = make.instance([Job(make.chain(*(make.task(f"t{at}", 1000) for at in range(4))), 0)], on=make.cluster(2))
    found = raise_in_sections(Search(one, OBJECTIVE, 1.0), 1.0, None, Lossy(workers=2, kept=1))
    assert found is not None
    assert 1000 <= found.bound <= 2000


def test_a_lost_section_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "SECTION_TASKS", 5)
    monkeypatch.setattr(sections, "LEAST_TASKS", 1)
    of, farm = bursts(), Lossy(workers=1, kept=0)
    search = Search(of, OBJECTIVE, 1.0)
    found = raise_in_sections(search, 1.0, None, farm)
    assert found is not None
    assert [(asked.instance.n_tasks, asked.limit_s < 1) for asked in farm.asked] == [(5, True), (5, True)]
    assert search.bound == found.bound
    assert 4000 < found.bound <= 8500


def test_workers_plans_are_offered_and_lost_ones_cost_nothing() -> None:
    of = bursts()
    first = solve(of, OBJECTIVE, Budget(60.0, Method.SEARCH, iterations=1)).timeline
    assert first is not None
    search, farm = Search(of, OBJECTIVE, 0.5), Lossy()
    with search_remotely(search, farm, Budget(0.5), 0.5):
        pass
    assert len(farm.asked) >= 2
    assert [asked.seed for asked in farm.asked[:2]] == [2, 3]
    assert search.value == 8500
    assert search.timeline is not None
    assert_feasible(of, search.timeline)


def test_a_plan_with_workers_is_never_worse() -> None:
    of = make.instance([Job(make.chain(make.task("t", 5, ["m"])), 0)] * 6, {"m": 3}, make.cluster(2))
    alone = solve(of, OBJECTIVE, Budget(60.0, Method.SEARCH, iterations=50))
    helped = solve(of, OBJECTIVE, Budget(60.0, Method.SEARCH, iterations=50, farm=Refusing()))
    assert alone.value is not None
    assert helped.value is not None
    assert helped.value <= alone.value


class Refusing:
    """Workers that return nothing at all."""

    workers = 3

    def gather(
        self, call: Callable[[Any], Any], items: Sequence[Any], stop: threading.Event
    ) -> Iterator[tuple[int, Any]]:
        """Yield nothing."""
        return iter(())


def test_a_worker_returns_better_plans_alone() -> None:
    of = bursts()
    best = solve(of, OBJECTIVE, Budget(60.0, Method.CP_SAT)).timeline
    asked = Looking(of, OBJECTIVE, best, None, 1.0, 0, 0.05)
    assert look(asked) is None
    assert look(Looking(of, OBJECTIVE, None, None, 1.0, 0, 0.05)) is not None
    assert np.array_equal(asked.instance.job_release_us, of.job_release_us)


def test_a_section_with_worse_prices_than_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    of, section = bursts(), PricedSection(0, 5, 0, 5)
    poor = replace(priced_alone(of, section), bound=Fraction(2999))  # run times alone come to 3 ms in the mean
    monkeypatch.setattr(sections, "improve", lambda *_, **__: poor)
    assert price(Pricing(section.cut(of), OBJECTIVE, slot_unit_us(of), 1.0)) is None
