"""Large neighbourhood search: part of a plan is freed and CP-SAT plans it anew, while the rest stands.

Shaw, CP 1998; the choice among neighbourhoods by what they gained is that of Ropke and Pisinger, Transportation Science
40, 2006. Every repair starts from what the plan does, as a complete hint, and can only improve it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count, pairwise

import numpy as np

from models.formulations.cp_sat import Formulation, formulate_scaled, scaled_objective
from models.formulations.cp_sat_plans import add_hint
from models.formulations.scale import ScaledObjective
from models.objective import completion_us, timeline_value
from models.timeline import Timeline
from solvers.exact.cp_sat_run import SolverRun
from solvers.result import Search
from solvers.search.decoder import Decoder, encode
from solvers.search.lns_cut import Cut, cut_out
from solvers.search.lns_neighbourhoods import NEIGHBOURHOODS, Freedom, Neighbourhood
from solvers.search.lns_part import Standing


@dataclass(frozen=True, slots=True)
class Parameters:
    """How the search runs.

    Parameters
    ----------
    neighbourhoods
        What is freed in turn.
    first_size, least_size, most_size
        Free tasks of a neighbourhood: at first, and the range in which their number is adapted.
    repair_s
        Most seconds for one repair.
    decay
        Share of a neighbourhood's figure that one more try leaves.
    curiosity
        Share of the tries that go to all neighbourhoods alike.
    """

    neighbourhoods: tuple[Neighbourhood, ...] = NEIGHBOURHOODS
    first_size: int = 25
    least_size: int = 8
    most_size: int = 150
    repair_s: float = 2.0
    decay: float = 0.8
    curiosity: float = 0.3


@dataclass(slots=True)
class Record:
    """What one neighbourhood has done: its next size, tries, seconds, total gain, and its recent gain per second."""

    size: float
    tries: int = 0
    seconds: float = 0.0
    gain: float = 0.0
    rate: float = 0.0


class Repair(Search):
    """A search of a part whose plans are offered, spliced into the whole, to the search of the whole.

    Attributes
    ----------
    found
        The last plan of the whole that was offered, or None.
    """

    def __init__(self, search: Search, cut: Cut, time_limit_s: float) -> None:
        super().__init__(cut.part, search.objective, time_limit_s, stop=search.stop)
        self.outer, self.cut = search, cut
        self.timeline = cut.known()
        self.found: Timeline | None = None

    def offer(self, timeline: Timeline) -> bool:
        """Offer the whole with this timeline of its part."""
        self.found = self.cut.splice(timeline)
        return self.outer.offer(self.found)


class LargeNeighbourhoods:
    """A plan under improvement.

    Parameters
    ----------
    search
        Takes better plans.
    start
        The plan to begin with.
    seed
        Of the choices and of CP-SAT.
    workers
        Threads of CP-SAT.
    parameters
        How the search runs.

    Attributes
    ----------
    records
        Per neighbourhood.
    """

    def __init__(self, search: Search, start: Timeline, seed: int, workers: int, parameters: Parameters) -> None:
        self.search, self.workers, self.parameters = search, workers, parameters
        self.rng = random.Random(seed)  # noqa: S311
        self.records = [Record(parameters.first_size) for _ in parameters.neighbourhoods]
        self.scaled = scaled_objective(search.instance, search.objective, start)
        self.decoder = Decoder(search.instance, search.objective)
        self.margin_us = 2 * int(search.instance.load_us.max(initial=0))
        self._take(start)

    def step(self, time_limit_s: float) -> None:
        """Free one neighbourhood and plan it anew."""
        begin, before = time.monotonic(), self.value
        record = self.records[choice := self._choose()]
        freedom = self.parameters.neighbourhoods[choice](self.plan, round(record.size), self._centre(), self.rng)
        solved = self._repair(freedom, min(self.parameters.repair_s, time_limit_s))
        took = time.monotonic() - begin
        gain = float((before - self.value) / before) if before else 0.0
        record.tries, record.seconds, record.gain = record.tries + 1, record.seconds + took, record.gain + gain
        record.rate = self.parameters.decay * record.rate + (1 - self.parameters.decay) * gain / took
        if solved:
            record.size = min(record.size * 1.15, self.parameters.most_size)
        else:
            record.size = max(record.size * 0.85, self.parameters.least_size)

    def _take(self, timeline: Timeline) -> None:
        self.plan = Standing.of(self.search.instance, timeline)
        self.value: Fraction = timeline_value(self.search.objective, self.search.instance, timeline)

    def _choose(self) -> int:
        """Return a neighbourhood: one that was never tried, or one by its recent gain per second."""
        untried = [index for index, record in enumerate(self.records) if record.tries == 0]
        if untried:
            return self.rng.choice(untried)
        rates = [record.rate for record in self.records]
        if self.rng.random() < self.parameters.curiosity or not any(rates):
            return self.rng.randrange(len(rates))
        return self.rng.choices(range(len(rates)), rates)[0]

    def _centre(self) -> int:
        return self.rng.randrange(self.search.instance.n_tasks)

    def _repair(self, freedom: Freedom, time_limit_s: float) -> bool:
        """Plan some tasks anew; say whether that was carried through to the optimum of the neighbourhood."""
        cut = cut_out(self.plan, freedom.gpus, self.margin_us)
        repair = Repair(self.search, cut, time_limit_s)
        known = cut.known()
        scaled = _part_of(self.scaled, cut)
        limit = scaled.combine(scaled.terms(cut.part, completion_us(cut.part, known)))
        formulation = formulate_scaled(cut.part, scaled, limit, known, limits=cut.limits)
        cut.constrain(formulation)
        if freedom.in_order:
            _keep_order(formulation, known)
        add_hint(formulation, known)
        run = SolverRun(repair, formulation, lambda bound: None, self.workers, self.rng.randrange(2**31))
        run.follow()
        if repair.found is not None:
            self._accept(repair.found)
        return run.proved

    def _accept(self, timeline: Timeline) -> None:
        """Take a repaired plan, or what the decoder makes of it, if it is no worse."""
        decoded = self.decoder.timeline(encode(timeline))
        for candidate in (timeline, decoded):
            if candidate is None:
                continue
            value = timeline_value(self.search.objective, self.search.instance, candidate)
            if value <= self.value:
                self.search.offer(candidate)
                self._take(candidate)


def _part_of(scaled: ScaledObjective, cut: Cut) -> ScaledObjective:
    """Return what an objective counts in a part."""
    weights = [scaled.weights[job] if counts else 0 for job, counts in zip(cut.jobs, cut.counts, strict=True)]
    return replace(scaled, weights=tuple(weights))


def _keep_order(formulation: Formulation, known: Timeline) -> None:
    """Keep the order of the tasks of each GPU: s_b >= e_a for neighbours a, b."""
    v = formulation.variables
    sequence = np.lexsort((known.start_us, known.gpu)).tolist()
    for a, b in pairwise(sequence):
        if known.gpu[a] == known.gpu[b]:
            formulation.model.add(v.start[b] >= v.end[a]).with_name(f"in_order[{a},{b}]")


def improve(
    search: Search,
    seed: int = 0,
    workers: int = 2,
    time_limit_s: float | None = None,
    repairs: int | None = None,
    parameters: Parameters | None = None,
) -> list[Record]:
    """Improve the plan of a search until its time, this limit or the number of repairs is used up.

    A search without a plan is left as it is, and so is one whose restrictions (most replicas, no swaps) tie a part
    to what lies outside it.

    Parameters
    ----------
    search
        Has a plan, and takes better ones.
    seed
        Of the choices and of CP-SAT.
    workers
        Threads of CP-SAT.
    time_limit_s
        Seconds from now; None: what remains of the search.
    repairs
        Most neighbourhoods to plan anew; None: any number.
    parameters
        How the search runs; None: as measured best.

    Returns
    -------
    list of Record
        What each neighbourhood did.
    """
    begin = time.monotonic()
    limit = search.remaining_s if time_limit_s is None else min(time_limit_s, search.remaining_s)
    restrictions = search.instance.restrictions
    if search.timeline is None or restrictions.max_replicas or restrictions.no_swaps:
        return []
    state = LargeNeighbourhoods(search, search.timeline, seed, workers, parameters or Parameters())
    for _ in count() if repairs is None else range(repairs):
        left_s = min(limit - (time.monotonic() - begin), search.remaining_s)
        if left_s <= 0 or search.proved:
            break
        state.step(left_s)
    return state.records
