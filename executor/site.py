"""The site: what a policy may do with the execution as it stands.

Every action is checked against the rules and refused if it breaks one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from truenorth.executor.device import WAKE, Device
from truenorth.executor.errors import IllegalActionError
from truenorth.executor.execution import NOWHERE, Arrivals
from truenorth.executor.serving import ServingExecution
from truenorth.models import NEVER, NONE, Instance
from truenorth.models.cluster import Availability
from truenorth.models.gpu_state import Run


class Site(ServingExecution):
    """The execution, and the actions that a policy may take on it.

    Parameters
    ----------
    instance, device, listener, there, foreseen, knows_lengths
        As for the execution.
    write_back
        Whether an eviction copies the weights back first, as the released Compass simulator has it.
    """

    __slots__ = ("_settled", "_write_back")

    def __init__(
        self,
        instance: Instance,
        device: Device,
        listener: Arrivals,
        write_back: bool = False,
        there: Sequence[Availability] = (),
        foreseen: bool = False,
        knows_lengths: bool = False,
    ) -> None:
        super().__init__(instance, device, listener, there, foreseen, knows_lengths)
        self._write_back = write_back
        # Whether a task can run on a GPU for good, as long as none is lost.
        self._settled = self.stays and not self.serves_streams

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
        if gpu not in self._able_set[template] or ((self.lost or not self._settled) and not self._suits(task, gpu)):
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
            # Without bytes to bring the input is there at once.
            if self.input_us[template]:
                self._bring_input(task, gpu)
            else:
                self.touched[gpu] = None
                self.listener.arrived(task, 0)
        # Outputs that are not made yet are sent when they are.
        for offset, edge in inputs:
            if self.ended_us[task + offset] >= 0 and (task + offset, task) not in self.delayed:
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
        if gpu >= self.n_gpus:
            self._start_together(task, gpu)
            return
        template, now, state = self.template[task], self.now, self.state[gpu]
        if others or not self.alone[template]:
            run = self._form_batch(task, others)
            end_us = run.end_us
        else:
            end_us = now + self.run_us[template][self.gpu_class[gpu]]
            run = Run((task,), now, end_us, NONE, self.needs[template])
        refused = state.refuse_run(run)
        if refused is not None:
            raise IllegalActionError(f"{refused} (task {task})")
        if end_us > self.goes_us[gpu]:
            raise IllegalActionError(f"A1 task {task}: would end at {end_us} us, {self._goes(gpu)}")
        state.begin_run(run)
        self.run_end_us[gpu] = end_us
        for member in run.tasks:
            self.started_us[member] = now
        self._device.run(run.tasks, gpu, end_us - now)

    def _start_together(self, task: int, place: int) -> None:
        """Start a task on every GPU of its place (rule G1)."""
        template, now = self.template[task], self.now
        end_us = now + self.run_us[template][self.place_class[place]]
        run = Run((task,), now, end_us, memory_bytes=self.task_bytes[template])
        for gpu in self.places[place]:
            refused = self.state[gpu].refuse_run(run)
            if refused is not None:
                raise IllegalActionError(f"{refused} (task {task}, which takes {len(self.places[place])} GPUs)")
            if end_us > self.goes_us[gpu]:
                raise IllegalActionError(f"A1 task {task}: would end at {end_us} us, {self._goes(gpu)}")
        missing = self.lacks(task, place)
        if missing:
            model, where = missing[0]
            at = " ".join(self.state[gpu].id for gpu in self.places[where])
            raise IllegalActionError(f"R3 {at}: model {model} is not ready (task {task})")
        # Only now: what it needs has been seen, and may not be evicted until it ends.
        run.models = self.needs[template]
        for gpu in self.places[place]:
            self.state[gpu].begin_run(run)
            self.run_end_us[gpu] = end_us
        self.started_us[task] = now
        self._device.run(run.tasks, place, end_us - now)

    def end_run(self, first_task: int, place: int) -> Sequence[int]:
        """End a run on every GPU of its place; return its tasks."""
        for gpu in self.places[place]:
            run = self.state[gpu].end_run(first_task)
            self.touched[gpu] = None
        return run.tasks

    def is_ready(self, model: int, place: int) -> bool:
        """Say whether a model can be used at a place: whole on a GPU, or split over exactly the GPUs of the place."""
        if place < self.n_gpus:
            return model in self.memory[place].ready
        memory = self.memory[self.places[place][0]]
        return model in memory.ready_parts and memory.parts[model][0] == place

    def lacks(self, task: int, place: int) -> list[tuple[int, int]]:
        """Return the models that a run of a task at a place needs and that are not ready, each with where (rule G2)."""
        where = self.model_places(task, place)
        needs = self.needs[self.template[task]]
        return [(model, each) for model in needs for each in where if not self.is_ready(model, each)]

    def queue(self, task: int, *others: int) -> None:
        """Have a batch ready that nothing can come before once what runs on its GPU ends; it still has to be started.

        Nothing happens unless one batch runs there, leaves no compute for this one, and puts out all that this one
        lacks; its models must be ready.
        """
        gpu, tasks = self.gpu[task], (task, *others)
        state, template = self.state[gpu], self.template[task]
        runs = state.runs.values()
        # With several runs, or compute to spare, another batch could come before this one.
        if len(runs) != 1 or state.free_share >= self.share[template] or self.task_bytes[template]:
            return
        (run,) = runs
        if not state.memory.ready.issuperset(self.needs[template]):
            return
        for member in tasks:
            # Inputs that the running batch itself makes are as good as there.
            coming = self.coming(member, run.tasks)
            if self.gpu[member] != gpu or self.started_us[member] >= 0 or self.inputs_missing[member] != coming:
                return
        alone_us = self.run_us[template][self.gpu_class[gpu]]
        expected_us = self.batch_time(self.batch[template], gpu, len(tasks)) if others else alone_us
        self._device.queue(tuple(sorted(tasks)), gpu, expected_us)

    def coming(self, task: int, running: Sequence[int]) -> int:
        """Return how many inputs of a task a run puts out that it could use at once."""
        inputs = self.needed_inputs(task)
        return sum(task + offset in running and not self.delay_us[edge] for offset, edge in inputs)

    def _refuse_start(self, task: int) -> NoReturn:
        """Say what a task lacks."""
        if not 0 <= task < len(self.gpu) or self.gpu[task] == NOWHERE or self.started_us[task] >= 0:
            raise IllegalActionError(f"T1 task {task}: has no GPU yet, or has started already")
        if self.stream[self.template[task]] != NONE:
            raise IllegalActionError(f"S2 task {task}: is a request of a stream, which joins what its GPU serves")
        raise IllegalActionError(f"T2 task {task}: {self.inputs_missing[task]} inputs have not arrived")

    def _form_batch(self, task: int, others: Sequence[int]) -> Run:
        """Return a task, or several of its batch class, as they would start together now."""
        gpu, template = self.gpu[task], self.template[task]
        # Requests join the iterations of their GPU, and are never started.
        if self.stream[template] != NONE:
            self._refuse_start(task)
        run_us = self._check_batch(task, others) if others else self.run_us[template][self.gpu_class[gpu]]
        tasks = tuple(sorted((task, *others)))
        # Each member holds its own working memory.
        held_bytes = self.task_bytes[template] * len(tasks)
        end_us, batch, needs = self.now + run_us, self.batch[template], self.needs[template]
        return Run(tasks, self.now, end_us, batch, needs, self.share[template], held_bytes)

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
        """Evict models from a GPU, or from all of a place, and start to load another there.

        Parameters
        ----------
        gpu
            The GPU; or the place of several over which the model is split (rule G2).
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
        if gpu >= self.n_gpus:
            self._load_together(gpu, model, evict)
            return
        state = self.state[gpu]
        refused = state.refuse_copying()
        if refused is not None:
            raise IllegalActionError(refused)
        load_us = self.load_us[model][self.gpu_class[gpu]]
        if load_us == NEVER:
            raise IllegalActionError(f"X GPU {gpu}: model {model} may not be there")
        self.memory_changes(gpu)
        for victim in evict:
            self.evict(gpu, victim)
            # The copy back takes the way of a load, without what a load costs to begin.
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

    def _load_together(self, place: int, model: int, evict: Iterable[int]) -> None:
        """Evict models from the GPUs of a place, and start to load a part of another to each of them (rule G2)."""
        gpus, load_us, part = self.places[place], self.load_time(model, place), self.part_bytes(model, place)
        if load_us == NEVER:
            raise IllegalActionError(f"X place {place}: model {model} may not be there")
        for gpu in gpus:
            refused = self.state[gpu].refuse_copying()
            if refused is not None:
                raise IllegalActionError(refused)
        for victim in evict:
            for gpu in gpus:
                if victim in self.memory[gpu].residents:
                    self.evict(gpu, victim)
        most = self._most_replicas[model]
        if most is not None and self._replicas[model] >= most:
            raise IllegalActionError(f"X model {model}: {most} replicas are there already")
        for gpu in gpus:
            refused = self.memory[gpu].refuse_part(model, part)
            if refused is not None:
                raise IllegalActionError(refused)
            if self.now + load_us > self.goes_us[gpu]:
                problem = f"model {model}: would be ready at {self.now + load_us} us, {self._goes(gpu)}"
                raise IllegalActionError(f"A1 {problem}")
        for gpu in gpus:
            self.state[gpu].begin_part(model, self.now + load_us, place, part)
        self._note_stay(place, model, None, initial=False)
        self._device.load(model, place, None, load_us)

    def evict(self, gpu: int, model: int) -> None:
        """Evict a model, from all GPUs that have a part of it; `load` does this for the models it replaces.

        Raises
        ------
        IllegalActionError
            If it is not ready there, the running task needs it, or swaps are ruled out.
        """
        self._check_place(gpu, model)
        if self.restrictions.no_swaps:
            raise IllegalActionError(f"X GPU {gpu}: model {model} may not be evicted")
        if gpu >= self.n_gpus:
            gpu = self.places[gpu][0]
        place = self.stay_place(gpu, model)
        for each in self.places[place]:
            refused = self.state[each].refuse_eviction(model)
            if refused is not None:
                raise IllegalActionError(refused)
        self._end_stay(place, model)
        self._device.evict(model, place)
        for each in self.places[place]:
            self.memory_changes(each)

    def leave_out(self, gpu: int, model: int) -> None:
        """Do without an initial residency from time 0 on, as a plan may that never uses it (rule R7).

        Raises
        ------
        IllegalActionError
            If it is none, or time has passed.
        """
        self._check_place(gpu, model)
        stay = self._stay_of[gpu].get(model) if gpu < self.n_gpus else None
        if stay is None or not stay.initial or self.now:
            raise IllegalActionError(f"R7 GPU {gpu}: model {model} is no initial residency that can be left out now")
        self._withdraw_stay(gpu, model)
        self._device.evict(model, gpu)

    def wake(self, time_us: int) -> None:
        """Have the policy called again at a time that has not passed."""
        if time_us < self.now:
            raise IllegalActionError(f"time {time_us} has passed")
        self._device.at(time_us, WAKE, NOWHERE, 0)

    def _goes(self, gpu: int) -> str:
        """Return, in words, when a GPU goes."""
        return f"and GPU {gpu} is not there" if self.is_away(gpu) else f"and GPU {gpu} goes at {self.goes_us[gpu]} us"

    def takes(self, template: int, gpu: int) -> bool:
        """Say whether a task of a template, if a GPU can run it, could end there before it goes, loads included."""
        return self.stays or self.now + self.cold_time(template, gpu) <= self.goes_us[gpu]

    def eligible_gpus(self, task: int) -> tuple[int, ...]:
        """Return the GPUs that can run a task, in order; where GPUs come and go, those that can do it in time."""
        able = self.able_gpus(task)
        return able if self.stays else tuple(gpu for gpu in able if self.could_end(task, gpu))

    def _suits(self, task: int, gpu: int) -> bool:
        """Say whether a place of a kind that can run a task is there, has room, and is the one that its ties demand."""
        # A plan foresees that a GPU comes back, and may name one that is away.
        if gpu in self.lost or not (self._foreseen or self.place_goes(gpu)):
            return False
        template = self.template[task]
        if self.stream[template] == NONE:
            return True
        placed = (self.gpu[task + offset] for offset in self.together[template] if offset)
        return self._holds(task, self.gpu_class[gpu]) and all(other in (NOWHERE, gpu) for other in placed)

    def _check_place(self, gpu: int, model: int) -> None:
        """Refuse numbers that name nothing: Python would take -1 for the last."""
        if not 0 <= gpu < len(self.places):
            raise IllegalActionError(f"R1 GPU {gpu}: there is none; allowed are 0 to {len(self.places) - 1}")
        if not 0 <= model < len(self.models):
            raise IllegalActionError(f"R1 model {model}: there is none; allowed are 0 to {len(self.models) - 1}")
