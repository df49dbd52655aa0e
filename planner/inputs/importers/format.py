"""What a format is: where its logs come from, how they are read, and the cluster that they are mapped to.

A person may change the cluster that a format documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, TypeVar

from truenorth.models.cluster import GPU, MICROSECONDS_PER_SECOND
from truenorth.models.errors import QuestionError
from truenorth.models.units import QuantityError, parse_bandwidth, parse_size, parse_time
from truenorth.planner.inputs.importers.rows import Tally
from truenorth.planner.inputs.importers.tables import DagJobs, Requests, TokenRequests

_DIGITS = 12
T = TypeVar("T", int, Fraction)


@dataclass(frozen=True, slots=True)
class Hardware:
    """The cluster of an imported scenario: equal servers, and models of one size.

    Parameters
    ----------
    servers, gpus_per_server, kind
        How many GPUs, and what they are called.
    memory_bytes
        Memory for weights per GPU.
    weight_bytes
        Weights of every model; logs hardly ever say.
    load_bandwidth, load_overhead_us
        From host memory to a GPU, in bytes per second.
    network_bandwidth, network_latency_us
        Between GPUs, in bytes per second.
    """

    memory_bytes: int
    weight_bytes: int
    load_bandwidth: Fraction
    servers: int = 1
    gpus_per_server: int = 1
    kind: str = "GPU"
    load_overhead_us: int = 0
    network_bandwidth: Fraction = Fraction(10**10)
    network_latency_us: int = 0

    @classmethod
    def of(
        cls, memory: str, weights: str, load_bandwidth: str, network_bandwidth: str = "10 GB/s", **others: Any
    ) -> Hardware:
        """Return hardware of quantities with units.

        >>> Hardware.of("24 GB", "6 GB", "10 GB/s", servers=2).load_us
        600000
        """
        between = parse_bandwidth(network_bandwidth)
        documented = parse_size(memory), parse_size(weights), parse_bandwidth(load_bandwidth)
        return cls(*documented, network_bandwidth=between, **others)

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.servers * self.gpus_per_server

    @property
    def gpu(self) -> GPU:
        """One of the GPUs."""
        slow = self.load_overhead_us
        return GPU("s0/g0", 0, self.kind, self.memory_bytes, self.load_bandwidth, load_overhead_us=slow)

    @property
    def load_us(self) -> int:
        """How long a model takes to load (rule R1)."""
        return self.gpu.load_us(self.weight_bytes)

    def with_load_time(self, load_us: int) -> Hardware:
        """Return this hardware with the least bandwidth of 12 digits or more that loads a model in this time.

        >>> slow = Hardware(24 * 10**9, 6_500_000_000, Fraction(1)).with_load_time(8_454_000)
        >>> float(slow.load_bandwidth)
        768866808.6114
        """
        exact = Fraction(self.weight_bytes * MICROSECONDS_PER_SECOND, load_us)
        shift = 10 ** max(0, _DIGITS - len(str(int(exact))) + 1)
        return replace(self, load_bandwidth=Fraction(-int(-exact * shift // 1), shift), load_overhead_us=0)


class Reader(Protocol):
    """Reads the files of a format; a frozen dataclass whose fields are the format's options."""

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[Requests | DagJobs | TokenRequests]:
        """Yield the requests or jobs of the files in chunks.

        Raises
        ------
        InputError
            If a file is not of this format, or a row is malformed and the tally does not skip it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """A sort of log.

    Parameters
    ----------
    name
        As the command names it.
    title
        What the logs are, in a line.
    source
        Where they come from, and whom to cite.
    notes
        What the mapping assumes or cannot know; shown with every summary.
    reader
        Makes the reader; its dataclass fields are the options.
    hardware
        The cluster that the format documents; where the files say more, what measures it.
    sizes
        What it assumes of the cluster and of sizes, where the command's options say nothing.
    dated
        Whether releases are moments (microseconds since 1970) rather than times of the trace's own clock; where logs
        differ, what says so of a reader and its files.
    any_clock
        Whether the own clock may be one that ran long before the log, as a machine's does since it was started: time
        zero is then the first release.
    """

    name: str
    title: str
    source: str
    notes: tuple[str, ...]
    reader: type[Reader]
    hardware: Hardware | Callable[[Sequence[Path], Tally], Hardware]
    sizes: str = ""
    dated: bool | Callable[[Any, Sequence[Path]], bool] = False
    any_clock: bool = False

    def cluster(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return the documented cluster; InputError as `is_dated`."""
        return self.hardware if isinstance(self.hardware, Hardware) else self.hardware(files, tally)

    def is_dated(self, reader: Reader, files: Sequence[Path]) -> bool:
        """Say whether releases are moments.

        Raises
        ------
        InputError
            If a file has to be looked at and cannot be read.
        """
        return self.dated if isinstance(self.dated, bool) else self.dated(reader, files)


@dataclass(frozen=True, slots=True)
class Override:
    """What replaces the documented figures; quantities are text with units, None keeps what is documented.

    Parameters
    ----------
    servers, gpus_per_server
        How many GPUs.
    memory, weights
        Per GPU, and of every model.
    load_time
        What a model takes to load; sets the load bandwidth, and no overhead.
    load_bandwidth, network_bandwidth
        From host memory to a GPU, and between GPUs.
    """

    servers: int | None = None
    gpus_per_server: int | None = None
    memory: str | None = None
    weights: str | None = None
    load_time: str | None = None
    load_bandwidth: str | None = None
    network_bandwidth: str | None = None

    def apply(self, documented: Hardware) -> Hardware:
        """Return the hardware that results.

        Raises
        ------
        QuestionError
            If a quantity cannot be read or is not positive, or both load time and bandwidth are given.
        """
        if self.load_time is not None and self.load_bandwidth is not None:
            raise QuestionError("load_bandwidth is given as well; allowed is one of the two", "load_time")
        made = replace(
            documented,
            servers=_count("servers", self.servers, documented.servers),
            gpus_per_server=_count("gpus_per_server", self.gpus_per_server, documented.gpus_per_server),
            memory_bytes=_read("memory", self.memory, parse_size, documented.memory_bytes),
            weight_bytes=_read("weights", self.weights, parse_size, documented.weight_bytes),
            load_bandwidth=_read("load_bandwidth", self.load_bandwidth, parse_bandwidth, documented.load_bandwidth),
            network_bandwidth=_read(
                "network_bandwidth", self.network_bandwidth, parse_bandwidth, documented.network_bandwidth
            ),
        )
        return (
            made if self.load_time is None else made.with_load_time(_read("load_time", self.load_time, parse_time, 0))
        )


def _count(argument: str, count: int | None, documented: int) -> int:
    """Return a number of servers or GPUs."""
    if count is None:
        return documented
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise QuestionError(f"is {count!r}; allowed is a whole number of at least 1", argument)
    return count


def _read(argument: str, text: str | None, read: Callable[[str], T], documented: T) -> T:
    """Return a positive quantity."""
    if text is None:
        return documented
    try:
        value = read(text) if len(text) <= 60 else None
    except QuantityError as error:
        raise QuestionError(str(error), argument) from None
    if not value or value < 0:
        raise QuestionError(
            f"{text[:60]!r} is no positive quantity; allowed is one such as in scenario files", argument
        )
    return value
