"""Offline: a plan of the whole window from what is told of run times, carried out; if asked, planned anew on surprises.

It is clairvoyant about arrivals, as every plan is, but not about run times. It ranks between a plan, which knows both,
and the online policies, which know neither. It plans anew when a task has ended outside its interval from p10 to p90,
or still runs at p90: the new plan, by the solver of the receding horizon, knows every arrival, too. What still runs is
expected to last as long as the estimate says of tasks that have run for that long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from truenorth.executor import Policy, PolicyError, Site, replay
from truenorth.executor.policies.carrying_out import lanes, leave_out_unused
from truenorth.executor.policies.options import count, count_from_1, one_of, option, switch
from truenorth.models.features import NO_RULES, Feature, Features, missing, require
from truenorth.models.gpu_state import Run
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.check import feasible_timeline
from truenorth.planner.answers.policies.receding_horizon import EVERYTHING, Oracle, RecedingHorizon, RecedingOptions
from truenorth.planner.answers.uncertain.planning import SAMPLES, candidates
from truenorth.planner.inputs.told import Told, retime
from truenorth.planner.questions.options import PlanFor
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing, gang_loads, gangs

_ENDLESS_S = 1e9
"""The search counts moves, not seconds, so that equal seeds give equal plans."""
MAX_SAMPLES = 1_000
"""Every sample is an instance, and for ``on=samples`` a plan of its own."""


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """How it plans.

    Parameters
    ----------
    on
        Run times to plan for: ``p50``, ``p90`` or ``samples``.
    replan
        Whether to plan anew when a run time leaves its interval.
    plan
        A plan file of the scenario to follow in place of a plan of its own.
    moves, samples
        Moves of local search per plan; run-time vectors to draw.
    decision
        Moves of the local search whenever it plans anew.
    seed
        Of the searches and samples.
    """

    on: str = option("p50", one_of(*PlanFor))
    replan: bool = option(False, switch)
    plan: str | None = option(None, str)
    moves: int = option(200_000, count_from_1())
    samples: int = option(SAMPLES, count_from_1(MAX_SAMPLES))
    decision: int = option(2_000, count_from_1())
    seed: int = option(0, count)


class Offline(Policy):
    """Plans before anything happens, then lets the replay of the plan act, or whoever follows and replans it.

    Parameters
    ----------
    options
        How it plans.
    scenario
        For its objective, and for what a plan file belongs to.
    told
        What is known of the run times.
    """

    Options: ClassVar[type[object]] = OfflineOptions
    supports: ClassVar[Features] = Policy.supports | {
        Feature.GANGS,
        Feature.MODES,
        Feature.SPLITS,
        Feature.DELAYS,
    }
    knows_paths: ClassVar[bool] = True
    foresees: ClassVar[bool] = True

    def __init__(self, options: OfflineOptions, scenario: Scenario, told: Told) -> None:
        self._options, self._scenario, self._told = options, scenario, told

    @classmethod
    def looks_ahead(cls, options: object | None) -> bool:
        """Say that it does: it plans before anything happens."""
        return True

    def begin(self, site: Site) -> None:
        """Plan, and hand over to who carries the plan out.

        Raises
        ------
        PolicyError
            If no plan is found, or it cannot be carried out.
        InputError
            If the plan file cannot be used.
        """
        super().begin(site)
        options, plan = self._options, self._plan()
        lacking = [] if not options.replan else missing(self._told.instance, Following.supports | NO_RULES)
        if lacking:
            raise PolicyError(f"policy offline: replan=on has no support for {', '.join(lacking)}; leave it out")
        if options.replan:
            objective = str(self._scenario.objective)
            receding = RecedingOptions(moves=options.decision, objective=objective, seed=options.seed)
            self._carrier: Policy = Following(self._told, plan, receding)
        else:
            self._carrier = replay(self._told.instance, plan)()
        self._carrier.begin(site)

    def _plan(self) -> Timeline:
        options, objective = self._options, self._scenario.objective
        if options.plan is not None:
            given = self._scenario.instance
            # The file's plan has the true times; it is carried out with those that are told.
            return retime(given, feasible_timeline(given, Path(options.plan)), self._told.instance)

        def planned(instance: Instance) -> Timeline | None:
            return anneal(instance, objective, options.moves, options.seed)

        found = candidates(self._told, objective, PlanFor(options.on), planned, options.seed, options.samples)
        if not found:
            raise PolicyError("policy offline: no plan was found")
        return found[0].timeline

    def released(self, job: int) -> None:
        """Pass a release on."""
        self._carrier.released(job)

    def finished(self, task: int, gpu: int) -> None:
        """Pass the end of a task on."""
        self._carrier.finished(task, gpu)

    def arrived(self, task: int, missing: int) -> None:
        """Pass the arrival of an input on."""
        self._carrier.arrived(task, missing)

    def loaded(self, model: int, gpu: int) -> None:
        """Pass the end of a load on."""
        self._carrier.loaded(model, gpu)

    def came(self, gpu: int) -> None:
        """Pass on that a GPU is there."""
        self._carrier.came(gpu)

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Pass on that a GPU has gone."""
        self._carrier.went(gpu, tasks)

    def act(self, gpus: Sequence[int]) -> None:
        """Let the plan go on."""
        self._carrier.act(gpus)


