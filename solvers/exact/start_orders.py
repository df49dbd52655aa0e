"""Proofs by a dynamic programme over start orders, for windows on GPUs of one kind.

Every plan starts its tasks in some order. In that order, each task on its GPU as early as those before it allow, no job
completes later, so the best order with the best placement costs no more than any plan. States are what is known after
the first starts; one is left out if another one with the same tasks is as early in everything, or if it cannot cost
less than the best plan known, by the prices of the Lagrangian. Three relaxations follow one another: a pool of GPUs
without transfers and loads, then with transfers, then with loads. What states of one still cost at least is the bound
of the states of the next, so that it has few left to look at (successive sublimation: Ibaraki and Nakamura, European
Journal of Operational Research 76, 1994; Tanaka, Fujikuma, Araki, Journal of Scheduling 12, 2009). The last one leaves
out nothing but the limits of memory, what they evict, and the order of loads: what it proves is a bound, and the order
it finds, decoded, nearly always a plan of that value.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorth.models.features import ONE_AT_A_TIME, missing
from truenorth.models.formulations.allowance import UNLIMITED, GivenUpError
from truenorth.models.formulations.windows import completion_lower_us
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.objective import Objective, Term, charges
from truenorth.solvers.exact.start_orders_kernel import dominate, expand
from truenorth.solvers.exact.start_orders_records import OrderTables, RelaxedStates, StateGrowth, States
from truenorth.solvers.exact.start_orders_tables import FAR, ComputeRate, tabulate
from truenorth.solvers.result import Search
from truenorth.solvers.rounding import round_up
from truenorth.solvers.search.decoder import Decisions, Decoder

METHOD = "start-orders"
"""Name of the bounds that this programme proves; `solvers.exact.certify_parts` writes their certificates."""

MOST_MODELS = 60
MOST_STATES = 400_000
"""A relaxation with more states than this, in all steps together, is given up."""
_FEW_STATES = 500
"""States per step when only plans are looked for."""
_AT_ONCE = 50_000
"""States that are written before any are left out; fewer where so many do not fit into memory."""
_COPIES = 4
"""Of each state there are so many at most: as written, gathered, chosen, and in the guide of the next relaxation."""
_PLANS = 10
"""So many of the best orders are decoded."""
_SURE = Fraction(1, 2_000_000)
"""Plans that are better by less than this share are not looked for."""


class OrderGuide:
    """What the states of a relaxation still cost.

    Parameters
    ----------
    steps
        After every start: states, sorted by key, and what each costs at least on top of its cost.
    apart_us
        How long outputs are under way in it, per task.
    """

    def __init__(self, steps: list[tuple[States, Ints]], apart_us: Ints) -> None:
        self.steps, self.apart_us = steps, apart_us


SUPPORTS = ONE_AT_A_TIME


def applies(instance: Instance, objective: Objective) -> bool:
    """Say whether an instance has GPUs of one kind, always there, and a cost that grows with every completion."""
    if len(instance.class_gpu) > 1 or len(instance.models) > MOST_MODELS:
        return False
    charged = charges(objective, instance)
    if not charged.is_sum or missing(instance, SUPPORTS):
        return False
    # A job that is late whatever the plan costs nothing more by being later still.
    return charged.term is not Term.LATE and bool((charged.due_us <= completion_lower_us(instance)).all())


def improve(search: Search, rate: ComputeRate, limit_s: float, most_states: int = MOST_STATES) -> None:
    """Improve a search's bound, and its plan, until they meet, time is up, or there are too many states.

    Parameters
    ----------
    rate
        Price of compute of the Lagrangian: the better it is, the fewer states.
    limit_s
        Seconds from now.
    most_states
        A relaxation with more states than this, in all steps together, is given up.
    """
    with search.giving_way(METHOD):
        _improve(search, rate, limit_s, most_states)


def _improve(search: Search, rate: ComputeRate, limit_s: float, most_states: int) -> None:
    """Run one relaxation after the other, as `improve` does.

    Raises
    ------
    GivenUpError
        If memory or time are short for the tables, or for a few states.
    """
    tables = tabulate(search.instance, search.objective, rate, search.allowance)
    if tables is None or search.value is None:
        return
    programme, guide = Programme(search, rate.scale, limit_s, most_states), None
    for relaxed in (tables.in_pool(), tables.with_transfers(), tables):
        value = None
        while value != search.value:  # a better plan leaves fewer states
            value = search.value
            if guide is not None:
                programme.look_for_plans(relaxed, guide)
            found = programme.prove(relaxed, guide)
            if found is None or search.proved:
                return
        guide = found


class Programme:
    """Runs the steps of a relaxation, and offers what they find to a search.

    Parameters
    ----------
    scale
        Costs are counted in 1 / scale of the objective.
    limit_s, most_states
        Seconds from now, and states of a relaxation, after which one is given up.
    """

    def __init__(self, search: Search, scale: Fraction, limit_s: float, most_states: int = MOST_STATES) -> None:
        self.search, self.scale, self.most_states = search, scale, most_states
        self._clock = search.clock.child(limit_s)
        self._decoder = Decoder(search.instance, search.objective)

    def look_for_plans(self, tables: OrderTables, guide: OrderGuide) -> None:
        """Offer plans from the few most promising states of every step."""
        steps: list[States] = []
        for states, _ in self._steps(tables._replace(active=True), guide, self._limit(), _FEW_STATES):
            steps.append(states)
        self._offer_plans(steps)

    def prove(self, tables: OrderTables, guide: OrderGuide | None) -> OrderGuide | None:
        """Offer the optimum of a relaxation and its plans; return what its states cost, None if it was given up."""
        limit, steps, links, count = self._limit(), list[States](), list[_Links](), 0
        most = min(self.most_states, _most_in_memory(tables))
        for states, link in self._steps(tables, guide, limit, None):
            steps.append(states)
            links.append(link)
            count += len(states.cost)
            if count > most:
                return None
        if len(steps) < len(tables.run_us):
            return None
        least = int(steps[-1].cost.min(initial=limit + 1))
        bound = round_up(self.search.instance, self.search.objective, least / self.scale)
        self.search.offer_bound(bound, METHOD)
        self._offer_plans(steps)
        return OrderGuide(_costs_to_go(steps, links, limit), tables.apart_us)

    def _limit(self) -> int:
        """Return a cost that only plans of interest stay within."""
        return floor(0 if self.search.value is None else self.search.value * self.scale * (1 - _SURE))

    def _steps(
        self, tables: OrderTables, guide: OrderGuide | None, limit: int, width: int | None
    ) -> Iterator[tuple[States, _Links]]:
        """Yield the states after every start, and whose they are; end early once time is up, or memory.

        Parameters
        ----------
        limit
            States that cost more are left out.
        width
            So many states of a step at most, those of the lowest bounds; None: all.

        Raises
        ------
        GivenUpError
            If memory is short for what comes after one state.
        """
        at_once, states = _states_at_once(tables), _origin(tables)
        none, ready = _empty(tables, 0), np.empty(len(tables.run_us), np.int64)
        start_us = np.empty((len(ready), tables.gpus), np.int64)
        for step in range(len(tables.run_us)):
            ahead, to_go = (none, none.cost) if guide is None else guide.steps[step]
            apart_us = tables.apart_us if guide is None else guide.apart_us
            parts, first, left = [none], 0, _most_in_memory(tables)
            while first < len(states.cost):
                if self._clock.is_set() or left < 0:
                    return
                out = _empty(tables, at_once)
                relaxed = RelaxedStates(guide is not None, ahead, to_go, apart_us)
                count, first = expand(StateGrowth(tables, states, out, limit), relaxed, first, ready, start_us)
                parts.append(out.rows(slice(count)))
                left -= count
            all_states = States._make(map(np.concatenate, zip(*parts, strict=True)))
            instead = np.arange(len(all_states.cost))
            dominate(tables, all_states, np.lexsort((all_states.begun_us, all_states.cost, all_states.key)), instead)
            kept = instead == np.arange(len(instead))
            link = _Links(all_states.parent, all_states.cost, (np.cumsum(kept) - 1)[instead])
            chosen = np.flatnonzero(kept)
            if width is not None and len(chosen) > width:
                chosen = chosen[np.argpartition(all_states.bound[chosen], width)[:width]]
            states = all_states.rows(chosen)
            yield states, link

    def _offer_plans(self, steps: list[States]) -> None:
        """Offer the plans that the best orders of all tasks decode to."""
        if len(steps) < self.search.instance.n_tasks:
            return
        for at in np.argsort(steps[-1].cost)[:_PLANS].tolist():
            order, gpu = np.empty((2, len(steps)), np.int64)
            for step in range(len(steps) - 1, -1, -1):
                states = steps[step]
                order[step] = states.task[at]
                gpu[states.task[at]] = states.gpu[at]
                at = int(states.parent[at])
            timeline = self._decoder.timeline(Decisions(order, gpu))
            if timeline is not None:
                self.search.offer(timeline)


class _Links(NamedTuple):
    """Which states of a step came from which of the step before, at what cost, and as which they were kept."""

    parent: Ints
    cost: Ints
    kept: Ints


def _costs_to_go(steps: list[States], links: list[_Links], limit: int) -> list[tuple[States, Ints]]:
    """Return the states on a way to costs within the limit, sorted by key, and what each costs at least from there."""
    to_go, guides = np.zeros(len(steps[-1].cost), np.int64), []
    for step in range(len(steps) - 1, -1, -1):
        states, link = steps[step], links[step]
        within = np.flatnonzero(states.cost + to_go <= limit)
        within = within[np.argsort(states.key[within], kind="stable")]
        guides.append((states.rows(within), to_go[within]))
        before = steps[step - 1].cost if step else np.zeros(1, np.int64)
        costs = link.cost - before[link.parent] + to_go[link.kept]
        to_go = limit + 1 - before
        np.minimum.at(to_go, link.parent, costs)
    return guides[::-1]


def _most_in_memory(tables: OrderTables) -> int:
    """Return how many states fit into memory."""
    return UNLIMITED.most(_COPIES * sum(column.nbytes for column in _empty(tables, 1)))


def _states_at_once(tables: OrderTables) -> int:
    """Return how many states are written before any are left out: no fewer than may come after one.

    Raises
    ------
    GivenUpError
        If memory is short for these.
    """
    fewest, most = tables.gpus * len(tables.run_us), _most_in_memory(tables)
    if fewest > most:
        raise GivenUpError(f"{fewest} states do not fit into memory, which has room for {most}")
    return max(fewest, min(_AT_ONCE, most))


def _origin(tables: OrderTables) -> States:
    """Return the state before any start."""
    states = _empty(tables, 1)
    states.stage[0], states.name[0], states.sent[0] = tables.first_stage, np.arange(tables.gpus), NONE
    return states


def _empty(tables: OrderTables, count: int) -> States:
    """Return room for so many states, filled with 0."""
    # A GPU runs one task; more outputs may be under way if runs are shorter than that takes, but each only once.
    shortest_us = int(tables.run_us[tables.tail_us > 0].min(initial=FAR))
    room = min(len(tables.run_us), tables.gpus * (2 + int(tables.apart_us.max()) // shortest_us) + 1)
    jobs, gpus = len(tables.weight), tables.gpus
    widths = (jobs, jobs, gpus, gpus, gpus, gpus, room, room, room)
    columns: list[NDArray[Any]] = [np.zeros((count, width), np.int64) for width in widths]
    numbers = ["cost", "begun_us", "now_us", "bound", "key", "parent", "task", "gpu"]
    columns += [np.zeros(count, np.uint64 if name == "key" else np.int64) for name in numbers]
    return States._make(columns)
