"""A format's documented cluster, changed where a person says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from models.errors import QuestionError
from models.units import QuantityError, parse_bandwidth, parse_size, parse_time
from planner.inputs.importers.format import Hardware

T = TypeVar("T", int, Fraction)


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
            servers=self.servers or documented.servers,
            gpus_per_server=self.gpus_per_server or documented.gpus_per_server,
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
