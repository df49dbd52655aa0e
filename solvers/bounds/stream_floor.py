"""How many GPUs requests of streams need at the least for a level: what must run inside some time has to fit there.

A level gives jobs a due time and lets so many of them be late; a second one may hold for all. Windows of time are
searched for the one that asks for the most GPUs: any window holds, so that those looked at need not be all.
More: `docs/how_it_works.md`, requests of streams.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from truenorth.models.cluster import GPU
from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.stream_tables import longest_on
from truenorth.models.streams import StreamSpeed
from truenorth.models.timeline import TokenTimes
from truenorth.solvers.bounds import stream_costs
from truenorth.solvers.bounds.fluid import INSIDE_EDGES, Demand
from truenorth.solvers.bounds.least_computed import least_computed
from truenorth.solvers.bounds.proof import thinned
from truenorth.solvers.bounds.stream_costs import ChargedRequests, Floats

NO_DUE = 2**62
"""The due time of a job without one."""
_FINE = 1024
"""Charges are whole numbers of this part of a microsecond, rounded down, unless their sum would not fit 64 bits."""
WAYS = ("energy", "energy with KV", "seats", "KV")
"""What requests are charged for."""
_TURNS, _STEEPEST = 40, 1000
"""How often weights of groups are changed, and how much more one may weigh than another."""
_CLOSE = 1 + 1e-6
"""What offers so many times what is asked is not compared in exact numbers."""
_GRID, _ROUNDS = 24, 3
"""Beginnings, and ends, of windows that are tried at once, and how often the grid is laid closer around the best."""


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """What a level asks: so many of its jobs at most are late, and those not later than `surely_us`.

    Parameters
    ----------
    due_us, surely_us
        Per job: when it is due, and when even a late one is; NO_DUE where it is not. Shape [jobs].
    late
        Jobs that may be late.
    first_token
        Whether the job's first token is due then, and not its end.
    step_us
        Per job: the most that a token after the first takes each of its requests on average, infinite where nothing is
        asked; late jobs may take longer. None: nowhere is anything asked. Shape [jobs].
    """

    due_us: Ints
    surely_us: Ints
    late: int
    first_token: bool = False
    step_us: Floats | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """What every number of GPUs that meets a limit satisfies: the sum of `weights` times their counts is >= `least`.

    Parameters
    ----------
    weights
        Of each group of GPUs.
    way
        Which of the requests' costs it is about.
    begin_us, end_us
        The window; in it `least` x (end - begin) weighted microseconds of a GPU have to fit.
    """

    weights: tuple[Fraction, ...]
    least: Fraction
    way: str
    begin_us: int
    end_us: int

    def fullness(self, gpus: Sequence[int]) -> float:
        """Return what is needed of so many GPUs of each group, as a share of what they are."""
        there = float(sum((each * count for each, count in zip(self.weights, gpus, strict=True)), Fraction(0)))
        return float(self.least) / there

    def refutes(self, gpus: Sequence[int]) -> bool:
        """Say whether so many GPUs of each group are too few."""
        # Of thousands of fleets most are far from it: exact numbers are for those that are close.
        roughly = sum(float(each) * count for each, count in zip(self.weights, gpus, strict=True))
        if roughly > _CLOSE * float(self.least):
            return False
        return sum((each * count for each, count in zip(self.weights, gpus, strict=True)), Fraction(0)) < self.least


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """The requests that have to be served for a limit, job by job.

    Parameters
    ----------
    earliest_us, tail_us
        When each can start at the earliest, and how long it takes from its end to what is due at the least.
    """

    task: Ints
    job: Ints
    uncached: Ints
    decodes: Ints
    earliest_us: Ints
    tail_us: Ints


@dataclass(frozen=True, slots=True, eq=False)
class RequestDemands:
    """What requests of jobs in time cost a GPU at the least, and from when to when each has to be served, job by job.

    Parameters
    ----------
    late
        So many jobs may be late.
    charges
        Way by way, parts of a microsecond as `_FINE` says.
    """

    job: Ints
    earliest_us: Ints
    latest_us: Ints
    charges: tuple[Ints, ...]
    late: int

    def least_gpus_within(self, begin_us: int, end_us: int) -> tuple[int, Demand | None]:
        """Return how many GPUs an interval cannot do without, and the demand that says so."""
        worst: tuple[int, Demand | None] = (0, None)
        for demand in self.within(begin_us, end_us):
            if demand.late(worst[0]) > self.late:
                worst = demand.gpus(self.late), demand
        return worst

    def within(self, begin_us: int, end_us: int) -> list[Demand]:
        """Return what the requests that have to be served inside [begin, end) demand of windows in it.

        Invariant: however many GPUs are there in a window, on average, as many jobs are late as its demand says.
        Because: a request in time is served inside whole, and costs whatever GPU serves it what is charged or more; a
        late job saves no more than its own charges. Jobs of other intervals are not counted, so that late ones add up.
        Cost: O(n log n) for each of some hundred windows.
        If wrong: a floor above what is enough.
        """
        held = np.flatnonzero((self.earliest_us >= begin_us) & (self.latest_us <= min(end_us, NO_DUE - 1)))
        ends = thinned(np.unique(self.latest_us[held]).tolist(), INSIDE_EDGES)
        found = []
        for begin in thinned(np.unique(self.earliest_us[held]).tolist(), INSIDE_EDGES):
            for end in (end for end in ends if end > begin):
                inside = held[(self.earliest_us[held] >= begin) & (self.latest_us[held] <= end)]
                if not len(inside):
                    continue
                first = np.flatnonzero(np.diff(self.job[inside], prepend=-1))
                rate = Fraction((end - begin) * _FINE)
                for charge in self.charges:
                    amount = -np.sort(-np.add.reduceat(charge[inside], first))
                    found.append(Demand(begin, end, "compute", (), amount, None, rate, _FINE))
        return found


class StreamFloor:
    """Bounds the number of GPUs of one instance, whatever the limits asked about.

    Parameters
    ----------
    gpus
        One GPU of each group that there may be.
    allowed
        Whether restrictions let tasks run on a group; None: everywhere. Shape [templates, groups].
    cut
        Whether requests may be cut as their GPU goes. The last run of a request costs no less than any, but for one
        whose KV came in: that computes its prompt then, which gives the first token in place of a decode.
    """

    def __init__(
        self, instance: Instance, gpus: Sequence[GPU], allowed: NDArray[np.bool_] | None = None, cut: bool = False
    ) -> None:
        instance = least_computed(instance)
        if instance.streams is None:
            raise ValueError("the instance has no requests of streams")
        self._instance, self._streams, self._gpus = instance, instance.streams, gpus
        # Whose first token is no decode.
        self._prefilled = (self._streams.uncached > 0) | cut
        templates = len(instance.streams.template)
        self._allowed = np.ones((templates, len(gpus)), np.bool_) if allowed is None else allowed
        self._stream: Ints = instance.streams.template[instance.task_template]
        weights = {model.name: model.weight_bytes for model in instance.models}
        self._speeds = [[stream.speed_on(gpu.kind) for gpu in gpus] for stream in instance.streams.classes]
        self._room = [
            [longest_on(stream, speed, gpu, weights) for speed, gpu in zip(row, gpus, strict=True)]
            for stream, row in zip(instance.streams.classes, self._speeds, strict=True)
        ]
        self._decodes = np.where(self._prefilled, self._streams.output - 1, self._streams.output)
        self._steps = self._answered()
        self._ends, self._firsts = self._calls(first_token=False), self._calls(first_token=True)

    def shortest_us(self, first_token: bool) -> Ints:
        """Return per job how long it takes at the least from its release to its end, or to its first token.

        Invariant: no number of GPUs makes it shorter; NONE for jobs without requests. Shape [jobs].
        Because: a chain of tasks takes each alone on its fastest GPU, and transfers and loads at least nothing.
        Cost: O(tasks).
        If wrong: jobs in time count as late.
        """
        calls = self._firsts if first_token else self._ends
        found = np.full(len(self._instance.jobs), NONE, np.int64)
        through = calls.earliest_us + self._shortest(calls.task, calls.uncached, calls.decodes) + calls.tail_us
        np.maximum.at(found, calls.job, through - self._instance.job_release_us[calls.job])
        return found

    def least_times(self) -> TokenTimes:
        """Return when the tokens of requests come at the earliest, whatever the number of GPUs.

        Invariant: no first token comes earlier, and no request decodes faster.
        Because: first tokens as in `shortest_us`; every token after the first takes an iteration, of tau[1] or more but
        for that of a prompt that is computed again; KV takes at least no time to where an answer goes on.
        Cost: O(tasks).
        If wrong: requests in time count as late.
        """
        streams = self._streams
        answers, goes_on = streams.answers(streams.output), streams.goes_on
        step_us = [min((speed.tau[1] for speed in row if speed is not None), default=0) for row in self._speeds]
        each_us = np.array(step_us, np.int64)[self._stream]
        at, span_us = answers.last, (streams.output[answers.first] - 1) * each_us[answers.first]
        while (later := at != answers.first).any():
            span_us = span_us + np.where(later, self._decodes[at] * each_us[at], 0)
            at = np.where(later, goes_on[at], at)
        job = self._instance.task_job[answers.last]
        return TokenTimes(self.shortest_us(first_token=True), job, span_us, answers.steps)

    def cuts(self, limit: Limit, weights: Sequence[Sequence[Fraction]], ways: Sequence[str] = WAYS) -> list[Cut] | None:
        """Return what each way of charging asks of the GPUs, for each weighting of the groups; None: no number will do.

        Weights are above 0.

        Invariant: every number of GPUs on which some plan meets the limit satisfies every cut.
        Because: of the requests that must run inside a window the late ones are given up, the dearest as many as may
        be late; each other one costs its cheapest group, by weight, at least what is charged.
        Cost: O(n) for each of some thousand windows.
        If wrong: a floor above what is enough.
        """
        # Those that are late in any case use up what may be late.
        due_us, late = self._without_hopeless(limit)
        if late < 0:
            return None
        calls, latest = self._due(limit, due_us)
        surely = _minus(limit.surely_us[calls.job], calls.tail_us)
        found = []
        in_time = self._charges(calls, latest, limit.step_us)
        in_the_end = self._charges(calls, surely, None)
        for way, table in ((way, in_time[way]) for way in ways):
            for each in weights:
                # The cut takes the floats as they are: rounding a weight makes another cut, no false one.
                weight = np.array([float(one) for one in each])
                soon, at_last = (np.min(costs * weight, axis=1) for costs in (table, in_the_end[way]))
                load = _Load.of(calls, latest, surely, soon, at_last, late)
                begin_us, end_us, least = load.fullest()
                found.append(Cut(tuple(Fraction(float(one)) for one in each), least, way, begin_us, end_us))
        return found

    def balance(self, limit: Limit, cut: Cut, gpus: Sequence[int]) -> list[Fraction]:
        """Return weights of the groups under which the window of a cut asks about the most of so many GPUs.

        Any weights hold. Weighed so, groups are about equally full of the requests that are cheapest there: the weight
        of a group rises as long as more is charged to it than it offers.
        """
        due_us, late = self._without_hopeless(limit)
        calls, latest = self._due(limit, due_us)
        inside = np.flatnonzero((calls.earliest_us >= cut.begin_us) & (latest <= cut.end_us))
        costs = self._charges(calls, latest, limit.step_us)[cut.way][inside]
        costs = costs[np.isfinite(costs).any(axis=1)]
        offered = np.array(gpus, np.float64) * (cut.end_us - cut.begin_us)
        best, weights = (-np.inf, np.ones(len(gpus))), np.array([float(each) for each in cut.weights])
        for turn in range(_TURNS):
            weighed = costs * weights
            where, least = np.argmin(weighed, axis=1), np.min(weighed, axis=1)
            # The dearest are given up, as many as may be late.
            kept = np.argsort(-least, kind="stable")[late:] if late else np.arange(len(least))
            asked = float(least[kept].sum() / max(1.0, float(weights @ offered)))
            best = max(best, (asked, weights), key=lambda each: each[0])
            charged = np.bincount(where[kept], costs[kept, where[kept]], minlength=len(gpus))
            over = np.clip((charged - offered) / np.maximum(offered, 1.0), -1, 1)
            weights = weights * np.exp(over / (1 + turn / 4))
            weights = np.maximum(weights / weights.max(), 1 / _STEEPEST)
        return [Fraction(float(each)) for each in best[1]]

    def demands(self, limit: Limit) -> RequestDemands | None:
        """Return what requests demand of GPUs that are there for a time only, of whatever group; None: none will do."""
        due_us, late = self._without_hopeless(limit)
        if late < 0:
            return None
        calls, latest = self._due(limit, due_us)
        table = self._charges(calls, latest, limit.step_us)
        least = (table[way].min(axis=1) for way in ("energy", "energy with KV"))
        charges = tuple(np.floor(np.where(np.isfinite(us), us, 0) * _FINE).astype(np.int64) for us in least)
        return RequestDemands(calls.job, calls.earliest_us, latest, charges, late)

    def _due(self, limit: Limit, due_us: Ints) -> tuple[_Calls, Ints]:
        """Return the requests that have to be served for a limit, and when each has to end."""
        calls = self._firsts if limit.first_token else self._ends
        return calls, _minus(np.minimum(due_us, limit.surely_us)[calls.job], calls.tail_us)

    def _without_hopeless(self, limit: Limit) -> tuple[Ints, int]:
        """Return the due times without those of jobs that are late even alone, and how many others may be late."""
        least = self.shortest_us(limit.first_token)
        end_us = self._instance.job_release_us + least
        if ((least != NONE) & (end_us > limit.surely_us)).any():
            return limit.due_us, -1
        hopeless = (least != NONE) & (end_us > limit.due_us)
        return np.where(hopeless, NO_DUE, limit.due_us), limit.late - int(hopeless.sum())

    def _charges(self, calls: _Calls, latest: Ints, step_us: Floats | None) -> dict[str, Floats]:
        """Return what requests cost a GPU of each group, way by way. Shape [requests, groups].

        They end at `latest`, and decode in mean steps of at most `step_us` (per job), where that is given.
        """
        found = {way: np.full((len(calls.task), len(self._gpus)), np.inf) for way in WAYS}
        for stream, row in enumerate(self._speeds):
            of_class = np.flatnonzero(self._stream[calls.task] == stream)
            tasks = calls.task[of_class]
            held, output = self._streams.held[tasks], self._streams.output[tasks]
            within = latest[of_class] - calls.earliest_us[of_class]
            may_run = self._allowed[self._instance.task_template[tasks]]
            for group, speed in enumerate(row):
                room = self._room[stream][group]
                if speed is None or room < 1:
                    continue
                kv = self._streams.prompt[tasks] + (output - 1) // 2 if speed.block else held
                asked = ChargedRequests(calls.uncached[of_class], calls.decodes[of_class], kv, within)
                if step_us is not None:
                    answer_us = self._steps[tasks] * np.minimum(step_us[calls.job[of_class]], NO_DUE)
                    asked = replace(asked, within_us=_hurried(speed, asked, answer_us))
                charged = {
                    "energy": stream_costs.energy_us(speed, asked),
                    "energy with KV": stream_costs.energy_with_kv_us(speed, asked, room),
                    "seats": stream_costs.seat_us(speed, asked),
                    "KV": stream_costs.kv_us(speed, asked, room),
                }
                for way, costs in charged.items():
                    # A request that never fits, or may not be there, costs nothing there but the impossible.
                    found[way][of_class, group] = np.where((held <= room) & may_run[:, group], costs, np.inf)
        return found

    def _answered(self) -> Floats:
        """Return the tokens after the first of the answers that requests are part of, the most where it is several.

        Infinite where a decode is before the first token, as KV came in of several, and may take any time.
        """
        streams = self._streams
        answers, goes_on = streams.answers(streams.output), streams.goes_on
        found = np.maximum(streams.output - 1, 0)
        at = answers.last
        np.maximum.at(found, at, answers.steps)
        while (at != answers.first).any():
            at = np.where(at == answers.first, at, goes_on[at])
            np.maximum.at(found, at, answers.steps)
        begins = goes_on == np.arange(len(goes_on))
        return np.where(begins & (streams.uncached == 0), np.inf, found)

    def _calls(self, first_token: bool) -> _Calls:
        """Return the requests that lead to the ends of jobs, or to their first tokens."""
        instance, streams, decodes = self._instance, self._streams, self._decodes.copy()
        tasks = np.arange(instance.n_tasks)
        least = self._shortest(tasks, streams.uncached, decodes)
        head = np.zeros(instance.n_tasks, np.int64)
        tail = np.full(instance.n_tasks, NONE if first_token else 0, np.int64)
        if first_token:  # a prompt's iterations lead to its first token; KV that came in takes one decode
            target = streams.first_token[streams.first_token != NONE]
            tail[target] = 0
            decodes[target] = np.where(self._prefilled[target], 0, 1)
        before_target = self._shortest(tasks, streams.uncached, decodes)
        for number, workflow in enumerate(instance.workflows):
            jobs = instance.job_first_task[:-1][instance.job_workflow == number]
            start = int(instance.template_first[number])
            for at in workflow.topological:
                for offset, edge in instance.inputs[start + at]:
                    other = jobs + at + offset
                    before = head[other] + least[other] + instance.delay_us[edge]
                    head[jobs + at] = np.maximum(head[jobs + at], before)
            for at in workflow.topological[::-1]:
                for offset, edge in instance.outputs[start + at]:
                    other = jobs + at + offset
                    behind = instance.delay_us[edge] + before_target[other] + tail[other]
                    chain = np.where(tail[other] == NONE, NONE, behind)
                    tail[jobs + at] = np.maximum(tail[jobs + at], chain)
        chosen = np.flatnonzero((self._stream != NONE) & (tail != NONE))
        job = instance.task_job[chosen]
        earliest = instance.job_release_us[job] + head[chosen]
        return _Calls(chosen, job, streams.uncached[chosen], decodes[chosen], earliest, tail[chosen])

    def _shortest(self, task: Ints, uncached: Ints, decodes: Ints) -> Ints:
        """Return how long tasks take at the least on the fastest group that may run them. Shape [tasks given]."""
        templates = [each for workflow in self._instance.workflows for each in workflow.tasks]
        plain = [
            # What a batch takes each is not asked.
            0
            if each.batch is not None
            else min(
                (us for gpu in compress(self._gpus, may) if (us := each.runtime_on(gpu.kind)) is not None), default=0
            )
            for each, may in zip(templates, self._allowed.tolist(), strict=True)
        ]
        template = self._instance.task_template[task]
        found = np.array(plain, np.int64)[template]
        for stream, row in enumerate(self._speeds):
            of_class = self._stream[task] == stream
            times = [
                np.where(
                    self._allowed[template[of_class], group],
                    stream_costs.alone_us(speed, uncached[of_class], decodes[of_class]),
                    NO_DUE,
                )
                for group, speed in enumerate(row)
                if speed is not None
            ]
            least = np.min(times, axis=0) if times else np.zeros(int(of_class.sum()), np.int64)
            found[of_class] = np.where(least == NO_DUE, 0, least)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Load:
    """Charges of requests, and from when to when each has to be served: whole numbers, job by job.

    Parameters
    ----------
    soon, at_last
        What a request costs in time, and if its job is late.
    fine
        So many of these make a microsecond.
    """

    earliest_us: Ints
    latest_us: Ints
    surely_us: Ints
    soon: Ints
    at_last: Ints
    job: Ints
    late: int
    fine: int

    @classmethod
    def of(cls, calls: _Calls, latest_us: Ints, surely_us: Ints, soon: Floats, at_last: Floats, late: int) -> _Load:
        """Return the load of requests that have a due time and fit some group, in whole charges."""
        due = (latest_us < NO_DUE) & np.isfinite(soon)
        soon = np.where(due, soon, 0.0)
        at_last = np.where(due & (surely_us < NO_DUE), np.minimum(at_last, soon), 0.0)
        # As fine as sums of all charges fit 62 bits.
        fine = max(1, min(_FINE, int(2.0**61 / max(1.0, soon.sum()))))
        # Down: nobody is charged more than it costs.
        in_time = np.floor(soon * fine).astype(np.int64)
        in_the_end = np.floor(at_last * fine).astype(np.int64)
        latest, surely = np.where(due, latest_us, NO_DUE), np.where(due, surely_us, NO_DUE)
        return cls(calls.earliest_us, latest, surely, in_time, in_the_end, calls.job, late, fine)

    def fullest(self) -> tuple[int, int, Fraction]:
        """Return a window that asks for the most of those tried, and how many GPUs all the time, at least."""
        begins = np.unique(self.earliest_us)
        ends = np.unique(np.concatenate((self.latest_us, self.surely_us)))
        ends = ends[ends < NO_DUE]
        if not len(begins) or not len(ends):
            return 0, 0, Fraction(0)
        at_begin: Sequence[int] = range(len(begins))
        at_end: Sequence[int] = range(len(ends))
        best = 0, 0, Fraction(0)
        # A coarse grid first, then finer ones around the best: any window is a valid one.
        for _ in range(_ROUNDS):
            at_begin, at_end = _spread(at_begin[0], at_begin[-1]), _spread(at_end[0], at_end[-1])
            for begin in at_begin:
                for end, asked in self._asks(int(begins[begin]), ends, at_end, best[2]):
                    best = max(best, (begin, end, asked), key=lambda window: window[2])
            at_begin, at_end = _beside(at_begin, best[0]), _beside(at_end, best[1])
        return int(begins[best[0]]), int(ends[best[1]]), best[2]

    def _asks(
        self, begin_us: int, ends_us: Ints, chosen: Sequence[int], above: Fraction
    ) -> Iterator[tuple[int, Fraction]]:
        """Yield which of the ends chosen make windows that ask for something, and for how many GPUs all the time.

        The dearest late jobs are given up; which these are is not looked at where all ask for no more than `above`.
        """
        later = np.flatnonzero(self.earliest_us >= begin_us)
        job, latest_us, surely_us = self.job[later], self.latest_us[later], self.surely_us[later]
        soon, at_last = self.soon[later], self.at_last[later]
        for end in chosen:
            end_us = int(ends_us[end])
            inside = latest_us <= end_us
            charged = soon[inside]
            length, total = self.fine * (end_us - begin_us), int(charged.sum())
            if length <= 0 or total * above.denominator <= above.numerator * length:
                continue
            if self.late:
                saved = charged - np.where(surely_us[inside] <= end_us, at_last[inside], 0)
                first = np.flatnonzero(np.diff(job[inside], prepend=-1))
                total -= _largest(np.add.reduceat(saved, first), self.late)
            yield end, Fraction(total, length)


def _hurried(speed: StreamSpeed, asked: ChargedRequests, answer_us: Floats) -> Ints:
    """Return within what time requests end whose answers take so long, had they nothing else to wait for.

    Parameters
    ----------
    answer_us
        From the first token of the answer that a request is part of to the last. Shape [requests].
    """
    own_us = stream_costs.prefill_us(speed, asked.uncached) + np.minimum(answer_us, NO_DUE)
    return np.minimum(asked.within_us, np.ceil(np.minimum(own_us, NO_DUE)).astype(np.int64) + 1)


def _largest(values: Ints, count: int) -> int:
    """Return the sum of the largest so many values, none of them below 0."""
    values = values[values > 0]  # many equal ones, as all the zeros here, are what a partition takes longest for
    if count >= len(values):
        return int(values.sum())
    return int(np.partition(values, len(values) - count)[len(values) - count :].sum())


def _beside(places: Sequence[int], chosen: int) -> Sequence[int]:
    """Return the places from the last one before a chosen one to the first one behind it."""
    at = bisect_left(places, chosen)
    return places[max(0, at - 1) : at + 2]


def _spread(first: int, last: int) -> list[int]:
    """Return at most `_GRID` numbers from the first to the last, evenly."""
    return sorted(set(np.linspace(first, last, min(_GRID, last - first + 1)).astype(int).tolist()))


def _minus(due_us: Ints, tail_us: Ints) -> Ints:
    """Return due times less what follows; NO_DUE stays."""
    return np.where(due_us >= NO_DUE, NO_DUE, due_us - tail_us)
