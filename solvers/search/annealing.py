"""Simulated annealing from dispatch rules or a known plan, until time or moves are used up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.timeline import Timeline
from truenorth.solvers.incumbents import PlanOrigin
from truenorth.solvers.result import Search
from truenorth.solvers.search.annealer import SERVING, Annealer, Parameters
from truenorth.solvers.search.bands import SEAM, BandAnnealer, Stretches
from truenorth.solvers.search.decoder import Decisions, Decoder
from truenorth.solvers.search.decoder_kernel import INFEASIBLE
from truenorth.solvers.search.dispatch import greedy_decisions
from truenorth.solvers.search.teams import MEETINGS, Exchange, Team, is_shared

LONG = 800
"""Tasks per GPU from which on a trace is annealed band by band."""

WIDE, _WIDE_TASKS, _FEW_MODELS = Parameters(tasks_per_gpu=150), 2000, 4
"""Where no GPU holds more than one part in so many of the models, tasks that share one are gathered from afar: windows
are wide there, if there are no more tasks than this."""

_OFFER_EVERY_S, _OFFER_SHARE = 0.5, 0.02
"""Plans are offered no more often than this, and take no more of the time than this share."""


def starts(decoder: Decoder, timeline: Timeline | None, enough: Callable[[], bool]) -> list[Decisions]:
    """Return the decisions to start from, best first: those of the dispatch rules and of a known plan."""
    found = greedy_decisions(decoder, enough)
    if timeline is not None:
        found.append(decoder.encode(timeline))
    return sorted(found, key=decoder.cost)


def is_long(instance: Instance, objective: Objective) -> bool:
    """Say whether a trace is annealed band by band.

    A maximum is decided by one place of the trace, and tells the others nothing; without swaps what is resident early
    decides where all that comes later may run.
    """
    apart = instance.one_at_a_time and objective.is_sum and not instance.restrictions.no_swaps
    return apart and instance.n_tasks >= LONG * instance.n_gpus


def improvements(
    instance: Instance,
    objective: Objective,
    start: Timeline | None,
    seed: int,
    iterations: int | None,
    progress: Callable[[], float],
    parameters: Parameters | None = None,
    exchange: Exchange | None = None,
) -> Iterator[Timeline]:
    """Yield ever better plans, the first from the best dispatch rule or the start.

    Parameters
    ----------
    start
        A plan to begin with, beside those of the dispatch rules; None if there is none.
    iterations
        Moves to try; None: until `progress` reaches 1. With it, equal seeds give equal plans.
    progress
        Share of the time that has passed; 1 or more ends the search, though not before its first plan.
    exchange
        Where it meets other annealings of the window, known by their seeds.
    """
    settings = parameters or usual(instance)
    decoder = _new_decoder(instance, objective, settings, start)
    if is_long(instance, objective):
        yield from _improve_along(decoder, start, seed, iterations, progress, settings, exchange)
        return
    begin = starts(decoder, start, lambda: progress() >= 1)
    if not begin or decoder.cost(begin[0]) == INFEASIBLE:
        return
    # Offered before any move is tried: whoever stops at once has at least that.
    first = decoder.timeline(begin[0])
    if first is not None:
        yield first
    annealer = Annealer(decoder, begin[0], seed, settings)
    share = annealer.cost / len(instance.jobs)
    if exchange is not None:
        # Annealings that meet must be equally hot, or the coldest would take over all plans.
        share = exchange.agree_on(share)

    def done() -> float:
        clock = progress()
        return clock if iterations is None or clock >= 1 else annealer.moves / iterations

    def temperature() -> float | None:
        passed = done()
        # Geometric, from `hot` to `cold` by the share of the time.
        return None if passed >= 1 else share * settings.hot * (settings.cold / settings.hot) ** passed

    team, leads = _join(exchange, is_shared(instance, objective, settings))
    if not leads:
        # Who follows offers nothing: its leader has the plan.
        team.follow(annealer, temperature)
        return
    offered, last_offer, meetings = annealer.best_cost, time.monotonic(), 0
    while done() < 1:
        team.sweep(annealer, temperature)
        if exchange is not None and int(done() * MEETINGS) > meetings:
            meetings = int(done() * MEETINGS)
            _meet(exchange, seed, annealer)
        # To decode a plan for an offer takes time that moves could use; with counted moves only the end counts.
        due = iterations is None and time.monotonic() - last_offer > _OFFER_EVERY_S
        if annealer.best_cost < offered and (due or done() >= 1):
            timeline = decoder.timeline(annealer.best)
            offered, last_offer = annealer.best_cost, time.monotonic()
            if timeline is not None:
                yield timeline


def usual(instance: Instance) -> Parameters:
    """Return how the annealing of an instance runs, as measured best."""
    if not instance.one_at_a_time:
        return SERVING
    return WIDE if _is_scarce(instance) and instance.n_tasks <= _WIDE_TASKS else Parameters()


def _is_scarce(instance: Instance) -> bool:
    """Say whether every GPU holds few of the models that tasks need."""
    used = {model for needs in instance.needs for model in needs}
    used_bytes = sum(int(instance.weight_bytes[model]) for model in used)
    return used_bytes >= _FEW_MODELS * max(gpu.memory_bytes for gpu in instance.class_gpu)


def _new_decoder(instance: Instance, objective: Objective, settings: Parameters, start: Timeline | None) -> Decoder:
    """Return the decoder whose plans are annealed."""
    # Where models come and go all the time, or the plan is short, how often they load counts for more than that late
    # tasks leave early loads alone.
    idle_first = is_shared(instance, objective, settings) and not _is_scarce(instance)  # never with batches
    decoder = Decoder(instance, objective, idle_first)
    if start is None or instance.one_at_a_time:
        return decoder
    # Plans of beams with batches are worth twice as much, or more, by any other rule than that of the beams.
    as_beams = Decoder(instance, objective, idle_first=True)
    costs = [of.cost(of.encode(start)) for of in (decoder, as_beams)]
    return as_beams if costs[1] < costs[0] else decoder


def _join(exchange: Exchange | None, shared: bool) -> tuple[Team, bool]:
    """Return the team of an annealing, and whether it leads it; whoever is to have a plan alone leads nobody."""
    return (Team(), True) if exchange is None or not shared else exchange.join()


def _meet(exchange: Exchange, seed: int, annealer: Annealer) -> None:
    """Show others the plan, and go on from theirs if it is better."""
    better = exchange.meet(seed, annealer.cost, annealer.decisions())
    if better is not None:
        annealer.take_over(better)


def _improve_along(
    decoder: Decoder,
    start: Timeline | None,
    seed: int,
    iterations: int | None,
    progress: Callable[[], float],
    settings: Parameters,
    exchange: Exchange | None,
) -> Iterator[Timeline]:
    """Yield ever better plans of a long trace, of which every annealing has a stretch."""

    def begin() -> Stretches | None:
        found = starts(decoder, start, lambda: progress() >= 1)
        cost = decoder.cost(found[0]) if found else INFEASIBLE
        workers = 1 if exchange is None else exchange.workers
        return None if cost == INFEASIBLE else Stretches(found[0], cost, workers, SEAM * decoder.instance.n_gpus)

    stretches = begin() if exchange is None else exchange.share_out(begin)
    if stretches is None:
        return
    yield from _news(decoder, stretches)
    stretch = stretches.take()
    if stretch is None or progress() >= 1:
        return
    annealer = BandAnnealer(decoder, stretches, stretch, seed, settings)
    # Relative to what a job costs on average, so that it means the same whatever the unit and the load.
    hot = settings.hot * stretches.cost / len(decoder.instance.jobs)

    def done() -> float:
        clock = progress()
        return clock if iterations is None or clock >= 1 else annealer.moves / iterations

    def temperature(passed: float) -> float | None:
        return None if done() >= 1 else hot * (settings.cold / settings.hot) ** passed

    passed, last_offer, took_s = done(), time.monotonic(), 0.0
    while passed < 1:
        annealer.sweep_band(temperature)
        now = min(1.0, done())
        # By the share of what was left: a slow band does not use up the time of those behind it.
        annealer.move_on((now - passed) / (1 - passed))
        passed = now
        # Offers depend on the clock, so that none is made before the end where moves are counted.
        due_s = max(_OFFER_EVERY_S, took_s / _OFFER_SHARE)
        if passed >= 1 or (iterations is None and time.monotonic() - last_offer > due_s):
            begun = time.monotonic()
            yield from _news(decoder, stretches)
            last_offer = time.monotonic()
            took_s = last_offer - begun


def _news(decoder: Decoder, stretches: Stretches) -> Iterator[Timeline]:
    """Yield the plan of a long trace as it is now, if it is better than all before."""
    plan = stretches.decisions()
    if stretches.beats(decoder.cost(plan)):
        timeline = decoder.timeline(plan)
        if timeline is not None:
            yield timeline


def improve(
    search: Search,
    seed: int = 0,
    iterations: int | None = None,
    time_limit_s: float | None = None,
    parameters: Parameters | None = None,
    exchange: Exchange | None = None,
) -> None:
    """Offer ever better plans to a search until its time, this limit, or the number of moves is used up.

    Parameters
    ----------
    search
        Takes the plans; its own plan is a start beside those of the dispatch rules.
    seed
        Of the random stream.
    iterations
        Moves to try; with it, and time enough, the result depends on the seed only.
    time_limit_s
        Seconds from now; None: what remains of the search.
    parameters
        How the annealing runs; None: as measured best.
    exchange
        Where it meets other annealings of the window; it cools by their clock then.
    """
    limit_s = search.clock.left_s if time_limit_s is None else min(time_limit_s, search.clock.left_s)
    clock = search.clock.child(limit_s, lambda: search.proved)

    def progress() -> float:
        # Several annealings share one clock, or they would cool apart; one's own limit still holds.
        return clock.passed if exchange is None else max(exchange.clock.passed, float(clock.is_set()))

    if search.timeline is not None and progress() >= 1:
        return
    origin = PlanOrigin.START
    for timeline in improvements(
        search.instance, search.objective, search.timeline, seed, iterations, progress, parameters, exchange
    ):
        search.offer(timeline, origin)
        # Only the first plan comes from the rules or from before.
        origin = PlanOrigin.SEARCH
