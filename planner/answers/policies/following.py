"""Follow a plan, and plan the rest anew when reality has left the interval of an estimate.

That is when a task has ended outside its interval from p10 to p90, or still runs at p90. The plan knows every arrival;
so does the new one, by the solver of the receding horizon. What still runs is expected to last as long as the estimate
says of tasks that have run for that long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from truenorth.executor import Site
from truenorth.executor.policies.carrying_out import lanes, leave_out_unused
from truenorth.models.gpu_state import Run
from truenorth.models.instance import Instance
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.policies.receding_horizon import EVERYTHING, Oracle, RecedingHorizon, RecedingOptions
from truenorth.planner.answers.uncertain.told import Told


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
