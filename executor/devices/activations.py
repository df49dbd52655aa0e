"""How much memory a run takes beside the weights: what torch holds at most meanwhile, less what it held before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile

from truenorth.executor.devices.physical import Physical

# Unless somebody wants to read it, the profiler is to say nothing of its own doings; it reads this when first used.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def activation_bytes(physical: Physical, run: Callable[[], object]) -> int:
    """Return the most memory of torch's that some work took at a time, its outputs included.

    On a CPU that is what torch's allocator handed out; what libraries take for themselves is unknown to it.

    Parameters
    ----------
    run
        Waits until the device is done with it.
    """
    if physical.card is not None:
        physical.card.peak_bytes()
        held = physical.card.peak_bytes()
        run()
        return physical.card.peak_bytes() - held
    with _hushed(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False) as seen:
        run()
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in seen.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep to itself what torch's allocator prints of memory that is given back and older than the profiler."""
    errors, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(errors, 2)
        os.close(errors)
        os.close(nowhere)
