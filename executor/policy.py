"""What a policy is: hooks that the engine calls, and a site to act on."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from truenorth.executor.site import Site
from truenorth.models.features import NO_RULES, SERVING, Features


class Knows(StrEnum):
    """What the decisions of a policy make of run times, each more than the one before.

    On which kinds of GPU a task can run, what is in memory and how long loads and transfers take, all of them know;
    where servers come and go all of them also ask whether a task ends in time.
    """

    NOTHING = "nothing"
    """No run time: tasks are counted, or not even that."""
    WAITS = "waits"
    """How long each GPU has still to do, as the sum of the run times that wait there, and on GPUs of several kinds the
    task's own; tasks keep the order in which they came."""
    RUN_TIMES = "run times"
    """The run time of every task of a released job: tasks are ordered, or planned, by it."""
    FUTURE = "the future"
    """Jobs that are still to come."""
    UNDECLARED = "not declared"
    """A policy of the user's that does not say; it can read run times."""

    @property
    def information(self) -> str:
        """The information used, in words."""
        return {"nothing": "none", "waits": "queue lengths", "the future": "clairvoyant"}.get(self, str(self))


class Policy:
    """Base of every policy; each hook does nothing until it is overridden.

    The engine calls `begin` once, then for every instant at which something happens the hooks of its events, and
    then `act`. A policy may act on the site in any hook, but starts belong in `act`: by then all ends of the instant
    are known.

    Attributes
    ----------
    site
        The site as it stands now; set by `begin`.
    supports
        What a window may have; of requests of streams `serves_streams` says more.
    write_back
        Whether evicted weights are copied back before a load: the released Compass simulator charges this, no other.
    knows_paths
        Whether it knows beforehand which branch every job takes, as a plan does; jobs then ask for their paths alone.
    foresees
        Whether it knows when servers come and go, as a plan does: tasks stay where they were assigned.
    serves_streams
        Whether it knows how to let requests of streams join.
    knows_lengths
        Whether it is told how long answers will be.
    hears_progress
        Whether it uses when a run will end, once that shows (`ending`), or has no use for it: it asks for no end.
    knows
        What its decisions make of run times, as long as it does not look ahead.
    uses
        The information used, in words, where `knows` does not say it: a gateway counts requests.
    name
        What messages call it; None: its class's name in lower case.
    """

    supports: ClassVar[Features] = SERVING - NO_RULES
    write_back: ClassVar[bool] = False
    knows_paths: ClassVar[bool] = False
    foresees: ClassVar[bool] = False
    serves_streams: ClassVar[bool] = False
    knows_lengths: bool = False
    hears_progress: ClassVar[bool] = False
    knows: ClassVar[Knows] = Knows.RUN_TIMES
    uses: ClassVar[str | None] = None
    name: ClassVar[str | None] = None
    site: Site

    @classmethod
    def looks_ahead(cls, options: object | None) -> bool:
        """Say whether it knows the future, with these options."""
        return False

    @classmethod
    def knows_with(cls, options: object | None) -> Knows:
        """Return what its decisions make of run times, with these options."""
        return cls.knows

    @classmethod
    def uses_with(cls, options: object | None) -> str:
        """Return the information used in words, with these options."""
        return cls.uses or cls.knows_with(options).information

    def begin(self, site: Site) -> None:
        """Meet the site at time 0, before any job is released.

        Raises
        ------
        PolicyError
            If the policy cannot serve this cluster, or cannot keep to the operator's restrictions.
        """
        self.site = site

    def released(self, job: int) -> None:
        """Take note of a job: its tables can be read from now on."""

    def answering(self, task: int, gpu: int) -> None:
        """Take note of the first token of a request."""

    def finished(self, task: int, gpu: int) -> None:
        """Take note of the end of a task. Its output leaves after this, so that successors can still be moved."""

    def ending(self, task: int, end_us: int) -> None:
        """Take note that the progress of a running task shows another end than was expected."""

    def elapsed(self, task: int, follower: int, edge: int) -> None:
        """Take note that the delay between an ended task and a follower is over: its output leaves after this.

        Only then does the follower count the task among its finished predecessors (rule E5).
        """

    def decided(self, job: int, dropped: Sequence[int]) -> None:
        """Take note of the branch that a job takes, before the end of the task with which that shows.

        Not called where it shows at the release: then the job is released without the tasks that it does not run.

        Parameters
        ----------
        dropped
            Its tasks that will not run; nothing waits for them any longer.
        """

    def arrived(self, task: int, missing: int) -> None:
        """Take note that an input has reached its task's GPU, or that a task without inputs got a GPU.

        Parameters
        ----------
        missing
            Inputs of the task that are still to come.
        """

    def loaded(self, model: int, gpu: int) -> None:
        """Take note that a model is ready on a GPU."""

    def came(self, gpu: int) -> None:
        """Take note that a GPU is there, with nothing in its memory; `site.goes_us` says until when."""

    def returned(self, gpu: int, tasks: Sequence[int]) -> None:
        """Take note of requests that have no GPU any more: they wait on one that drains, to go soon."""

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Take note that a GPU has gone.

        Parameters
        ----------
        tasks
            Those that were to run there, and requests that it served; they have no GPU any more.
        """

    def emptied(self, gpu: int, models: Sequence[int]) -> None:
        """Take note that models have gone with their GPU: those in use when their tasks end, the others at once."""

    def act(self, gpus: Sequence[int]) -> None:
        """Start what can start.

        Parameters
        ----------
        gpus
            Those where something happened at this instant; all of them at time 0 and after a wake-up, none where jobs
            were released and nothing else happened.
        """
