"""Plans and bounds of runs on several GPUs where servers come and go, against an oracle that tries all."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.gangs import draw_away, job, moldable_least, servers, window
from tests.night import by_day
from truenorth.models import Cluster, Instance, Objective, check
from truenorth.models.cluster import FOREVER, Availability, Interval
from truenorth.models.formulations.windows import METHOD as WINDOWS
from truenorth.models.torn import priced_window, torn
from truenorth.solvers import portfolio
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document
from truenorth.solvers.bounds.verify import verify
from truenorth.solvers.budget import Budget, Method
from truenorth.solvers.result import Result, Search
from truenorth.solvers.side_by_side import raise_bound


def there(cluster: Cluster, **intervals: list[Interval]) -> Cluster:
    """Return a cluster with servers, such as s1, that are there in these intervals alone."""
    gpus = (
        replace(gpu, available=Availability.of(intervals[f"s{gpu.server}"])) if f"s{gpu.server}" in intervals else gpu
        for gpu in cluster.gpus
    )
    return replace(cluster, gpus=tuple(gpus))


def drawn(seed: int, apart: bool = False) -> tuple[Instance, Objective, Fraction | None]:
    """Return a window, an objective and the value of the best plan, None without a plan."""
    rng = random.Random(seed)
    made, objective = draw_away(rng, seed % 3 == 0, apart), rng.choice(list(Objective))
    return made, objective, moldable_least(made, objective)


def _proved(made: Instance, objective: Objective, best: Fraction | None, method: Method) -> Result:
    found = portfolio.solve(made, objective, Budget(time_limit_s=60.0, method=method, workers=2))
    assert (found.status, found.value) == ("INFEASIBLE" if best is None else "OPTIMAL", best)
    if best is not None:
        assert found.lower_bound is not None
        assert best * (1 - 1e-6) <= found.lower_bound <= best
        assert found.timeline is not None
        assert check(made, found.timeline) == []
    return found


@pytest.mark.parametrize("seed", by_day(range(5, 300), 10))
def test_cp_sat_proves_what_the_oracle_finds(seed: int) -> None:
    _proved(*drawn(seed, seed % 2 == 1), Method.CP_SAT)


@pytest.mark.parametrize("seed", by_day(range(1_000, 1_200), 5))
def test_the_milp_proves_what_the_oracle_finds(seed: int) -> None:
    _proved(*drawn(seed, seed % 2 == 1), Method.MILP)


@pytest.mark.parametrize("seed", by_day(range(2_000, 2_300), 6))
def test_orders_reach_the_optimum_and_bounds_stay_below(seed: int) -> None:
    made, objective, best = drawn(seed)
    found = portfolio.solve(made, objective, Budget(3.0, Method.SEARCH, workers=1, iterations=2_000))
    assert found.value == best
    assert best is None or found.lower_bound is None or found.lower_bound <= best


@pytest.mark.parametrize("seed", by_day(range(3_000, 3_200), 6))
def test_bounds_of_formulas_and_prices_hold_and_verify(seed: int) -> None:
    made, objective, best = drawn(seed, seed % 2 == 1)
    twin = torn(made)
    for method, bound in closed_form.METHODS.items():
        value = bound(twin, objective)
        assert value is None or best is None or value <= best, method
    value, method = closed_form.best(twin, objective)
    assert verify(made, closed_form_document(made, objective, method, value)).valid
    priced = None if best is None else raise_bound(Search(priced_window(made), objective, 60.0), 0.2)
    if priced is not None:
        assert best is not None
        assert priced.bound <= best
        assert verify(made, lagrangian_document(made, objective, priced)).valid


@pytest.mark.parametrize("method", [Method.AUTO, Method.CP_SAT, Method.MILP])
@pytest.mark.parametrize("rule", ["any", "aligned"])
def test_a_run_across_servers_needs_all_of_them(method: Method, rule: str) -> None:
    # Together s0 and s1 are there in [4, 9) and from 12 on: 4 GPUs for 6 us run from 12 on, a pair of s0 before.
    on = there(servers(2, 2, rule), s0=[(0, 9), (10, FOREVER)], s1=[(4, 11), (12, FOREVER)])
    made = window(job(4, 6), job(2, 6), on=on)
    found = _proved(made, Objective.MAKESPAN, Fraction(18), method)
    assert found.timeline is not None
    assert found.timeline.start_us.tolist()[0] == 12


def test_a_window_in_which_some_run_has_no_place_is_denied_at_once() -> None:
    made = window(job(4, 6), job(1, 1), on=there(servers(2, 2), s0=[(0, 9)], s1=[(4, FOREVER)]))
    found = portfolio.solve(made, Objective.MAKESPAN, Budget(60.0))
    assert (found.status, found.denied_by) == ("INFEASIBLE", WINDOWS)
    bound = portfolio.bound(made, Objective.MAKESPAN, Budget(60.0))
    assert bound.found.denied_by == WINDOWS


def test_what_only_all_runs_together_lack_is_denied_by_both_solvers() -> None:
    # Each of three pairs for 6 us fits [0, 12) on one server, not all of them.
    made = window(job(2, 6), job(2, 6), job(2, 6), on=there(servers(1, 2), s0=[(0, 12)]))
    for method in (Method.CP_SAT, Method.MILP):
        found = portfolio.solve(made, Objective.MEAN_LATENCY, Budget(20.0, method))
        assert (found.status, found.value) == ("INFEASIBLE", None)
        assert found.confirmed_by is not None
