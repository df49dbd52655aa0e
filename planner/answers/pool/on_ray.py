"""The same calls on an existing Ray cluster, whose nodes have this version of Truenorth installed."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from truenorth.executor.devices.nodes import Nodes, find_nodes
from truenorth.models.errors import QuestionError, require_extra
from truenorth.planner.answers.pool.processes import LOOK_S, Item, Outcome, Value, describe_error, time_call

_CALLS_PER_CPU = 2
"""Calls handed to the cluster for each of its CPUs: enough to keep it busy, few enough to stop soon."""

_PATIENCE_S = 5.0


def as_finished_on_ray(
    call: Callable[[Item], Value], items: Sequence[Item], address: str, stop: threading.Event | None
) -> Iterator[Outcome[Value]]:
    """Yield the outcome of every call as soon as it is known, as `planner.answers.pool.as_finished` does.

    A call whose node or worker dies is tried again on another one, up to three times; what it returned before is kept.

    Raises
    ------
    QuestionError
        If Ray is not installed, or there is no cluster at the address.
    """
    with connected(address) as ray:
        remote = ray.remote(time_call)
        waiting = deque(enumerate(items))
        given: dict[Any, int] = {}
        try:
            while not (stop is not None and stop.is_set()):
                # Asked anew each time: clusters grow and shrink.
                while waiting and len(given) < _CALLS_PER_CPU * count_cpus(ray):
                    index, item = waiting.popleft()
                    given[remote.remote(call, item)] = index
                if not given:
                    return
                # Short, so that a stop is noticed.
                ended, _ = ray.wait(list(given), num_returns=1, timeout=LOOK_S)
                for reference in ended:
                    yield _outcome(ray, reference, given.pop(reference))
        finally:
            for reference in given:
                ray.cancel(reference, force=True)


def count_cpus(ray: Any) -> int:
    """Return how many calls a cluster can be at, at the same time."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _outcome(ray: Any, reference: Any, index: int) -> Outcome[Any]:
    """Return what became of a call; Ray raises its own error in place of what the call raised."""
    try:
        value, seconds = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return Outcome(index, None, describe_error(error.cause or error), 0.0)
    except ray.exceptions.RayError as error:
        return Outcome(index, None, describe_error(error), 0.0)
    return Outcome(index, value, None, seconds)


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster for as long as the block runs; a connection that is there already is used and kept."""
    # Before the import, which reads it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require_extra("cluster")
    import ray

    if ray.is_initialized():
        yield ray
        return
    refuse_silence(address)
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_term)  # Ray takes it, and would end what wants to end by itself
    try:
        with redirect_stdout(sys.stderr):  # where an answer goes Ray would tell of nodes that are lost
            yield ray
    finally:
        ray.shutdown()


@contextmanager
def nodes_at(address: str | None, kind: str) -> Iterator[Nodes | None]:
    """Connect to a cluster, if one is meant, for as long as the block runs; yield its nodes with devices of a kind.

    Raises
    ------
    QuestionError
        If Ray is not installed, or there is no cluster at the address.
    DeviceError
        If no node has such a device, or one cannot serve.
    """
    if address is None:
        yield None
        return
    with connected(address) as ray:
        yield find_nodes(ray, kind)


def refuse_silence(address: str) -> None:
    """Refuse an address at which nobody listens, where Ray would try for ever."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return  # "auto" and the like, which Ray resolves
    try:
        socket.create_connection((host.rpartition("/")[2].strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: Exception) -> QuestionError:
    reason = " ".join(str(error).split())[:200].rstrip(":")
    remedy = "allowed is HOST:PORT of a head node, or auto"
    if "ersion mismatch" in reason:
        remedy = "install the Python and the Ray of its nodes here"
    return QuestionError(f"no cluster at {address!r}: {reason}; {remedy}", "ray")
