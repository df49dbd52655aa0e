"""The worker that most policies share: a FIFO queue per GPU; a policy on top of it only decides placement.

A worker runs one task at a time, first in first out, skipping tasks whose inputs are not there yet. The loads of the
task in turn are on its critical path. The only overlap is a prefetch for one of the next queued tasks, and only if
nothing has to be evicted for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from truenorth.executor.errors import PolicyError
from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.batching import Batches
from truenorth.executor.policies.decided import OwnDecisions
from truenorth.executor.policies.eviction import (
    furthest_use_first,
    least_recent_first,
    makes_room,
    oldest_first,
    room_for,
)
from truenorth.executor.policies.options import QueueOptions
from truenorth.executor.policies.view import PublishedView, RunRows, least
from truenorth.executor.policy import Policy
from truenorth.executor.site import Site
from truenorth.models import NONE
from truenorth.models.features import SERVING, Feature, Features
from truenorth.models.workload import WHOLE


class QueuePolicy(Policy):
    """Base of the policies that only decide placement; it queues, loads, evicts, prefetches and starts by itself.

    A policy of your own overrides `runnable`, or plans whole jobs in `released`:

    >>> class Least(QueuePolicy):
    ...     def runnable(self, task, server):
    ...         self.view.advance()
    ...         waits = self.view.waits(server)
    ...         self.place(task, min(self.site.eligible_gpus(task), key=lambda gpu: waits[gpu]))

    Attributes
    ----------
    view
        What a server knows of all workers.
    queue
        Per GPU: tasks that wait, in order.
    in_turn
        Per GPU: the task that was taken from its queue and has not started, NOWHERE without one.
    last_use_us
        Per GPU: when the last run of a model ended there.
    run_rows
        Run times as rows over the GPUs.
    remembers
        Whether it reads waits by which it could send too many tasks to one GPU before that is published.
    decides_apart
        Whether every server decides for itself, and knows at once what it has decided itself alone; else there is one
        dispatcher, which knows all that was decided.
    """

    supports: ClassVar[Features] = SERVING | {Feature.DELAYS}
    remembers: ClassVar[bool] = True
    decides_apart: ClassVar[bool] = False
    Options: ClassVar[type[object]] = QueueOptions

    def __init__(self, options: QueueOptions | None = None) -> None:
        self.options = options or QueueOptions()

    def begin(self, site: Site) -> None:
        """Set up empty queues."""
        super().begin(site)
        self._accept(site)
        remembers = self.remembers and self.options.own_decisions
        self._own = OwnDecisions(site.gpu_server, self.decides_apart) if remembers else None
        self.view = PublishedView(site, self.options.period, self._own)
        self._count: Callable[[int, int], None] = self.view.add_work
        self.queue: list[list[int]] = [[] for _ in range(site.n_gpus)]
        self._queued_on: dict[int, int] = {}
        # Whether somebody is more urgent than others: else everybody queues up behind.
        self._urgent = False
        self.batches = Batches(site, self.options.batch, self)
        self.in_turn = [NOWHERE] * site.n_gpus
        self.last_use_us: list[dict[int, int]] = [{} for _ in range(site.n_gpus)]
        self._prefetches = self.options.prefetch if site.overlap_loads else 0
        self._prefetches_left = [self._prefetches] * site.n_gpus
        self.run_rows = RunRows(site)
        # Tasks that no GPU can do in time for now, with the server where that was found.
        self._without_place: dict[int, int] = {}
        self._awaited = [NOWHERE] * site.n_gpus

    def _accept(self, site: Site) -> None:
        """Refuse restrictions that evicting at will cannot keep."""
        if site.restrictions.no_swaps or site.restrictions.max_replicas:
            name = self.name or type(self).__name__.lower()
            raise PolicyError(
                f"policy {name} evicts at will: it cannot keep to the restrictions no_swaps, max_replicas"
            )

    def released(self, job: int) -> None:
        """Pass on the tasks without predecessors."""
        for task in self.site.job_tasks[job]:
            if not self.site.predecessors_left[task]:
                self.seek_place(task, self.site.job_ingress[job])

    def runnable(self, task: int, server: int) -> None:
        """Place a task all of whose predecessors have finished; called unless it has a place already.

        Unless a policy does it otherwise, where it could start first (several kinds: finish): argmin of wait + TD.
        Equal workers: those of the job's ingress server, then the lowest index.

        Parameters
        ----------
        server
            Where this is decided: the job's ingress, or the server of the predecessor that finished last.
        """
        site, view = self.site, self.view
        template = site.template[task]
        view.advance()
        row = view.waits(server, view.boundary_us)
        self.run_rows.add_to(row, template)
        view.add_load_costs(row, site.needs[template], server, out=row)
        self.place(task, least(row, view.gpus_of[site.job_ingress[site.job[task]]]), server)

    def seek_place(self, task: int, server: int) -> None:
        """Have a task placed now if some GPU that is there can do it in time, else once one comes."""
        if self.site.stays or self.site.eligible_gpus(task):
            self.runnable(task, server)
        else:
            self.wait_for_gpu(task, server)

    def wait_for_gpu(self, task: int, server: int) -> None:
        """Seek a place for a task when the next GPU comes."""
        self._without_place[task] = server

    def finished(self, task: int, gpu: int) -> None:
        """Note the use of models, and pass on the successors whose last predecessor this was."""
        site = self.site
        template, last_use_us = site.template[task], self.last_use_us[gpu]
        for model in site.needs[template]:
            last_use_us[model] = site.now
        if not self.options.remaining:
            self._count(gpu, -self._work_us(task, gpu))
        elif site.state[gpu].runs:
            self.view.begin_work(gpu, 0, self._busy_until_us(gpu))
        for offset, edge in site.outputs[template]:
            if not site.predecessors_left[task + offset]:
                self._pass_on(task + offset, edge, gpu)

    def elapsed(self, task: int, follower: int, edge: int) -> None:
        """Pass on a task that has waited for nothing else."""
        if not self.site.predecessors_left[follower]:
            self._pass_on(follower, edge, self.site.gpu[task])

    def _pass_on(self, task: int, edge: int, gpu: int) -> None:
        """Have a task placed, or placed anew, all of whose predecessors have finished, the last one on this GPU."""
        site = self.site
        if site.gpu[task] == NOWHERE:
            # Unless its job was dropped.
            if site.started_us[task] < 0:
                self.seek_place(task, site.gpu_server[gpu])
            return
        self.reconsider(task, edge, gpu)
        if self._own is not None and task not in self._queued_on:
            there = site.gpu[task]
            # Now that its inputs leave it is on its way.
            self._own.decide(task, there, site.gpu_server[gpu], self._work_us(task, there), True)

    def reconsider(self, task: int, edge: int, here: int) -> None:
        """Place a task anew, if that is better, before the output of its last predecessor leaves along an edge.

        Parameters
        ----------
        here
            The GPU where that predecessor has just finished.
        """

    def places(self, task: int) -> Sequence[int]:
        """Return the GPUs on which a task can run, now or later."""
        return self.site.able_gpus(task)

    def take_over(self) -> None:
        """Place every task that may run: another policy led so far, and no task that has not started has a GPU."""
        site = self.site
        for gpu, state in enumerate(site.state):
            if state.runs:
                self.view.begin_work(gpu, 0, self._busy_until_us(gpu))
        for job, tasks in enumerate(site.job_tasks):
            for task in tasks:
                if site.started_us[task] < 0 and not site.predecessors_left[task]:
                    self.runnable(task, site.job_ingress[job])

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take what will not run out of the queues, and pass on tasks that have waited for nothing else."""
        site = self.site
        # A dictionary keeps the order in which they were met, which a set would not.
        followers: dict[int, None] = {}
        for task in dropped:
            self._without_place.pop(task, None)
            self._not_coming(task)
            gpu = self._take_out(task)
            if gpu != NOWHERE:
                site.touched[gpu] = None
            followers |= dict.fromkeys(task + offset for offset, _ in site.outputs[site.template[task]])
        for follower in followers:
            if not site.predecessors_left[follower] and site.gpu[follower] == NOWHERE:
                self.seek_place(follower, site.job_ingress[job])

    def place(self, task: int, gpu: int, server: int | None = None) -> None:
        """Send a task to a GPU; it queues there when its inputs arrive. A queued task can be sent elsewhere.

        If the GPU goes too soon for it, the task stays where it is; without a place it is placed when it can run.

        Parameters
        ----------
        server
            Which one decides this, where servers decide apart; None: where its job came in.
        """
        site = self.site
        # Its GPU would go before: better nowhere than on the way to where it cannot run.
        if not (site.stays or site.could_end(task, gpu)):
            if site.gpu[task] == NOWHERE and not site.predecessors_left[task]:
                self.wait_for_gpu(task, site.job_ingress[site.job[task]])
            return
        if task in self._queued_on:
            self._take_out(task)
        if self._own is not None and gpu in range(site.n_gpus):  # what is no GPU is refused as it is assigned
            by = site.job_ingress[site.job[task]] if server is None else server
            self._own.decide(task, gpu, by, self._work_us(task, gpu), not site.predecessors_left[task])
        site.assign(task, gpu)

    def _take_out(self, task: int) -> int:
        """Take a task out of the queue that it is in; return whose that was, NOWHERE if it is in none."""
        gpu = self._queued_on.pop(task, NOWHERE)
        if gpu != NOWHERE:
            self.queue[gpu].remove(task)
            self._count(gpu, -self._work_us(task, gpu))
        return gpu

    def came(self, gpu: int) -> None:
        """Place what no other GPU could do."""
        # Emptied first: who finds no place again is noted anew.
        waiting, self._without_place = self._without_place, {}
        for task, server in waiting.items():
            self.seek_place(task, server)

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Place anew what can run; the rest is placed when it can."""
        self.last_use_us[gpu].clear()
        self.returned(gpu, tasks)

    def returned(self, gpu: int, tasks: Sequence[int]) -> None:
        """Place anew what can run; the rest is placed when it can."""
        for task in tasks:
            self._forget(task, gpu)
        for task in tasks:
            if not self.site.predecessors_left[task]:
                self.seek_place(task, self.site.job_ingress[self.site.job[task]])

    def emptied(self, gpu: int, models: Sequence[int]) -> None:
        """Take note of each model, as if it had been evicted."""
        self.view.note_memory(gpu)
        for model in models:
            self.evicted(model, gpu)

    def withdraw(self, task: int) -> None:
        """Take a task that has not started off its GPU: it is placed anew once it can run."""
        gpu = self.site.gpu[task]
        if gpu != NOWHERE:
            self.site.take_back(task)
            self._forget(task, gpu)

    def _forget(self, task: int, gpu: int) -> None:
        if self.in_turn[gpu] == task:
            self.in_turn[gpu] = NOWHERE
            self._count(gpu, -self._work_us(task, gpu))
        self._not_coming(task)
        self._take_out(task)
        self.withdrawn(task, gpu)

    def _not_coming(self, task: int) -> None:
        """Have the next publication say that a task does not come where it was sent."""
        if self._own is not None:
            self.view.advance()
            self._own.settle(task)

    def withdrawn(self, task: int, gpu: int) -> None:
        """Take note that a task that has not started is on a GPU no more."""

    def arrived(self, task: int, missing: int) -> None:
        """Queue a task up."""
        if not missing:
            if self.options.batch > 0:
                self.batches.ready(task)
        elif self.options.enqueue == "last":
            return
        if task in self._queued_on:
            return
        self.enqueue(task, self.site.gpu[task])

    def enqueue(self, task: int, gpu: int) -> None:
        """Queue a task up at the GPU where it was placed."""
        self._queued_on[task] = gpu
        queue, urgency = self.queue[gpu], self.urgency(task)
        if urgency or self._urgent:
            self._urgent = True
            self._let_pass(gpu, urgency)
            queue.insert(self._behind(queue, urgency), task)
        else:
            queue.append(task)
        self._count(gpu, self._work_us(task, gpu))
        if self._own is not None:
            self._own.settle(task)  # by now what was published before is taken in

    def urgency(self, task: int) -> int:
        """Return the priority of a task, that of its job: nobody passes a higher one in a queue (rule E8)."""
        return self.site.jobs[self.site.job[task]].priority

    def _behind(self, queue: Sequence[int], urgency: int) -> int:
        """Return the place in a queue behind all that are as urgent as this."""
        return next((at for at, task in enumerate(queue) if self.urgency(task) < urgency), len(queue))

    def _let_pass(self, gpu: int, urgency: int) -> None:
        """Put the task in turn back into its queue if it is less urgent than one that comes."""
        task = self.in_turn[gpu]
        if task != NOWHERE and self.urgency(task) < urgency:
            self.put_back(gpu)

    def put_back(self, gpu: int) -> None:
        """Put the task in turn on a GPU back to where it was taken from: the head of its queue."""
        task, self.in_turn[gpu] = self.in_turn[gpu], NOWHERE
        self._awaited[gpu] = NOWHERE
        self._queued_on[task] = gpu
        queue = self.queue[gpu]
        queue.insert(self._behind(queue, self.urgency(task) + 1), task)

    def started(self, task: int, gpu: int) -> None:
        """Take note that a task has started."""

    def act(self, gpus: Sequence[int]) -> None:
        """Let every worker concerned go on."""
        site, states, queues, in_turn, awaited = self.site, self.site.state, self.queue, self.in_turn, self._awaited
        for gpu in gpus:
            state, queue = states[gpu], queues[gpu]
            if not queue and in_turn[gpu] == NOWHERE:
                continue  # after a wake-up most of them
            if awaited[gpu] != NOWHERE and state.loading == awaited[gpu] and site.stays:
                continue  # the task in turn can do nothing before that load ends, nor can those behind it
            # Several may start at once where tasks need only a share of the compute.
            while queue or in_turn[gpu] != NOWHERE:
                if not (state.free_share or state.serving) or not self._serve(gpu):
                    break
            # Only then: a prefetch must never come before a load on the critical path.
            if queue and self._prefetches_left[gpu] and state.loading == in_turn[gpu] == NOWHERE:
                self._prefetch(gpu)
        if site.queues:
            for gpu in gpus:
                if states[gpu].runs:
                    self._queue_next(gpu)

    def _work_us(self, task: int, gpu: int) -> int:
        """Return the work that a task brings to a GPU: its run time, times its share of the compute."""
        return self.site.work_us[self.site.template[task]][self.site.gpu_class[gpu]]

    def _serve(self, gpu: int) -> bool:
        """Go on with the task in turn, or take the next one; say whether it has started."""
        task = self.in_turn[gpu]
        if task == NOWHERE:
            position = self.next_in_turn(gpu)
            if position is None:
                return False
            task = self.in_turn[gpu] = self.queue[gpu].pop(position)
            del self._queued_on[task]
        return self._bring_up(task, gpu)

    def next_in_turn(self, gpu: int) -> int | None:
        """Return the place in a queue of the first task whose inputs are there; None if there is none."""
        missing = self.site.inputs_missing
        for position, task in enumerate(self.queue[gpu]):
            # First in, first out, but for those that wait for inputs themselves.
            if not missing[task]:
                return position
        return None

    def _queue_next(self, gpu: int) -> None:
        """Have the task ready that starts when what runs on a GPU ends, if it is known and lacks nothing else."""
        site, task = self.site, self.in_turn[gpu]
        if task == NOWHERE:
            task = self.next_behind(gpu, next(iter(site.state[gpu].runs.values())).tasks)
        # Who else goes with it is seen when it starts.
        if task != NOWHERE and site.batch[site.template[task]] == NONE:
            site.queue(task)

    def next_behind(self, gpu: int, running: Sequence[int]) -> int:
        """Return the task whose turn comes if nothing happens but the end of a run on its GPU, NOWHERE without one."""
        site = self.site
        arcs = ((task, arc) for task in running for arc in site.outputs[site.template[task]])
        followers = (task + offset for task, (offset, edge) in arcs if not site.delay_us[edge])
        for task in (*self.queue[gpu], *followers):
            if site.gpu[task] == gpu and site.inputs_missing[task] == site.coming(task, running):
                return task
        return NOWHERE

    def _bring_up(self, task: int, gpu: int) -> bool:
        """Start a task if its models are ready; otherwise load the largest missing one, if that is possible now."""
        site = self.site
        needs, ready = site.needs[site.template[task]], site.memory[gpu].ready
        if not (site.stays or site.in_time(task, gpu)):
            self.withdraw(task)
            self.seek_place(task, site.job_ingress[site.job[task]])
            site.touched[gpu] = None  # the next one may do better
            return False
        if ready.issuperset(needs):
            self._awaited[gpu] = NOWHERE
            return self._begin(task, gpu)
        state = site.state[gpu]
        if state.refuse_copying() is None:
            # The largest first, while there is most room.
            absent = (model for model in needs if model not in ready)
            model = max(absent, key=site.weight_bytes.__getitem__)
            # FIFO spares nobody: so the released simulator does it.
            spare = self.options.evict in ("lookahead", "lru")
            evict, slot = room_for(site, gpu, model, needs, self.eviction_order(gpu), spare)
            if not state.runs or makes_room(site, gpu, model, evict):
                self._load(gpu, model, evict, slot)
        self._awaited[gpu] = state.loading
        return False

    def _begin(self, task: int, gpu: int) -> bool:
        """Start a task whose models are ready, with those that go with it; say whether that is possible now."""
        site, state = self.site, self.site.state[gpu]
        alone = site.alone[site.template[task]] and state.free_share == WHOLE
        tasks = (task,) if alone else self.batches.gather(task, gpu, self.queue[gpu])
        if not tasks:
            return False
        if not site.stays:
            tasks = self._in_time(tasks, gpu)
        if alone:
            site.start(task)
        else:
            site.start(*tasks)
            for member in tasks[1:]:
                self.queue[gpu].remove(member)
                del self._queued_on[member]
        self.in_turn[gpu] = NOWHERE
        self._prefetches_left[gpu] = self._prefetches
        for member in tasks:
            self.started(member, gpu)
        if self.options.remaining:
            work_us = site.work_us[site.template[task]][site.gpu_class[gpu]]  # all members are of one class
            until_us = self._busy_until_us(gpu) if state.free_share else site.run_end_us[gpu]
            self.view.begin_work(gpu, len(tasks) * work_us, until_us)
        return True

    def _in_time(self, tasks: tuple[int, ...], gpu: int) -> tuple[int, ...]:
        """Return as many of a batch's tasks as end before their GPU goes; one does."""
        site, batch = self.site, self.site.batch[self.site.template[tasks[0]]]
        while len(tasks) > 1 and site.now + site.batch_time(batch, gpu, len(tasks)) > site.goes_us[gpu]:
            tasks = tasks[:-1]
        return tasks

    def eviction_order(self, gpu: int) -> list[int]:
        """Return the ready models of a GPU that nothing uses, in the order in which they are to leave."""
        site, evict, state = self.site, self.options.evict, self.site.state[gpu]
        by_age = evict.endswith("fifo")
        order = oldest_first(site, gpu) if by_age else least_recent_first(site, gpu, self.last_use_us[gpu])
        if state.runs:
            order = [model for model in order if not state.uses(model)]
        return furthest_use_first(site, self.queue[gpu], order) if evict.startswith("lookahead") else order

    def _load(self, gpu: int, model: int, evict: Sequence[int], slot: int | None) -> None:
        self.site.load(gpu, model, evict, slot)
        self.view.note_memory(gpu)
        for victim in evict:
            self.evicted(victim, gpu)

    def evict(self, model: int, gpu: int) -> None:
        """Evict a model, for what a task holds while it runs."""
        self.site.evict(gpu, model)
        self.view.note_memory(gpu)
        self.evicted(model, gpu)

    def evicted(self, model: int, gpu: int) -> None:
        """Take note that a model has left a GPU."""

    def _busy_until_us(self, gpu: int) -> int:
        """Return until when what runs on a GPU would keep all of it busy."""
        site, runs = self.site, self.site.state[gpu].runs
        work = ((run.end_us - site.now) * run.share for run in runs.values() if run.end_us > site.now)
        return site.now + sum(work) // WHOLE

    def _prefetch(self, gpu: int) -> None:
        """Load a model for one of the next queued tasks if there is room; no task in turn will want to load."""
        site, memory = self.site, self.site.memory[gpu]
        needs, template, residents = site.needs, site.template, memory.residents
        for task in self.queue[gpu][: self.options.lookahead]:
            for model in needs[template[task]]:
                if model in residents or not memory.has_room(model):
                    continue
                if site.now + site.load_time(model, gpu) <= site.goes_us[gpu]:
                    self._prefetches_left[gpu] -= 1
                    self._load(gpu, model, (), None)
                    return


class HeadFirst(QueuePolicy):
    """Base of the policies that queue a task up when they place it, and let nothing pass it."""

    def place_in_queue(self, task: int, gpu: int) -> None:
        """Send a task to a GPU, where it takes its place at once."""
        self.place(task, gpu)
        self.enqueue(task, gpu)

    def arrived(self, task: int, missing: int) -> None:
        """Take note of a task that can run: it has its place already."""
        if not missing:
            self.batches.ready(task)

    def next_in_turn(self, gpu: int) -> int | None:
        """Return the place of the head, once its inputs are there."""
        queue = self.queue[gpu]
        return 0 if queue and not self.site.inputs_missing[queue[0]] else None

    def next_behind(self, gpu: int, running: Sequence[int]) -> int:
        """Return the head, if it waits for nothing but what runs."""
        site, queue = self.site, self.queue[gpu]
        known = queue and site.inputs_missing[queue[0]] == site.coming(queue[0], running)
        return queue[0] if known else NOWHERE