def anneal(instance: Instance, objective: Objective, moves: int, seed: int) -> Timeline | None:
    """Return the plan that a number of moves of local search leads to; None if there is none."""
    search = Search(instance, objective, _ENDLESS_S)
    if instance.gangs:
        orders = gang_loads if any(instance.needs) else gangs
        require(instance, "policy offline, for runs on several GPUs,", orders.SUPPORTS)
        orders.begin(search)
        orders.improve(search, seed, 1, moves)
        return search.timeline
    annealing.improve(search.on_twin(), seed, moves)
    return search.timeline


class Following(RecedingHorizon):
    """Carries out a plan as it is for as long as run times keep to their intervals.

    Parameters
    ----------
    told
        What is known of the run times; the policy runs on its instance.
    plan
        A plan of that instance.
    options
        How it plans anew; the look-ahead is the whole window in any case.
    """

    def __init__(self, told: Told, plan: Timeline, options: RecedingOptions) -> None:
        ahead = RecedingOptions(options.moves, EVERYTHING, options.objective, options.seed)
        super().__init__(ahead, Oracle(told.instance.jobs))
        self._told, self._plan = told, plan

    def begin(self, site: Site) -> None:
        """Take the plan up, and leave out the initial residencies that it does without."""
        super().begin(site)
        instance, plan = self._told.instance, self._plan
        leave_out_unused(site, plan)
        self._known = len(instance.jobs)
        self._watched: set[int] = set()
        self._outlasted: set[int] = set()
        self._planned = {run.task: (run.gpu, run.start_us) for run in plan.placements}
        self._carrying.lanes = lanes(instance, plan, (), range(instance.n_tasks))

    def released(self, job: int) -> None:
        """Send the tasks of a job where the plan has them."""
        self._tasks_left[job] = len(self.site.job_tasks[job])
        for task in self.site.job_tasks[job]:
            self.site.assign(task, self._planned[task][0])

    def act(self, gpus: Sequence[int]) -> None:
        """Plan anew if a task has outlasted its interval, then go on, and watch what has begun."""
        for run in self._running():
            # Once per run: a plan that was made knowing it needs no second one.
            if run.tasks[0] not in self._outlasted and self.site.now == self._latest_us(run):
                self._outlasted.add(run.tasks[0])
                self._due = True
        super().act(gpus)
        for run in self._running():
            if run.tasks[0] not in self._watched:
                self._watched.add(run.tasks[0])
                # A run that goes on and on causes no event by itself.
                self.site.wake(self._latest_us(run))

    def _running(self) -> Iterator[Run]:
        """Yield what runs."""
        return (run for state in self.site.state for run in state.runs.values())

    def loaded(self, model: int, gpu: int) -> None:
        """Go on with the plan, however long a load took: estimates are of runs."""

    def _unexpected(self, task: int, given_us: int) -> bool:
        """Say whether a task that has just ended ran for a time outside its interval."""
        low_us, high_us = self._told.limits_us(task, given_us)
        return not low_us <= self.site.now - self.site.started_us[task] <= high_us

    def _expected_end_us(self, run: Run) -> int:
        """Return when what runs should end, given that it has not ended yet."""
        now, given_us = self.site.now, run.end_us - run.start_us
        return now + self._told.remaining_us(run.tasks[0], given_us, now - run.start_us)

    def _latest_us(self, run: Run) -> int:
        """Return when what runs leaves its interval if it still runs then."""
        return run.start_us + self._told.limits_us(run.tasks[0], run.end_us - run.start_us)[1]


class Informed(Following):
    """Carries out a plan, and plans once more at one moment: that is the only surprise there is.

    Parameters
    ----------
    instance
        With the run times that the plan was made for.
    plan
        A plan of that instance.
    options
        How it plans anew.
    at_us
        The moment.
    end_us
        When the tasks of which something becomes known then end, by task.
    """

    def __init__(
        self, instance: Instance, plan: Timeline, options: RecedingOptions, at_us: int, end_us: Mapping[int, int]
    ) -> None:
        super().__init__(Told.exactly(instance), plan, options)
        self._at_us, self._end_us = at_us, end_us

    def begin(self, site: Site) -> None:
        """Have it called at the moment."""
        super().begin(site)
        site.wake(self._at_us)

    def act(self, gpus: Sequence[int]) -> None:
        """Plan anew at the moment, else go on."""
        self._due |= self.site.now == self._at_us
        super().act(gpus)

    def _unexpected(self, task: int, given_us: int) -> bool:
        return task not in self._end_us and super()._unexpected(task, given_us)

    def _expected_end_us(self, run: Run) -> int:
        known = self._end_us.get(run.tasks[0])
        return super()._expected_end_us(run) if known is None else known

    def _latest_us(self, run: Run) -> int:
        # A task that has outlasted its run time by the moment was no surprise to the plan that was followed until then.
        known = self._end_us.get(run.tasks[0])
        return super()._latest_us(run) if known is None else known
