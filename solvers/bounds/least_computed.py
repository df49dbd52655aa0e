"""The relaxed instance by which windows with prefix caches are bounded (rule E4): what no cache can spare a request.

What a node has cached of a prompt was computed there for another request of the window, earlier released or later, that
lists the same leading blocks. So at least the tokens behind the blocks that others list are computed, and one at least;
and of KV a request holds alone what is in no block that others list, and its answer.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np

from truenorth.models import Instance


def least_computed(instance: Instance) -> Instance:
    """Return the instance, with caches in place of which every prompt is as short as they could make it.

    Invariant: any plan of the window meets every inequality on prompts, KV and time that holds of the relaxed instance.
    Because: the inequalities of `docs/how_it_works.md`, requests of streams, only grow with u and with the KV that
    requests do not share, and hold for the u and KV of any plan, which are no less than these.
    If wrong: a bound above the optimum. It is no instance to plan for: a prompt may be shorter than what is left of it.
    """
    streams = instance.streams
    if streams is None or streams.prefixes is None:
        return instance
    prefixes = streams.prefixes
    shared = np.array([prefixes.shared(task) * prefixes.size(task) for task in range(instance.n_tasks)], np.int64)
    prompt = streams.prompt - shared
    uncached = np.where(shared > 0, np.maximum(prompt, 1), streams.uncached)
    relaxed = copy(instance)
    # Its other tables stay: slowdowns divide by the P_j of the window.
    object.__setattr__(relaxed, "streams", replace(streams, prompt=prompt, uncached=uncached, prefixes=None))
    return relaxed
