"""What can happen at one instant, and what is known at the next: the rules of the world as the oracle reads them.

A state is what matters from an instant on: which tasks are left, and on every GPU the copies of models, the runs and
the outputs under way. At an instant any set of loads and runs may begin for which there is room; then time goes on to
the next instant at which something has ended, arrived, come or gone.

Why no other instants need a look. Take, of the optimal plans, one whose loads and runs begin earliest in total, none of
them for nothing, and in which a copy leaves when its room is taken. If one of its operations began at an instant at
which nothing has ended, arrived, come or gone, it alone could begin a microsecond earlier: every engine, room, model
and output that it needs was there by then, nothing else would change, and no objective would grow. That contradicts the
choice. The one rule that looks at beginnings, two batches of a class a microsecond apart, makes an instant of its own.
For the same reason no operation of that plan begins that could have begun at the instant before, evicting the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import NamedTuple

from truenorth.models.cluster import FOREVER, Interval
from truenorth.models.instance import NEVER, NONE, Instance
from truenorth.models.workload import WHOLE


class Copy(NamedTuple):
    """A model in a GPU's memory; ready at 0 once it is ready, and used if it was there at first or some run used it."""

    model: int
    slot: int
    ready_us: int
    used: bool


class JointRun(NamedTuple):
    """Tasks that run together, until when."""

    end_us: int
    tasks: tuple[int, ...]


class GPUContents(NamedTuple):
    """One GPU: copies, runs, tasks that ended there and whose outputs are under way, classes that began just now."""

    copies: tuple[Copy, ...]
    runs: tuple[JointRun, ...]
    sent: tuple[JointRun, ...]
    begun: tuple[int, ...]


class State(NamedTuple):
    """An instant, the tasks that have not started, and the GPUs."""

    now_us: int
    left: frozenset[int]
    sites: tuple[GPUContents, ...]


class BegunLoad(NamedTuple):
    """A model's load that begins, and its slot."""

    gpu: int
    model: int
    slot: int
    ready_us: int


class BegunRun(NamedTuple):
    """A run that begins."""

    gpu: int
    run: JointRun


class Drop(NamedTuple):
    """A copy that leaves."""

    gpu: int
    copy: Copy


Event = BegunLoad | BegunRun | Drop
Place = tuple[int, int, tuple[int, ...]]
"""Where a move stands among those of an instant: GPU, 0 for loads and 1 for runs, and what begins."""


class PossibleMove(NamedTuple):
    """A load or a run that can begin, after which copies have left."""

    place: Place
    drops: tuple[Drop, ...]
    event: Event
    after: State

    @property
    def name(self) -> tuple[Place, frozenset[tuple[int, int]]]:
        """What is the same at another instant."""
        return self.place, frozenset((drop.gpu, drop.copy.model) for drop in self.drops)


class TimeStep(NamedTuple):
    """From an instant to the next: the state there, what happened, and the moves that could have been made as well."""

    state: State
    events: tuple[Event, ...]
    declined: frozenset[object]


