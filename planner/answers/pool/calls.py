"""Many independent calls on several worker processes, or on a Ray cluster: one way out for sweeps and replications."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from planner.answers.pool.outcome import Item, Outcome, Value
from planner.answers.pool.processes import as_finished_here


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
) -> Iterator[Outcome[Value]]:
    """Yield the outcome of every call as soon as it is known; the parameters are those of `in_order`.

    A call that raises or takes its worker with it does not disturb the others. When `stop` is set, or the caller
    leaves the loop, the workers end at once; so they do when this process is killed.
    """
    if ray is not None:
        from planner.answers.pool.on_ray import as_finished_on_ray

        yield from as_finished_on_ray(call, items, ray, stop)
        return
    yield from as_finished_here(call, items, workers, stop)
