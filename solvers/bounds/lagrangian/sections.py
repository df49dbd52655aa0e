"""The bound of a long trace from sections of it: prices are local in time.

The jobs of a section, with some before and behind it, are priced by themselves. Then every instant, and every job,
takes the prices of the section that it lies in, and all of them together are evaluated over the whole trace: any prices
prove a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from truenorth.models.features import ONE_AT_A_TIME, Feature, missing
from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Objective
from truenorth.solvers.bounds import critical_path
from truenorth.solvers.bounds.lagrangian.evaluation import Prices, no_prices
from truenorth.solvers.bounds.lagrangian.improve import METHOD, Priced, carry_falls, improve, offer, prepare, refine
from truenorth.solvers.bounds.lagrangian.job_paths import Numbers
from truenorth.solvers.bounds.lagrangian.relaxation import Fixed, Relaxation, job_costs, relax
from truenorth.solvers.clock import Clock
from truenorth.solvers.farm import Farm, time_of_call
from truenorth.solvers.result import Search

SECTION_TASKS, LEAST_TASKS = 7_500, 1_000
"""A section has about so many tasks, fewer but no fewer than this where there are more workers than sections."""
MARGIN = 0.05
"""Jobs looked at before and behind a section, as a share of its own."""
JOIN_S_PER_TASK, LEAST_S_PER_TASK = 2e-4, 6e-4
"""What joining prices and evaluating them takes, with room; with less than the second one process prices the whole."""
HALVES = 256
"""What slots are parts of can be cut into so many, so that those of a section are parts of coarser ones, too."""
LATEST_US = np.iinfo(np.int64).max


def slot_unit_us(instance: Instance) -> int:
    """Return what the slots of a trace and of its sections are parts of: about the mean critical path."""
    return max(1, int(instance.job_critical_us.mean()) // HALVES) * HALVES


@dataclass(frozen=True, slots=True)
class PricedSection:
    """Jobs of a trace that are priced together.

    Parameters
    ----------
    first, beyond
        The jobs [first, beyond) take its prices, and so do the instants between their releases.
    begin, end
        The jobs [begin, end) are looked at.
    """

    first: int
    beyond: int
    begin: int
    end: int

    def shift_us(self, instance: Instance) -> int:
        """Return the instant at which the trace of these jobs begins: where slots of the whole trace do, too."""
        unit_us = slot_unit_us(instance)
        return int(instance.job_release_us[self.begin]) // unit_us * unit_us if self.begin else 0

    def cut(self, instance: Instance) -> Instance:
        """Return the jobs that are looked at, as a trace of their own that begins at 0."""
        jobs, shift_us = instance.jobs[self.begin : self.end], self.shift_us(instance)
        return replace(instance, jobs=tuple(replace(job, release_us=job.release_us - shift_us) for job in jobs))


@dataclass(frozen=True, slots=True)
class Pricing:
    """What is asked of whoever prices a section: plain data, so that it can be sent to another process.

    Parameters
    ----------
    unit_us
        What slots are parts of.
    """

    instance: Instance
    objective: Objective
    unit_us: int
    limit_s: float


def price(asked: Pricing, within: Clock | None = None) -> Priced | None:
    """Return the best bound of a section that the time allows, with its prices; None if no prices were as good."""
    clock = Clock(asked.limit_s) if within is None else within.child(asked.limit_s)
    search = Search(asked.instance, asked.objective, clock)
    found = improve(search, unit_us=asked.unit_us)
    # After a few long steps prices are worth less than none, and would spoil what the other sections prove.
    worthless = found is None or found.bound <= critical_path.bound(asked.instance, asked.objective)
    return None if worthless else found


_SUPPORTS = ONE_AT_A_TIME | {Feature.SHARES, Feature.MEMORY}


def has_sections(instance: Instance, objective: Objective, limit_s: float, farm: Farm | None) -> bool:
    """Say whether trace and time are long enough for sections, and prices are local in time."""
    local = objective.is_sum and not missing(instance, _SUPPORTS)
    if farm is None:
        return local and instance.n_tasks >= 2 * SECTION_TASKS and limit_s >= LEAST_S_PER_TASK * instance.n_tasks
    return local and instance.n_tasks >= 2 * LEAST_TASKS


def raise_in_sections(
    search: Search, limit_s: float, whole: Priced | None = None, farm: Farm | None = None
) -> Priced | None:
    """Price a long trace section by section, join the prices and offer the bound that they prove.

    Parameters
    ----------
    limit_s
        Seconds from now.
    whole
        Prices of the whole trace: a section that is not priced in time keeps them. None: it has none.
    farm
        Workers that price the sections, while this thread prices the whole trace; None: this thread prices them.

    Returns
    -------
    Priced or None
        The better one of `whole` and what the sections prove.
    """
    instance, objective = search.instance, search.objective
    clock = search.clock.child(limit_s - JOIN_S_PER_TASK * instance.n_tasks, lambda: search.proved)
    prepared = prepare(instance, objective)
    if prepared is None or clock.is_set():
        return whole
    sections = _sections_of(instance, 1 if farm is None else farm.workers)
    if farm is None:
        priced = _price_here(search, sections, clock)
    else:
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(_price_elsewhere, instance, objective, sections, farm, clock)
            found = improve(search, clock.left_s, unit_us=slot_unit_us(instance))
            priced = elsewhere.result()
        if found is not None and (whole is None or found.bound > whole.bound):
            whole = found
    if not priced or search.clock.is_stopped:
        return whole
    with search.giving_way(METHOD):
        return offer(search, *join(prepared[0], objective, priced, whole), whole)
    return whole


def _price_here(search: Search, sections: list[PricedSection], clock: Clock) -> dict[PricedSection, Priced]:
    """Return the prices of sections, made one after the other as far as time allows."""
    instance, priced = search.instance, dict[PricedSection, Priced]()
    for done, section in enumerate(sections):
        if not clock.is_set():
            each_s = clock.left_s / (len(sections) - done)
            asked = Pricing(section.cut(instance), search.objective, slot_unit_us(instance), each_s)
            part = price(asked, search.clock)
            if part is not None:
                priced[section] = part
    return priced


def _price_elsewhere(
    instance: Instance, objective: Objective, sections: list[PricedSection], farm: Farm, clock: Clock
) -> dict[PricedSection, Priced]:
    """Return the prices of sections that workers make at the same time; those of lost ones are missing."""
    unit_us, rounds = slot_unit_us(instance), -(-len(sections) // farm.workers)
    each_s = time_of_call(clock.left_s) / rounds
    asked = [Pricing(section.cut(instance), objective, unit_us, each_s) for section in sections]
    return {sections[index]: part for index, part in farm.gather(price, asked, clock)}


def _sections_of(instance: Instance, workers: int) -> list[PricedSection]:
    """Return the sections of a trace, enough for all workers if it is long enough."""
    jobs, tasks = len(instance.jobs), instance.n_tasks
    count = min(jobs, max(tasks // SECTION_TASKS, min(workers, tasks // LEAST_TASKS), 1))
    margin = int(MARGIN * jobs / count)
    edges = [jobs * part // count for part in range(count + 1)]
    return [PricedSection(a, b, max(0, a - margin), min(jobs, b + margin)) for a, b in pairwise(edges)]


def join(
    fixed: Fixed, objective: Objective, priced: Mapping[PricedSection, Priced], whole: Priced | None
) -> tuple[Relaxation, Numbers]:
    """Return the relaxation of the whole trace with the prices of its sections; elsewhere those of the whole, or none.

    Parameters
    ----------
    priced
        Prices of some of its sections.
    whole
        Prices of the whole trace, if there are any.
    """
    places = [_Place.of(fixed, section, part, objective) for section, part in priced.items()]
    known = [] if whole is None else [whole.relaxation]
    windows_us = np.zeros(len(fixed.costs.jobs), np.int64) if whole is None else _windows_us(whole.relaxation)
    for place in places:
        windows_us[place.jobs.start : place.jobs.stop] = place.windows_us
    slot_us = min(relaxation.slot_us for relaxation in (*known, *(part.relaxation for part in priced.values())))
    joined = relax(fixed, slot_us, windows_us)
    flat = no_prices(joined) if whole is None else refine(_flat(whole.prices), whole.relaxation, joined)
    prices = Prices.split(flat, joined)
    for place in places:
        place.write(prices, joined)
    return joined, flat


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the prices of a section go in those of the whole trace.

    Parameters
    ----------
    jobs, first
        The counted jobs of its core, in the whole trace; which the first of them is in the section.
    begin_us, end_us, shift_us
        The instants of its core, and the one at which its own time begins.
    worth
        What a cost in the section is worth in the whole trace.
    """

    part: Priced
    jobs: range
    first: int
    begin_us: int
    end_us: int
    shift_us: int
    worth: float

    @classmethod
    def of(cls, fixed: Fixed, section: PricedSection, part: Priced, objective: Objective) -> _Place:
        """Return the place of a section."""
        instance, counted, trace = fixed.instance, fixed.costs.jobs, section.cut(fixed.instance)
        costs = job_costs(trace, objective)
        if costs is None:
            raise ValueError(f"{objective} does not add up over jobs")
        first, beyond, begin = np.searchsorted(counted, (section.first, section.beyond, section.begin)).tolist()
        release_us = instance.job_release_us
        return cls(
            part,
            range(first, beyond),
            first - begin,
            int(release_us[section.first]) if section.first else 0,
            int(release_us[section.beyond]) if section.beyond < len(instance.jobs) else LATEST_US,
            section.shift_us(instance),
            float(fixed.costs.weight[first] / costs.weight[first - begin]) if beyond > first else 1.0,
        )

    @property
    def windows_us(self) -> Ints:
        """The windows of the jobs of the core."""
        return _windows_us(self.part.relaxation)[self.first : self.first + len(self.jobs)]

    def write(self, joined: Prices, whole: Relaxation) -> None:
        """Write the prices of the core."""
        section, prices = self.part.relaxation, self.part.prices
        rescale = self.worth * whole.scale / section.scale
        start_us = np.arange(whole.slots, dtype=np.int64) * whole.slot_us
        slot = (start_us - self.shift_us) // section.slot_us
        # Behind its last slot nothing of a section has a price.
        here, told = (start_us >= self.begin_us) & (start_us < self.end_us), slot < section.slots
        row = {(use.model, use.gpu_class): prices.uses[index] for index, use in enumerate(section.uses)}
        uses = [row.get((use.model, use.gpu_class)) for use in whole.uses]
        for before, after in (
            *zip(prices.compute, joined.compute, strict=True),
            *zip(prices.copy, joined.copy, strict=True),
            *zip(prices.memory, joined.memory, strict=True),
            *zip(uses, joined.uses, strict=True),
        ):
            after[here] = 0
            if before is not None:
                after[here & told] = before[slot[here & told]] * rescale
        carry_falls(prices, section, joined, whole, self.jobs, self.first, rescale)


def _windows_us(relaxation: Relaxation) -> Ints:
    """Return the windows that a relaxation was made with."""
    return np.asarray((relaxation.data.delays - 2) * relaxation.slot_us, np.int64)


def _flat(prices: Prices) -> Numbers:
    """Return all prices as one long array."""
    parts = (prices.compute, prices.copy, prices.memory, prices.uses, prices.extra, prices.parts)
    return np.concatenate([part.ravel() for part in parts]).astype(float)
