"""Seeded noise: how far a run or a load strays from its given time.

Every draw depends on the seed and on what it is drawn for (the task, or the k-th load of a GPU), never on the order
of events, so that different policies meet the same luck and the past of a run does not depend on its future.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

from truenorth.executor.published import factor_quantile
from truenorth.models.errors import UserError

_GRAMMAR = (
    "'run=KIND:SPREAD,load=KIND:SPREAD' with KIND lognormal, normal, uniform or published, "
    "for instance 'run=lognormal:0.2'"
)
_NORMAL = NormalDist()
LARGEST_SPREAD = 10
"""Beyond it times overflow."""


class NoiseError(UserError, ValueError):
    """A text is no noise; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class NoiseSpread:
    """A random factor on a time, of mean 1 unless it is a published one.

    A factor that would be negative is 0, and all are scaled down by what that adds to their mean. Noisy times are
    rounded to whole microseconds, at least 1, which times of a few microseconds feel.

    Parameters
    ----------
    kind
        ``lognormal`` (sigma of the logarithm), ``normal`` (standard deviation before the cut at 0), ``uniform`` (half
        the width before it) or ``published`` (power of the factors of `executor.published`; their median is 1 and
        their mean 2.25, so that there is more work to do than was given).
    size
        The spread, 0 to `LARGEST_SPREAD`; 0 leaves every time as it is.
    """

    kind: str
    size: float

    def __post_init__(self) -> None:
        if self.kind not in ("lognormal", "normal", "uniform", "published"):
            raise NoiseError(f"{self.kind!r} is no kind of noise; allowed is {_GRAMMAR}")
        if not 0 <= self.size <= LARGEST_SPREAD:
            raise NoiseError(f"a spread of {self.size} is not allowed; it is a number from 0 to {LARGEST_SPREAD}")

    def draw(self, time_us: int, luck: str) -> int:
        """Return a noisy time in microseconds, at least 1; equal `luck` gives equal noise."""
        source = random.Random(luck)  # noqa: S311
        if self.kind == "lognormal":
            factor = math.exp(source.gauss(-self.size * self.size / 2, self.size))
        elif self.kind == "normal":
            factor = max(0.0, source.gauss(1.0, self.size)) / self._mean_of_cut()
        elif self.kind == "published":
            factor = factor_quantile(source.random()) ** self.size
        else:
            factor = max(0.0, source.uniform(1 - self.size, 1 + self.size)) / self._mean_of_cut()
        return max(1, round(time_us * factor))

    def _mean_of_cut(self) -> float:
        """Return the mean of a normal or uniform factor around 1 whose negative values are 0."""
        if self.kind == "uniform":
            return (1 + self.size) ** 2 / (4 * self.size) if self.size > 1 else 1.0
        if not self.size:
            return 1.0
        deviations = 1 / self.size
        return _NORMAL.cdf(deviations) + self.size * _NORMAL.pdf(deviations)


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise on run times and on loads; None leaves them exact."""

    run: NoiseSpread | None = None
    load: NoiseSpread | None = None


def parse_noise(text: str) -> Noise:
    """Read a noise specification.

    >>> parse_noise("run=lognormal:0.2,load=normal:0.1").load
    NoiseSpread(kind='normal', size=0.1)

    Raises
    ------
    NoiseError
        If the text is none.
    """
    spreads: dict[str, NoiseSpread] = {}
    for item in text.split(","):
        what, _, rest = item.strip().partition("=")
        kind, _, size = rest.partition(":")
        if what not in ("run", "load") or what in spreads:
            raise NoiseError(f"{text!r} is no noise; allowed is {_GRAMMAR}")
        try:
            spreads[what] = NoiseSpread(kind, float(size))
        except NoiseError:
            raise
        except ValueError:
            raise NoiseError(f"{size!r} in {text!r} is no number; allowed is {_GRAMMAR}") from None
    return Noise(spreads.get("run"), spreads.get("load"))
