"""The site: GPUs, copy engines, memories and transfers as they stand now, and the actions a policy may take.

Every action is checked against the rules and refused if it breaks one; what is done is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

import numpy as np

from executor.device import ARRIVAL, WAKE, Device
from executor.errors import IllegalActionError
from executor.knowledge import Knowledge, WorkflowTables
from models import NEVER, NONE, Instance, Job, Residency, Timeline, Workflow
from models.availability import FOREVER, Availability
from models.gpu_state import GPUState, Run
from models.memory import Memory

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


class Site(Knowledge):
    """What is there and what may be done with it, besides what is known.

    Parameters
    ----------
    instance
        Taken apart for what is known beforehand; its jobs stay with the engine.
    device
        Carries out runs and loads.
    listener
        Is told of every input that reaches its GPU.
    write_back
        Whether an eviction copies the weights back first, as the released Compass simulator has it.
    there
        When each GPU is there, which nobody learns from the site before it is; empty: always.
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
        Per GPU: when the batch that started last should end by the given run time.
    now
        The instant that is being dealt with, in microseconds since the start of the window; set by the engine.
    queues
        Whether it is worth while to `queue`.
    touched
        GPUs where something has happened since the policy acted last; emptied by the engine.
    """

    def __init__(
        self,
        instance: Instance,
        device: Device,
        listener: Arrivals,
        write_back: bool = False,
        there: Sequence[Availability] = (),
        foreseen: bool = False,
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
        self.queues = device.queues
        self._device = device
        self._write_back = write_back
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

    # -- what a policy may do -------------------------------------------------------------------------------------

    def assign(self, task: int, gpu: int) -> None:
        """Decide where a task will run, or decide anew: outputs of finished predecessors, or input bytes, leave now.

        Raises
        ------
        IllegalActionError
            If the task is unknown, will not run or has started, or the GPU cannot run it.
        """
        if not 0 <= task < len(self.gpu):
            raise IllegalActionError(f"task {task} is not released")
        if task in self.dropped:
            raise IllegalActionError(f"task {task}: its job takes another branch")
        template = self.template[task]
        known = 0 <= gpu < self.n_gpus and gpu not in self.lost
        if known and not (self.stays or self._foreseen):
            known = not self.is_away(gpu)
        if not known or self.run_us[template][self.gpu_class[gpu]] == NEVER:
            allowed = ", ".join(map(str, self.eligible_gpus(task)))
            raise IllegalActionError(f"T1 task {task}: GPU {gpu} is not eligible; allowed are {allowed}")
        if self.started_us[task] >= 0:
            raise IllegalActionError(f"T1 task {task}: has started and cannot move")
        if self.gpu[task] != NOWHERE:
            self._sending[task] = self._sending.get(task, 0) + 1  # whatever is under way goes to the wrong place
        self.gpu[task] = gpu
        inputs = self.needed_inputs(task) if self.dropped else self.inputs[template]
        self.inputs_missing[task] = len(inputs)
        if not inputs:
            if self.input_us[template]:
                self._bring_input(task, gpu)
            else:
                self.touched[gpu] = None
                self.listener.arrived(task, 0)
        for offset, edge in inputs:
            if self.ended_us[task + offset] >= 0:
                self._send(task + offset, task, edge)

    def start(self, task: int, *others: int) -> None:
        """Start a task on its GPU, or several tasks of its batch class there as one batch.

        Raises
        ------
        IllegalActionError
            If one has no GPU, an input or a model is missing, the GPU has too little compute or memory left, or the
            tasks can be no batch.
        """
        gpu = self.gpu[task] if 0 <= task < len(self.gpu) else NOWHERE
        if gpu == NOWHERE or self.started_us[task] >= 0 or self.inputs_missing[task]:
            self._refuse_start(task)
        template, now, state = self.template[task], self.now, self.state[gpu]
        if others:
            run_us = self._check_batch(task, others)
            tasks: tuple[int, ...] = tuple(sorted((task, *others)))
        else:
            run_us = self.run_us[template][self.gpu_class[gpu]]
            tasks = (task,)
        self.run_end_us[gpu] = end_us = now + run_us
        held = self.task_bytes[template]
        if held:
            held *= len(tasks)
        run = Run(tasks, now, end_us, self.batch[template], self.needs[template], self.share[template], held)
        refused = state.refuse_run(run)
        if refused is not None:
            raise IllegalActionError(f"{refused} (task {task})")
        if end_us > self.goes_us[gpu]:
            raise IllegalActionError(f"A1 task {task}: would end at {end_us} us, {self._goes(gpu)}")
        state.begin_run(run)
        for member in tasks:
            self.started_us[member] = now
        self._device.run(tasks, gpu, run_us)

    def queue(self, task: int, *others: int) -> None:
        """Have a batch ready that nothing can come before once what runs on its GPU ends; it still has to be started.

        Nothing happens unless one batch runs there, leaves no compute for this one, and puts out all that this one
        lacks; its models must be ready.
        """
        gpu, tasks = self.gpu[task], (task, *others)
        state, template = self.state[gpu], self.template[task]
        runs = state.runs.values()
        if len(runs) != 1 or state.free_share >= self.share[template] or self.task_bytes[template]:
            return
        (run,) = runs
        if not state.memory.ready.issuperset(self.needs[template]):
            return
        for member in tasks:
            coming = sum(member + offset in run.tasks for offset, _ in self.needed_inputs(member))
            if self.gpu[member] != gpu or self.started_us[member] >= 0 or self.inputs_missing[member] != coming:
                return
        alone_us = self.run_us[template][self.gpu_class[gpu]]
        expected_us = self.batch_time(self.batch[template], gpu, len(tasks)) if others else alone_us
        self._device.queue(tuple(sorted(tasks)), gpu, expected_us)

    def _refuse_start(self, task: int) -> NoReturn:
        """Say what a task lacks."""
        if not 0 <= task < len(self.gpu) or self.gpu[task] == NOWHERE or self.started_us[task] >= 0:
            raise IllegalActionError(f"T1 task {task}: has no GPU yet, or has started already")
        raise IllegalActionError(f"T2 task {task}: {self.inputs_missing[task]} inputs have not arrived")

    def _check_batch(self, task: int, others: Sequence[int]) -> int:
        """Return the run time of a batch."""
        gpu, batch, size = self.gpu[task], self.batch[self.template[task]], 1 + len(others)
        if len({task, *others}) < size:
            raise IllegalActionError(f"T3b task {task}: a task is named twice")
        for other in others:
            if not 0 <= other < len(self.gpu) or self.started_us[other] >= 0 or self.inputs_missing[other]:
                self._refuse_start(other)
            if self.gpu[other] != gpu or batch == NONE or self.batch[self.template[other]] != batch:
                raise IllegalActionError(f"T3b task {task}: task {other} is on another GPU or of another batch class")
        run_us = self.batch_time(batch, gpu, size)
        if run_us == NEVER:
            raise IllegalActionError(f"T3b task {task}: a batch of {size} is too large for GPU {gpu}")
        return run_us

    def load(self, gpu: int, model: int, evict: Iterable[int] = (), slot: int | None = None) -> None:
        """Evict models from a GPU and start to load another.

        Parameters
        ----------
        evict
            Models that make room; ready there and not in use.
        slot
            Where the model goes; None: the smallest empty slot that fits, or anywhere by bytes.

        Raises
        ------
        IllegalActionError
            If the copy engine is busy, an eviction or the load is not allowed, or there is no room. Evictions
            that came before the refusal stand.
        """
        self._check_place(gpu, model)
        state = self.state[gpu]
        refused = state.refuse_copying()
        if refused is not None:
            raise IllegalActionError(refused)
        load_us = self.load_us[model][self.gpu_class[gpu]]
        if load_us == NEVER:
            raise IllegalActionError(f"X GPU {gpu}: model {model} may not be there")
        for victim in evict:
            self.evict(gpu, victim)
            if self._write_back:
                load_us += self.load_time(victim, gpu) - self.cluster.gpus[gpu].load_overhead_us
        most = self._most_replicas[model]
        if most is not None and self._replicas[model] >= most:
            raise IllegalActionError(f"X model {model}: {most} replicas are there already")
        refused = state.refuse_load(model, slot)
        if refused is not None:
            raise IllegalActionError(refused)
        if self.now + load_us > self.goes_us[gpu]:
            raise IllegalActionError(f"A1 model {model}: would be ready at {self.now + load_us} us, {self._goes(gpu)}")
        taken = state.begin_load(model, self.now + load_us, slot)
        self._note_stay(gpu, model, taken, initial=False)
        self._device.load(model, gpu, taken, load_us)

    def evict(self, gpu: int, model: int) -> None:
        """Evict a model; `load` does this for the models it replaces.

        Raises
        ------
        IllegalActionError
            If it is not ready there, the running task needs it, or swaps are ruled out.
        """
        self._check_place(gpu, model)
        if self.restrictions.no_swaps:
            raise IllegalActionError(f"X GPU {gpu}: model {model} may not be evicted")
        refused = self.state[gpu].refuse_eviction(model)
        if refused is not None:
            raise IllegalActionError(refused)
        self._end_stay(gpu, model)

    def _end_stay(self, gpu: int, model: int) -> None:
        self.memory[gpu].drop_model(model)
        self._stay_of[gpu].pop(model).end_us = self.now
        self._replicas[model] -= 1
        self._device.evict(model, gpu)

    def leave_out(self, gpu: int, model: int) -> None:
        """Do without an initial residency from time 0 on, as a plan may that never uses it (rule R7).

        Raises
        ------
        IllegalActionError
            If it is none, or time has passed.
        """
        self._check_place(gpu, model)
        stay = self._stay_of[gpu].get(model)
        if stay is None or not stay.initial or self.now:
            raise IllegalActionError(f"R7 GPU {gpu}: model {model} is no initial residency that can be left out now")
        self.memory[gpu].drop_model(model)
        self._stays.remove(self._stay_of[gpu].pop(model))
        self._replicas[model] -= 1
        self._device.evict(model, gpu)

    def wake(self, time_us: int) -> None:
        """Have the policy called again at a time that has not passed."""
        if time_us < self.now:
            raise IllegalActionError(f"time {time_us} has passed")
        self._device.at(time_us, WAKE, NOWHERE, 0)

    def _goes(self, gpu: int) -> str:
        """Return, in words, when a GPU goes."""
        return f"and GPU {gpu} is not there" if self.is_away(gpu) else f"and GPU {gpu} goes at {self.goes_us[gpu]} us"

    def is_away(self, gpu: int) -> bool:
        """Say whether a GPU is not there now."""
        return not self.goes_us[gpu]

    def takes(self, template: int, gpu: int) -> bool:
        """Say whether a task of a template, if a GPU can run it, could end there before it goes, loads included."""
        return self.stays or self.now + self.cold_time(template, gpu) <= self.goes_us[gpu]

    def eligible_gpus(self, task: int) -> tuple[int, ...]:
        """Return the GPUs that can run a task, in order; where GPUs come and go, those that can do it in time."""
        able = self.able_gpus(task)
        return able if self.stays else tuple(gpu for gpu in able if self.takes(self.template[task], gpu))

    def _check_place(self, gpu: int, model: int) -> None:
        """Refuse numbers that name nothing: Python would take -1 for the last."""
        if not 0 <= gpu < self.n_gpus:
            raise IllegalActionError(f"R1 GPU {gpu}: there is none; allowed are 0 to {self.n_gpus - 1}")
        if not 0 <= model < len(self.models):
            raise IllegalActionError(f"R1 model {model}: there is none; allowed are 0 to {len(self.models) - 1}")

    # -- what the engine tells ------------------------------------------------------------------------------------

    def release(self, job: Job, tables: WorkflowTables, ingress: int) -> int:
        """Make a job known and return its index."""
        tasks = self.learn(job, tables, ingress)
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

    def end_run(self, first_task: int, gpu: int) -> Sequence[int]:
        """Free what a batch held and return its tasks, each of which is then to be ended by `end_task`."""
        self.touched[gpu] = None
        return self.state[gpu].end_run(first_task).tasks

    def end_task(self, task: int) -> None:
        """Note for the successors that a task is over; it counts as ended only with `send_outputs`."""
        left = self.predecessors_left
        for offset, _ in self.outputs[self.template[task]]:
            left[task + offset] -= 1

    def send_outputs(self, task: int) -> None:
        """Note the end of a task and send its output to every successor whose GPU is decided."""
        self.ended_us[task] = self.now
        for offset, edge in self.outputs[self.template[task]]:
            follower = task + offset
            if self.gpu[follower] != NOWHERE and follower not in self.dropped:
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
            self.memory[gpu].drop_model(model)
            self._stays.remove(self._stay_of[gpu].pop(model))
            self._replicas[model] -= 1
        for limited in [model for model in self.memory[gpu].ready if self._most_replicas[model] is not None]:
            if not (self.restrictions.no_swaps or self.state[gpu].uses(limited)):
                self.memory[gpu].drop_model(limited)  # it is not there any more, and may be elsewhere
                self._stay_of[gpu].pop(limited).end_us = self.now
                self._replicas[limited] -= 1
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
        if self._foreseen:
            return []
        left = [task for task, start_us in enumerate(self.started_us) if start_us < 0 and self.gpu[task] == gpu]
        for task in left:
            self.take_back(task)
        return left

    def empty(self, gpu: int) -> list[int]:
        """End all residencies on a GPU that has gone but those still in use; return their models."""
        leaving = [model for model in sorted(self.memory[gpu].ready) if not self.state[gpu].uses(model)]
        for model in leaving:
            self._end_stay(gpu, model)
        return leaving

    def drop(self, tasks: Sequence[int]) -> None:
        """End tasks of a job at once, without a GPU: they will never run."""
        for task in tasks:
            self.gpu[task] = NOWHERE
            self.started_us[task] = self.ended_us[task] = self.now
        self._device.drop(tasks)

    def end_load(self, model: int, gpu: int) -> None:
        """Free the copy engine and make the model ready."""
        self.state[gpu].end_load()
        self._stay_of[gpu][model].ready_us = self.now
        self.touched[gpu] = None

    def deliver(self, task: int, sending: int) -> None:
        """Note that an input has reached the task's GPU, unless the task has moved since it was sent."""
        if sending == self._sending.get(task, 0):
            self.inputs_missing[task] = missing = self.inputs_missing[task] - 1
            self.touched[self.gpu[task]] = None
            self.listener.arrived(task, missing)

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

    def _note_stay(self, gpu: int, model: int, taken: int | None, initial: bool) -> None:
        stay = _OpenResidency(model, gpu, self.now, taken, initial, goes_us=self.goes_us[gpu])
        self._stays.append(stay)
        self._stay_of[gpu][model] = stay
        self._replicas[model] += 1

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
        sending = self._sending.get(target, 0) if self._sending else 0
        if here == there or self._device.send(source, target, there, sending, self.transfer_time(edge, here, there)):
            self.deliver(target, sending)
