"""The ways to run the tasks of an instance, for the verifier: by GPU class and size of batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from truenorth.models import Instance
from truenorth.solvers.bounds.alone import Alone


class Lane(NamedTuple):
    """What decides which prices a task pays: where it runs, with which models, and as one of how many in a batch.

    Parameters
    ----------
    joined_us
        A batch may have 2, 3, ... members from these instants on.
    """

    gpu_class: int
    needs: tuple[int, ...]
    share: int
    memory_bytes: int
    joined_us: tuple[int, ...]

    def members(self, before_us: int) -> int:
        """Return the most members of a batch that starts before an instant."""
        return 1 + bisect_left(self.joined_us, before_us)

    def of_batch(self) -> Lane:
        """Return what a batch pays as a whole."""
        return self._replace(memory_bytes=0, joined_us=())

    def of_member(self) -> Lane:
        """Return what each of its members pays besides."""
        return self._replace(needs=(), share=0, joined_us=())


class Way(NamedTuple):
    """A way to run a task: in batches that run so long, start no earlier than this and have so many members."""

    lane: Lane
    run_us: int
    from_us: int
    batch: int
    fewest: int
    most: int


class Ways:
    """The ways to run the tasks of an instance: sizes of batches that run equally long are one way.

    Attributes
    ----------
    starts_us
        When the tasks of each batch class can start at the earliest, ascending.
    """

    def __init__(self, instance: Instance, alone: Alone) -> None:
        self._instance, self._alone = instance, alone
        self.starts_us: dict[int, list[int]] = {}
        batch = instance.template_batch.tolist()
        if instance.batches:
            for job in range(len(instance.jobs)):
                templates = alone.templates(int(instance.job_workflow[job]))
                for template, start in zip(templates, alone.times(job)[0], strict=True):
                    self.starts_us.setdefault(batch[template], []).append(start)
        for starts in self.starts_us.values():
            starts.sort()
        self._known: dict[int, list[Way]] = {}

    def of(self, template: int) -> list[Way]:
        """Return the ways to run a template."""
        if template not in self._known:
            self._known[template] = [way for c in range(len(self._instance.class_gpu)) for way in self._on(template, c)]
        return self._known[template]

    def _on(self, template: int, c: int) -> Iterator[Way]:
        instance, runs = self._instance, self._alone.runs(template, c)
        share, memory = int(instance.template_share[template]), int(instance.template_memory[template])
        for run in sorted(set(runs)):
            fewest, most = runs.index(run) + 1, len(runs) - runs[::-1].index(run)
            # A batch of b starts when b tasks of its class can have been started, at the earliest.
            batch = int(instance.template_batch[template])
            joined = self.starts_us[batch][1:most] if most > 1 else []
            begin = joined[fewest - 2] if fewest > 1 else 0
            yield Way(Lane(c, instance.needs[template], share, memory, tuple(joined)), run, begin, batch, fewest, most)
