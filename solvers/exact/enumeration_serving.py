"""The oracle where GPUs serve several tasks at a time, or come and go: batches, shares of compute, memory of tasks.

Operations are loads and batches (a task without a class is a batch of one). The argument of `enumeration` holds as it
stands, with more to wait for: a share or memory that becomes free when some run ends, and an instant at which no
other batch of the class starts there (T3b). An operation starts at the first instant from which on it fits beside all
operations before it, wherever in time they lie; if that is before the last start, the branch may be cut, as the plan
with only this operation moved there would still obey every rule. Whoever takes room evicts, runs with memory as well
as loads; of two sets of victims the smaller is enough unless the larger allows an earlier start.
That a GPU goes is an operation of its own at a given time, before which nothing on it begins that cannot end by then,
and after which everything on it lies in its next interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from models.availability import FOREVER, Interval
from models.instance import NEVER, NONE
from models.timeline import Placement, Residency
from models.workload import WHOLE
from solvers.exact.enumeration import Copy, Enumeration, State


@dataclass(frozen=True, slots=True)
class _Operation:
    """What is to start on a GPU as early as possible.

    Parameters
    ----------
    earliest_us
        What it waits for beside engines, memory and victims.
    duration_us
        How long it occupies an engine.
    load
        Whether it is a load, which keeps its memory for ever.
    share, held_bytes
        Compute and memory that it takes.
    batch
        Its batch class.
    """

    gpu: int
    earliest_us: int
    duration_us: int
    load: bool
    share: int
    held_bytes: int
    batch: int = NONE

    def reaches(self, start_us: int) -> float:
        """Return until when it holds memory."""
        return float("inf") if self.load else start_us + self.duration_us


class ServingEnumeration(Enumeration):
    """A depth-first search over all sequences of loads and batches."""

    def _runs(self, state: State) -> Iterator[State]:
        ready = [
            task
            for task in range(self.instance.n_tasks)
            if task not in state.runs and all(before in state.runs for before, _ in self.instance.task_inputs(task))
        ]
        for gpu in range(self.instance.n_gpus):
            able = [task for task in ready if self.instance.run_time(task, gpu) != NEVER]
            for members in self._batches(able, gpu):
                yield from self._runs_of(state, members, gpu)

    def _departures(self, state: State) -> Iterator[State]:
        """Yield what follows when a GPU goes, unless it then held a model that has served nothing."""
        for gpu in range(self.instance.n_gpus):
            end = self._interval(state, gpu)[1]
            if end == FOREVER or not (end > state.clock or (end == state.clock and (-1, gpu) > state.last)):
                continue
            leaving = [copy for copy in state.copies if copy.residency.gpu == gpu]
            if all(copy.last_end_us is not None or copy.residency.initial for copy in leaving):
                yield replace(
                    state,
                    clock=end,
                    last=(-1, gpu),
                    copies=tuple(copy for copy in state.copies if copy not in leaving),
                    gone=(*state.gone, *(replace(copy.residency, end_us=end) for copy in leaving)),
                    stint=(*state.stint[:gpu], state.stint[gpu] + 1, *state.stint[gpu + 1 :]),
                )

    def _interval(self, state: State, gpu: int) -> Interval:
        """Return the interval that a GPU is in or about to be; after the last one it never comes again."""
        intervals = self.instance.cluster.gpus[gpu].available.intervals
        return intervals[state.stint[gpu]] if state.stint[gpu] < len(intervals) else (FOREVER, FOREVER)

    def _to_the_end(self, state: State, copy: Copy) -> Residency:
        end = self._interval(state, copy.residency.gpu)[1]
        return copy.residency if end == FOREVER else replace(copy.residency, end_us=end)

    def _batches(self, able: Sequence[int], gpu: int) -> Iterator[tuple[int, ...]]:
        """Yield the batches that can be made of tasks."""
        template = self.instance.task_template
        for batch in range(NONE, len(self.instance.batches)):
            tasks = [task for task in able if self.instance.template_batch[template[task]] == batch]
            largest = 1 if batch == NONE else int(self.instance.batch_largest[batch, self.instance.gpu_class[gpu]])
            for size in range(1, largest + 1):
                yield from combinations(tasks, size)

    def _runs_of(self, state: State, members: tuple[int, ...], gpu: int) -> Iterator[State]:
        """Yield what follows from a batch, with every set of victims that is worth trying."""
        needed = self.instance.task_needs(members[0])
        here = [copy for copy in state.copies if copy.residency.gpu == gpu]
        used = [copy for copy in here if copy.residency.model in needed]
        if len(used) < len(needed):
            return
        template = self.instance.task_template[members[0]]
        batch = int(self.instance.template_batch[template])
        alone = self.instance.run_time(members[0], gpu)
        duration = alone if batch == NONE else self.instance.batch_time(batch, gpu, len(members))
        arrivals = [
            state.runs[before].end_us + self.instance.transfer_time(edge, state.runs[before].gpu, gpu)
            for task in members
            for before, edge in self.instance.task_inputs(task)
        ]
        release = max(self.instance.earliest_start(task, gpu) for task in members)
        operation = _Operation(
            gpu,
            max(release, *arrivals, *(copy.residency.ready_us for copy in used), 0),
            duration,
            False,
            int(self.instance.template_share[template]),
            int(self.instance.template_memory[template]) * len(members),
            batch,
        )
        spare = [copy for copy in here if copy not in used and self._evictable(copy)] if operation.held_bytes else []
        for start, victims in self._starts(state, operation, spare):
            rank = (gpu, 1, *members)
            if start > state.clock or (start == state.clock and rank > state.last):
                yield self._after_batch(state, members, operation, start, victims, used, rank)

    def _after_batch(
        self,
        state: State,
        members: tuple[int, ...],
        operation: _Operation,
        start: int,
        victims: tuple[Copy, ...],
        used: list[Copy],
        rank: tuple[int, ...],
    ) -> State:
        end = start + operation.duration_us
        copies = tuple(
            replace(copy, last_end_us=max(end, copy.last_end_us or 0)) if copy in used else copy
            for copy in state.copies
            if copy not in victims
        )
        return replace(
            state,
            clock=start,
            last=rank,
            copies=copies,
            gone=(*state.gone, *(replace(victim.residency, end_us=start) for victim in victims)),
            runs=state.runs | {task: Placement(task, operation.gpu, start, end) for task in members},
        )

    def _loads_of(self, state: State, model: int, gpu: int) -> Iterator[State]:
        duration = self.instance.load_time(model, gpu)
        if duration == NEVER:
            return
        weight, device = int(self.instance.weight_bytes[model]), self.instance.cluster.gpus[gpu]
        share = 0 if self.instance.overlap_loads else WHOLE
        here = [copy for copy in state.copies if copy.residency.gpu == gpu]
        for elsewhere in self._surplus(state, model):
            earliest = max(
                state.freed[gpu],
                state.clock if self._limited(model) else 0,
                *(copy.free_us for copy in elsewhere),
                0,
            )
            operation = _Operation(gpu, earliest, duration, True, share, 0 if device.slots else weight)
            starts: list[tuple[int | None, int, tuple[Copy, ...]]] = []
            if device.slots:
                for slot, inside in self._rooms(state, model, gpu):
                    found = self._earliest(state, operation, inside)
                    starts += [(slot, found, inside)] if found is not None else []
            else:
                spare = [copy for copy in here if self._evictable(copy)]
                starts += [(None, start, victims) for start, victims in self._starts(state, operation, spare)]
            for slot, start, victims in starts:
                if self._in_order(state, start, gpu, 0):
                    residency = Residency(model, gpu, start, start + duration, None, slot)
                    yield self._after_load(state, residency, (*victims, *elsewhere))

    def _starts(
        self, state: State, operation: _Operation, spare: Sequence[Copy]
    ) -> Iterator[tuple[int, tuple[Copy, ...]]]:
        """Yield the start for each set of victims of which no part allows as early a start."""
        found: list[tuple[int, tuple[Copy, ...]]] = []
        for size in range(len(spare) + 1):
            for victims in combinations(spare, size):
                start = self._earliest(state, operation, victims)
                if start is None or any(
                    before <= start and all(copy in victims for copy in fewer) for before, fewer in found
                ):
                    continue
                found.append((start, victims))
                yield start, victims

    def _earliest(self, state: State, operation: _Operation, victims: Sequence[Copy]) -> int | None:
        """Return the first instant at which an operation fits among those before it, or None."""
        begin, end = self._interval(state, operation.gpu)
        least = max(operation.earliest_us, begin, *(victim.free_us for victim in victims), 0)
        ends = [run.end_us for run in state.runs.values() if run.gpu == operation.gpu]
        ends += [r.ready_us for r in self._stays(state, operation.gpu)]
        ends += [r.end_us for r in self._stays(state, operation.gpu) if r.end_us is not None]
        same = self._starts_of_class(state, operation)
        candidates = sorted({least, *ends, *(instant + 1 for instant in same)})
        later = (instant for instant in candidates if instant >= least and instant not in same)
        found = next((instant for instant in later if self._fits(state, operation, instant, victims)), FOREVER)
        return found if found + operation.duration_us <= end else None

    def _starts_of_class(self, state: State, operation: _Operation) -> set[int]:
        if operation.batch == NONE:
            return set()
        return {
            run.start_us
            for task, run in state.runs.items()
            if run.gpu == operation.gpu
            and self.instance.template_batch[self.instance.task_template[task]] == operation.batch
        }

    def _stays(self, state: State, gpu: int) -> list[Residency]:
        return [r for r in (*state.gone, *(copy.residency for copy in state.copies)) if r.gpu == gpu]

    def _fits(self, state: State, operation: _Operation, start: int, victims: Sequence[Copy]) -> bool:
        """Say whether an operation can start then: engines and memory suffice as long as it takes of them."""
        end, held_until = start + operation.duration_us, operation.reaches(start)
        stays = self._stays(state, operation.gpu)
        loads = [r for r in stays if not r.initial]
        if operation.load and any(r.load_start_us < end and start < r.ready_us for r in loads):
            return False
        runs = [(task, run) for task, run in state.runs.items() if run.gpu == operation.gpu]
        begun = {run.start_us for _, run in runs} | {r.load_start_us for r in loads}
        leaving = {id(victim.residency) for victim in victims}
        template = self.instance.task_template
        for instant in sorted({start, *(instant for instant in begun if start < instant)}):
            working = [(task, run) for task, run in runs if run.start_us <= instant < run.end_us]
            if instant < end and operation.share:
                batches = {
                    (
                        run.start_us,
                        int(self.instance.template_batch[template[task]]),
                        task if self._alone(task) else -1,
                    ): int(self.instance.template_share[template[task]])
                    for task, run in working
                }
                loading = any(r.load_start_us <= instant < r.ready_us for r in loads)
                blocked = WHOLE if loading and not self.instance.overlap_loads else 0
                if sum(batches.values()) + blocked + operation.share > WHOLE:
                    return False
            if instant < held_until and operation.held_bytes:
                held = sum(int(self.instance.template_memory[template[task]]) for task, _ in working)
                held += sum(
                    int(self.instance.weight_bytes[r.model])
                    for r in stays
                    if r.load_start_us <= instant
                    and (r.end_us is None or instant < r.end_us)
                    and not (id(r) in leaving and instant >= start)
                )
                if held + operation.held_bytes > self.instance.cluster.gpus[operation.gpu].memory_bytes:
                    return False
        return True

    def _alone(self, task: int) -> bool:
        return int(self.instance.template_batch[self.instance.task_template[task]]) == NONE
