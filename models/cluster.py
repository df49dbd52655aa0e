"""Hardware: GPUs, when they are there (rule A1), and the network between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

FOREVER = 1 << 60
"""Stands for an interval without an end: later than any time, and small enough for a run time to be added."""

Interval = tuple[int, int]
"""From when until when, half-open, in microseconds."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Intervals, ascending, with time between each and the next.

    >>> day = Availability.of([(0, 10), (10, 20), (30, FOREVER)])
    >>> day.intervals == ((0, 20), (30, FOREVER))
    True
    >>> day.at(20) is None, day.at(35) == (30, FOREVER), day.available_us(5, 40)
    (True, True, 25)
    """

    intervals: tuple[Interval, ...]

    def __post_init__(self) -> None:
        if not self.intervals or any(begin < 0 or begin >= end for begin, end in self.intervals):
            raise ValueError("availability needs an interval, and each must begin at or after 0 and before its end")
        if any(before[1] >= after[0] for before, after in pairwise(self.intervals)):
            raise ValueError("intervals of availability must ascend, with time between them")

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Availability:
        """Return the availability in ascending intervals that do not overlap; those that touch are merged."""
        merged: list[Interval] = []
        for begin, end in intervals:
            if merged and merged[-1][1] == begin:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((begin, end))
        return cls(tuple(merged))

    def without(self, away: Iterable[Interval]) -> Availability:
        """Return what is left outside other intervals.

        >>> Availability.of([(0, 10), (20, 40)]).without([(5, 8), (9, 30)]).intervals
        ((0, 5), (8, 9), (30, 40))

        Raises
        ------
        ValueError
            If nothing is left.
        """
        left = list(self.intervals)
        for gone, back in away:
            cut = [part for begin, end in left for part in ((begin, min(end, gone)), (max(begin, back), end))]
            left = [(begin, end) for begin, end in cut if begin < end]
        return Availability(tuple(left))

    @property
    def always(self) -> bool:
        """Whether the GPU is always there."""
        return self.intervals == ((0, FOREVER),)

    def at(self, instant: int) -> Interval | None:
        """Return the interval that an instant lies in, or None."""
        return next((interval for interval in self.intervals if interval[0] <= instant < interval[1]), None)

    def holds(self, begin: int, end: int) -> bool:
        """Say whether one interval holds all of [begin, end)."""
        return any(first <= begin and end <= last for first, last in self.intervals)

    def absences(self, until: int) -> list[Interval]:
        """Return when the GPU is away before a time.

        >>> Availability.of([(2, 5), (9, FOREVER)]).absences(20)
        [(0, 2), (5, 9)]
        """
        ends = [0, *(end for _, end in self.intervals)]
        begins = [*(begin for begin, _ in self.intervals), until]
        return [(gone, min(back, until)) for gone, back in zip(ends, begins, strict=True) if gone < min(back, until)]

    def available_us(self, begin: int, end: int) -> int:
        """Return for how long of [begin, end) the GPU is there."""
        return sum(max(0, min(last, end) - max(first, begin)) for first, last in self.intervals)


ALWAYS = Availability(((0, FOREVER),))
"""From 0 on, for ever."""


MICROSECONDS_PER_SECOND = 1_000_000


def _ceil(quantity: Fraction) -> int:
    """Return the smallest integer at or above an exact quantity."""
    return -(-quantity.numerator // quantity.denominator)


def engine_kind(gpus: int, kind: str) -> str:
    """Return the kind of an engine of so many GPUs of a kind.

    >>> engine_kind(1, "H100"), engine_kind(4, "H100")
    ('H100', '4xH100')
    """
    return kind if gpus == 1 else f"{gpus}x{kind}"


@dataclass(frozen=True, slots=True)
class GPU:
    """One compute engine and one copy engine beside memory for model weights, or several GPUs that always work as one.

    Parameters
    ----------
    id
        Server and position in it, such as ``s0/g0``.
    server
        Index of the server the GPU sits in.
    kind
        Name that tasks use to say how long they run here.
    memory_bytes
        Memory for weights and what running tasks hold; the sum of the slots if there are any.
    slots
        Sizes of the slots in bytes; empty if memory is shared freely by bytes.
    load_bandwidth
        Bytes per second from host memory to this GPU.
    load_overhead_us
        Added to every load.
    available
        When it is there.
    drain_us
        For how long before it goes no requests of streams are sent to it.
    group
        The group of equal servers that its server belongs to.
    gpus
        Of how many GPUs it is made: an engine of several has the memory and the load bandwidth of all together.
    open
        Whether other engines of its server may have the same GPUs: which of them there are is still to be chosen.
    """

    id: str
    server: int
    kind: str
    memory_bytes: int
    load_bandwidth: Fraction
    slots: tuple[int, ...] = ()
    load_overhead_us: int = 0
    available: Availability = ALWAYS
    drain_us: int = 0
    group: int = 0
    gpus: int = 1
    open: bool = False

    def __repr__(self) -> str:
        return f"<GPU {self.id}: {self.kind}, {self.memory_bytes / 1e9:g} GB>"

    def __post_init__(self) -> None:
        if self.memory_bytes <= 0 or self.load_bandwidth <= 0 or self.load_overhead_us < 0:
            raise ValueError(f"GPU {self.id}: memory and load bandwidth must be positive, overhead not negative")
        if self.drain_us < 0:
            raise ValueError(f"GPU {self.id}: drains for {self.drain_us} us; allowed is at least 0")
        if self.slots and (min(self.slots) <= 0 or sum(self.slots) != self.memory_bytes):
            raise ValueError(f"GPU {self.id}: slots must be positive and add up to the memory")

    @property
    def drains(self) -> bool:
        """Whether it ever drains: it goes at some time, and takes no requests before."""
        return self.drain_us > 0 and not self.available.always

    def load_us(self, weight_bytes: int) -> int:
        """Return how long the copy engine takes to load a model (rule R1).

        >>> GPU("s0/g0", 0, "T4", 14, Fraction(3)).load_us(10)
        3333334
        """
        return _ceil(weight_bytes * MICROSECONDS_PER_SECOND / self.load_bandwidth) + self.load_overhead_us

    def fits(self, weight_bytes: Iterable[int], working_bytes: int = 0) -> bool:
        """Say whether models of these sizes can be resident together, beside working memory of tasks (rule R2).

        With slots, the k-th largest model must fit the k-th largest slot, and there is no room for working memory.
        """
        largest_first = sorted(weight_bytes, reverse=True)
        if not self.slots:
            return sum(largest_first) + working_bytes <= self.memory_bytes
        if working_bytes:
            return False
        slots = sorted(self.slots, reverse=True)
        return len(largest_first) <= len(slots) and all(
            size <= slot for size, slot in zip(largest_first, slots, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Link:
    """A connection: latency in microseconds and bandwidth in bytes per second (None: unlimited)."""

    latency_us: int = 0
    bandwidth: Fraction | None = None

    def __post_init__(self) -> None:
        if self.latency_us < 0 or (self.bandwidth is not None and self.bandwidth <= 0):
            raise ValueError("a link needs a latency of at least 0 and a positive bandwidth")


@dataclass(frozen=True, slots=True)
class Network:
    """How outputs travel between GPUs; transfers do not contend with each other.

    Parameters
    ----------
    between
        The link between two servers.
    within
        The link between two GPUs of one server.
    staged
        Whether a transfer also pays the copies device to host and host to device.
    """

    between: Link
    within: Link
    staged: bool = False

    def transfer_us(self, size_bytes: int, source: GPU, target: GPU, same_server: bool) -> int:
        """Return how long an output of `size_bytes` takes between two different GPUs (rule T2)."""
        return self.transfers_us([size_bytes], source, target, same_server)[0]

    def transfers_us(self, sizes_bytes: Iterable[int], source: GPU, target: GPU, same_server: bool) -> list[int]:
        """Return the transfer times of outputs of several sizes between the same two GPUs."""
        link = self.within if same_server else self.between
        seconds_per_byte = Fraction(0) if link.bandwidth is None else 1 / link.bandwidth
        if self.staged:
            # Of an engine of several GPUs one sends, and one receives.
            seconds_per_byte += source.gpus / source.load_bandwidth + target.gpus / target.load_bandwidth
        return [_travel_us(link, seconds_per_byte, size) for size in sizes_bytes]

    def input_us(self, size_bytes: int) -> int:
        """Return how long what a job brings along takes from the host of one server to that of another; 0 for none."""
        link = self.between
        seconds_per_byte = Fraction(0) if link.bandwidth is None else 1 / link.bandwidth
        return _travel_us(link, seconds_per_byte, size_bytes) if size_bytes else 0


def _travel_us(link: Link, seconds_per_byte: Fraction, size_bytes: int) -> int:
    us, per_bytes = (seconds_per_byte * MICROSECONDS_PER_SECOND).as_integer_ratio()
    return link.latency_us - (-size_bytes * us // per_bytes)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The GPUs, in the order of their servers, and the network between them.

    Parameters
    ----------
    places
        Which GPUs of a server a run on several takes: those of an ``aligned`` group, ``any``, or one of these sets.
    """

    gpus: tuple[GPU, ...]
    network: Network
    places: str | tuple[tuple[int, ...], ...] = "aligned"

    def __repr__(self) -> str:
        return f"<Cluster of {len(self.gpus)} GPUs>"

    def __post_init__(self) -> None:
        if not self.gpus:
            raise ValueError("a cluster needs at least one GPU")
        if len({gpu.id for gpu in self.gpus}) < len(self.gpus):
            raise ValueError("GPU ids must differ")
