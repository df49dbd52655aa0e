"""The best plan of a handful of requests, by trying everything; shares no code with the rest.

Every microsecond, of every GPU that stands at a boundary or is idle, every ordered choice of who joins is tried, and
whether a model begins to load: so all nodes, orders, starts, holds and load starts are. For some 40 us and four tasks.
Where KV grows all limits on requests at once are tried as well: who was preempted rejoins unasked, but for a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import permutations, product
from math import ceil, inf
from typing import NamedTuple

from tests.random_instances import delay_between
from truenorth.models import Instance
from truenorth.models.streams import StreamSpeed

PICOSECONDS = 1_000_000
LAST_LOAD_US = 3
"""Loads begin no later: with one model they only put off what needs it."""


class Request(NamedTuple):
    """A request: its job, class, prompt, uncached and output tokens, release, what it comes after and how long."""

    job: int
    kind: str
    n: int
    u: int
    m: int
    release: int
    after: tuple[tuple[int, int], ...]
    tied: int | None


class Run(NamedTuple):
    """A request on a GPU: prompt tokens left to work off, and of how many; tokens of the answer that it has had."""

    task: int
    left: int
    of: int
    had: int


class GPUState(NamedTuple):
    """A GPU: when its model is ready (-1: not loaded), when its iteration ends, whom it serves and whom it preempted.

    `clock` is in picoseconds, and None while the GPU is idle; both queues are in order of joining.
    """

    ready: int
    clock: int | None
    inside: tuple[Run, ...] = ()
    again: tuple[Run, ...] = ()

    def computes(self, now: int) -> bool:
        """Say whether an iteration is under way at an instant."""
        return self.clock is not None and self.clock > now * PICOSECONDS


Ended = tuple[tuple[int, int, int], ...]
"""Requests that have ended: task, GPU, when."""


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
                before = [first + place[edge.source] for edge in task.inputs]
                after = tuple((each, delay_between(instance, each, first + place[task.name])) for each in before)
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
            found = min(found, sum(self._limited(where, part, horizon) for part in parts if part))
        return found

    def _limited(self, where: tuple[int, ...], jobs: list[int], horizon: int) -> Fraction | float:
        """Return the least cost of some jobs under any limits on how many requests a GPU serves at once."""
        used = {where[t] for t, request in enumerate(self.requests) if request.job in jobs}
        limits = []
        for g, speeds in enumerate(self.speeds):
            seats = max((speed.seats for speed in speeds.values() if speed is not None), default=1)
            grows = any(speed is not None and speed.block for speed in speeds.values())
            limits.append(range(1, seats + 1) if g in used and grows else [seats])
        return min(self._serve(where, jobs, horizon, limit) for limit in product(*limits))

    def _serve(self, where: tuple[int, ...], jobs: list[int], horizon: int, limit: tuple[int, ...]) -> Fraction | float:
        """Return the least cost of some jobs, whose requests go where they are told to."""
        here = tuple(t for t, request in enumerate(self.requests) if request.job in jobs)
        ready = -1 if self.weights else 0
        gpus = tuple(GPUState(ready if g in {where[t] for t in here} else 0, None) for g in range(len(self.gpus)))
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
                for state in self._choices(now, g, theirs, gpus[g], ended, limit[g])
            )

        return rest(0, 0, gpus, ())

    def _only_waits(self, now: int, gpus: tuple[GPUState, ...], ended: Ended) -> bool:
        """Say whether nothing is served, loading or to come: then all that follows could as well come a moment before.

        So it could if no model is loaded that will be needed, or an earlier instant would have been as good for a load.
        """
        if any(gpu.inside or gpu.again or gpu.ready > now for gpu in gpus):
            return False
        delay_us = max((delay_us for request in self.requests for _, delay_us in request.after), default=0)
        latest = max((end + delay_us + self.transfer_us for _, _, end in ended), default=0)
        return now > max(latest, *(request.release for request in self.requests))

    def _tick(self, now: int, gpus: tuple[GPUState, ...], ended: Ended, rest) -> float:  # type: ignore[no-untyped-def]
        """Go on to the next microsecond; what ends then is paid for."""
        states, paid, over = [], Fraction(0), list(ended)
        for g, gpu in enumerate(gpus):
            if gpu.clock is not None and gpu.computes(now - 1) and not gpu.computes(now):
                stays = []
                for run in self._after_iteration(g, gpu.inside):
                    if run.had == self.requests[run.task].m:
                        over.append((run.task, g, now))
                    else:
                        stays.append(run)
                gpu = gpu._replace(clock=gpu.clock if stays else None, inside=tuple(stays))
            states.append(gpu)
        done = {task for task, _, _ in over}
        for job in {self.requests[task].job for task, _, at in over if at == now}:
            if all(number in done for number, request in enumerate(self.requests) if request.job == job):
                paid += self.cost(job, now)
        further = rest(now, 0, tuple(states), tuple(sorted(over)))
        return inf if further == inf else paid + further

    def _speed(self, g: int, task: int) -> StreamSpeed:
        speed = self.speeds[g][self.requests[task].kind]
        assert speed is not None
        return speed

    def _takes(self, g: int, inside: tuple[Run, ...]) -> list[int]:
        """Return the prompt tokens that each takes in an iteration, in order of joining; last, what is left."""
        speed = self._speed(g, inside[0].task)
        budget = speed.chunk - (sum(run.left == 0 for run in inside) if speed.shared else 0)
        taken = []
        for run in inside:
            taken.append(min(run.left, budget))
            budget -= taken[-1]
        return [*taken, budget]

    def _after_iteration(self, g: int, inside: tuple[Run, ...]) -> list[Run]:
        after = []
        for run, take in zip(inside, self._takes(g, inside), strict=False):
            # A prompt of somebody who was preempted yields no token: that one was sent before.
            token = run.left == take and not (run.left and run.had)
            after.append(run._replace(left=run.left - take, had=run.had + token))
        return after

    def _choices(self, now: int, g: int, theirs: list[int], gpu: GPUState, ended: Ended, limit: int) -> list[GPUState]:
        """Return all that a GPU can do at an instant."""
        begins = gpu.ready < 0 and now <= LAST_LOAD_US
        loads = [gpu.ready, now + self.load_us[g]] if begins else [gpu.ready]
        if gpu.computes(now):
            return [gpu._replace(ready=load) for load in loads]
        inside, preempted = self._grow(g, gpu.inside)
        again = (*preempted, *gpu.again)
        while again and not preempted:
            joined = self._join(g, inside, again[0], limit)
            if joined is None:
                break
            inside, again = joined, again[1:]
        begun = {run.task for run in (*inside, *again)} | {task for task, _, _ in ended}
        able = [t for t in theirs if 0 <= gpu.ready <= now and t not in begun and self._arrived(t, now, g, ended)]
        found = []
        for count in range(0 if again else len(able), -1, -1):
            for joining in permutations(able, count):
                served: tuple[Run, ...] | None = inside
                for task in joining:
                    n, u = self.requests[task].n, self.requests[task].u
                    served = None if served is None else self._join(g, served, Run(task, u, n, 0), limit)
                if served is not None:
                    clock = self._clock(now, g, gpu, served)
                    found += [GPUState(load, clock, served, again) for load in loads]
        return found

    def _arrived(self, task: int, now: int, g: int, ended: Ended) -> bool:
        request, at = self.requests[task], {task: (gpu, end) for task, gpu, end in ended}
        if request.release > now:
            return False
        return all(
            b in at and at[b][1] + delay_us + (0 if at[b][0] == g else self.transfer_us) <= now
            for b, delay_us in request.after
        )

    def _blocks(self, run: Run, take: int | None, block: int) -> int:
        """Return the blocks of KV that a run holds with what it takes for the next iteration; None: before that."""
        decoding = self.requests[run.task].n + run.had - (take is None)
        return ceil(Fraction(run.of - run.left + (take or 0) if run.left else decoding, block))

    def _room(self, g: int, speed: StreamSpeed) -> Fraction | float:
        """Return the tokens of KV, or where it grows the blocks, that a GPU has beside its models."""
        tokens = (self.gpus[g].memory_bytes - self.weights) / Fraction(speed.kv_bytes) if speed.kv_bytes else inf
        return tokens // speed.block if speed.block else tokens

    def _grow(self, g: int, inside: tuple[Run, ...]) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
        """Have everyone who runs take blocks in turn, the last being preempted where none is left.

        Returns who still runs, and who was preempted, both in order of joining.
        """
        if not inside or not self._speed(g, inside[0].task).block:
            return inside, ()
        speed = self._speed(g, inside[0].task)
        stays, preempted, at, grown = list(inside), list[Run](), 0, 0
        while at < len(stays):
            wanted = self._blocks(stays[at], self._takes(g, tuple(stays))[at], speed.block)
            later = sum(self._blocks(run, None, speed.block) for run in stays[at + 1 :])
            if grown + wanted + later <= self._room(g, speed):
                grown, at = grown + wanted, at + 1
                continue
            last = stays.pop()
            tokens = self.requests[last.task].n + max(0, last.had - 1)
            preempted.insert(0, Run(last.task, tokens, tokens, last.had))
        return tuple(stays), tuple(preempted)

    def _join(self, g: int, inside: tuple[Run, ...], run: Run, limit: int) -> tuple[Run, ...] | None:
        """Return who runs with one more; None if that one cannot join."""
        request = self.requests[run.task]
        speed = self.speeds[g][request.kind]
        if speed is None or (inside and self.requests[inside[0].task].kind != request.kind):
            return None
        if len(inside) == min(speed.seats, limit) or (inside and self._takes(g, inside)[-1] < 1):
            return None
        room = self._room(g, speed)
        if speed.block:
            takes = self._takes(g, inside) if inside else []
            held = sum(self._blocks(*taken, speed.block) for taken in zip(inside, takes, strict=False))
            longest = ceil(Fraction(request.n + request.m - 1, speed.block))
            if max(held + ceil(Fraction(run.of, speed.block)), longest) > room:
                return None
        elif sum(self.requests[other.task].n + self.requests[other.task].m for other in (*inside, run)) > room:
            return None
        return (*inside, run)

    def _clock(self, now: int, g: int, gpu: GPUState, inside: tuple[Run, ...]) -> int | None:
        """Return when the iteration ends that begins now; None if the GPU is idle."""
        if not inside:
            return None
        began = now * PICOSECONDS if gpu.clock is None else gpu.clock
        speed = self._speed(g, inside[0].task)
        decodes = [run for run in inside if run.left == 0]
        context = sum(self.requests[run.task].n + run.had for run in decodes)
        prompts = sum(self._takes(g, inside)[:-1])
        mixed_us = ceil(prompts * 1_000_000 / speed.prefill_rate) + speed.mixed_us if prompts else 0
        return began + (speed.tau[len(decodes)] + mixed_us) * PICOSECONDS + context * speed.context_ps
