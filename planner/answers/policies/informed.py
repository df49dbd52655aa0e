"""Follow a plan until a moment at which it becomes known how long running tasks still need, and plan the rest anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from executor import Site
from models.gpu_state import Run
from models.instance import Instance
from models.timeline import Timeline
from planner.answers.policies.following import Following
from planner.answers.policies.receding_horizon import RecedingOptions
from planner.answers.uncertain.told import Told


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
