"""The execution as it stands: GPUs, copy engines, memories, tasks and transfers, as the engine tells of them.

What has happened is recorded here: residencies from their load to their end, runs of tasks, inputs under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from truenorth.executor.device import ARRIVAL, Device
from truenorth.executor.knowledge import Knowledge, WorkflowTables
from truenorth.models import Instance, Job, Residency, Timeline, Workflow
from truenorth.models.cluster import FOREVER, Availability
from truenorth.models.gpu_state import GPUState, Memory

_ENDLESS = 1 << 30
"""Stands for what a task that will not run waits for."""
NOWHERE = -1
"""Stands for the GPU of a task without one, and for the task or model of an idle engine."""


@dataclass(slots=True)
class _OpenResidency:
    """A residency in the making."""

    model: int
    gpu: int
    load_start_us: int
    slot: int | None
    initial: bool = False
    ready_us: int = 0
    end_us: int | None = None
    goes_us: int = FOREVER


class Arrivals(Protocol):
    """Who is told that an input of a task has reached the task's GPU."""

    def arrived(self, task: int, missing: int) -> None:
        """Take note of an input; `missing` more are to come."""


class Execution(Knowledge):
    """What is there and how far every task has come, besides what is known.

    Parameters
    ----------
    instance
        Taken apart for what is known beforehand; its jobs stay with the engine.
    device
        Carries out runs and loads.
    listener
        Is told of every input that reaches its GPU.
    there
        When each GPU is there, which nobody learns from here before it is; empty: always.
    foreseen
        Whether tasks may be assigned to GPUs that are still to come, as a plan does that knows when.

    Attributes
    ----------
    goes_us
        Per GPU: when it goes; FOREVER if it stays, 0 while it is away.
    gpu, started_us, ended_us
        Per task released so far: where it is to run (NOWHERE: undecided), when it started and ended (-1: not yet).
    inputs_missing
        Per task: inputs that have not reached its GPU; all of them while the GPU is undecided.
    predecessors_left
        Per task: predecessors that have not finished; more than there can be if the task will not run.
    state
        Per GPU: what runs and loads there, what is free, and what its memory holds.
    memory
        Per GPU: that of its state.
    run_end_us
        Per GPU: when the batch that started last should end, by the given run time or as its progress has shown.
    now
        The instant that is being dealt with, in microseconds since the start of the window; set by the engine.
    queues
        Whether it is worth while for a policy to `queue` batches.
    touched
        GPUs where something has happened since the policy acted last; emptied by the engine.
    delayed
        Pairs of an ended task and a follower for which its output has not left yet, since a delay runs (rule E5).
    """

    __slots__ = (
        "_device", "_foreseen", "_most_replicas", "_replicas", "_sending", "_stay_of", "_stays", "delayed", "ended_us",
        "goes_us", "gpu", "inputs_missing", "listener", "memory", "now", "predecessors_left", "queues",
        "run_end_us", "started_us", "state", "touched",
    )  # fmt: skip

    def __init__(
        self, instance: Instance, device: Device, listener: Arrivals, there: Sequence[Availability], foreseen: bool
    ) -> None:
        super().__init__(instance)
        self.stays = not there
        first = [own.intervals[0] for own in there] or [(0, FOREVER)] * self.n_gpus
        self.goes_us = [0 if begin else end for begin, end in first]
        self._foreseen = foreseen
        self.gpu: list[int] = []
        self.started_us: list[int] = []
        self.ended_us: list[int] = []
        self.inputs_missing: list[int] = []
        self.predecessors_left: list[int] = []
        self.state = [GPUState(gpu, self.weight_bytes, self.overlap_loads) for gpu in self.cluster.gpus]
        self.memory: list[Memory] = [state.memory for state in self.state]
        self.run_end_us = [0] * self.n_gpus
        self.now = device.now
        self.touched: dict[int, None] = {}
        self.delayed: set[tuple[int, int]] = set()
        self.queues = device.queues
        self._device = device
        self.listener = listener
        self._sending: dict[int, int] = {}
        self._stays: list[_OpenResidency] = []
        self._stay_of: list[dict[int, _OpenResidency]] = [{} for _ in self.cluster.gpus]
        self._replicas = [0] * len(self.models)
        self._most_replicas = [self.restrictions.max_replicas.get(model.name) for model in self.models]
        self._begin_initial(instance)

    def _begin_initial(self, instance: Instance) -> None:
        for resident in instance.initial:
            taken = self.memory[resident.gpu].hold_model(resident.model, resident.slot)
            self._note_stay(resident.gpu, resident.model, taken, initial=True)
            self.memory[resident.gpu].ready.add(resident.model)

    def is_away(self, gpu: int) -> bool:
        """Say whether a GPU is not there now."""
        return not self.goes_us[gpu]

    def place_goes(self, place: int) -> int:
        """Return when the first GPU of a place goes; FOREVER if all stay, 0 while one is away."""
        goes_us = self.goes_us
        return goes_us[place] if place < self.n_gpus else min(goes_us[gpu] for gpu in self.places[place])

    def release(self, job: Job, tables: WorkflowTables, ingress: int, held: Sequence[int] = ()) -> int:
        """Make a job known and return its index; `held` are the tokens of KV of its tasks, if some are requests."""
        tasks = self.learn(job, tables, ingress, held)
        n_tasks = len(tasks)
        self.gpu.extend([NOWHERE] * n_tasks)
        self.started_us.extend([-1] * n_tasks)
        self.ended_us.extend([-1] * n_tasks)
        inputs = [len(arcs) for arcs in tables.inputs]
        self.inputs_missing.extend(inputs)
        self.predecessors_left.extend(inputs)
        return len(self.jobs) - 1

    def decide(self, job: int, path: Workflow) -> list[int]:
        """Note which path a job takes; return the tasks that it does not run.

        A follower of these, outside the branches, waits for them no longer.
        """
        whole, first = self.workflows[self.job_workflow[job]], self.job_tasks[job].start
        self.jobs[job] = replace(self.jobs[job], workflow=path)
        left_out = [first + index for index, task in enumerate(whole.tasks) if task.name not in path.position]
        self.dropped.update(left_out)
        for task in left_out:
            self.predecessors_left[task] = _ENDLESS
            for offset, _ in self.outputs[self.template[task]]:
                follower = task + offset
                if follower in self.dropped:
                    continue
                self.predecessors_left[follower] -= 1
                if self.gpu[follower] != NOWHERE:
                    self.inputs_missing[follower] -= 1
                    if not self.inputs_missing[follower]:
                        self.touched[self.gpu[follower]] = None
                        self.listener.arrived(follower, 0)
        return left_out

    def show_end(self, task: int, end_us: int) -> None:
        """Note when a task that runs will end, as its progress shows."""
        self.shown_end_us[task] = end_us
        for gpu in self.places[self.gpu[task]]:
            self.run_end_us[gpu] = end_us

    def expected_end(self, task: int) -> int:
        """Return when a task that runs should end: as its progress has shown, or by the given run time."""
        shown_us = self.shown_end_us.get(task)
        return self.started_us[task] + self.run_time(task, self.gpu[task]) if shown_us is None else shown_us

    def end_task(self, task: int) -> None:
        """Note for the successors that a task is over; it counts as ended only with `send_outputs`."""
        left, delayed = self.predecessors_left, self.delayed
        for offset, _ in self.outputs[self.template[task]]:
            if not delayed or (task, task + offset) not in delayed:
                left[task + offset] -= 1

    def send_outputs(self, task: int) -> None:
        """Note the end of a task and send its output to every successor whose GPU is decided."""
        self.ended_us[task] = self.now
        for offset, edge in self.outputs[self.template[task]]:
            follower = task + offset
            waits = self.delayed and (task, follower) in self.delayed
            if self.gpu[follower] != NOWHERE and follower not in self.dropped and not waits:
                self._send(task, follower, edge)

    def end_delay(self, task: int, follower: int) -> int:
        """Note for a follower that a task is over and the delay behind it as well; return the edge between them."""
        self.predecessors_left[follower] -= 1
        return next(edge for offset, edge in self.outputs[self.template[task]] if task + offset == follower)

    def send_delayed(self, task: int, follower: int, edge: int) -> None:
        """Send an output whose delay has passed to its follower, if the GPU of that is decided."""
        self.delayed.remove((task, follower))
        if self.gpu[follower] != NOWHERE:
            self._send(task, follower, edge)

    def set_aside(self, gpu: int, model: int) -> None:
        """Give up a GPU that is lost, and take every task that has not started off its GPU.

        Parameters
        ----------
        model
            Whose load there will not end, NOWHERE without one; it never was resident.
        """
        self.lost.add(gpu)
        if model != NOWHERE:
            self.state[gpu].end_load()
            self._withdraw_stay(gpu, model)
        for limited in [model for model in self.memory[gpu].ready if self._most_replicas[model] is not None]:
            if not (self.restrictions.no_swaps or self.state[gpu].uses(limited)):
                self._end_stay(gpu, limited)  # it is not there any more, and may be elsewhere
        for task, start_us in enumerate(self.started_us):
            if start_us < 0 and self.gpu[task] != NOWHERE:
                self.take_back(task)

    def take_back(self, task: int) -> None:
        """Take a task that has not started off its GPU."""
        self.gpu[task] = NOWHERE
        self.inputs_missing[task] = len(self.needed_inputs(task))
        self._sending[task] = self._sending.get(task, 0) + 1  # whatever is under way goes to the wrong place

    def come(self, gpu: int, goes_us: int) -> None:
        """Have a GPU with empty memory until a time."""
        self.goes_us[gpu] = goes_us
        self.touched[gpu] = None

    def go(self, gpu: int) -> list[int]:
        """Have a GPU no more; return the tasks that were to run there, none of which has a GPU now.

        None where it was foreseen.
        """
        self.goes_us[gpu] = 0
        left = [] if self._foreseen else self._waiting_on(gpu)
        for task in left:
            self.take_back(task)
        return left

    def _waiting_on(self, gpu: int) -> list[int]:
        """Return the tasks that are to run on a GPU, maybe with others, and have not started."""
        here = {place for place, gpus in enumerate(self.places) if gpu in gpus}
        return [task for task, start_us in enumerate(self.started_us) if start_us < 0 and self.gpu[task] in here]

    def empty(self, gpu: int) -> list[int]:
        """End all residencies on a GPU that has gone but those still in use; return their models."""
        leaving = [model for model in sorted(self.memory[gpu].ready) if not self.state[gpu].uses(model)]
        for model in leaving:
            self._end_stay(gpu, model)
            self._device.evict(model, gpu)
        return leaving

    def drop(self, tasks: Sequence[int]) -> None:
        """End tasks of a job at once, without a GPU: they will never run."""
        for task in tasks:
            self.gpu[task] = NOWHERE
            self.started_us[task] = self.ended_us[task] = self.now
        self._device.drop(tasks)

    def end_load(self, model: int, place: int) -> None:
        """Free the copy engine, or those of all GPUs of a place, and make the model ready."""
        for gpu in self.places[place]:
            self.state[gpu].end_load()
            self._stay_of[gpu][model].ready_us = self.now
            self.touched[gpu] = None

    def deliver(self, task: int, sending: int) -> None:
        """Note that an input has reached the task's GPU, unless the task has moved since it was sent."""
        if sending == self._sending.get(task, 0):
            self.inputs_missing[task] = missing = self.inputs_missing[task] - 1
            self.touched[self.gpu[task]] = None
            self.listener.arrived(task, missing)

    def inputs_after(self, task: int, place: int) -> int:
        """Return how long the inputs of a task take to a place once it is bound there."""
        longest_us = self.input_time(task, place)
        for offset, edge in self.needed_inputs(task):
            source = self.gpu[task + offset]
            if source != place:
                longest_us = max(longest_us, self.transfer_time(edge, source, place))
        return longest_us

    def timeline(self, realised: bool) -> Timeline:
        """Return what has happened, and with it when GPUs that are there will go."""
        for stay in self._stays:
            if stay.end_us is None and stay.goes_us < FOREVER:
                stay.end_us = max(stay.goes_us, stay.ready_us)
        residencies = [
            Residency(stay.model, stay.gpu, stay.load_start_us, stay.ready_us, stay.end_us, stay.slot, stay.initial)
            for stay in sorted(self._stays, key=lambda s: (s.gpu, s.load_start_us, s.ready_us, s.model))
        ]
        gpu, start, end = (np.array(column, np.int64) for column in (self.gpu, self.started_us, self.ended_us))
        return Timeline(gpu, start, end, tuple(residencies), realised)

    def stay_place(self, gpu: int, model: int) -> int:
        """Return over which place a model is split of which a GPU has a part; the GPU itself if it is whole there."""
        parts = self.memory[gpu].parts
        return parts[model][0] if model in parts else gpu

    def _note_stay(self, place: int, model: int, taken: int | None, initial: bool) -> None:
        gpus = self.places[place]
        goes_us = self.goes_us[place] if len(gpus) == 1 else min(self.goes_us[gpu] for gpu in gpus)
        stay = _OpenResidency(model, place, self.now, taken, initial, goes_us=goes_us)
        self._stays.append(stay)
        for gpu in gpus:
            self._stay_of[gpu][model] = stay
        self._replicas[model] += 1

    def _end_stay(self, place: int, model: int) -> None:
        for gpu in self.places[place]:
            self.memory[gpu].drop_model(model)
            self._stay_of[gpu].pop(model).end_us = self.now
        self._replicas[model] -= 1

    def _withdraw_stay(self, gpu: int, model: int) -> None:
        """Strike a residency off the record, as if it had never begun."""
        self.memory[gpu].drop_model(model)
        self._stays.remove(self._stay_of[gpu].pop(model))
        self._replicas[model] -= 1

    def _bring_input(self, task: int, gpu: int) -> None:
        """Have what a task without predecessors is given brought from its job's ingress server."""
        travels_us = self.input_time(task, gpu)
        if travels_us:
            self.inputs_missing[task] = 1
            sending = self._sending.get(task, 0) if self._sending else 0
            self._device.at(self.now + travels_us, ARRIVAL, task, sending)
        else:
            self.touched[gpu] = None
            self.listener.arrived(task, 0)

    def _send(self, source: int, target: int, edge: int) -> None:
        """Send an output; it arrives at once on the same GPU."""
        here, there = self.gpu[source], self.gpu[target]
        sending = self._sending.get(target, 0)
        if here != there:
            time_us = (
                self._kv_time(source, here, there) if edge in self.kv_edges else self.transfer_time(edge, here, there)
            )
            if not self._device.send(source, target, there, sending, time_us):
                return
        self.deliver(target, sending)

    def _kv_time(self, task: int, here: int, there: int) -> int:
        """Return how long the KV of a request's prompt takes between two GPUs."""
        size_bytes = self.tokens[task].prompt * self.speed(task, here).kv_bytes
        gpus, same_server = self.cluster.gpus, self.gpu_server[here] == self.gpu_server[there]
        return self.cluster.network.transfer_us(size_bytes, gpus[here], gpus[there], same_server)
