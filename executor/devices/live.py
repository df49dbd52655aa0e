"""The live device: has the engine's orders carried out by processes of GPUs, on a clock that runs by itself.

A failure never holds up the engine. A run that fails is reported as ended, the job's other tasks then end at once
without running, and the failure is kept; loads and transfers are tried again. A process that ends is started again, and
told once more what it had not done; the run that it was at has failed. So a policy goes on with the other jobs and need
not know. A GPU that fails for good is reported as lost.

What must be kept of a run is written down only when nothing else is to be done: until then the next one may wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappush
from itertools import chain
from typing import TypeVar

from torch import Tensor

from truenorth.executor.device import ARRIVAL, LOAD_END, LOST, RUN_END, STRIDE_END, Event
from truenorth.executor.devices.addresses import Packing
from truenorth.executor.devices.crew import POLL_S, Crew, DeviceProcess, Ending, load_arguments
from truenorth.executor.devices.decoding import TOKEN_BYTES, Answer
from truenorth.executor.devices.gpu_process import WITHDRAW
from truenorth.executor.devices.lane import Do, Ended, Lane, Order, join, let_be
from truenorth.executor.devices.outputs import Outputs
from truenorth.executor.devices.records import (
    SET_ASIDE,
    STARTED_AGAIN,
    TRIES,
    DeviceRecord,
    Digest,
    Failure,
    Fault,
    Faults,
    IterationRecord,
    MovedModel,
    Records,
)
from truenorth.executor.devices.shelf import Ref, digest
from truenorth.executor.devices.streams import Span
from truenorth.executor.devices.weights import ENTIRE, Part
from truenorth.executor.errors import DeviceError
from truenorth.executor.execution import NOWHERE
from truenorth.models import NONE, Instance
from truenorth.models.strides import Iteration, StreamRun, Stride

R = TypeVar("R", bound=DeviceRecord)

_US_PER_S = 1_000_000
_AWAKE_S = 0.0003
"""How long before an instant that is known nobody sleeps any more: timers come a tenth of a millisecond late."""
_BREATH_S = 0.0005
"""How long lanes have Python to themselves, to begin what was ordered, before anything is written down."""


@dataclass(frozen=True, slots=True)
class _DeviceRun:
    """A batch that the engine ordered, maybe after it was queued; `errors` are those of members that do not run."""

    tasks: Sequence[int]
    gpu: int
    ordered_us: int
    expected_us: int
    errors: Mapping[int, str]
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class _Copy:
    """A load on one GPU, maybe of a part: its arguments, and those after an unknown part of it was done."""

    gpu: int
    args: Sequence[int]
    anew: Sequence[int]

    def again(self) -> Sequence[int]:
        """Return what to do it with once more."""
        return self.anew


@dataclass(slots=True)
class _Queued:
    """A batch behind the one that runs on its GPU, before the engine has ordered it."""

    tasks: tuple[int, ...]
    order: Order
    has_ended: bool = False

    def note_end(self, order: Order) -> None:
        """Keep the report until the engine orders the run."""
        self.has_ended = True


@dataclass(frozen=True, slots=True)
class _DeviceIteration:
    """An iteration as it was ordered.

    Parameters
    ----------
    record, number, iteration
        What is measured of it, its number for the engine, and who takes part.
    members
        Those whose jobs have not failed.
    answers
        What is put out at its end.
    joining
        Requests that take KV in.
    """

    record: IterationRecord
    number: int
    iteration: Iteration
    members: Sequence[int]
    answers: Sequence[Answer]
    joining: Sequence[int]


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
        Whether outputs are kept.

    Attributes
    ----------
    now
        Microseconds since `begin`, as of the latest event.
    exact
        Never: things take as long as they take.
    queues
        Whether a batch may be queued up behind the one that runs: not where some take several GPUs.
    iterates
        Always: who joins an iteration is known when the one before it has ended.
    shows
        Never: nobody reads what runs print.
    outputs
        Where lies what tasks have put out.
    digests, kept
        Of outputs that nobody needs any more, by task, and these themselves if they are kept.
    """

    exact = False
    iterates = True
    shows = False

    def __init__(self, instance: Instance, crew: Crew, packing: Packing, keep_outputs: bool) -> None:
        self.now = 0
        self.queues = not instance.gangs
        self.outputs = Outputs(instance, self._leave, crew.free)
        self.digests: dict[int, Digest] = {}
        self.kept: dict[int, Tensor] = {}
        self._keep_outputs = keep_outputs
        self._instance, self._crew, self._packing = instance, crew, packing
        self._places = instance.places.gpus
        self._job: list[int] = instance.task_job.tolist()
        self._template: list[int] = instance.task_template.tolist()
        self._gpu_class: list[int] = instance.gpu_class.tolist()
        if instance.streams is not None:
            self._stream: list[int] = instance.streams.template.tolist()
            self._prompt: list[int] = instance.streams.prompt.tolist()
            self._answer: list[int] = instance.streams.output.tolist()
            self._goes_on: list[int] = instance.streams.goes_on.tolist()
        self._records = Records()
        self._unwritten: list[Callable[[], None]] = []
        self._latest: dict[int, tuple[Sequence[int], Order]] = {}
        self._queued: dict[int, _Queued] = {}
        self.events: list[Event] = []
        self._sequence = 0
        self._under_way = 0
        self._origin_ns = 0
        self._loads_on = [0] * instance.n_gpus
        self._ended_us = [0] * instance.n_gpus
        self._faults = Faults()
        self._lost: set[int] = set()
        self._abandoned: set[int] = set()
        self._served: dict[int, Sequence[int]] = {}
        self._failed_jobs: set[int] = set()
        self._starts: set[tuple[int, int, int]] = set()

    def begin(self) -> None:
        """Start the clock."""
        self._origin_ns = time.perf_counter_ns()

    # -- what the engine orders -----------------------------------------------------------------------------------

    @property
    def records(self) -> Records:
        """What was measured."""
        self._write_down()
        return self._records

    def run(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        """Have a batch run without the tasks whose job has failed; it may be queued up already."""
        errors: dict[int, str] = {}
        if self._failed_jobs:
            failed = ((task, self._job[task]) for task in tasks if self._job[task] in self._failed_jobs)
            errors = {task: f"job {job} had failed" for task, job in failed}
        run = _DeviceRun(tasks, gpu, self.now, expected_us, errors)
        self.outputs.note_place(tasks, gpu)
        queued = self._queued.pop(gpu, None)
        if queued is not None:
            if queued.tasks == tuple(tasks) and not errors:
                self._take_up(queued, run)
                return
            self._withdraw(queued)
        members = [task for task in tasks if task not in errors] if errors else tasks
        if not members:
            self._latest.pop(gpu, None)
            self._end_run(run, self.now, self.now, errors)
            return
        if gpu >= self._instance.n_gpus:
            self._run_together(run, tasks[0])
            return
        order = self._order_of(members, gpu, expected_us, (), partial(self._run_done, run))
        self._latest[gpu] = members, order
        self._give(self._crew.compute_lane(gpu), order)

    def _run_together(self, run: _DeviceRun, task: int) -> None:
        """Have a task run on every GPU of its place, none of which runs anything else."""
        number, limit_s = self._crew.meet(run.gpu), self._limit_s(run.expected_us)
        orders = []
        for gpu in self._places[run.gpu]:
            args = [run.expected_us, run.gpu, task, number, *self.outputs.places(task, gpu)]
            orders.append(Order(Do.RUN_TOGETHER, gpu, args, limit_s, let_be))

        def done(as_one: Order) -> None:
            """Take in how it ended; the output is the same on all, and stays there for whoever follows."""
            if as_one.error is None:
                refs = [Ref(self._crew.process[order.gpu].index, *order.results) for order in orders]
                self.outputs.keep(task, refs)
            else:
                self._crew.part(run.gpu)
            self._run_done(run, as_one)

        join(orders, done)
        for order in orders:
            self._give(self._crew.compute_lane(order.gpu), order)

    def queue(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        """Have a batch ready behind the one that runs on its GPU, so that it starts at once when that ends."""
        queued = self._queued.get(gpu)
        if gpu not in self._latest or (queued is not None and queued.tasks == tuple(tasks)):
            return
        if queued is not None:
            self._withdraw(self._queued.pop(gpu))
        if self._failed_jobs and any(self._job[task] in self._failed_jobs for task in tasks):
            return
        before, order = self._latest[gpu]
        queued = _Queued(tuple(tasks), self._order_of(tasks, gpu, expected_us, before, let_be))
        self._queued[gpu] = queued
        queued.order.done = queued.note_end
        self._give(order.lane or self._crew.compute_lane(gpu), queued.order)

    def _order_of(
        self, tasks: Sequence[int], gpu: int, expected_us: int, before: Sequence[int], done: Callable[[Order], None]
    ) -> Order:
        """Return the order of a batch, whose inputs the one before it on the same lane may still have to put out."""

        def arguments() -> list[int]:
            coming = [task for task in before if task not in self.outputs.of]
            places = chain.from_iterable(self.outputs.places(task, gpu, coming) for task in tasks)
            return [expected_us, len(tasks), *tasks, *places]

        return Order(Do.RUN, gpu, arguments(), self._limit_s(expected_us), done, arguments)

    def serve(self, gpu: int, number: int, run: StreamRun, stride: Stride) -> None:
        """Have an iteration taken, without the requests of jobs that have failed."""
        iteration = run.iteration()
        for task, _, _ in iteration.prompts:
            self.outputs.note_place((task,), gpu)
        members = [task for task in iteration.members if self._job[task] not in self._failed_jobs]
        if gpu in self._lost:
            for task in members:
                self._fail(task, gpu, self.now, "its GPU is lost")
            members = []
        self._served[gpu] = [task for task in members if task not in iteration.last]
        if not members:
            self._pass_on(gpu, number, iteration, self.now)
            return
        prompt_tokens = sum(taken for _, _, taken in iteration.prompts)
        template, now = self._template[members[0]], self.now
        stream, decodes = self._stream[template], len(iteration.decodes)
        times = now, now, now, stride.length_us
        record = IterationRecord(stream, gpu, *times, prompt_tokens=prompt_tokens, decodes=decodes)
        reads = [(task, self._prompt[task] - rest, taken) for task, rest, taken in iteration.prompts if task in members]
        writes = [task for task in iteration.decodes if task in members]
        answers = [self._answer_of(task) for task in iteration.last if task in members]
        taken = {task: kv for task in writes if (kv := self.outputs.take_kv(task, gpu)) is not None}
        self.outputs.note_place(list(taken), gpu)
        sent = [(task, self._prompt[source], ref.piece, ref.offset) for task, (source, ref) in taken.items()]
        counts = template, len(reads), len(writes), len(answers), len(sent)
        args = [*counts, *chain(*reads), *writes, *chain(*answers), *chain(*sent)]
        done = partial(self._iteration_done, _DeviceIteration(record, number, iteration, members, answers, list(taken)))
        self._give(self._crew.compute_lane(gpu), Order(Do.ITERATE, gpu, args, self._limit_s(stride.length_us), done))

    def _answer_of(self, task: int) -> Answer:
        """Return what a request is to put out: of one that goes on with an answer what comes after its first token."""
        before = self._goes_on[task]
        begin = self._prompt[task] if before == task else self._prompt[before] + 1
        return Answer(task, begin, self._answer[task], self.outputs.sends_kv(task))

    def load(self, model: int, gpu: int, slot: int | None, expected_us: int) -> None:
        """Have a model copied to its address, after those that must make way; at a place a part to each of its GPUs."""
        size = self._instance.held_bytes(model, gpu)
        record = DeviceRecord(model, gpu, self.now, self.now, self.now, expected_us, size)
        gpus, longest_us = self._places[gpu], expected_us
        copies = []
        for rank, each in enumerate(gpus):
            space, number = self._crew.spaces[each], self._loads_on[each]
            part = ENTIRE if len(gpus) == 1 else Part(rank, len(gpus))
            self._loads_on[each] += 1
            moves = space.take(model, slot, self._packing.loads.get((each, number)), part)
            self._records.moves += [MovedModel(move.model, each, self.now) for move in moves]
            args, anew = (load_arguments(model, space.address[model], moves, again, part) for again in (False, True))
            copies.append(_Copy(each, args, anew))
            moved_us = sum(self._instance.load_time(move.model, each) for move in moves)
            longest_us = max(longest_us, expected_us + moved_us)
        self._begin_load(record, copies, longest_us, TRIES)

    def evict(self, model: int, gpu: int) -> None:
        """Give a model's address away, on every GPU that has a part of it."""
        for each in self._places[gpu]:
            if model in self._crew.spaces[each].address:
                self._crew.spaces[each].free(model)

    def drop(self, tasks: Sequence[int]) -> None:
        """Fail the job of tasks that no GPU is left to run."""
        self._fail(tasks[0], None, self.now, "no GPU is left that can run all of it")
        self.outputs.note_place(tasks, NOWHERE)
        for task in tasks:
            self.outputs.forget_inputs(task)

    def send(self, source: int, target: int, gpu: int, number: int, expected_us: int) -> bool:
        """Have an output travel; it arrives when it is there, but no earlier than given."""
        size = self.outputs.edge_bytes(source, target)
        record = DeviceRecord(source, gpu, self.now, self.now, self.now, expected_us, size, target)
        if self._job[source] in self._failed_jobs:
            self.at(self.now + expected_us, ARRIVAL, target, number)
            return False
        lacking = self.outputs.lacks(source, gpu)
        if not lacking:  # every GPU of the place has put it out
            return True
        self._begin_transfer(record, lacking, number, TRIES)
        return False

    def at(self, time_us: int, kind: int, subject: int, number: int) -> None:
        """Have an event reported at a time."""
        self._sequence += 1
        heappush(self.events, (time_us, kind, self._sequence, subject, number))

    def next(self, until_us: int | None) -> int | None:
        """Wait for the next event, or for a time if that comes first, and return it; None if nothing is under way."""
        self._take_reports(0)
        while True:
            wall = self._wall_us()
            latest = wall if until_us is None else min(wall, until_us)
            if self.events and self.events[0][0] <= latest:
                self.now = max(self.now, self.events[0][0])
                return self.now
            if until_us is not None and until_us <= wall:
                self.now = max(self.now, until_us)
                return self.now
            if until_us is None and not self.events and not self._under_way:
                return None
            pause_s = self._pause_s(until_us, wall)
            if not self._unwritten or not pause_s:
                self._take_reports(pause_s)
            elif not self._take_reports(min(pause_s, _BREATH_S)):
                self._write_down()

    def _pause_s(self, until_us: int | None, wall_us: int) -> float:
        """Return how long to sleep, since nothing can happen but a report, or a limit that is exceeded."""
        times = [time_us for time_us in (until_us, self.events[0][0] if self.events else None) if time_us is not None]
        pauses = [(time_us - wall_us) / _US_PER_S - _AWAKE_S for time_us in times]
        return max(0.0, min([*pauses, POLL_S]))

    # -- how orders end -------------------------------------------------------------------------------------------

    def _limit_s(self, expected_us: int) -> float:
        """Return how long something may take before it is given up."""
        return self._crew.limit_s + expected_us / _US_PER_S

    def _give(self, lane: Lane, order: Order) -> None:
        """Hand an order to a lane, unless nobody serves it any more."""
        if self._crew.process[order.gpu].index in self._abandoned:
            self._give_up(order)
            return
        self._under_way += 1
        lane.submit(order)

    def _give_up(self, order: Order) -> None:
        """Fail what was ordered of a GPU that is lost."""
        order.fail("its GPU is lost", self._origin_ns, time.perf_counter_ns())
        order.done(order)

    def _iteration_done(self, ordered: _DeviceIteration, order: Order) -> None:
        """Take in how an iteration ended."""
        if order.error is not None:
            self._iteration_failed(ordered, order, order.error)
            return
        piece, numbers = self._crew.process[order.gpu].index, iter(order.results)
        for answer in ordered.answers:
            self.outputs.of[answer.request] = Ref(piece, next(numbers), next(numbers))
            if answer.with_kv:
                self.outputs.keep_kv(answer.request, Ref(piece, next(numbers), next(numbers)))
        self._faults.note_success(order.gpu, self._template[ordered.members[0]])
        self._end_iteration(ordered, self._during(ordered.record, order.span))

    def _iteration_failed(self, ordered: _DeviceIteration, order: Order, error: str) -> None:
        """Take in that an iteration has failed, and with it the jobs of all its requests."""
        record = replace(self._until_now(ordered.record, order), error=error)
        for task in ordered.members:
            self._fail(task, record.gpu, record.end_us, error)
        self._end_iteration(ordered, record)
        self._note_failed(record.gpu, ordered.members[0], order, error, record.end_us)

    def _end_iteration(self, ordered: _DeviceIteration, record: IterationRecord) -> None:
        """Report the end of an iteration, and forget what the requests have needed that end with it."""
        self._records.iterations.append(record)
        self._unwritten.extend(partial(self.outputs.forget_kv, task) for task in ordered.joining)
        self._pass_on(record.gpu, ordered.number, ordered.iteration, record.end_us)

    def _pass_on(self, gpu: int, number: int, iteration: Iteration, end_us: int) -> None:
        self.at(end_us, STRIDE_END, gpu, number)
        self._unwritten.extend(partial(self.outputs.forget_inputs, task) for task in iteration.last)

    def _take_up(self, queued: _Queued, run: _DeviceRun) -> None:
        """Let a batch that is queued up be the run that the engine orders; it may be over already."""
        order = queued.order
        self._latest[run.gpu] = run.tasks, order
        # What allowed it is the end before it, on the same lane: it cannot have begun earlier.
        ordered_us = min(run.ordered_us, self._ended_us[run.gpu])
        done = partial(self._run_done, replace(run, ordered_us=ordered_us, ahead=True))
        if queued.has_ended:
            done(order)
        else:
            order.done = done

    def _withdraw(self, queued: _Queued) -> None:
        """Let nothing come of a batch that is queued up; it may have begun already."""
        queued.order.done = let_be
        self._crew.process[queued.order.gpu].tell(WITHDRAW, queued.order.number)

    def _take_reports(self, wait_s: float) -> bool:
        """Take in what is reported within some seconds; say whether anything was."""
        orders = self._crew.take_reports(wait_s)
        for order in orders:
            self._under_way -= 1
            order.done(order)
        if self._crew.endings:
            endings, self._crew.endings = self._crew.endings, []
            for ending in endings:
                self._go_on_after(ending)
            return True
        return bool(orders)

    def _go_on_after(self, ending: Ending) -> None:
        """Fail the runs that ended a process and start it again; too often, and its GPUs are lost."""
        process, blamed = ending.process, ending.blamed
        gpu = blamed[0].gpu if blamed else process.gpus[0]
        for its in process.gpus:
            for task in self._served.pop(its, ()):  # what they have read and said so far is gone
                self._fail(task, its, self._wall_us(), ending.why)
        for order in blamed:
            self._under_way -= 1
            queued = self._queued.get(order.gpu)
            if queued is not None and queued.order is order:  # the engine has yet to order it, maybe elsewhere
                for task in queued.tasks:
                    self._fail(task, order.gpu, self._wall_us(), ending.why)
            order.done(order)
        self._note_fault(STARTED_AGAIN, gpu, ending.why)
        at_fault = [
            self._template[order.args[2]] if order.do in (Do.RUN, Do.RUN_TOGETHER) else order.args[0]
            for order in blamed
        ]
        others = self._can_lose(*process.gpus)
        if self._faults.note_ending(process.gpus[0], at_fault) and (others or not blamed):
            # At the instant of the run's end, lest the next one begin there.
            at_us = self._ended_us[gpu] if blamed else self._wall_us()
            for its in process.gpus:
                self._lose(its, ending.why, at_us)
        if self._lost.issuperset(process.gpus) and not blamed:
            self._abandon(process)
        else:
            self._crew.start(process)  # to end what had begun, even where nothing begins any more

    def _can_lose(self, *gpus: int) -> bool:
        """Say whether GPUs are left without some; not where places of several would be left without one."""
        return not self._instance.gangs and len(self._lost.union(gpus)) < self._instance.n_gpus

    def _abandon(self, process: DeviceProcess) -> None:
        """Fail all that was ordered of a process that cannot be started."""
        self._abandoned.add(process.index)
        for order in [order for lane in process.lanes for order in lane.under_way.values()]:
            self._under_way -= 1
            self._give_up(order)

    def _run_done(self, run: _DeviceRun, order: Order) -> None:
        """Take in how a batch ended."""
        if order.error is not None:
            self._run_failed(run, order, order.error)
            return
        members = [task for task in run.tasks if task not in run.errors] if run.errors else run.tasks
        if order.do == Do.RUN:
            self._put_out(members, order)
        start_us, end_us = self._us(order.span.start_ns), self._us(order.span.end_ns)
        self._end_run(run, max(run.ordered_us, start_us), end_us, run.errors)
        self._faults.note_success(order.gpu, self._template[run.tasks[0]])

    def _put_out(self, tasks: Sequence[int], order: Order) -> None:
        """Take note of where outputs lie."""
        piece, results = self._crew.process[order.gpu].index, order.results
        for at, task in enumerate(tasks):
            self.outputs.of[task] = Ref(piece, results[2 * at], results[2 * at + 1])

    def _run_failed(self, run: _DeviceRun, order: Order, error: str) -> None:
        """Take in that a batch has failed."""
        start_us = run.ordered_us if order.began_ns is None else max(run.ordered_us, self._us(order.began_ns))
        end_us = self._wall_us() if order.ended_ns is None else self._us(order.ended_ns)
        end_us = self._end_run(run, start_us, end_us, dict.fromkeys(run.tasks, error) | dict(run.errors))
        self._note_failed(order.gpu, run.tasks[0], order, error, end_us)

    def _note_failed(self, gpu: int, task: int, order: Order, error: str, at_us: int) -> None:
        """Set a GPU aside if what failed there says that it has to be."""
        others = self._can_lose(gpu)
        if order.how != Ended.GIVEN_UP and self._faults.note_run(gpu, self._template[task]) and others:
            self._lose(gpu, error, at_us)

    def _end_run(self, run: _DeviceRun, start_us: int, end_us: int, errors: Mapping[int, str]) -> int:
        """Report the end of a batch, note which jobs have failed with it, and return when it ended."""
        if self._instance.batches:
            start_us = self._start_apart(run, start_us)
        end_us = max(start_us, end_us)
        for gpu in self._places[run.gpu]:
            self._ended_us[gpu] = end_us
        self.at(end_us, RUN_END, run.tasks[0], run.gpu)
        for task, error in errors.items():
            self._fail(task, run.gpu, end_us, error)
        self._unwritten.append(partial(self._write_run, run, start_us, end_us, errors))
        return end_us

    def _write_run(self, run: _DeviceRun, start_us: int, end_us: int, errors: Mapping[int, str]) -> None:
        """Keep the records of a batch, and forget inputs that nobody needs any more."""
        for task in run.tasks:
            times = run.ordered_us, start_us, end_us, run.expected_us
            record = DeviceRecord(task, run.gpu, *times, error=errors.get(task), ahead=run.ahead)
            self._records.runs.append(record)
            self.outputs.forget_inputs(task)

    def _write_down(self) -> None:
        for write in self._unwritten:
            write()
        self._unwritten.clear()

    def _start_apart(self, run: _DeviceRun, start_us: int) -> int:
        """Return the start of a batch, no other batch of its class having the same on its GPU (rule T3b)."""
        batch = int(self._instance.template_batch[self._template[run.tasks[0]]])
        if batch != NONE:
            while (run.gpu, batch, start_us) in self._starts:
                start_us += 1
            self._starts.add((run.gpu, batch, start_us))
        return start_us

    def _begin_load(self, record: DeviceRecord, copies: Sequence[_Copy], expected_us: int, tries: int) -> None:
        limit_s, anew = self._limit_s(expected_us), [replace(copy, args=copy.anew) for copy in copies]
        orders = [Order(Do.LOAD, copy.gpu, copy.args, limit_s, let_be, copy.again) for copy in copies]
        join(orders, partial(self._load_done, record, anew, expected_us, tries - 1))
        for order in orders:
            self._give(self._crew.copy[order.gpu], order)

    def _load_done(
        self, record: DeviceRecord, anew: Sequence[_Copy], expected_us: int, tries: int, order: Order
    ) -> None:
        """Report the end of a load; one that failed is tried again, and with the last try the GPU is lost."""
        gpu = order.gpu
        if order.error is None:
            loaded = replace(self._during(record, order.span), moves_us=order.results[0])
            self._records.loads.append(loaded)
            self.at(loaded.end_us, LOAD_END, record.subject, record.gpu)
            return
        if order.how != Ended.GIVEN_UP:
            self._note_fault(f"load of {self._instance.models[record.subject].name}", gpu, order.error)
        if tries and gpu not in self._lost:
            self._begin_load(record, anew, expected_us, tries)
        else:
            self._lose(gpu, order.error, self._wall_us(), record.subject)

    def _begin_transfer(self, record: DeviceRecord, lacking: Sequence[int], number: int, tries: int) -> None:
        """Have an output travel to some GPUs, from where everybody can read it."""
        target, limit_s = record.target or 0, self._limit_s(record.expected_us)
        ref = self.outputs.between(record.subject, target)
        assert ref is not None  # noqa: S101  # its task waits for it
        source = self._places[self.outputs.ran_on[record.subject]][0]
        first_token = TOKEN_BYTES if self.outputs.moves_kv(record.subject, target) else 0
        args = ref.piece, ref.offset, record.size_bytes + first_token, self._instance.cluster.network.staged
        orders = [Order(Do.RECEIVE, gpu, args, limit_s, let_be) for gpu in lacking]
        done = partial(self._transfer_done, record, orders, number, tries - 1)
        join(orders, done)

        def receive() -> None:
            """Have it received everywhere."""
            for order in orders:
                self._give(self._crew.incoming[order.gpu], order)

        if not self._crew.physical[source].is_cuda:
            receive()
            return

        def published(order: Order) -> None:
            """Go on with the second half of the way."""
            if order.error is None:
                receive()
            else:
                order.how = Ended.REFUSED  # even if it is given up: who waits for it is elsewhere, and goes on waiting
                done(order)

        self._give(self._crew.incoming[source], Order(Do.PUBLISH, source, ref[:2], limit_s, published))

    def _transfer_done(
        self, record: DeviceRecord, received: Sequence[Order], number: int, tries: int, order: Order
    ) -> None:
        """Report an arrival; a transfer that failed is tried again, and with the last try the job fails."""
        target, error = record.target or 0, order.error
        for each in received:
            if each.error is None and each.results:
                copy = Ref(self._crew.process[each.gpu].index, *each.results)
                if error is None:
                    self.outputs.receive(record.subject, target, each.gpu, copy)
                else:  # it did not arrive on all
                    self._crew.free(copy)
        if error is None:
            record = self._during(record, order.span)
        elif order.how == Ended.GIVEN_UP or self.outputs.between(record.subject, target) is None:
            return  # whoever waits for it goes elsewhere, or is over
        else:
            self._note_fault(f"transfer to {self._instance.task_name(target)}", order.gpu, error)
            if tries:
                self._begin_transfer(record, [each.gpu for each in received], number, tries)
                return
            record = self._until_now(record, order)
            self._fail(target, record.gpu, record.end_us, f"its input did not arrive: {error}")
        self._records.transfers.append(replace(record, error=error))
        self.at(max(record.ordered_us + record.expected_us, record.end_us), ARRIVAL, target, number)

    def _lose(self, gpu: int, error: str, at_us: int, model: int = NOWHERE) -> None:
        """Report a GPU as lost, and a load there as one that will not end.

        Raises
        ------
        DeviceError
            If some runs take several GPUs, which nobody places anew.
        """
        if self._instance.gangs:
            name = self._instance.cluster.gpus[gpu].id
            raise DeviceError(f"{name} serves no longer, and where runs take several GPUs none is set aside: {error}")
        if gpu not in self._lost:
            self._note_fault(SET_ASIDE, gpu, error)
        elif model == NOWHERE:
            return
        self._lost.add(gpu)
        self._latest.pop(gpu, None)  # nothing is queued there until the engine knows
        for queued in self._queued.values():  # whoever decides from now on may use memories otherwise
            self._withdraw(queued)
        self._queued.clear()
        self.at(at_us, LOST, gpu, model)

    def _note_fault(self, what: str, gpu: int, said: str) -> None:
        self._records.faults.append(Fault(what, gpu, self._wall_us(), said))

    def _fail(self, task: int, gpu: int | None, at_us: int, message: str) -> None:
        """Fail a task's job, once."""
        job = self._job[task]
        if job not in self._failed_jobs:
            self._failed_jobs.add(job)
            self._records.failures.append(Failure(job, task, gpu, at_us, message))

    def _leave(self, task: int, ref: Ref) -> None:
        """Take leave of an output, once the head can read it."""
        gpu = self._crew.processes[ref.piece].gpus[0]
        if self._crew.is_here and not self._crew.physical[gpu].is_cuda:
            self._digest(task, ref)
            return

        def published(order: Order) -> None:
            """Read it, unless it was lost with its device."""
            if order.error is None:
                self._digest(task, ref)
            else:
                self._crew.free(ref)

        self._give(self._crew.incoming[gpu], Order(Do.PUBLISH, gpu, ref, self._limit_s(0), published))

    def _digest(self, task: int, ref: Ref) -> None:
        """Keep the digest of an output, and the output itself at most in the head's memory."""
        output = self._crew.shelf.read(ref)
        self.digests[task] = digest(output)
        if self._keep_outputs:
            self.kept[task] = output.clone()
        self._crew.free(ref)

    def finish(self) -> None:
        """Wait for what is still under way, and take leave of all outputs."""
        self._write_down()
        self.outputs.finish()
        while self._under_way:
            self._take_reports(POLL_S)

    # -- times ----------------------------------------------------------------------------------------------------

    def _us(self, stamp_ns: int) -> int:
        return (stamp_ns - self._origin_ns) // 1000

    def _wall_us(self) -> int:
        return self._us(time.perf_counter_ns())

    def _during(self, record: R, span: Span) -> R:
        """Return a record of something that took place in a span."""
        start = max(record.ordered_us, self._us(span.start_ns))
        return replace(record, start_us=start, end_us=max(start, self._us(span.end_ns)))

    def _until_now(self, record: R, order: Order) -> R:
        """Return a record of something that failed or was given up."""
        start = record.ordered_us if order.began_ns is None else max(record.ordered_us, self._us(order.began_ns))
        end = self._wall_us() if order.ended_ns is None else self._us(order.ended_ns)
        return replace(record, start_us=start, end_us=max(start, end))
