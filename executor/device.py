"""The seam between the engine and what carries out its orders: here, a virtual clock.

A device carries out runs and loads and tells when they end; the engine never asks how. On the virtual clock an order
only schedules its end, and time jumps from event to event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from heapq import heappush
from math import ceil
from typing import Protocol, TypeAlias

from truenorth.executor.noise import Noise
from truenorth.models import NONE, Instance
from truenorth.models.strides import StreamRun, Stride

RUN_END, STRIDE_END, LOAD_END, DELAY_END, ARRIVAL, WAKE, LOST, DRAIN, GO, COME, SHOWN = range(11)
"""Kinds of events, in their order at equal times: what ends comes before what begins."""

Event = tuple[int, int, int, int, int]
"""Time, kind, sequence number, and two subjects: task and GPU, a GPU and its stride's number, model and GPU, a task and
its follower, task and its sending's number, a GPU that is lost and the model whose load it will not end (NOWHERE:
none), a GPU that comes and until when, or a task and when it will end."""


Shown: TypeAlias = Sequence[tuple[Fraction, Fraction]]
"""Shares of a run that are done when it shows how long it takes in all, and that time as a share of the true one."""
Progress: TypeAlias = Fraction | Mapping[int, Shown]
"""The share of every run that is done when its true end shows; or by task what shows, and of others nothing."""


class Device(Protocol):
    """Carries out orders and reports events in the total order (time, kind, sequence number).

    Attributes
    ----------
    now
        Microseconds since the start of the window.
    exact
        Whether runs and loads take exactly the given times.
    queues
        Whether it gains anything from being told what comes next.
    iterates
        Whether iterations of streams are taken one by one, each as long as it takes; else in strides of given length.
    shows
        Whether the end of a run shows while it runs.
    events
        A heap of what is to be reported; whoever moves the clock takes out what has come.
    """

    now: int
    exact: bool
    queues: bool
    iterates: bool
    shows: bool
    events: list[Event]

    def begin(self) -> None:
        """Start the clock."""

    def run(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        """Start a batch; a RUN_END of its first task will follow."""

    def queue(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        """Have a batch ready behind the one that runs on its GPU; it still has to be started when that has ended."""

    def serve(self, gpu: int, number: int, run: StreamRun, stride: Stride) -> None:
        """Take iterations of what a GPU serves, from its boundary on; a STRIDE_END of that number will follow."""

    def load(self, model: int, gpu: int, slot: int | None, expected_us: int) -> None:
        """Start to load a model; a LOAD_END will follow."""

    def evict(self, model: int, gpu: int) -> None:
        """Give up the room of a model that nothing uses."""

    def send(self, source: int, target: int, gpu: int, number: int, expected_us: int) -> bool:
        """Send a task's output to a successor's GPU, another one than its own.

        Parameters
        ----------
        number
            Of the sending, which the ARRIVAL carries.

        Returns
        -------
        bool
            Whether it is there at once; otherwise an ARRIVAL will follow.
        """

    def drop(self, tasks: Sequence[int]) -> None:
        """Take note that tasks of a job will never run, since no GPU is left that can run all of them."""

    def at(self, time_us: int, kind: int, subject: int, number: int) -> None:
        """Have an event reported at a time that is not in the past."""

    def next(self, until_us: int | None) -> int | None:
        """Move the clock to the next event, or to a time if that comes first; return it, None if nothing is left."""


class VirtualDevice:
    """A device on a virtual clock: everything takes the given time, or a noisy one.

    Parameters
    ----------
    noise
        Spread of run times and loads; None: exact.
    seed
        Of the noise.
    truth
        The instance whose run times hold, whatever is expected; None: the expected ones hold.
    progress
        What shows of the ends of runs; None: nothing before they have come.
    """

    queues = False
    iterates = False

    def __init__(
        self,
        noise: Noise | None = None,
        seed: int = 0,
        truth: Instance | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.now = 0
        self.exact = noise is None
        self._noise = noise or Noise()
        self._seed = seed
        self._truth = truth
        self._strays = truth is not None or self._noise.run is not None
        self._progress, self.shows = progress, progress is not None
        self.events: list[Event] = []
        self._sequence = 0
        self._loads: dict[int, int] = {}

    def begin(self) -> None:
        """Do nothing: time goes from event to event."""

    def run(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        """Schedule the end of a run."""
        if self._strays:
            expected_us = self._true_time(tasks, gpu, expected_us)
        self._sequence += 1
        heappush(self.events, (self.now + expected_us, RUN_END, self._sequence, tasks[0], gpu))
        if self._progress is not None:
            self._show(self._progress, tasks[0], expected_us)

    def _show(self, progress: Progress, task: int, run_us: int) -> None:
        """Schedule what shows of a run before it ends."""
        shows = ((progress, Fraction(1)),) if isinstance(progress, Fraction) else progress.get(task, ())
        for done, said in shows:
            since_us = ceil(run_us * done)
            if since_us < run_us:
                self.at(self.now + since_us, SHOWN, task, self.now + round(run_us * said))

    def _true_time(self, tasks: Sequence[int], gpu: int, expected_us: int) -> int:
        """Return how long a batch really runs."""
        task, truth = tasks[0], self._truth
        if truth is not None:
            batch = int(truth.template_batch[truth.task_template[task]])
            expected_us = truth.run_time(task, gpu) if batch == NONE else truth.batch_time(batch, gpu, len(tasks))
        if self._noise.run is not None:
            expected_us = self._noise.run.draw(expected_us, f"{self._seed} run {task}")
        return expected_us

    def queue(self, tasks: Sequence[int], gpu: int, expected_us: int) -> None:
        """Do nothing: on a virtual clock every start is punctual."""

    def serve(self, gpu: int, number: int, run: StreamRun, stride: Stride) -> None:
        """Schedule the end of the stride, which may have begun before."""
        self.at(run.end_us(stride), STRIDE_END, gpu, number)

    def load(self, model: int, gpu: int, slot: int | None, expected_us: int) -> None:
        """Schedule the end of a load."""
        if self._noise.load is not None:
            self._loads[gpu] = self._loads.get(gpu, 0) + 1
            expected_us = self._noise.load.draw(expected_us, f"{self._seed} load {gpu} {self._loads[gpu]}")
        self._sequence += 1
        heappush(self.events, (self.now + expected_us, LOAD_END, self._sequence, model, gpu))

    def evict(self, model: int, gpu: int) -> None:
        """Do nothing: room is the site's business."""

    def send(self, source: int, target: int, gpu: int, number: int, expected_us: int) -> bool:
        """Schedule the arrival, unless it takes no time."""
        if expected_us:
            self._sequence += 1
            heappush(self.events, (self.now + expected_us, ARRIVAL, self._sequence, target, number))
        return not expected_us

    def drop(self, tasks: Sequence[int]) -> None:
        """Do nothing: no GPU is ever lost here."""

    def at(self, time_us: int, kind: int, subject: int, number: int) -> None:
        """Schedule any other event."""
        self._sequence += 1
        heappush(self.events, (time_us, kind, self._sequence, subject, number))

    def next(self, until_us: int | None) -> int | None:
        """Move the clock to the earliest event, or to `until_us` if that comes first."""
        events = self.events
        if events and (until_us is None or events[0][0] < until_us):
            until_us = events[0][0]
        if until_us is not None:
            self.now = until_us
        return until_us
