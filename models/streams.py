"""Streams: language models as they are served, by continuous batching; their classes, and the tokens of requests.

Requests join and leave a GPU between the iterations of its engine (`docs/language_models.md`). A task of a stream
class is a request: prompt tokens that are worked off in chunks, then one output token per iteration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple, TypeVar

ANY_KIND = "*"
"""Key of what holds for every kind of GPU; ``4x*`` is that of engines of four, whatever their kind."""
_SEVERAL = re.compile(r"([1-9]\d*)x(.+)")
_Value = TypeVar("_Value")

BLOCK = 16
"""Tokens of a block of KV where KV grows and the class does not say."""

PREFIX_BLOCK = 512
"""Tokens of a block of prompt where nodes cache and the class does not say: those of the Mooncake logs."""

_MICROSECONDS = 1_000_000
PICOSECONDS = 1_000_000
"""Per microsecond."""


def of_kind(table: Mapping[str, _Value], kind: str) -> _Value | None:
    """Return what a table says of a kind of GPU: of itself, of engines of as many GPUs, or of every kind; else None.

    >>> speeds = {"1x*": 25, "4x*": 9, "8xH100": 6}
    >>> [of_kind(speeds, kind) for kind in ("H100", "4xH100", "8xH100", "2xH100")]
    [25, 9, 6, None]
    """
    return table.get(kind, table.get(f"{split_kind(kind)[0]}x{ANY_KIND}", table.get(ANY_KIND)))


def split_kind(kind: str) -> tuple[int, str]:
    """Return of how many GPUs an engine of a kind consists, and of which.

    >>> split_kind("4xH100"), split_kind("1x*"), split_kind("T4")
    ((4, 'H100'), (1, '*'), (1, 'T4'))
    """
    several = _SEVERAL.fullmatch(kind)
    return (int(several[1]), several[2]) if several else (1, kind)


class Tokens(NamedTuple):
    """The tokens of a request: n of the prompt, u of these uncached (0 only where KV comes in), m of the answer."""

    prompt: int
    uncached: int
    output: int

    def check(self) -> None:
        """Refuse tokens that no request can have.

        Raises
        ------
        ValueError
            Saying which, and what is allowed.
        """
        if self.prompt < 1 or self.output < 1:
            raise ValueError(f"{self.prompt} prompt and {self.output} output tokens; allowed is at least 1 of each")
        if not 0 <= self.uncached <= self.prompt:
            raise ValueError(f"{self.uncached} uncached tokens of {self.prompt}; allowed are 1 to all of the prompt's")

    @property
    def held(self) -> int:
        """Tokens of KV that the request holds from start to end: n + m, whatever is cached."""
        return self.prompt + self.output

    @property
    def context(self) -> int:
        """Tokens of context of all its decodes together: the prompt, and what has been generated before each."""
        last = self.prompt + self.output - 1
        return self.decodes * last - self.decodes * (self.decodes - 1) // 2

    @property
    def decodes(self) -> int:
        """Iterations that it decodes: m - 1, its first token being the prompt's; m if no prompt is left to work off."""
        return self.output - 1 if self.uncached else self.output


