"""When the tokens of requests come: what levels on first tokens and on time per token are about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truenorth.models.instance import NONE, Instance, Ints
from truenorth.models.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class TokenTimes:
    """When the tokens of a timeline's requests came, exactly.

    Parameters
    ----------
    first_us
        Per job: from its release to its first token in microseconds; NONE for a job without requests. Shape [jobs].
    job, span_us, steps
        Of every request of several tokens: its job, microseconds from its first token to its end, and the tokens
        after the first.
    """

    first_us: Ints
    job: Ints
    span_us: Ints
    steps: Ints

    @classmethod
    def of(cls, instance: Instance, timeline: Timeline) -> TokenTimes | None:
        """Return the times of a timeline that places every task; None without requests."""
        streams, served = instance.streams, timeline.served
        if streams is None or served is None:
            return None
        task = streams.first_token
        first_us = np.where(task == NONE, NONE, served.first_us[task] - instance.job_release_us)
        several = np.flatnonzero(served.output > 1)
        span_us = timeline.end_us[several] - served.first_us[several]
        return cls(first_us, instance.task_job[several], span_us, served.output[several] - 1)
