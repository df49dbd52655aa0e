"""The best plan of a handful of requests, by trying everything; shares no code with the rest.

Every microsecond, of every GPU that stands at a boundary or is idle, every ordered choice of who joins is tried, and
whether a model begins to load: so all nodes, orders, starts, holds and load starts are. For some 40 us and four tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import permutations, product
from math import ceil, inf

from truenorth.models import Instance

Inside = tuple[tuple[int, int, int], ...]
"""Requests of a GPU in order of start: task, prompt tokens left, tokens had."""
Ended = tuple[tuple[int, int, int], ...]
"""Requests that have ended: task, GPU, when."""
GPUState = tuple[int, int | None, Inside]
"""When its model is ready (-1: not loaded), when its iteration ends (None: at a boundary), and whom it serves."""


LAST_LOAD_US = 3
"""Loads begin no later: with one model they only put off what needs it."""


@dataclass(frozen=True)
class Request:
    """A request: its job, prompt, uncached and output tokens, release, and what it comes after."""

    job: int
    kind: str
    n: int
    u: int
    m: int
    release: int
    after: tuple[int, ...]
    tied: int | None


class Oracle:
    """Tries all plans of an instance of requests; transfers take `transfer_us`, and one model at most is loaded."""

    def __init__(self, instance: Instance, transfer_us: int, cost: Callable[[int, int], Fraction]) -> None:
        self.gpus = instance.cluster.gpus
        self.transfer_us, self.cost, self.instance = transfer_us, cost, instance
        self.requests: list[Request] = []
        for number, job in enumerate(instance.jobs):
            first = len(self.requests)
            for task in job.workflow.tasks:
                assert task.stream is not None
                place = job.workflow.position
                after = tuple(first + place[edge.source] for edge in task.inputs)
                tied = None if task.tied_to is None else first + place[task.tied_to]
                n, u, m = job.tokens_of(task)
                self.requests.append(Request(number, task.stream.name, n, u, m, job.release_us, after, tied))
        self.speeds = [{c.name: c.speed_on(gpu.kind) for c in instance.streams.classes} for gpu in self.gpus]  # type: ignore[union-attr]
        self.weights = sum(model.weight_bytes for model in instance.models)
        self.load_us = [
            sum(ceil(model.weight_bytes * 1_000_000 / gpu.load_bandwidth) for model in instance.models)
            for gpu in self.gpus
        ]

    def best(self, horizon: int) -> Fraction | float:
        """Return the least cost of all jobs, if they end within the horizon."""
        found: Fraction | float = inf
        jobs = {request.job for request in self.requests}
        for where in product(range(len(self.gpus)), repeat=len(self.requests)):
            on = {job: {where[t] for t, request in enumerate(self.requests) if request.job == job} for job in jobs}
            apart = all(len(gpus) == 1 for gpus in on.values())  # then no GPU has to wait for another
            parts = [[j for j in jobs if on[j] == {g}] for g in range(len(self.gpus))] if apart else [list(jobs)]
            found = min(found, sum(self._serve(where, part, horizon) for part in parts if part))
        return found

    def _serve(self, where: tuple[int, ...], jobs: list[int], horizon: int) -> Fraction | float:
        """Return the least cost of some jobs, whose requests go where they are told to."""
        here = tuple(t for t, request in enumerate(self.requests) if request.job in jobs)
        ready = -1 if self.weights else 0
        gpus = tuple((ready if g in {where[t] for t in here} else 0, None, ()) for g in range(len(self.gpus)))
        tied = ((t, self.requests[t].tied) for t in here)
        if any(other is not None and where[other] != where[t] for t, other in tied):
            return inf

        @cache
        def rest(now: int, g: int, gpus: tuple[GPUState, ...], ended: Ended) -> Fraction | float:
            """Return the least cost from here on, the GPUs before `g` having decided at this instant."""
            if g == len(gpus):
                if len(ended) == len(here):
                    return 0
                if now == horizon or self._only_waits(now, gpus, ended):
                    return inf
                return self._tick(now + 1, gpus, ended, rest)
            theirs = [t for t in here if where[t] == g]
            return min(
                rest(now, g + 1, (*gpus[:g], state, *gpus[g + 1 :]), ended)
                for state in self._choices(now, g, theirs, gpus, ended)
            )

        return rest(0, 0, gpus, ())

    def _only_waits(self, now: int, gpus: tuple[GPUState, ...], ended: Ended) -> bool:
        """Say whether nothing is served, loading or to come: then all that follows could as well come a moment before.

        So it could if no model is loaded that will be needed, or an earlier instant would have been as good for a load.
        """
        if any(inside or ready > now for ready, _, inside in gpus):
            return False
        latest = max((end + self.transfer_us for _, _, end in ended), default=0)
        return now > max(latest, *(request.release for request in self.requests))

    def _tick(self, now: int, gpus: tuple[GPUState, ...], ended: Ended, rest) -> float:  # type: ignore[no-untyped-def]
        """Go on to the next microsecond; what ends then is paid for."""
        states, paid, over = [], Fraction(0), list(ended)
        for g, (ready, until, inside) in enumerate(gpus):
            if until == now:
                stays = []
                for task, left, had in self._after_iteration(g, inside):
                    if had == self.requests[task].m:
                        over.append((task, g, now))
                    else:
                        stays.append((task, left, had))
                until, inside = None, tuple(stays)
            states.append((ready, until, inside))
        done = {task for task, _, _ in over}
        for job in {self.requests[task].job for task, _, at in over if at == now}:
            if all(number in done for number, request in enumerate(self.requests) if request.job == job):
                paid += self.cost(job, now)
        further = rest(now, 0, tuple(states), tuple(sorted(over)))
        return inf if further == inf else paid + further

    def _takes(self, g: int, inside: Inside) -> list[int]:
        budget = self.speeds[g][self.requests[inside[0][0]].kind].chunk  # type: ignore[union-attr]
        taken = []
        for _, left, _ in inside:
            taken.append(min(left, budget))
            budget -= taken[-1]
        return [*taken, budget]

    def _after_iteration(self, g: int, inside: Inside) -> Inside:
        taken = self._takes(g, inside)
        return tuple(
            (task, left - take, had + (left == take)) for (task, left, had), take in zip(inside, taken, strict=False)
        )

    def _choices(self, now: int, g: int, theirs: list[int], gpus: tuple[GPUState, ...], ended: Ended) -> list[GPUState]:
        """Return all that a GPU can do at an instant."""
        ready, until, inside = gpus[g]
        begins = ready < 0 and now <= LAST_LOAD_US
        loads = [ready, now + self.load_us[g]] if begins else [ready]
        if until is not None:
            return [(load, until, inside) for load in loads]
        begun = {task for task, _, _ in (*inside, *ended)}
        able = [t for t in theirs if 0 <= ready <= now and t not in begun and self._arrived(t, now, g, ended)]
        found = []
        for count in range(len(able) + 1):
            for joining in permutations(able, count):
                states = self._join(g, inside, joining)
                if states is not None:
                    length = self._length(g, states)
                    found += [(load, None if length is None else now + length, states) for load in loads]
        return found

    def _arrived(self, task: int, now: int, g: int, ended: Ended) -> bool:
        request, at = self.requests[task], {task: (gpu, end) for task, gpu, end in ended}
        if request.release > now:
            return False
        return all(b in at and at[b][1] + (0 if at[b][0] == g else self.transfer_us) <= now for b in request.after)

    def _join(self, g: int, inside: Inside, joining: tuple[int, ...]) -> Inside | None:
        for task in joining:
            request = self.requests[task]
            speed = self.speeds[g][request.kind]
            if speed is None or (inside and self.requests[inside[0][0]].kind != request.kind):
                return None
            held = sum(self.requests[other].n + self.requests[other].m for other, _, _ in inside)
            room = self.gpus[g].memory_bytes - self.weights
            if len(inside) == speed.seats or (held + request.n + request.m) * speed.kv_bytes > room:
                return None
            if inside and not self._takes(g, inside)[-1]:
                return None
            inside = (*inside, (task, request.u, 0))
        return inside

    def _length(self, g: int, inside: Inside) -> int | None:
        if not inside:
            return None
        speed = self.speeds[g][self.requests[inside[0][0]].kind]
        assert speed is not None
        k = sum(left == 0 for _, left, _ in inside)
        return speed.tau[k] + ceil(sum(self._takes(g, inside)[:-1]) * 1_000_000 / speed.prefill_rate)