@dataclass(frozen=True, slots=True)
class StreamSpeed:
    """How a stream class runs on one kind of GPU.

    Parameters
    ----------
    prefill_rate
        P: prompt tokens per second.
    chunk
        B: most prompt tokens per iteration.
    seats
        K: most requests at once.
    step_us
        Time of a step by the number of decodes, from 1 on; between those listed linear, rounded up.
    kv_bytes
        Bytes of KV per token.
    context_ps
        d: picoseconds that a token of context of a decode adds to an iteration.
    mixed_us
        e: what an iteration with prompt tokens lasts longer.
    shared
        Whether decodes take part of the chunk, one token each.
    block
        Tokens of a block of KV, of which requests take more as they grow; 0: KV is reserved from start to end.

    Attributes
    ----------
    tau
        Time of a step in microseconds by the number of decodes, 0 to K; tau[0] = 0.
    """

    prefill_rate: Fraction
    chunk: int
    seats: int
    step_us: Mapping[int, int]
    kv_bytes: int = 0
    context_ps: int = 0
    mixed_us: int = 0
    shared: bool = False
    block: int = 0
    tau: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.prefill_rate <= 0:
            raise ValueError(f"a prefill rate of {self.prefill_rate} tokens per second; allowed is more than 0")
        if self.chunk < 1 or self.seats < 1 or self.kv_bytes < 0:
            counts = f"chunk {self.chunk}, concurrency {self.seats}, {self.kv_bytes} bytes of KV per token"
            raise ValueError(f"{counts}; allowed are at least 1, 1 and 0")
        if min(self.context_ps, self.mixed_us, self.block) < 0:
            counts = f"{self.context_ps} ps per token of context, {self.mixed_us} us, blocks of {self.block} tokens"
            raise ValueError(f"{counts}; allowed is at least 0 of each")
        if self.shared and self.chunk <= self.seats:
            problem = f"{self.seats} decodes leave nothing of a shared budget of {self.chunk} tokens"
            raise ValueError(f"{problem}; allowed is a chunk above the concurrency")
        listed = sorted(self.step_us.items())
        if not listed or listed[0][0] != 1 or listed[-1][0] < self.seats:
            raise ValueError(
                f"step times list 1 and every concurrency up to {self.seats}; allowed are both ends at least"
            )
        if listed[0][1] < 1 or any(few[1] > many[1] for few, many in pairwise(listed)):
            raise ValueError("step times are at least 1 us and do not fall with the concurrency")
        tau = [0, listed[0][1]]
        for (few, low_us), (many, high_us) in pairwise(listed):
            tau += [low_us - (low_us - high_us) * (k - few) // (many - few) for k in range(few + 1, many + 1)]
        object.__setattr__(self, "tau", tuple(tau[: self.seats + 1]))

    def prefill_us(self, tokens: int) -> int:
        """Return how long an iteration lasts for this many prompt tokens, beside its step: ceil(10^6 p / P).

        >>> StreamSpeed(Fraction(8000), 2048, 1, {1: 12_500}).prefill_us(2048)
        256000
        """
        return -(-tokens * _MICROSECONDS * self.prefill_rate.denominator // self.prefill_rate.numerator)

    def iteration_ps(self, decodes: int, prompt: int, context: int) -> int:
        """Return how long an iteration lasts, in picoseconds: of so many decodes, prompt tokens and tokens of context.

        >>> StreamSpeed(Fraction(8000), 2048, 1, {1: 12_500}, context_ps=30_000, mixed_us=300).iteration_ps(1, 80, 1000)
        22830000000
        """
        mixed_us = self.prefill_us(prompt) + self.mixed_us if prompt else 0
        return (self.tau[decodes] + mixed_us) * PICOSECONDS + self.context_ps * context

    @property
    def slowest_us(self) -> int:
        """The longest iteration there can be, whatever contexts add to it: tau[K], a whole chunk and e."""
        return self.tau[-1] + self.prefill_us(self.chunk) + self.mixed_us

    def alone_us(self, tokens: Tokens) -> int:
        """Return how long a request takes on an empty GPU."""
        chunks, rest = divmod(tokens.uncached, self.chunk)
        mixed_us = (chunks + (rest > 0)) * self.mixed_us - (-self.context_ps * tokens.context // PICOSECONDS)
        return chunks * self.prefill_us(self.chunk) + self.prefill_us(rest) + mixed_us + tokens.decodes * self.tau[1]

    @property
    def content(self) -> object:
        """A key that equal speeds share."""
        steps = frozenset(self.step_us.items())
        return self.prefill_rate, self.chunk, self.seats, steps, self.kv_bytes, tuple(self.amended.items())

    @property
    def amended(self) -> dict[str, int]:
        """What is said beyond rates, steps and KV in full: only what is not the default."""
        said = {"context_ps": self.context_ps, "mixed_us": self.mixed_us, "shared": self.shared, "block": self.block}
        return {name: int(value) for name, value in said.items() if value}


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a stream class on a kind of GPU was fitted to, and how far the law is from it.

    Parameters
    ----------
    stream, kind
        The class, and the kind of GPU; ``*``: every kind.
    log, requests
        Name of the log, or of the table of means, and how many requests were served; None: these are estimates.
    mean_error, p95_error
        Greatest relative errors of a mean and of a p95: of the whole log, by the law of its earlier half. Of a table of
        means the second is None, and the first is that of the same benchmark, simulated; None: nothing was compared.
    """

    stream: str
    kind: str
    log: str
    requests: int | None
    mean_error: float | None
    p95_error: float | None

    def __str__(self) -> str:
        on = "" if self.kind == ANY_KIND else f" on {self.kind.replace(f'x{ANY_KIND}', ' GPUs')}"
        if self.mean_error is None:
            return f"The step law of {self.stream}{on} is that of {self.log}, and was compared with nothing else"
        if self.p95_error is None or self.requests is None:
            said = f"its means, simulated, are off by at most {self.mean_error:.1%}; p95 was not compared"
            return f"The step law of {self.stream}{on} is made from {self.log}: {said}"
        far = f"means are off by at most {self.mean_error:.1%}, p95 by at most {self.p95_error:.1%}"
        return (
            f"The step law of {self.stream}{on} is fitted to {self.log} ({self.requests:,} requests): fitted to the "
            f"earlier half alone, {far} over the whole log"
        )


@dataclass(frozen=True, slots=True)
class StreamClass:
    """Requests that are served together on a GPU by continuous batching, whatever their workflow or job.

    Parameters
    ----------
    name
        Names the class in an instance.
    speeds
        How it runs per GPU kind; the key ``*`` holds for every kind, ``4x*`` for engines of four GPUs of any. A kind
        without an entry is not eligible.
    models
        Names of the models that must be ready on a GPU while it serves the class.
    fitted
        Where its speeds come from, as far as they were fitted to logs.
    adapters
        Names of models of which a request may need one besides; requests of all of them run together (rule E6).
    modes
        Whether its speeds are given by the number of GPUs of an engine: so a scenario file says them.
    prefix_block
        Tokens of a block of prompt that nodes cache (rule E4); 0: how much is cached is the log's word.
    """

    name: str
    speeds: Mapping[str, StreamSpeed]
    models: tuple[str, ...] = ()
    fitted: tuple[Fitted, ...] = ()
    adapters: tuple[str, ...] = ()
    modes: bool = False
    prefix_block: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if not self.speeds:
            raise ValueError(f"stream class {self.name}: runs on no kind of GPU; allowed is at least one")
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"stream class {self.name}: a model is named twice")

    def speed_on(self, kind: str) -> StreamSpeed | None:
        """Return how the class runs on a kind of GPU; None where it cannot."""
        return of_kind(self.speeds, kind)

    def alone_us(self, tokens: Tokens) -> int:
        """Return how long a request takes alone on the fastest kind of all listed: what P_j counts of it."""
        return min(speed.alone_us(tokens) for speed in self.speeds.values())

    @property
    def by_degree(self) -> dict[int, StreamClass]:
        """The class on engines of each number of GPUs, its speeds by the kind of a single one."""
        speeds: dict[int, dict[str, StreamSpeed]] = {}
        for kind, speed in self.speeds.items():
            gpus, single = split_kind(kind)
            speeds.setdefault(gpus, {})[single] = speed
        logs = [(split_kind(law.kind), law) for law in self.fitted]
        return {
            gpus: replace(
                self,
                speeds=each,
                fitted=tuple(replace(law, kind=single) for (size, single), law in logs if size == gpus),
                modes=False,
            )
            for gpus, each in speeds.items()
        }

    @property
    def least_us(self) -> dict[str, int]:
        """Run time of the smallest request there can be, per GPU kind: one token in, one token out."""
        return {kind: speed.alone_us(Tokens(1, 1, 1)) for kind, speed in self.speeds.items()}

    @property
    def content(self) -> object:
        """A key that equal classes share."""
        return (
            self.name,
            frozenset((kind, speed.content) for kind, speed in self.speeds.items()),
            self.models,
            self.adapters,
            self.prefix_block,
        )
