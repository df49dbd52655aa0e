"""The oracle: the optimum of tiny instances by a dynamic programme over time; no code of a formulation in it.

The programme runs over the states of `solvers.exact.moments`, the most promising first: what a state has cost, and what
its tasks cost at least if each started as soon as its job and models allow. A state is left out if it was reached
before at no higher cost and with no later starts in total: of the cheapest plans, the one that begins earliest stays.
So the first state without a task left is an optimum, whatever the objective: each adds up over the jobs, or takes the
largest.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from fractions import Fraction
from itertools import count, pairwise
from math import lcm
from typing import NamedTuple

from truenorth.models.cluster import FOREVER
from truenorth.models.features import SEVERAL_AT_A_TIME, Feature, require
from truenorth.models.instance import NONE, Instance
from truenorth.models.objective import Objective
from truenorth.models.timeline import Placement, Residency, Timeline
from truenorth.models.workload import Workflow
from truenorth.solvers.exact.moments import BegunLoad, BegunRun, Drop, Rules, State, TimeStep
from truenorth.solvers.result import Result, Search

METHOD = "exhaustive"
"""Name of the bounds that this solver proves."""
SUPPORTS = SEVERAL_AT_A_TIME | {Feature.DELAYS}


class _Node(NamedTuple):
    """A state, its cost and the sum of all starts until then, the step to it, and the node where that began."""

    step: TimeStep
    cost: int
    begun_us: int
    before: _Node | None

    @property
    def state(self) -> State:
        """Where the step led."""
        return self.step.state


def solve(instance: Instance, objective: Objective) -> Result:
    """Return an optimal plan, or the proof that there is none; for up to about six tasks."""
    require(instance, "the exhaustive search", SUPPORTS)
    search, costs = Search(instance, objective, float("inf")), _Costs(Rules(instance), objective)
    last = _cheapest(costs)
    if last is None:
        search.deny(METHOD)
    else:
        search.offer(_timeline(instance, last))
        search.offer_bound(Fraction(last.cost, costs.scale), METHOD)
    return search.result(METHOD, {})


def _cheapest(costs: _Costs) -> _Node | None:
    """Return the cheapest node without a task left, or None if there is none."""
    numbers, queue, seen = count(), list[tuple[int, int, int, _Node]](), dict[State, list[_Node]]()

    def push(node: _Node) -> None:
        # Of two that promise the same, the one with fewer tasks left.
        heapq.heappush(queue, (costs.promise(node), len(node.state.left), next(numbers), node))

    for state in costs.rules.first_states():
        push(_Node(TimeStep(state, (), frozenset()), 0, 0, None))
    while queue:
        node = heapq.heappop(queue)[-1]
        if not node.state.left:
            return node
        # Several may stay for one state: what costs less may have begun later.
        known = seen.setdefault(costs.rules.key(node.state), [])
        if any(other.cost <= node.cost and other.begun_us <= node.begun_us for other in known):
            continue
        known.append(node)
        for step in costs.rules.steps(node.state, node.step.declined):
            # Evictions take no time and do not count as begun.
            begun = sum(not isinstance(event, Drop) for event in step.events) * node.state.now_us
            push(_Node(step, costs.after(node, step), node.begun_us + begun, node))
    return None


class _Costs:
    """What completions cost, in whole numbers: 1 / scale of the objective."""

    def __init__(self, rules: Rules, objective: Objective) -> None:
        self.rules, self.instance, self.objective = rules, rules.instance, objective
        instance = rules.instance
        factors = [self._factor(job) for job in range(len(instance.jobs))]
        # So that all costs are whole, and equal ones equal.
        self.scale = lcm(*(factor.denominator for factor in factors))
        self.factor = [int(factor * self.scale) for factor in factors]
        self.fastest = [
            min(instance.run_time(t, g) for g in instance.eligible_gpus(t)) for t in range(instance.n_tasks)
        ]
        self.order = [
            [int(instance.job_first_task[job]) + position for position in instance.workflows[workflow].topological]
            for job, workflow in enumerate(instance.job_workflow.tolist())
        ]

    def _factor(self, job: int) -> Fraction:
        jobs, objective = self.instance.jobs, self.objective
        if objective in (Objective.MEAN_SLOWDOWN, Objective.MAX_SLOWDOWN):
            workflow = jobs[job].as_run
            path = Fraction(1, jobs[job].given_ideal_us or _critical_path_us(workflow))
            return path / len(jobs) if objective is Objective.MEAN_SLOWDOWN else path
        if objective is Objective.MEAN_LATENCY:
            return Fraction(1, len(jobs))
        if objective is Objective.WEIGHTED_LATENCY:
            return jobs[job].weight / (sum((other.weight for other in jobs), Fraction(0)) or 1)
        return Fraction(1) if objective is Objective.MAKESPAN else jobs[job].weight

    def _of(self, job: int, end_us: int) -> int:
        """Return what a job costs that completes then."""
        owner = self.instance.jobs[job]
        if self.objective is Objective.MAKESPAN:
            return end_us
        latency = end_us - owner.release_us
        if self.objective in (Objective.WEIGHTED_TARDINESS, Objective.LATE_JOBS):
            late = 0 if owner.deadline_us is None else max(0, latency - owner.deadline_us)
            latency = min(late, 1) if self.objective is Objective.LATE_JOBS else late
        return self.factor[job] * latency

    def _total(self, cost: int, ends: dict[int, int]) -> int:
        """Return a cost together with that of jobs by their completions."""
        each = [self._of(job, end) for job, end in ends.items()]
        largest = self.objective in (Objective.MAKESPAN, Objective.MAX_SLOWDOWN)
        return max([cost, *each]) if largest else sum(each, cost)

    def after(self, node: _Node, step: TimeStep) -> int:
        """Return the cost after a step: once the last task of a job has begun its completion is known."""
        ends = _ends(node.state) | {
            t: e.run.end_us for e in step.events if isinstance(e, BegunRun) for t in e.run.tasks
        }
        done = {int(self.instance.task_job[task]) for task in node.state.left - step.state.left}
        # Jobs of which a task is still left.
        done -= {int(self.instance.task_job[task]) for task in step.state.left}
        # What ended before is not the last to end.
        completions = {job: max(ends.get(task, 0) for task in self.instance.tasks_of(job)) for job in done}
        return self._total(node.cost, completions)

    def promise(self, node: _Node) -> int:
        """Return what a node costs at least in the end: as if each task left started once its job and models allow."""
        state, ends, completions = node.state, _ends(node.state), dict[int, int]()
        for job, order in enumerate(self.order):
            if state.left.isdisjoint(order):
                continue
            for task in order:
                if task in state.left:
                    inputs = [ends.get(before, 0) for before, _ in self.instance.task_inputs(task)]
                    ends[task] = max([self.rules.earliest_start(state, task), *inputs]) + self.fastest[task]
            completions[job] = max(ends.get(task, 0) for task in order)
        return self._total(node.cost, completions)


def _critical_path_us(workflow: Workflow) -> int:
    """Return the longest chain of run times and delays, each task at its fastest of all kinds it lists."""
    end: dict[str, int] = {}
    for position in workflow.topological:
        task = workflow.tasks[position]
        begin = max((end[edge.source] + edge.delay_us for edge in task.inputs), default=0)
        end[task.name] = min(task.runtime_us.values()) + begin
    return max(end.values())


def _ends(state: State) -> dict[int, int]:
    """Return the ends of the tasks that run."""
    return {task: run.end_us for site in state.sites for run in site.runs for task in run.tasks}


def _timeline(instance: Instance, last: _Node) -> Timeline:
    """Return what has happened until a node."""
    # From the end back to the first state.
    history = [last]
    while history[-1].before is not None:
        history.append(history[-1].before)
    placements, gone, here = list[Placement](), list[Residency](), dict[tuple[int, int], Residency]()
    for gpu, site in enumerate(history[-1].state.sites):
        for copy in site.copies:
            here[gpu, copy.model] = _stay(instance, BegunLoad(gpu, copy.model, copy.slot, 0), 0, initial=True)
    for after, before in reversed(list(pairwise(history))):
        now = before.state.now_us
        for event in after.step.events:
            if isinstance(event, BegunRun):
                placements += [Placement(task, event.gpu, now, event.run.end_us) for task in event.run.tasks]
            elif isinstance(event, Drop):
                gone.append(replace(here.pop((event.gpu, event.copy.model)), end_us=now))
            else:
                # What an earlier interval of the GPU held has ended with it.
                gone += [here[event.gpu, event.model]] if (event.gpu, event.model) in here else []
                here[event.gpu, event.model] = _stay(instance, event, now)
    return Timeline.build(instance.n_tasks, placements, [*gone, *here.values()])


def _stay(instance: Instance, load: BegunLoad, now: int, initial: bool = False) -> Residency:
    """Return a residency that lasts as long as its GPU is there."""
    interval = instance.cluster.gpus[load.gpu].available.at(now)
    until = None if interval is None or interval[1] == FOREVER else interval[1]
    slot = None if load.slot == NONE else load.slot
    return Residency(load.model, load.gpu, now, load.ready_us, until, slot, initial)