class Rules:
    """The rules for one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.gpus, self.tasks = range(instance.n_gpus), range(instance.n_tasks)
        self.needs = [frozenset(instance.task_needs(task)) for task in self.tasks]
        self.inputs = [tuple(instance.task_inputs(task)) for task in self.tasks]
        self.outputs = [tuple(instance.task_outputs(task)) for task in self.tasks]
        self.batch = [int(instance.template_batch[t]) for t in instance.task_template]
        self.share = [int(instance.template_share[t]) for t in instance.task_template]
        self.memory = [int(instance.template_memory[t]) for t in instance.task_template]
        self.weight = instance.weight_bytes.tolist()
        names = [model.name for model in instance.models]
        self.most = [instance.restrictions.max_replicas.get(name, instance.n_gpus) for name in names]
        self.users = [frozenset(t for t in self.tasks if m in self.needs[t]) for m in range(len(names))]
        self.alike = self._alike()
        self.waits_for = self._equal_before()

    def _equal_before(self) -> dict[int, int]:
        """Return of equal jobs whose first task of the file begins after which: exchanged, they make the same plan."""
        instance, last, before = self.instance, dict[object, int](), dict[int, int]()
        for index, job in enumerate(instance.jobs):
            first, workflow = int(instance.job_first_task[index]), int(instance.job_workflow[index])
            task = first + instance.workflows[workflow].topological[0]
            key = (workflow, job.release_us, job.weight, job.deadline_us, job.own_ideal_us, job.ingress)
            # Batches take any of a class, so that no order is left.
            if key in last and self.batch[task] == NONE:
                before[task] = last[key]
            last[key] = task
        return before

    def _alike(self) -> list[int]:
        """Return for each GPU one that it may be exchanged with: of its class, each alone in its server."""
        server, kind = self.instance.gpu_server.tolist(), self.instance.gpu_class.tolist()
        fed = bool((self.instance.job_ingress != NONE).any() and self.instance.input_us.any())
        alone = [server.count(server[g]) == 1 and not fed for g in self.gpus]
        return [
            min(h for h in self.gpus if h == g or (alone[g] and alone[h] and kind[h] == kind[g])) for g in self.gpus
        ]

    def key(self, state: State) -> State:
        """Return the same state for all that differ in which of alike GPUs is which."""
        sites = sorted(zip(self.alike, state.sites, strict=True))
        return state._replace(sites=tuple(site for _, site in sites))

    def first_states(self) -> Iterator[State]:
        """Yield the states at 0: an initial residency may be left out where limits let it be in the way for ever."""
        given, limits = self.instance.initial, self.instance.restrictions
        limited = limits.no_swaps or limits.max_replicas
        for size in range(0 if limited else len(given), len(given) + 1):
            for kept in combinations(given, size):
                models = [resident.model for resident in kept]
                if all(models.count(model) <= self.most[model] for model in models):
                    copies: list[list[Copy]] = [[] for _ in self.gpus]
                    for resident in kept:
                        slot = NONE if resident.slot is None else resident.slot
                        copies[resident.gpu].append(Copy(resident.model, slot, 0, True))
                    sites = tuple(GPUContents(tuple(sorted(here)), (), (), ()) for here in copies)
                    yield State(0, frozenset(self.tasks), sites)

    def steps(self, state: State, declined: frozenset[object]) -> Iterator[TimeStep]:
        """Yield every way to the next instant; once no task is left, time stands.

        Parameters
        ----------
        declined
            The moves that were possible until now, since the last instant: they are none of this one.
        """
        waiting: list[tuple[Place, State, tuple[Event, ...]]] = [((-1, 0, ()), state, ())]
        while waiting:
            last, reached, events = waiting.pop()
            moves = list(self._moves(reached))
            later = self._advance(reached) if reached.left else reached
            if later is not None:
                yield TimeStep(later, events, frozenset(move.name for move in moves))
            # Moves of one instant do not depend on their order: ascending, each set of them comes once.
            waiting += [
                (move.place, move.after, (*events, *move.drops, move.event))
                for move in moves
                if move.place > last and move.name not in declined
            ]

    # Time

    def _advance(self, state: State) -> State | None:
        """Return the state at the next instant at which anything may change; None if nothing ever does."""
        now, known = state.now_us, _whereabouts(state)
        instants = [run.end_us for site in state.sites for run in site.runs]
        instants += [copy.ready_us for site in state.sites for copy in site.copies]
        instants += [
            at for gpu in self.instance.cluster.gpus for interval in gpu.available.intervals for at in interval
        ]
        instants += [now + 1 for site in state.sites if site.begun]
        for task in state.left:
            for gpu in self.gpus:
                instants.append(self._arrival(state, known, task, gpu))
        later = min((at for at in instants if now < at < FOREVER), default=None)
        if later is None:
            return None
        sites = tuple(self._at(state, gpu, later) for gpu in self.gpus)
        return State(later, state.left, sites)

    def _at(self, state: State, gpu: int, later: int) -> GPUContents:
        """Return a GPU at a later instant: what has ended, arrived or gone is left out."""
        site, intervals = state.sites[gpu], self.instance.cluster.gpus[gpu].available.intervals
        gone = any(state.now_us < end <= later for _, end in intervals)
        copies = [copy._replace(ready_us=copy.ready_us * (copy.ready_us > later)) for copy in site.copies if not gone]
        ended = [JointRun(run.end_us, (task,)) for run in site.runs if run.end_us <= later for task in run.tasks]
        sent = [run for run in (*site.sent, *ended) if self._under_way(state, gpu, run, later)]
        runs = tuple(run for run in site.runs if run.end_us > later)
        return GPUContents(tuple(sorted(copies)), runs, tuple(sorted(sent)), ())

    def _under_way(self, state: State, gpu: int, run: JointRun, now: int) -> bool:
        (task,) = run.tasks
        return any(
            run.end_us + self.instance.gap_time(edge, gpu, other) > now
            for target, edge in self.outputs[task]
            if target in state.left
            for other in self.gpus
        )

    def _arrival(self, state: State, known: dict[int, tuple[int, int]], task: int, gpu: int) -> int:
        """Return when a task's release and inputs allow it to start on a GPU; -1 if some input has not been begun."""
        arrival = self.instance.earliest_start(task, gpu)
        for before, edge in self.inputs[task]:
            if before in state.left:
                return -1
            if before in known:
                source, end = known[before]
                arrival = max(arrival, end + self.instance.gap_time(edge, source, gpu))
        return arrival

    def earliest_start(self, state: State, task: int) -> int:
        """Return an instant before which no task can start that is left: its models must be ready somewhere."""
        return min(
            max(self.instance.earliest_start(task, gpu), self._models_ready(state, task, gpu))
            for gpu in self.instance.eligible_gpus(task)
        )

    def _models_ready(self, state: State, task: int, gpu: int) -> int:
        copies = state.sites[gpu].copies
        missing = self.needs[task].difference(copy.model for copy in copies)
        # Loads follow one another.
        begin = max([state.now_us, *(copy.ready_us for copy in copies if missing or copy.model in self.needs[task])])
        return begin + sum(self.instance.load_time(model, gpu) for model in missing)

    # Moves

    def _moves(self, state: State) -> Iterator[PossibleMove]:
        """Yield every load and run that can begin now."""
        known = _whereabouts(state)
        for gpu in self.gpus:
            interval = self.instance.cluster.gpus[gpu].available.at(state.now_us)
            if interval is not None:
                yield from self._loads(state, gpu, interval)
                yield from self._runs(state, gpu, interval, known)

    def _loads(self, state: State, gpu: int, interval: Interval) -> Iterator[PossibleMove]:
        now, site = state.now_us, state.sites[gpu]
        if _is_loading(site, now) or (site.runs and not self.instance.overlap_loads):
            return
        here = {copy.model: copy for copy in site.copies}
        for model, weight in enumerate(self.weight):
            load_us, users = self.instance.load_time(model, gpu), self.users[model] & state.left
            # In a slot a copy may be in the way of another model that fits nowhere else: it moves by a load.
            own = here.get(model)
            stays = own is not None and (own.slot == NONE or not self._may_leave(state, gpu, own))
            if stays or load_us == NEVER or now + load_us > interval[1]:
                continue
            # Each load serves some task first, and another task than every other load does.
            unused = sum(copy.model == model and not copy.used for site in state.sites for copy in site.copies)
            if unused >= len(users) or all(self.instance.run_time(task, gpu) == NEVER for task in users):
                continue
            for slot, leaving in self._rooms(state, gpu, weight):
                if own is not None:
                    if slot == own.slot:
                        continue
                    leaving = (*leaving, Drop(gpu, own))
                for elsewhere in self._surplus(_without(state, leaving), model):
                    drops = [*leaving, *elsewhere]
                    after = _without(state, drops)
                    copies = (*after.sites[gpu].copies, Copy(model, slot, now + load_us, False))
                    event = BegunLoad(gpu, model, slot, now + load_us)
                    there = after.sites[gpu]._replace(copies=copies)
                    yield PossibleMove((gpu, 0, (model, slot)), tuple(drops), event, _with(after, gpu, there))

    def _rooms(self, state: State, gpu: int, weight: int) -> Iterator[tuple[int, tuple[Drop, ...]]]:
        """Yield the slots for a model (NONE: by bytes), each with the copies that must leave for it."""
        slots = self.instance.cluster.gpus[gpu].slots
        if not slots:
            yield from ((NONE, drops) for drops in self._making_room(state, gpu, weight, frozenset()))
        for slot, size in enumerate(slots):
            inside = [copy for copy in state.sites[gpu].copies if copy.slot == slot]
            if weight <= size and all(self._may_leave(state, gpu, copy) for copy in inside):
                yield slot, tuple(Drop(gpu, copy) for copy in inside)

    def _surplus(self, state: State, model: int) -> Iterable[tuple[Drop, ...]]:
        """Return the sets of copies that must leave other GPUs, so that one more is within the limit on replicas."""
        copies = [Drop(gpu, c) for gpu in self.gpus for c in state.sites[gpu].copies if c.model == model]
        leaving = [drop for drop in copies if self._may_leave(state, *drop)]
        return combinations(leaving, max(0, len(copies) + 1 - self.most[model]))

    def _runs(
        self, state: State, gpu: int, interval: Interval, known: dict[int, tuple[int, int]]
    ) -> Iterator[PossibleMove]:
        now, site = state.now_us, state.sites[gpu]
        if _is_loading(site, now) and not self.instance.overlap_loads:
            return
        ready = {copy.model for copy in site.copies if copy.ready_us <= now}
        able = [
            task
            for task in sorted(state.left)
            if self.instance.run_time(task, gpu) != NEVER
            and self.needs[task] <= ready
            and self.waits_for.get(task) not in state.left
            and 0 <= self._arrival(state, known, task, gpu) <= now
        ]
        free = WHOLE - sum(self.share[run.tasks[0]] for run in site.runs)
        for tasks in self._together(able, site):
            first, run_us = tasks[0], self._run_us(tasks, gpu)
            if self.share[first] > free or run_us == NEVER or now + run_us > interval[1]:
                continue
            for drops in self._making_room(state, gpu, self.memory[first] * len(tasks), self.needs[first]):
                run = JointRun(now + run_us, tasks)
                after = self._begin(_without(state, drops), gpu, run)
                yield PossibleMove((gpu, 1, tasks), drops, BegunRun(gpu, run), after)

    def _together(self, able: list[int], site: GPUContents) -> Iterator[tuple[int, ...]]:
        """Yield the tasks that may start as one: any alone, and of a class that has not begun just now any set."""
        yield from ((task,) for task in able if self.batch[task] == NONE)
        for batch in {self.batch[task] for task in able} - {NONE, *site.begun}:
            members = [task for task in able if self.batch[task] == batch]
            yield from chain.from_iterable(combinations(members, size) for size in range(1, len(members) + 1))

    def _run_us(self, tasks: tuple[int, ...], gpu: int) -> int:
        batch = self.batch[tasks[0]]
        one = self.instance.run_time(tasks[0], gpu)
        return one if batch == NONE else self.instance.batch_time(batch, gpu, len(tasks))

    def _begin(self, state: State, gpu: int, run: JointRun) -> State:
        site, first = state.sites[gpu], run.tasks[0]
        copies = tuple(copy._replace(used=copy.used or copy.model in self.needs[first]) for copy in site.copies)
        begun = site.begun if self.batch[first] == NONE else (*site.begun, self.batch[first])
        there = GPUContents(copies, tuple(sorted((*site.runs, run))), site.sent, begun)
        return _with(state._replace(left=state.left.difference(run.tasks)), gpu, there)

    def _making_room(self, state: State, gpu: int, wanted: int, staying: frozenset[int]) -> Iterator[tuple[Drop, ...]]:
        """Yield the sets of copies that must leave for so many bytes to fit on a GPU, none of them needlessly."""
        site, device = state.sites[gpu], self.instance.cluster.gpus[gpu]
        held = sum(self.weight[copy.model] for copy in site.copies)
        held += sum(self.memory[run.tasks[0]] * len(run.tasks) for run in site.runs)
        # Slots take models alone; no task with memory of its own is eligible there.
        missing = wanted + held - device.memory_bytes if wanted else 0
        leaving = [c for c in site.copies if c.model not in staying and self._may_leave(state, gpu, c)]
        for copies in chain.from_iterable(combinations(leaving, size) for size in range(len(leaving) + 1)):
            freed = sum(self.weight[copy.model] for copy in copies)
            if freed >= missing and all(freed - self.weight[copy.model] < missing for copy in copies):
                yield tuple(Drop(gpu, copy) for copy in copies)

    def _may_leave(self, state: State, gpu: int, copy: Copy) -> bool:
        """Say whether a copy may leave: nothing runs with it, and it has served, or else need not have been loaded."""
        busy = any(copy.model in self.needs[run.tasks[0]] for run in state.sites[gpu].runs)
        ready = copy.ready_us <= state.now_us
        return copy.used and ready and not busy and not self.instance.restrictions.no_swaps


def _whereabouts(state: State) -> dict[int, tuple[int, int]]:
    """Return GPU and end of the tasks that run, or whose outputs are under way."""
    runs = ((gpu, run) for gpu, site in enumerate(state.sites) for run in chain(site.runs, site.sent))
    return {task: (gpu, run.end_us) for gpu, run in runs for task in run.tasks}


def _is_loading(site: GPUContents, now: int) -> bool:
    return any(copy.ready_us > now for copy in site.copies)


def _without(state: State, drops: Iterable[Drop]) -> State:
    """Return the state after some copies have left."""
    for gpu, copy in drops:
        site = state.sites[gpu]
        state = _with(state, gpu, site._replace(copies=tuple(c for c in site.copies if c != copy)))
    return state


def _with(state: State, gpu: int, site: GPUContents) -> State:
    """Return the state with another GPU in one place."""
    return state._replace(sites=(*state.sites[:gpu], site, *state.sites[gpu + 1 :]))
