"""The machine that a run took place on, as far as it says: what may explain why two runs differ.

Of cards NVIDIA's management library tells clocks, why they are held down, power and temperature, before, during and
after a run. What nothing answers for is None.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from threading import Event, Thread
from typing import Any

import torch

from truenorth.executor.devices.nodes import Nodes
from truenorth.executor.devices.physical import Physical, physical_devices

_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_NODES = Path("/sys/devices/system/node")
_SAMPLE_S = 0.2
_PER_THOUSAND = 0.001

REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
"""Why clocks are held down, by the bits of the management library; idling and clocks that were set are no reasons."""


def describe_machine(devices: Iterable[Physical]) -> dict[str, Any]:
    """Return processor, cores, memory nodes, clock and load, and what `describe_cards` says."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "numa_nodes": len(list(_NODES.glob("node[0-9]*"))) or None,
        "governor": _first_line(_CPU / "scaling_governor"),
        "clock_khz": _first_line(_CPU / "scaling_cur_freq"),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "torch": torch.__version__,
        "cuda": describe_cards(devices),
    }


def measured_on(kind: str, nodes: Nodes | None) -> dict[str, Any]:
    """Return what of this machine, or of a cluster, decides what is measured on devices of a kind.

    Raises
    ------
    DeviceError
        As of `physical_devices`.
    """
    if nodes is not None:
        return {"devices": [f"{node.devices} of node {node.name}" for node in nodes.nodes], "processor": None}
    return {"devices": [physical.name for physical in physical_devices(kind)], "processor": processor()}


def describe_cards(devices: Iterable[Physical]) -> list[dict[str, Any]]:
    """Return, of each CUDA device, driver, clocks, why they are held down, power, temperature, link and energy."""
    with _asked(devices) as cards:
        return [{"name": card.physical.name, **card.describe()} for card in cards]


@dataclass(slots=True)
class Observed:
    """What cards said before, during and after a run.

    Parameters
    ----------
    before, after
        As of `describe_cards`, in the same order.
    during
        Of each card: least and most SM clock, mean and most power, and every reason for which clocks were held down.
    """

    before: Sequence[dict[str, Any]] = ()
    during: Sequence[dict[str, Any]] = ()
    after: Sequence[dict[str, Any]] = ()

    @property
    def energy_j(self) -> float | None:
        """What the cards used meanwhile, in joules; None where one does not tell, or there is none."""
        used = [(one["energy_j"], other["energy_j"]) for one, other in zip(self.before, self.after, strict=True)]
        told = [after - before for before, after in used if None not in (before, after)]
        return sum(told) if told and len(told) == len(used) else None


@contextmanager
def observe(devices: Iterable[Physical]) -> Iterator[Observed]:
    """Note what cards say now, every 0.2 s of the block, and at its end."""
    seen = Observed()
    with _asked(devices) as cards:
        seen.before = [{"name": card.physical.name, **card.describe()} for card in cards]
        stop, samples = Event(), [_Samples() for _ in cards]

        def look() -> None:
            """Take samples until the block ends."""
            while not stop.wait(_SAMPLE_S):
                for card, sample in zip(cards, samples, strict=True):
                    sample.take(card)

        watcher = Thread(target=look, name="clocks and power", daemon=True)
        if cards:
            watcher.start()
        try:
            yield seen
        finally:
            stop.set()
            if cards:
                watcher.join()
            seen.during = [sample.summary() for sample in samples]
            seen.after = [{"name": card.physical.name, **card.describe()} for card in cards]


@dataclass(slots=True)
class _Samples:
    clocks: list[int] = field(default_factory=list)
    powers: list[float] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)

    def take(self, card: _Card) -> None:
        """Ask a card once more."""
        clock, power, reasons = card.clock_mhz(), card.power_w(), card.held_down()
        self.clocks += [] if clock is None else [clock]
        self.powers += [] if power is None else [power]
        self.reasons.update(reasons or ())

    def summary(self) -> dict[str, Any]:
        return {
            "sm_clock_mhz": [min(self.clocks), max(self.clocks)] if self.clocks else None,
            "mean_power_w": round(mean(self.powers), 1) if self.powers else None,
            "most_power_w": max(self.powers, default=None),
            "held_down_by": sorted(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class _Card:
    """A card, and how the management library knows it: of a slice (MIG) the card that it is one of."""

    physical: Physical
    library: Any
    handle: Any

    def ask(self, name: str, *told: Any) -> Any:
        """Return what the library answers; None where the card, its driver or the library does not know."""
        try:
            return getattr(self.library, name)(self.handle, *told)
        except self.library.NVMLError:
            return None

    def clock_mhz(self) -> int | None:
        return self.ask("nvmlDeviceGetClockInfo", self.library.NVML_CLOCK_SM)  # type: ignore[no-any-return]

    def power_w(self) -> float | None:
        return _scaled(self.ask("nvmlDeviceGetPowerUsage"))

    def held_down(self) -> list[str] | None:
        """Return why clocks are held down."""
        bits = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else [word for bit, word in REASONS.items() if bits & bit]

    def describe(self) -> dict[str, Any]:
        library = self.library
        return {
            "uuid": None if self.physical.card is None else self.physical.card.uuid,
            "driver": _told(library.nvmlSystemGetDriverVersion, library.NVMLError),
            "sm_clock_mhz": self.clock_mhz(),
            "memory_clock_mhz": self.ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM),
            "held_down_by": self.held_down(),
            "power_w": self.power_w(),
            "power_limit_w": _scaled(self.ask("nvmlDeviceGetEnforcedPowerLimit")),
            "temperature_c": self.ask("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU),
            "pcie_generation": self.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_width": self.ask("nvmlDeviceGetCurrPcieLinkWidth"),
            "energy_j": _scaled(self.ask("nvmlDeviceGetTotalEnergyConsumption")),
        }


@contextmanager
def _asked(devices: Iterable[Physical]) -> Iterator[list[_Card]]:
    """Open the management library for the cards among some devices; of none where it does not answer."""
    wanted = [physical for physical in dict.fromkeys(devices) if physical.card is not None]
    try:
        import pynvml
    except ImportError:
        wanted = []
    if not wanted or _told(pynvml.nvmlInit, pynvml.NVMLError, failed=_FAILED) is _FAILED:
        yield []
        return
    try:
        yield [_Card(physical, pynvml, handle) for physical in wanted if (handle := _handle(physical, pynvml))]
    finally:
        pynvml.nvmlShutdown()


_FAILED = object()


def _handle(physical: Physical, library: Any) -> Any:
    """Return the library's handle of a card: clocks and power of a slice are those of the whole card."""
    uuid = "" if physical.card is None else physical.card.uuid
    handle = _told(lambda: library.nvmlDeviceGetHandleByUUID(uuid), library.NVMLError)
    if handle is None or not uuid.startswith("MIG-"):
        return handle
    return _told(lambda: library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle), library.NVMLError)


def _told(ask: Callable[[], Any], refusal: type[Exception], failed: object = None) -> Any:
    try:
        return ask()
    except refusal:
        return failed


def _scaled(thousandths: float | None) -> float | None:
    return None if thousandths is None else round(thousandths * _PER_THOUSAND, 3)


def processor() -> str | None:
    """Return the name of the CPU."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or None)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
