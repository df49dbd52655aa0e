"""The machine that a run took place on, as far as it says, and its energy: what may explain why two runs differ."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from truenorth.executor.devices.physical import Physical

_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_NODES = Path("/sys/devices/system/node")


def describe_machine(devices: Iterable[Physical]) -> dict[str, Any]:
    """Return processor, cores, memory nodes, clock and load, and of CUDA devices driver, clocks, temperature and link.

    What nothing answers for is None.
    """
    cuda = [physical for physical in dict.fromkeys(devices) if physical.is_cuda]
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "numa_nodes": len(list(_NODES.glob("node[0-9]*"))) or None,
        "governor": _first_line(_CPU / "scaling_governor"),
        "clock_khz": _first_line(_CPU / "scaling_cur_freq"),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "torch": torch.__version__,
        "cuda": [_describe_card(physical) for physical in cuda],
    }


def _processor() -> str | None:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or None)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _describe_card(physical: Physical) -> dict[str, Any]:
    """Return what NVIDIA's management library says of a card; its name alone where it does not answer."""
    found: dict[str, Any] = {"name": physical.name}
    try:
        import pynvml

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(physical.device).uuid}")
        found |= {
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
            "pcie_generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration(card),
            "pcie_width": pynvml.nvmlDeviceGetCurrPcieLinkWidth(card),
        }
        pynvml.nvmlShutdown()
    except ImportError:
        return found
    except pynvml.NVMLError:
        return found
    return found


_JOULES_PER_MILLIJOULE = 0.001


def energy_j(devices: Iterable[Physical]) -> float | None:
    """Return what devices have used since their driver was loaded, in joules; None where nothing answers."""
    try:
        import pynvml
    except ImportError:
        return None
    cuda = [physical.device for physical in dict.fromkeys(devices) if physical.is_cuda]
    if not cuda:
        return None
    try:
        pynvml.nvmlInit()
        used = 0
        for device in cuda:
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
            used += pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return used * _JOULES_PER_MILLIJOULE
