"""Annealing: what it finds on instances with known optima, that it repeats itself, and that it keeps its limits."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from experiments import authors
from tests.instances import chain, cluster, instance, random_instance, task
from truenorth.models import Instance, Job, Objective, Restrictions, check, timeline_value
from truenorth.solvers.clock import Clock
from truenorth.solvers.exact.exhaustive import solve
from truenorth.solvers.result import Search
from truenorth.solvers.search.annealer import Annealer, Parameters
from truenorth.solvers.search.annealing import improve, starts
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.decoder_kernel import look_ahead
from truenorth.solvers.search.decoder_state import FAR
from truenorth.solvers.search.dispatch import greedy
from truenorth.solvers.search.neighbourhood import AS_LONG, MOVES, REST, STRETCHES
from truenorth.solvers.search.retiming import Window


def annealed(of: Instance, objective: Objective, moves: int, seed: int = 0) -> Search:
    search = Search(of, objective, 600.0)
    improve(search, seed, moves)
    return search


def test_equal_seeds_give_equal_plans() -> None:
    of = authors.instance(authors.poisson(4, 40, 3))
    first, second, other = (annealed(of, Objective.MEAN_SLOWDOWN, 5000, seed) for seed in (1, 1, 2))
    assert first.timeline is not None
    assert second.timeline is not None
    assert (first.timeline.start_us == second.timeline.start_us).all()
    assert first.timeline.residencies == second.timeline.residencies
    assert first.value != other.value


def test_two_machines_share_the_work_evenly() -> None:
    # 1 + 2 + ... + 8 = 36, and 18 = 8 + 7 + 3 is possible on each of two machines.
    jobs = [Job(chain(task("t", runtime), name=f"w{runtime}"), 0) for runtime in range(1, 9)]
    assert annealed(instance(jobs, on=cluster(2)), Objective.MAKESPAN, 3000).value == 18


def test_a_warm_model_is_worth_waiting_for() -> None:
    # m is on GPU 0 after its load [0, 5). Three runs of 1 us one after the other end at 6, 7, 8 (mean 7); loading it
    # on GPU 1 as well gives 6, 6, 7: mean 19/3.
    jobs = [Job(chain(task("t", 1, ["m"])), 0) for _ in range(3)]
    assert annealed(instance(jobs, {"m": 5}, cluster(2)), Objective.MEAN_LATENCY, 2000).value == Fraction(19, 3)


def test_never_worse_than_its_start() -> None:
    of = authors.instance(authors.poisson(3, 30, 5))
    good = annealed(of, Objective.MEAN_SLOWDOWN, 30_000)
    assert good.timeline is not None
    search = Search(of, Objective.MEAN_SLOWDOWN, 60.0)
    search.offer(good.timeline)
    improve(search, 7, 100)
    assert search.value is not None
    assert good.value is not None
    assert search.value <= good.value


def test_windows_of_a_long_trace_improve_on_dispatch() -> None:
    # 300 jobs are some 1,100 tasks: a dozen windows per sweep. Dispatch rules leave a tenth or more.
    of = authors.instance(authors.poisson(3, 300, 2))
    rule = greedy(of, Objective.MEAN_SLOWDOWN)
    assert rule is not None
    value = annealed(of, Objective.MEAN_SLOWDOWN, 60_000).value
    assert value is not None
    assert value < Fraction(97, 100) * timeline_value(Objective.MEAN_SLOWDOWN, of, rule)


def test_cost_of_the_best_decisions_is_exact() -> None:
    # What a sweep of windows believes its best plan to cost is what decoding that plan from scratch costs.
    decoder = Decoder(authors.instance(authors.poisson(4, 150, 8)), Objective.MEAN_SLOWDOWN)
    annealer = Annealer(decoder, starts(decoder, None, lambda: False)[0], 0, Parameters())
    share = annealer.cost / 150
    for _ in range(2):
        annealer.sweep(lambda: 0.02 * share)
        assert decoder.cost(annealer.best) == pytest.approx(annealer.best_cost, rel=1e-12)


class Checked(Annealer):
    """Annealing whose windows cost what decoding them anew says."""

    windows = 0

    def _anneal(self, window: Window, temperature: float, moves: int) -> tuple[float, float, float]:
        before, after, whole = super()._anneal(window, temperature, moves)
        assert whole == pytest.approx(self._cost(), rel=1e-9, abs=1e-9)
        self._origin.upcoming[:] = FAR
        look_ahead(self.decoder.tables, self._origin, self._work, None, window.last, len(self._plan.order))
        assert after == pytest.approx(self._evaluate(self._origin, self._before, window), rel=1e-9, abs=1e-9)
        self.windows += 1
        return before, after, whole


@pytest.mark.parametrize("objective", list(Objective))
def test_timing_again_what_changes_is_timing_again_everything(objective: Objective) -> None:
    # Windows inside a plan whose memory is scarce, then tiny instances with tasks of several models.
    rng = random.Random(objective.value)
    plans = [authors.instance(authors.poisson(4, 60, 2))] * 2
    plans += [random_instance(rng, 6) for _ in range(20)]
    for number, of in enumerate(plans):
        decoder = Decoder(of, objective, idle_first=number % 2 == 1)
        annealer = Checked(decoder, starts(decoder, None, lambda: False)[0], 0, Parameters(tasks_per_gpu=8))
        share = max(annealer.cost, 1.0) / len(of.jobs)
        annealer.sweep(partial(float, 0.1 * share))
        annealer.sweep(partial(float, 0.01 * share))
        assert annealer.windows > 1


@pytest.mark.parametrize("kind", [STRETCHES, AS_LONG, REST])
def test_exchanges_of_stretches_bring_jobs_together(kind: int) -> None:
    # Two jobs of 4 and 6 us, whose second tasks each wait 10 us for what the other GPU made: all ends at 4 + 10 + 6.
    # One exchange of two stretches that begin together and take as long brings each job to one GPU: 4 + 6 = 10.
    jobs = [Job(chain(task("a", 4), task("b", 6, after={"a": 9}), name=f"j{at}"), 0) for at in range(2)]
    decoder = Decoder(instance(jobs, on=cluster(2)), Objective.MAKESPAN)
    crossed = Decisions(np.array([0, 2, 1, 3]), np.array([0, 1, 1, 0]))
    chances = tuple(float(at == kind) for at in range(len(MOVES)))
    annealer = Annealer(decoder, crossed, 0, Parameters(chances=chances))
    begun = annealer.best
    annealer.sweep(lambda: 1e-9)
    ends = [timeline.end_us.max() for timeline in map(decoder.timeline, (begun, annealer.best)) if timeline is not None]
    assert ends == [20, 10]
    assert annealer.counts[kind, 2] == annealer.counts[:, 2].sum() == 1


@pytest.mark.parametrize("objective", list(Objective))
def test_close_to_the_optimum_of_tiny_instances(objective: Objective) -> None:
    # The decoder cannot say everything (loads out of the order of need), so a few optima may stay out of reach.
    rng = random.Random(objective.value)
    optimal = 0
    for _ in range(15):
        of = random_instance(rng, 4)
        best = solve(of, objective).value
        found = annealed(of, objective, 1500)
        assert found.timeline is not None
        assert best is not None
        assert found.value is not None
        assert check(of, found.timeline) == []
        assert found.value >= best
        optimal += found.value == best
    assert optimal >= 13


def test_restricted_instances_get_plans() -> None:
    rng = random.Random("restricted")
    missed = 0
    for _ in range(150):
        of = random_instance(rng, 5, restricted=True)
        timeline = greedy(of, Objective.MEAN_LATENCY)
        if timeline is None:
            missed += solve(of, Objective.MEAN_LATENCY).timeline is not None
        else:
            assert check(of, timeline) == []
    assert missed <= 2


def test_no_swaps_settles_models_where_all_fit() -> None:
    # 6 + 4 fill one GPU, 5 + 5 the other; any other split leaves a model without a place.
    jobs = [Job(chain(task("t", 1, [name]), name=name), 0) for name in "abcd"]
    of = instance(jobs, {"a": 6, "b": 5, "c": 4, "d": 5}, cluster(2), restrictions=Restrictions(no_swaps=True))
    timeline = greedy(of, Objective.MEAN_LATENCY)
    assert timeline is not None
    assert check(of, timeline) == []


def test_limits_and_stops_are_kept() -> None:
    of = authors.instance(authors.poisson(4, 100, 1))
    looks = itertools.count()
    # Each look at the clock takes 10 ms.
    search = Search(of, Objective.MEAN_SLOWDOWN, Clock(60.0, tell=lambda: next(looks) * 0.01))
    improve(search, time_limit_s=0.3)
    assert search.timeline is not None
    assert 0.3 <= search.clock.elapsed_s < 1
    stopped = Search(of, Objective.MEAN_SLOWDOWN, Clock(60.0))
    stopped.clock.set()
    improve(stopped)
    assert stopped.timeline is not None
