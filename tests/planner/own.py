"""Policies of a user's, honest and not."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from truenorth.executor import QueuePolicy, Site
from truenorth.executor.engine import Engine
from truenorth.executor.policies.compass import ReleasedCompass
from truenorth.models import Instance


class Last(QueuePolicy):
    """Everything goes to the last GPU."""

    def runnable(self, task: int, server: int) -> None:
        """Place a task."""
        self.place(task, self.site.eligible_gpus(task)[-1])


class Handed(Last):
    """Asks for the whole window, as the released Compass does for its twin."""

    def instance_for(self, instance: Instance) -> Instance:
        """Return the window, having seen it."""
        return instance


class Released(ReleasedCompass):
    """Is made from the released Compass, which alone may ask for the whole window."""

    write_back = False

    def twin(self, instance: Instance) -> Instance:
        """Return the first job of the window, having seen it all."""
        return replace(instance, jobs=instance.jobs[:1])


class WritesBack(Last):
    """Says that its loads take longer, so that nobody asks how long its runs take."""

    write_back = True


class Leaving(Last):
    """Ends the process in the middle of a run."""

    def runnable(self, task: int, server: int) -> None:
        """Leave."""
        sys.exit(0)


class Hasty(Last):
    """Has every run take a microsecond."""

    def runnable(self, task: int, server: int) -> None:
        """Place a task, and change what the engine knows of run times."""
        for row in self.site.run_us:
            row[:] = [1] * len(row)
        super().runnable(task, server)


class Peeking(QueuePolicy):
    """Takes a GPU by the number of jobs of the window, of which the engine knows."""

    def begin(self, site: Site) -> None:
        """Look for the engine among those who called."""
        super().begin(site)
        caller: Any = sys._getframe()
        while not isinstance(caller.f_locals.get("self"), Engine):
            caller = caller.f_back
        self._jobs = caller.f_locals["self"]._instance.jobs

    def runnable(self, task: int, server: int) -> None:
        """Place a task."""
        gpus = self.site.eligible_gpus(task)
        self.place(task, gpus[len(self._jobs) % len(gpus)])
