"""Calls on other processes, of this machine or of a Ray cluster: the one way out, for sweeps and searches alike."""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from truenorth.planner.answers.pool.processes import Item, Outcome, Value, as_finished_here, describe_error


class CallFailedError(RuntimeError):
    """A call raised, or its worker died; the message says which call and why."""


class CallsStoppedError(RuntimeError):
    """A stop was asked for before every call had ended."""


def in_order(
    call: Callable[[Item], Value],
    items: Sequence[Item],
    *,
    workers: int = 2,
    ray: str | None = None,
    stop: threading.Event | None = None,
) -> list[Value]:
    """Return what `call` returns for every item, in the order of the items; it must return something.

    Parameters
    ----------
    call
        A function of a module, but not of the main one, without side effects; it, the items and its values are sent
        between processes.
    workers
        Worker processes on this machine.
    ray
        Address of a Ray cluster to use in their place.
    stop
        Set it to end early; calls that are running are given up.

    Raises
    ------
    CallFailedError
        For the first call that fails.
    CallsStoppedError
        If `stop` is set before all calls have ended.
    """
    values: dict[int, Value] = {}
    for outcome in as_finished(call, items, workers=workers, ray=ray, stop=stop):
        if outcome.failure is not None or outcome.value is None:
            raise CallFailedError(f"call {outcome.index}: {outcome.failure or 'it returned nothing'}")
        values[outcome.index] = outcome.value
    if len(values) < len(items):
        raise CallsStoppedError(f"stopped after {len(values)} of {len(items)} calls")
    return [values[index] for index in range(len(items))]


def as_finished(
    call: Callable[[Item], Value],
    items: Sequence[Item],
    *,
    workers: int = 2,
    ray: str | None = None,
    stop: threading.Event | None = None,
    stays: bool = False,
) -> Iterator[Outcome[Value]]:
    """Yield the outcome of every call as soon as it is known; the parameters are those of `in_order`.

    If `stays`, workers on this machine are kept for later calls, as long as this process lives, with all that they
    have imported. A call that raises or takes its worker with it does not disturb the others. When `stop` is set, or
    the caller leaves the loop, the workers end at once; so they do when this process is killed.
    """
    if ray is not None:
        from truenorth.planner.answers.pool.on_ray import as_finished_on_ray

        yield from as_finished_on_ray(call, items, ray, stop)
        return
    yield from as_finished_here(call, items, workers, stop, stays)


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
    from truenorth.planner.answers.pool.on_ray import connected, count_cpus

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
        from truenorth.planner.answers.pool.on_ray import refuse_silence

        refuse_silence(ray)
