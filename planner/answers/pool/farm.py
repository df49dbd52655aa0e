"""Workers of a search that are processes of this machine or of a Ray cluster: the pool of sweeps, lent to solvers."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from planner.answers.pool.calls import as_finished
from planner.answers.pool.outcome import Item, Value, describe_error


class LostCallsWarning(UserWarning):
    """Workers of a search raised or died: what they would have found is missing, and nothing else."""


@dataclass(frozen=True, slots=True)
class LentPool:
    """Lends the pool of sweeps to a search.

    Parameters
    ----------
    workers
        Processes of this machine, or CPUs of the cluster.
    ray
        Address of the cluster; None: this machine.
    lost
        Why calls came to nothing, one by one.
    """

    workers: int
    ray: str | None = None
    lost: list[str] = field(default_factory=list)

    def gather(
        self, call: Callable[[Item], Value | None], items: Sequence[Item], stop: threading.Event
    ) -> Iterator[tuple[int, Value]]:
        """Yield what calls return, as `solvers.farm.Farm` says; a cluster that is gone costs its calls alone."""
        try:
            for outcome in as_finished(call, items, workers=self.workers, ray=self.ray, stop=stop):
                if outcome.failure is not None:
                    self.lost.append(outcome.failure)
                elif outcome.value is not None:
                    yield outcome.index, outcome.value
        except Exception as error:  # a head node that dies shows in errors of many kinds
            self.lost.append(describe_error(error))


@contextmanager
def farm_at(ray: str | None) -> Iterator[LentPool | None]:
    """Connect to a Ray cluster for as long as the block runs; without an address there is no farm.

    Raises
    ------
    QuestionError
        If Ray is not installed, or there is no cluster at the address.

    Warns
    -----
    LostCallsWarning
        If calls came to nothing.
    """
    if ray is None:
        yield None
        return
    from planner.answers.pool.on_ray import connected, count_cpus

    with connected(ray) as cluster:
        farm = LentPool(count_cpus(cluster), ray)
        yield farm
    if farm.lost:
        warnings.warn(
            f"{len(farm.lost)} calls on the cluster came to nothing, the first by {farm.lost[0]}; "
            "have its nodes memory enough, and this version of Truenorth?",
            LostCallsWarning,
            stacklevel=3,
        )


def refuse_absent(ray: str | None) -> None:
    """Refuse an address at which nobody listens, before anything else takes its time.

    Raises
    ------
    QuestionError
        If Ray is not installed, or nobody listens.
    """
    if ray is not None:
        from planner.answers.pool.on_ray import refuse_silence

        refuse_silence(ray)
