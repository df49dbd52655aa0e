"""Large neighbourhoods: parts are cut and spliced without a scar, and their repairs reach known optima."""

from __future__ import annotations

import random

import pytest

from models import Instance, Objective, check, timeline_value
from solvers.dispatch import greedy
from solvers.lns import Parameters, improve
from solvers.lns_cut import Cut, Standing, cut_out
from solvers.lns_neighbourhoods import NEIGHBOURHOODS
from solvers.result import Search
from tests.instances import random_instance


def cuts(of: Instance, size: int, margin_us: int, seed: int) -> list[Cut]:
    """Return a part per neighbourhood around a random task of a dispatched plan."""
    rng = random.Random(seed)  # noqa: S311
    timeline = greedy(of, Objective.MEAN_LATENCY)
    if timeline is None:
        return []
    plan = Standing.of(of, timeline)
    freedoms = [free(plan, size, rng.randrange(of.n_tasks), rng) for free in NEIGHBOURHOODS]
    return [cut_out(plan, freedom.gpus, margin_us) for freedom in freedoms]


@pytest.mark.parametrize("seed", range(60))
def test_what_the_plan_does_in_a_part_fits_back_into_it(seed: int) -> None:
    of = random_instance(random.Random(seed), 8)  # noqa: S311
    for cut in cuts(of, 2, seed % 3, seed):
        assert check(cut.part, cut.known()) == []
        spliced = cut.splice(cut.known())
        assert check(of, spliced) == []
        assert (spliced.start_us == cut.plan.timeline.start_us).all()


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(6))
def test_repairs_are_feasible_and_never_worse(seed: int, objective: Objective) -> None:
    of = random_instance(random.Random(300 + seed), 9)  # noqa: S311
    timeline = greedy(of, objective)
    if timeline is None:
        return
    search = Search(of, objective, 60.0)
    search.offer(timeline)
    improve(search, seed, 1, repairs=8, parameters=Parameters(first_size=2, least_size=2, most_size=4))
    assert search.value is not None
    assert search.value <= timeline_value(objective, of, timeline)
