"""The live device: carries out the engine's orders on stations and lanes, on a clock that runs by itself.

A failure never holds up the engine. A run that fails is reported as ended, the job's other tasks then end at once
without running, and the failure is kept; loads and transfers are tried again. So a policy goes on with the other jobs
and need not know. A GPU that fails for good is reported as lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush

from torch import Tensor

from executor.device import ARRIVAL, LOAD_END, LOST, RUN_END, Event
from executor.devices.crew import POLL_S, Crew
from executor.devices.faults import TRIES, Faults
from executor.devices.lane import Lane, LostError, Order
from executor.devices.packing import Packing
from executor.devices.physical import Span
from executor.devices.records import SET_ASIDE, Failure, Fault, MovedModel, Record, Records
from executor.devices.station import StationWork
from executor.errors import DeviceError
from executor.site import NOWHERE
from models import NONE, Instance

_US_PER_S = 1_000_000


class LiveDevice:
    """Implements `executor.device.Device` on a wall clock.

    Parameters
    ----------
    instance
        Names, sizes and edges.
    crew
        Carries the orders out.
    packing
        Addresses that a plan has for its loads.
    keep_outputs
        Whether outputs stay after the last use.

    Attributes
    ----------
    now
        Microseconds since `begin`, as of the latest event.
    exact
        Never: things take as long as they take.
    records
        What was measured.
    outputs
        By task.
    """

    exact = False

    def __init__(self, instance: Instance, crew: Crew, packing: Packing, keep_outputs: bool) -> None:
        self.now = 0
        self.records = Records()
        self.outputs: dict[int, Tensor] = {}
        self._instance, self._crew, self._packing = instance, crew, packing
        self._keep_outputs = keep_outputs
        self._events: list[Event] = []
        self._sequence = 0
        self._under_way = 0
        self._origin_ns = 0
        self._received: dict[tuple[int, int], dict[int, Tensor]] = {}
        self._ran_on: dict[int, int] = {}
        self._uses_left = [len(instance.outputs[template]) for template in instance.task_template.tolist()]
        self._loads_on = [0] * instance.n_gpus
        self._faults = Faults()
        self._lost: set[int] = set()
        self._failed_jobs: set[int] = set()
        self._starts: set[tuple[int, int, int]] = set()

    def begin(self) -> None:
        """Start the clock."""
        self._origin_ns = time.perf_counter_ns()

    # -- what the engine orders -----------------------------------------------------------------------------------

    def run(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        """Have a batch run without the tasks whose job has failed."""
        self._ran_on.update(dict.fromkeys(tasks, gpu))
        records = [Record(task, gpu, self.now, self.now, self.now, expected_us) for task in tasks]
        jobs = {task: int(self._instance.task_job[task]) for task in tasks}
        errors = {task: f"job {job} had failed" for task, job in jobs.items() if job in self._failed_jobs}
        members = [task for task in tasks if task not in errors]
        if not members:
            self._end_run(records, errors)
            return
        works = [self._work(task, gpu, expected_us) for task in members]
        work = partial(self._crew.stations[gpu].run, works, time.perf_counter_ns())
        self._give(self._crew.compute_lane(gpu), work, expected_us, partial(self._run_done, records, errors))

    def load(self, model: int, gpu: int, slot: int | None, expected_us: int) -> None:
        """Have a model copied to its address, after those that must make way."""
        station, number = self._crew.stations[gpu], self._loads_on[gpu]
        size = int(self._instance.weight_bytes[model])
        record = Record(model, gpu, self.now, self.now, self.now, expected_us, size)
        self._loads_on[gpu] += 1
        moves = station.space.take(model, slot, self._packing.loads.get((gpu, number)))
        self.records.moves += [MovedModel(move.model, gpu, self.now) for move in moves]
        load = partial(station.load_after, moves, model, station.space.address[model], time.perf_counter_ns())
        expected_us += sum(self._instance.load_time(move.model, gpu) for move in moves)
        self._begin_load(record, load, expected_us, TRIES)

    def evict(self, model: int, gpu: int) -> None:
        """Give a model's address away."""
        if model in self._crew.stations[gpu].space.address:
            self._crew.stations[gpu].space.free(model)

    def drop(self, tasks: Sequence[int]) -> None:
        """Fail the job of tasks that no GPU is left to run."""
        self._fail(tasks[0], None, self.now, "no GPU is left that can run all of it")
        for task in tasks:
            self._ran_on[task] = NOWHERE
            self._forget_inputs(task)

    def send(self, source: int, target: int, gpu: int, number: int, expected_us: int) -> bool:
        """Have an output travel; it arrives when it is there, but no earlier than given."""
        size = self._edge_bytes(source, target)
        record = Record(source, gpu, self.now, self.now, self.now, expected_us, size, target)
        if int(self._instance.task_job[source]) in self._failed_jobs:
            self.at(self.now + expected_us, ARRIVAL, target, number)
            return False
        staged = self._instance.cluster.network.staged
        work = partial(self._crew.stations[gpu].receive, self.outputs[source], size, staged)
        self._begin_transfer(record, work, number, TRIES)
        return False

    def at(self, time_us: int, kind: int, subject: int, number: int) -> None:
        """Have an event reported at a time."""
        self._sequence += 1
        heappush(self._events, (time_us, kind, self._sequence, subject, number))

    def next(self, until_us: int | None) -> Event | None:
        """Wait for the next event up to a time, inclusive; None when that time has come or nothing is under way."""
        while True:
            self._take_reports(0)
            wall = self._wall_us()
            latest = wall if until_us is None else min(wall, until_us)
            if self._events and self._events[0][0] <= latest:
                event = heappop(self._events)
                self.now = max(self.now, event[0])
                return event
            if until_us is not None and until_us <= wall:
                self.now = max(self.now, until_us)
                return None
            if until_us is None and not self._events and not self._under_way:
                return None
            self._take_reports(self._pause_s(until_us, wall))

    def _pause_s(self, until_us: int | None, wall_us: int) -> float:
        """Return how long nothing can happen but a report, or a limit that is exceeded."""
        times = [time_us for time_us in (until_us, self._events[0][0] if self._events else None) if time_us is not None]
        pauses = [(time_us - wall_us) / _US_PER_S for time_us in times]
        return max(0.0, min([*pauses, POLL_S]))

    # -- how orders end -------------------------------------------------------------------------------------------

    def _give(self, lane: Lane, work: Callable[[], object], expected_us: int, done: Callable[[Order], None]) -> None:
        """Hand an order to a lane."""
        self._under_way += 1
        lane.submit(Order(work, self._crew.limit_s + expected_us / _US_PER_S, done))

    def _take_reports(self, wait_s: float) -> None:
        for order in self._crew.take_reports(wait_s):
            self._end(order)

    def _end(self, order: Order) -> None:
        self._under_way -= 1
        order.done(order)

    def _run_done(self, records: Sequence[Record], errors: Mapping[int, str], order: Order) -> None:
        """Take in how a batch ended; `errors` are those of the members that did not run."""
        if order.error is not None:
            failed = dict.fromkeys((record.subject for record in records), _in_words(order.error))
            end_us = self._end_run([self._until_now(record, order) for record in records], failed | dict(errors))
            gpu, template = records[0].gpu, int(self._instance.task_template[records[0].subject])
            others = len(self._lost | {gpu}) < self._instance.n_gpus
            if isinstance(order.error, LostError) or (self._faults.note_run(gpu, template) and others):
                self._lose(gpu, order.error, end_us)
            return
        self._faults.clear(records[0].gpu)
        outputs, span = order.result
        members = [record.subject for record in records if record.subject not in errors]
        self.outputs.update(zip(members, outputs, strict=True))
        self._end_run([self._during(record, span) for record in records], errors)

    def _end_run(self, records: Sequence[Record], errors: Mapping[int, str]) -> int:
        """Report the end of a batch, forget inputs that nobody needs any more, keep failures; return when it ended."""
        start_us = self._start_apart(records[0])
        end_us = max(start_us, records[0].end_us)
        for record in records:
            task, error = record.subject, errors.get(record.subject)
            self.records.runs.append(replace(record, start_us=start_us, end_us=end_us, error=error))
            if error is not None:
                self._fail(task, record.gpu, end_us, error)
            self._forget_inputs(task)
            self._forget(task)
        self.at(end_us, RUN_END, records[0].subject, records[0].gpu)
        return end_us

    def _start_apart(self, record: Record) -> int:
        """Return the start of a batch, no other batch of its class having the same on its GPU (rule T3b)."""
        batch = int(self._instance.template_batch[self._instance.task_template[record.subject]])
        start_us = record.start_us
        if batch != NONE:
            while (record.gpu, batch, start_us) in self._starts:
                start_us += 1
            self._starts.add((record.gpu, batch, start_us))
        return start_us

    def _begin_load(self, record: Record, load: partial[tuple[Span, int]], expected_us: int, tries: int) -> None:
        done = partial(self._load_done, record, partial(load, anew=True), expected_us, tries - 1)
        self._give(self._crew.copy[record.gpu], load, expected_us, done)

    def _load_done(
        self, record: Record, again: partial[tuple[Span, int]], expected_us: int, tries: int, order: Order
    ) -> None:
        """Report the end of a load; one that failed is tried again, and with the last try the GPU is lost."""
        gpu = record.gpu
        if order.error is None:
            span, moves_us = order.result
            loaded = replace(self._during(record, span), moves_us=moves_us)
            self.records.loads.append(loaded)
            self.at(loaded.end_us, LOAD_END, record.subject, gpu)
            return
        self._note_fault(f"load of {self._instance.models[record.subject].name}", gpu, order.error)
        if tries and gpu not in self._lost and not isinstance(order.error, LostError):
            self._begin_load(record, again, expected_us, tries)
        else:
            self._lose(gpu, order.error, self._wall_us(), record.subject)

    def _begin_transfer(self, record: Record, work: Callable[[], object], number: int, tries: int) -> None:
        done = partial(self._transfer_done, record, work, number, tries - 1)
        self._give(self._crew.incoming[record.gpu], work, record.expected_us, done)

    def _transfer_done(self, record: Record, work: Callable[[], object], number: int, tries: int, order: Order) -> None:
        """Report an arrival; a transfer that failed is tried again, and with the last try the job fails."""
        target, error = record.target or 0, None
        if order.error is None:
            received, span = order.result
            if target not in self._ran_on:  # else it was sent before the target moved elsewhere, and nobody wants it
                self._received.setdefault((record.subject, target), {})[record.gpu] = received
            record = self._during(record, span)
        else:
            self._note_fault(f"transfer to {self._instance.task_name(target)}", record.gpu, order.error)
            if isinstance(order.error, LostError):
                self._lose(record.gpu, order.error, self._wall_us())  # whoever waits for it goes elsewhere
                return
            if tries:
                self._begin_transfer(record, work, number, tries)
                return
            record, error = self._until_now(record, order), _in_words(order.error)
            self._fail(target, record.gpu, record.end_us, f"its input did not arrive: {error}")
        self.records.transfers.append(replace(record, error=error))
        self.at(max(record.ordered_us + record.expected_us, record.end_us), ARRIVAL, target, number)

    def _lose(self, gpu: int, error: BaseException, at_us: int, model: int = NOWHERE) -> None:
        """Report a GPU as lost, and a load there as one that will not end."""
        if gpu not in self._lost:
            self._note_fault(SET_ASIDE, gpu, error)
        elif model == NOWHERE:
            return
        self._lost.add(gpu)
        self.at(at_us, LOST, gpu, model)

    def _note_fault(self, what: str, gpu: int, error: BaseException) -> None:
        self.records.faults.append(Fault(what, gpu, self._wall_us(), _in_words(error)))

    def _fail(self, task: int, gpu: int | None, at_us: int, message: str) -> None:
        """Fail a task's job, once."""
        job = int(self._instance.task_job[task])
        if job not in self._failed_jobs:
            self._failed_jobs.add(job)
            self.records.failures.append(Failure(job, task, gpu, at_us, message))

    def _forget_inputs(self, task: int) -> None:
        """Forget what reached a task that is over, and outputs that it was the last to use."""
        for offset, _ in self._instance.inputs[int(self._instance.task_template[task])]:
            source = task + offset
            self._received.pop((source, task), None)
            self._uses_left[source] -= 1
            self._forget(source)

    def _forget(self, task: int) -> None:
        if not self._keep_outputs and self._uses_left[task] <= 0:
            self.outputs.pop(task, None)

    # -- tasks and times ------------------------------------------------------------------------------------------

    def _work(self, task: int, gpu: int, run_us: int) -> StationWork:
        """Return a task with the inputs that have reached its GPU."""
        instance = self._instance
        job = int(instance.task_job[task])
        workflow, first = instance.jobs[job].workflow, int(instance.job_first_task[job])
        described, inputs = workflow.tasks[task - first], {}
        for edge in described.inputs:
            source = first + workflow.position[edge.source]
            here = self._ran_on[source] == gpu
            inputs[edge.source] = self.outputs[source] if here else self._received[source, task][gpu], edge.size_bytes
        return StationWork(job, workflow.name, described.name, run_us, instance.task_needs(task), inputs)

    def _edge_bytes(self, source: int, target: int) -> int:
        """Return what travels between two tasks."""
        job = int(self._instance.task_job[target])
        tasks, first = self._instance.jobs[job].workflow.tasks, int(self._instance.job_first_task[job])
        name = tasks[source - first].name
        return next(edge.size_bytes for edge in tasks[target - first].inputs if edge.source == name)

    def _us(self, stamp_ns: int) -> int:
        return (stamp_ns - self._origin_ns) // 1000

    def _wall_us(self) -> int:
        return self._us(time.perf_counter_ns())

    def _during(self, record: Record, span: Span) -> Record:
        """Return a record of something that took place in a span."""
        start = max(record.ordered_us, self._us(span.start_ns))
        return replace(record, start_us=start, end_us=max(start, self._us(span.end_ns)))

    def _until_now(self, record: Record, order: Order) -> Record:
        """Return a record of something that failed or was given up."""
        start = record.ordered_us if order.began_ns is None else max(record.ordered_us, self._us(order.began_ns))
        end = self._wall_us() if order.ended_ns is None else self._us(order.ended_ns)
        return replace(record, start_us=start, end_us=max(start, end))


def _in_words(error: BaseException) -> str:
    """Return an error as one line."""
    said = str(error).partition("\n")[0].strip()
    return said if isinstance(error, DeviceError) else f"{type(error).__name__}: {said}".rstrip(": ")
