"""Seeded noise: how far a run or a load strays from its given time, and how far published estimates were off.

Every draw depends on the seed and on what it is drawn for (the task, or the k-th load of a GPU), never on the order
of events, so that different policies meet the same luck and the past of a run does not depend on its future.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

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
        the width before it) or ``published`` (power of the factors of `error_quantile`; their median is 1 and
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
        # A generator of its own per draw: nothing that happened before can move it.
        source = random.Random(luck)  # noqa: S311
        if self.kind == "lognormal":
            # Less half the variance, so that the mean is 1 and not the median.
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
        # The mean of a normal that is cut at 0, in closed form.
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
        if item.strip().isdecimal():
            raise NoiseError(f"{item.strip()!r} stands alone behind a comma; write numbers with a point, as in 0.1")
        # Twice the same is more likely a slip than an intention.
        if what not in ("run", "load") or what in spreads:
            raise NoiseError(f"{text!r} is no noise; allowed is {_GRAMMAR}")
        try:
            spreads[what] = NoiseSpread(kind, float(size))
        # It is a ValueError, too, but says more than "no number".
        except NoiseError:
            raise
        except ValueError:
            raise NoiseError(f"{size!r} in {text!r} is no number; allowed is {_GRAMMAR}") from None
    return Noise(spreads.get("run"), spreads.get("load"))


# Of the jobs whose run times an estimator gave in production 10 % were within 10 %, 50 % within 50 %, 70 % within 100
# % and 90 % within 1000 %. That leaves open what lies between these points, the worst tenth, and the direction. Read
# here: up to 10 % errors are uniform; beyond, their logarithm is linear in the share of jobs, and the last tenth goes
# on at the slope of the one before, so that no error exceeds 1000 % x sqrt(10) = 3162 %. An error of e is a factor of
# 1 + e between the longer and the shorter of true and estimated time, and estimates are too long as often as too
# short: only so can one be 1000 % off in either direction. By the usual |estimate - true| / true, 11.3, 60, 85 and 95
# % of the jobs are then within 10, 50, 100 and 1000 %, and the median is 39 %.
SHARES = (0.0, 0.1, 0.5, 0.7, 0.9, 1.0)
ERRORS = (0.0, 0.1, 0.5, 1.0, 10.0, 10.0 * sqrt(10.0))
"""Largest relative error among these shares of the jobs; the last one is a reading."""


def error_quantile(share: float) -> float:
    """Return the relative error that a share of the jobs, 0 to 1, does not exceed.

    >>> [round(error_quantile(share), 3) for share in (0.05, 0.1, 0.5, 0.8, 0.9)]
    [0.05, 0.1, 0.5, 3.162, 10.0]
    """
    # Share 0 lies in the first piece.
    piece = max(1, bisect_left(SHARES, share))
    part = (share - SHARES[piece - 1]) / (SHARES[piece] - SHARES[piece - 1])
    low, high = ERRORS[piece - 1], ERRORS[piece]
    return float(part * high if not low else low * (high / low) ** part)


def factor_quantile(level: float) -> float:
    """Return the quantile of the factor between two times, one of them estimated, at a level from 0 to 1.

    >>> [round(factor_quantile(level), 3) for level in (0.25, 0.5, 0.75, 0.85)]
    [0.667, 1.0, 1.5, 2.0]
    """
    stretch = 1.0 + error_quantile(abs(2.0 * level - 1.0))
    # Symmetric in the logarithm: too long as often as too short.
    return stretch if level >= 0.5 else 1.0 / stretch
