"""What synthetic work takes on a device: measured once, and kept in a file if several runs are to do equal work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import torch

from truenorth.executor.errors import DeviceError

_EACH = "multiplication"


class Calibration:
    """Times in microseconds by device and what was measured; thread-safe.

    Parameters
    ----------
    path
        Where they are kept, as JSON; empty: nowhere.

    Raises
    ------
    DeviceError
        If there is such a file, and it is none.
    """

    def __init__(self, path: str = "") -> None:
        self._path = Path(path) if path else None
        self._measuring = Lock()
        self._times: dict[str, dict[str, float]] = {}
        if self._path is not None and self._path.exists():
            self._times = _read(self._path)

    def each_us(self, device: torch.device, measure: Callable[[], float]) -> float:
        """Return what a multiplication takes on a device."""
        return self._time(device, _EACH, measure)

    def folding_us(self, device: torch.device, workflow: str, task: str, measure: Callable[[], float]) -> float:
        """Return what folding the bytes of a task takes on a device."""
        return self._time(device, f"{workflow}/{task}", measure)

    def _time(self, device: torch.device, what: str, measure: Callable[[], float]) -> float:
        known = self._times.get(str(device), {})
        if what not in known:
            with self._measuring:
                known = self._times.setdefault(str(device), {})
                if what not in known:
                    known[what] = measure()
                    self._keep()
        return known[what]

    def _keep(self) -> None:
        if self._path is None:
            return
        draft = self._path.with_name(f".{self._path.name}.draft")
        try:
            draft.write_text(json.dumps(self._times, indent=1) + "\n")
            os.replace(draft, self._path)
        except OSError as error:
            raise DeviceError(f"calibration {self._path}: cannot be written: {error.strerror}") from None


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DeviceError(f"calibration {path}: cannot be read: {error}; allowed is a file that a run wrote") from None
    tables = list(document.values()) if isinstance(document, dict) else [None]
    if not all(isinstance(table, dict) and all(_is_time(us) for us in table.values()) for table in tables):
        raise DeviceError(f"calibration {path}: holds no times; allowed is a file that a run wrote, or a new one")
    return {device: dict(table) for device, table in document.items()}


def _is_time(us: object) -> bool:
    return isinstance(us, (int, float)) and not isinstance(us, bool) and us > 0
