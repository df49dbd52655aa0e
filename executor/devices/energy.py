"""Energy of CUDA devices, where NVIDIA's management library answers."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from executor.devices.physical import Physical

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
