"""Errors of estimates: what is told of run times lies around the truth, or the truth around what is told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from executor import NoiseError
from executor.published import factor_quantile
from models.instance import Instance
from planner.answers.uncertain.means import MEAN
from planner.answers.uncertain.told import Told, alike_in_classes, stretch

LARGEST = {"lognormal": 5.0, "published": 3.0}
"""Largest spread of each kind: 80 % of the factors are then within 600, or 72, either way."""
GRAMMAR = (
    f"'told={MEAN}', 'told=KIND:SPREAD' or 'true=KIND:SPREAD', the last two followed by ':task' for an error of every "
    "task's own, with KIND lognormal (SPREAD at most 5) or published (at most 3), for instance 'told=published:1'"
)
_NORMAL = NormalDist()
_STREAM = 1
"""Keeps errors independent of the run times that `Told.draw` draws with the same seed."""


@dataclass(frozen=True, slots=True)
class Error:
    """How far told run times are from true ones: a random factor of median 1 between the two.

    Parameters
    ----------
    kind
        ``lognormal``, or ``published``: the errors of `executor.published`.
    size
        Standard deviation of the factor's logarithm, or the power of the published factors; 0: no error. At most
        `LARGEST`.
    by_job
        Whether the tasks of a job share their factor, as the published errors are those of jobs; those of a batch
        class share theirs in any case.
    """

    kind: str
    size: float
    by_job: bool = True

    def __post_init__(self) -> None:
        if self.kind not in LARGEST:
            raise NoiseError(f"{self.kind!r} is no kind of error; allowed is {GRAMMAR}")
        if not 0 <= self.size <= LARGEST[self.kind]:
            allowed = f"a number from 0 to {LARGEST[self.kind]:g}"
            raise NoiseError(f"{self.kind}: a spread of {self.size} is not allowed; it is {allowed}")

    def __str__(self) -> str:
        return f"{self.kind}:{self.size:g}{'' if self.by_job else ':task'}"

    def factor(self, level: float) -> float:
        """Return the quantile of the factor at a level from 0 to 1 without the ends."""
        if self.kind == "published":
            return float(factor_quantile(level) ** self.size)
        return math.exp(self.size * _NORMAL.inv_cdf(level))

    def around(self, instance: Instance, seed: int) -> Instance:
        """Return an instance whose run times lie around those of another one; equal seeds draw the same quantiles."""
        draws = np.random.default_rng([seed, _STREAM]).random(len(instance.jobs) if self.by_job else instance.n_tasks)
        factors = np.array([self.factor(level) for level in draws.tolist()])
        return stretch(instance, alike_in_classes(instance, factors[instance.task_job] if self.by_job else factors))

    def told(self, medians: Instance) -> Told:
        """Return what is told if these run times are: they come with the interval that holds 80 % of the true ones.

        The factor is as likely as its reciprocal, so that the truth lies around what is told as that around the truth.
        """
        low, high = (np.full(medians.n_tasks, self.factor(level)) for level in (0.1, 0.9))
        return Told(medians, low, high, self.by_job)


def parse_error(text: str) -> Error:
    """Read an error: ``KIND:SPREAD``, or ``KIND:SPREAD:task`` for one of every task's own.

    >>> parse_error("lognormal:0.3:task")
    Error(kind='lognormal', size=0.3, by_job=False)

    Raises
    ------
    NoiseError
        If the text is none.
    """
    kind, _, rest = text.partition(":")
    size, _, each = rest.partition(":")
    if each not in ("", "job", "task"):
        raise NoiseError(f"{each!r} in {text!r} is neither job nor task; allowed is {GRAMMAR}")
    try:
        return Error(kind, float(size), each != "task")
    except NoiseError:
        raise
    except ValueError:
        raise NoiseError(f"{size!r} in {text!r} is no number; allowed is {GRAMMAR}") from None
