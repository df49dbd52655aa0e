"""Requests of streams on the execution: who may join where, and the strides of GPUs that serve (rules S1 to S4, E3).

A GPU stands at a boundary only when one of its strides ends there. What could let somebody join before, an arrival, a
load or a time that has come, cuts the stride short at the next boundary; so equal iterations cost one event.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from truenorth.executor.device import Device
from truenorth.executor.errors import IllegalActionError
from truenorth.executor.execution import NOWHERE, Arrivals, Execution
from truenorth.executor.knowledge import WorkflowTables
from truenorth.models import NONE, Instance, Job, ServedRequests, Timeline, Tokens
from truenorth.models.caches import cache_on
from truenorth.models.cluster import Availability
from truenorth.models.gpu_state import Request, block_bytes
from truenorth.models.prefixes import Chain
from truenorth.models.strides import Rank, StreamRun, Stride
from truenorth.models.timeline import CutRun, Leave


class ServingExecution(Execution):
    """The execution with requests of streams; other tasks are the site's business.

    Parameters
    ----------
    instance, device, listener, there, foreseen
        As for the execution.
    knows_lengths
        Whether the policy is told how long answers will be, when their jobs are released.

    Attributes
    ----------
    first_us
        Per task released so far: when its first token came; -1: not yet, or no request.
    limits
        Most requests at once by GPU, where a plan or policy limits them; seats are a limit besides.
    caches, chains
        Whether GPUs cache prefixes (rule E4) or hold KV (E5); then, per task released so far, the blocks of its prompt.
    cut
        The runs of requests that had not ended when their GPU went, in the order in which they were cut.
    ranks
        Where requests stand that came to a GPU, if a higher priority preempts; None: none does.
    """

    __slots__ = (
        "_answers", "_at_boundary", "_cached", "_changing", "_joins", "_leaves", "_left", "_order", "_stride_number",
        "_strides", "caches", "chains", "cut", "first_us", "knows_lengths", "limits", "ranks", "serves_streams",
    )  # fmt: skip

    def __init__(
        self,
        instance: Instance,
        device: Device,
        listener: Arrivals,
        there: Sequence[Availability] = (),
        foreseen: bool = False,
        knows_lengths: bool = False,
    ) -> None:
        super().__init__(instance, device, listener, there, foreseen)
        self.serves_streams = instance.streams is not None
        self.knows_lengths = knows_lengths
        self.first_us: list[int] = []
        self.limits: dict[int, int] = {}
        self._answers: list[int] = []
        self._strides: dict[int, Stride] = {}
        self._stride_number = [0] * self.n_gpus
        self._at_boundary: dict[int, None] = {}
        self._joins = 0
        self._order: dict[int, int] = {}
        self.cut: list[CutRun] = []
        self.ranks: dict[int, Rank] | None = None
        self._left: dict[int, Leave] = {}  # by who waits to join again
        self._leaves: list[Leave] = []
        self.caches = instance.streams is not None and instance.streams.prefixes is not None
        self.chains: list[Chain] = []
        self._cached: dict[int, int] = {}
        self._changing: dict[int, None] = {}
        for state, gpu_class in zip(self.state, self.gpu_class, strict=True) if self.caches else ():
            state.cache = cache_on(instance.streams, gpu_class)

    def preempt_by_rank(self) -> dict[int, Rank]:
        """Have a higher priority preempt lower ones where KV grows; return the ranks, for whoever sends requests."""
        self.ranks = {}
        for state in self.state:
            state.ranks = self.ranks
        return self.ranks

    def release_requests(
        self, job: Job, tables: WorkflowTables, ingress: int, tokens: Sequence[Tokens], chains: Sequence[Chain]
    ) -> int:
        """Make a job with requests known, whose tasks have these tokens and blocks, and return its index.

        How long its answers will be is kept back, unless the policy knows lengths.
        """
        # What it will hold decides where it fits; the policy is shown the GPUs, not the number.
        number = self.release(job, tables, ingress, [request.held for request in tokens])
        self._answers.extend(request.output for request in tokens)
        known = self.knows_lengths
        self.tokens.extend(request if known else request._replace(output=0) for request in tokens)
        self.first_us.extend([-1] * len(tokens))
        self.chains.extend(chains)
        return number

    def could_end(self, task: int, gpu: int) -> bool:
        """Say whether a task, if a GPU can run it, could end there before it goes, loads of all it needs included.

        A request only has to join there in time (rule E3), with the models that are ready now.
        """
        if self.stays:
            return True
        is_request = self.stream[self.template[task]] != NONE
        return self._ends_in_time(task, gpu, self.memory[gpu].ready if is_request else ())

    def in_time(self, task: int, gpu: int) -> bool:
        """Say whether a task could end before its GPU goes, a request join before it drains, loads included."""
        return self._ends_in_time(task, gpu, self.memory[gpu].ready)

    def _ends_in_time(self, task: int, gpu: int, ready: Collection[int]) -> bool:
        """Say whether a task could end, a request join, in time with these models ready and the others loaded first."""
        load_us = sum(self.load_time(model, gpu) for model in self.needs[self.template[task]] if model not in ready)
        if self.stream[self.template[task]] != NONE:
            return self.now + load_us < self._drains_us(gpu)
        return self.now + load_us + self.run_time(task, gpu) <= self.place_goes(gpu)

    def _drains_us(self, gpu: int) -> int:
        """Return from when on requests are not sent to a GPU any more, since it is to go."""
        return self.goes_us[gpu] - self.cluster.gpus[gpu].drain_us

    def drain(self, gpu: int) -> list[int]:
        """Take the requests that have not joined off a GPU that is to go soon; return them.

        None where it was foreseen.
        """
        left = [] if self._foreseen else self._waiting_on(gpu)
        left = [task for task in left if self.stream[self.template[task]] != NONE]
        for task in left:
            self.take_back(task)
        return left

    def go(self, gpu: int) -> list[int]:
        """Have a GPU no more; return the tasks that have no GPU now, requests that it served among them."""
        return sorted([*self._cut_off(gpu), *super().go(gpu)])

    def _cut_off(self, gpu: int) -> list[int]:
        """Take the requests that a GPU serves off it, as if they had never joined; return them."""
        tasks = self.state[gpu].stop_serving()
        for task in tasks:
            self.cut.append(CutRun(task, gpu, self.started_us[task], self.now, self._order[task]))
            if task in self._left:
                self._leaves.append(self._left.pop(task))
            self.started_us[task] = -1
            self.take_back(task)
            # KV that came in is lost, too: all of the prompt is to be computed.
            if not self.tokens[task].uncached:
                self.tokens[task] = self.tokens[task]._replace(uncached=self.tokens[task].prompt)
        if tasks:
            self._strides.pop(gpu, None)
            self._stride_number[gpu] += 1
            self._at_boundary.pop(gpu, None)
        return tasks

    def kv_bytes(self, task: int, gpu: int) -> int:
        """Return the bytes of KV that a request holds on a GPU from its start to its end."""
        return self._held[task] * self.speed(task, gpu).kv_bytes

    def _joining_bytes(self, task: int, gpu: int) -> int:
        """Return the bytes of KV that a request needs to join: all that it will hold, or its prompt's blocks."""
        speed = self.speed(task, gpu)
        if not speed.block:
            cache = self.state[gpu].cache
            return self.kv_bytes(task, gpu) - (0 if cache is None else cache.most(self.chains[task]))
        return -(-self.tokens[task].prompt // speed.block) * block_bytes(speed)

    def refuse_request(self, task: int) -> str | None:
        """Return what keeps a request from joining on its GPU, were it a boundary; None if nothing does."""
        gpu = self.gpu[task] if 0 <= task < len(self.gpu) else NOWHERE
        if gpu == NOWHERE or self.started_us[task] >= 0 or self.stream[self.template[task]] == NONE:
            return f"S2 task {task}: has no GPU yet, has started already, or is no request"
        if self.inputs_missing[task]:
            return f"T2 task {task}: {self.inputs_missing[task]} inputs have not arrived"
        if not self.stays and self.now >= self._drains_us(gpu):
            return f"E3 task {task}: GPU {gpu} is not there, or takes no more requests before it goes"
        return self.state[gpu].refuse_request(self._request(task, gpu), self.limits.get(gpu, 0))

    def lacks_room(self, task: int) -> int:
        """Return the bytes of memory that a request lacks on its GPU if it lacks nothing else, 0 otherwise."""
        gpu = self.gpu[task]
        request = self._request(task, gpu)
        lacking = self.state[gpu].lacks_kv(request)
        # Asked once more as if it held nothing: then memory alone is what it lacks.
        request.kv_bytes, request.chain = 0, ()
        return lacking if self.state[gpu].refuse_request(request, self.limits.get(gpu, 0)) is None else 0

    def may_join(self, task: int) -> bool:
        """Say whether a request may join on its GPU now; where only a boundary is missing the next one is told of."""
        if self.refuse_request(task) is not None:
            return False
        gpu = self.gpu[task]
        # Where KV grows it is known only at the boundary whether there is room.
        return self._refuse_boundary(gpu) is None or (self._cut(gpu) and self.refuse_request(task) is None)

    def join(self, task: int) -> None:
        """Let a request join on its GPU, at a boundary.

        Raises
        ------
        IllegalActionError
            If it is none, has no GPU, an input or a model is missing, no seat or too little memory is free, or the GPU
            is at no boundary, or has no prompt budget left.
        """
        refused = self.refuse_request(task)
        gpu = self.gpu[task] if refused is None else NOWHERE
        refused = refused or self._refuse_boundary(gpu)
        if refused is not None:
            raise IllegalActionError(f"{refused} (task {task})")
        cached = self.state[gpu].begin_request(self._request(task, gpu), self.now)
        if self.caches:
            self._cached[task] = cached
        self.started_us[task] = self.now
        self._at_boundary[gpu] = None
        self._order[task] = self._joins
        self._joins += 1

    def could_join(self, task: int) -> bool:
        """Say whether a request lacks nothing to join but a seat, KV, budget or a boundary."""
        state = self.state[self.gpu[task]]
        if self.inputs_missing[task] or (not self.stays and self.now >= self._drains_us(self.gpu[task])):
            return False
        template = self.template[task]
        return state.serves == self.stream[template] and state.memory.ready.issuperset(self.needs[template])

    def make_way(self, task: int) -> bool:
        """Have requests of lower priority leave if that is what another one lacks to join; say whether it may, now.

        If only a boundary is missing the next one is told of.
        """
        gpu, request = self.gpu[task], self._request(task, self.gpu[task])
        state, limit = self.state[gpu], self.limits.get(gpu, 0)
        if not self.could_join(task) or not state.who_leaves(request, limit):
            return False
        if self._refuse_boundary(gpu) is not None and not self._cut(gpu):
            return False
        leaving = state.who_leaves(request, limit)
        state.leave(leaving)
        self._note_left(gpu, leaving)
        return self.may_join(task)

    def bring_back(self, gpu: int) -> bool:
        """Let the first that was preempted join again, in place of lower ones where need be; say whether it has.

        If only a boundary is missing the next one is told of.
        """
        state, limit = self.state[gpu], self.limits.get(gpu, 0)
        if state.serving is None or state.who_leaves_for_first(limit) is None:
            return False
        if self._refuse_boundary(gpu) is not None and not self._cut(gpu):
            return False
        leaving = state.who_leaves_for_first(limit)
        if leaving is None:
            return False
        state.leave(leaving)
        self._note_left(gpu, leaving)
        task = state.bring_back()
        self._leaves.append(self._left.pop(task)._replace(to_us=self.now, again=self._joins))
        self._joins += 1
        self._at_boundary[gpu] = None
        return True

    def stand_by(self, gpu: int) -> None:
        """Have a GPU stand at a boundary now that serves nobody, since all were preempted."""
        serving = self.state[gpu].serving
        if serving is not None and not serving.requests and serving.boundary_us < self.now:
            serving.wait_until(self.now)

    def take_stride(self, gpu: int, number: int) -> tuple[Sequence[int], Sequence[int]]:
        """Take the iterations of a stride that has ended; return whose first and whose last token has come.

        Nobody's, if the stride of that number has been cut short, or begun anew.
        """
        # A stride that was cut still comes to its end in the device's list of events.
        if number != self._stride_number[gpu]:
            return [], []
        came = self.state[gpu].advance(self._taken(gpu, self._strides.pop(gpu)), self.limits.get(gpu, 0))
        if self.ranks is not None:
            self._note_left(gpu, came.preempted)
        for task in came.first:
            # Of a request that was cut what was sent before stays sent.
            if self.first_us[task] < 0:
                self.first_us[task] = self.now
        for task in came.ended:
            self.tokens[task] = self.tokens[task]._replace(output=self._answers[task])
        self.touched[gpu] = None
        self._at_boundary[gpu] = None
        return came.first, came.ended

    def begin_strides(self) -> None:
        """Begin the next stride of every GPU that stands at a boundary: nobody joins at this instant any more."""
        # After the policy has acted at this instant, or who joins now would miss the iteration.
        for gpu in self._at_boundary:
            serving = self.state[gpu].serving
            if serving is None:
                continue
            # Models that have left at this instant may have made room.
            if serving.preempted and self.ranks is None:
                self.state[gpu].rejoin(self.limits.get(gpu, 0))
            if serving.requests:
                self._begin(gpu, serving, self.state[gpu].next_stride())
        self._at_boundary.clear()
        for gpu in self._changing:
            self.state[gpu].note_room(self.now)
        self._changing.clear()

    def memory_changes(self, gpu: int) -> None:
        """Have a GPU whose requests take memory as they grow stand at its next boundary, for its room changes now.

        What caches give way is seen once all has happened of this instant.
        """
        if self.caches:
            self._changing[gpu] = None
        serving, stride = self.state[gpu].serving, self._strides.get(gpu)
        if serving is None or not serving.speed.block or self._device.iterates:
            return
        if stride is not None:
            passed = max(1, serving.iterations_until(self.now, stride))
            if passed < stride.iterations:
                stride = stride._replace(iterations=passed)
                self.state[gpu].shorten(stride, self.now)
                self._begin(gpu, serving, stride)
            elif self.caches:
                self.state[gpu].shorten(stride, self.now)
        elif not serving.requests:
            # All were preempted: the node is idle until one of them can join again.
            if self.ranks is None:
                serving.wait_until(self.now)
            else:
                self.stand_by(gpu)
                serving.full = False
            self._at_boundary[gpu] = None

    def timeline(self, realised: bool) -> Timeline:
        """Return what has happened, first tokens among it."""
        happened = super().timeline(realised)
        if not self.serves_streams:
            return happened
        first_us, answers = np.array(self.first_us, np.int64), np.array(self._answers, np.int64)
        order = np.full(len(first_us), NONE, np.int64)
        order[list(self._order)] = list(self._order.values())
        # First tokens tell who joined first unless somebody was preempted, or cut.
        grows = any(speed.block for row in self.speeds for speed in row if speed is not None)
        orders = order if grows or self.caches or self.cut else None
        limits = {gpu: limit for gpu, limit in self.limits.items() if limit < self._most_seats(gpu)}
        cached = np.array([self._cached.get(task, 0) for task in range(len(first_us))]) if self.caches else None
        served = ServedRequests(first_us, np.zeros_like(first_us), answers, limits, orders, tuple(self.cut), cached)
        served = replace(served, preempted=tuple(self._leaves))
        return replace(happened, served=served)

    def _most_seats(self, gpu: int) -> int:
        """Return the seats of a GPU, of all classes the most; 0 where none is served."""
        here = (row[self.gpu_class[gpu]] for row in self.speeds)
        return max((speed.seats for speed in here if speed is not None), default=0)

    def _refuse_boundary(self, gpu: int) -> str | None:
        """Return why a GPU is at no boundary where somebody may join; None if it is."""
        if self._device.iterates and gpu in self._strides:  # begun at this very microsecond, perhaps
            return f"S2 GPU {gpu}: is inside an iteration"
        return self.state[gpu].refuse_boundary(self.now)

    def _begin(self, gpu: int, serving: StreamRun, stride: Stride) -> None:
        """Have a stride taken from the last boundary on, in place of one under way if there is one."""
        if self._device.iterates:
            # Real devices iterate one by one: each may take another time than given.
            stride = stride._replace(iterations=1)
        self._stride_number[gpu] += 1
        self._strides[gpu] = stride
        self._device.serve(gpu, self._stride_number[gpu], serving, stride)

    def _taken(self, gpu: int, stride: Stride) -> Stride:
        """Return a stride that has ended as it was; an iteration on its own lasts until now, however long it took."""
        serving = self.state[gpu].serving
        return stride if serving is None else serving.as_it_was(stride, self.now)

    def _cut(self, gpu: int) -> bool:
        """Have a stride end at the next boundary that leaves a budget; say whether the GPU stands at it now."""
        serving, stride = self.state[gpu].serving, self._strides.get(gpu)
        if serving is None or stride is None or self._device.iterates or not serving.decodes_only:
            return False
        passed = serving.iterations_until(self.now, stride)
        if passed >= stride.iterations:
            return False
        done = stride._replace(iterations=passed)
        if serving.end_us(done) > self.now:
            self._begin(gpu, serving, done)
            return False
        self._stride_number[gpu] += 1
        del self._strides[gpu]
        came = self.state[gpu].advance(done, self.limits.get(gpu, 0))
        if self.ranks is not None:
            self._note_left(gpu, came.preempted)
        self._at_boundary[gpu] = None
        return True

    def _note_left(self, gpu: int, tasks: Sequence[int]) -> None:
        """Note who was preempted, where that follows from priorities, which no plan has."""
        for task in tasks:
            self._left[task] = Leave(task, gpu, self.now, None, self._joins, None)
            self._joins += 1

    def _request(self, task: int, gpu: int) -> Request:
        template = self.template[task]
        tokens = self.tokens[task]._replace(output=self._answers[task])
        held = self._joining_bytes(task, gpu)
        chain = self.chains[task] if self.caches else ()
        return Request(task, tokens, self.stream[template], self.speed(task, gpu), self.needs[template], held, chain)

    def _end_stay(self, place: int, model: int) -> None:
        if self.caches:
            self.memory_changes(place)  # what has given way by now is not forgotten, but gone
        super()._end_stay(place, model)
        # Where nodes cache no run takes several GPUs.
        cache = self.state[place].cache if self.caches else None
        if cache is not None:
            cache.forget(model, self.now)
