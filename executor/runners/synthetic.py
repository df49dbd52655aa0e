"""Runs nothing in particular: weights of the given size, work of the given time, an output that depends on both.

The output folds every byte of the weights and of the inputs, so a wrong byte anywhere shows; how much work fills the
rest of the run time is calibrated once per task and device, and changes nothing in the output.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from truenorth.executor.devices.cuda import find_cards
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.team import Team
from truenorth.executor.errors import DeviceError
from truenorth.executor.policies.options import count, option
from truenorth.executor.runners.layers import columns, rows, through_both
from truenorth.executor.runners.uses import received, seed_of
from truenorth.models import MLModel
from truenorth.models.tables import part_bytes

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

    def each_us(self, device: torch.device, measure: Callable[[], float], size: int = 1) -> float:
        """Return what a multiplication takes on a device; on one of several, what going through both layers takes."""
        return self._time(device, _EACH if size == 1 else f"both layers on {size}", measure)

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


_FOLD = 128
_ROW = 8 * _FOLD
_SPREAD = 0x9E3779B97F4A7C15 - 2**64  # an odd number, so that multiplying loses nothing
_CORE_SIDE, _TILE = 96, 128
_REPEATS, _BURST = 5, 32
_CACHED_BYTES = 1 << 26
"""More than what the caches of a core hold."""


@dataclass(frozen=True, slots=True)
class SyntheticOptions:
    """How a synthetic runner is set up.

    Parameters
    ----------
    seed
        Of the weights.
    calibration
        A file that keeps what work takes, so that several runs do equal work; made by the first of them.
    """

    seed: int = option(0, count)
    calibration: str = option("", str)


class _Bytes(nn.Module):
    """A module that is nothing but its weights."""

    def __init__(self, size_bytes: int, device: str) -> None:
        super().__init__()
        self.content: Tensor
        self.register_buffer("content", torch.empty(size_bytes, dtype=torch.uint8, device=device))


class SyntheticRunner:
    """Stands in for models whose weights and code are not at hand."""

    Options = SyntheticOptions

    def __init__(self, options: SyntheticOptions | None = None) -> None:
        given = options or SyntheticOptions()
        self._seed = given.seed
        self._calibration = Calibration(given.calibration)
        self._factors: dict[torch.device, list[Tensor]] = {}
        self._layers: dict[tuple[torch.device, int, int], list[tuple[Tensor, Tensor]]] = {}
        self._adding_us: WeakKeyDictionary[Team, float] = WeakKeyDictionary()

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        """Return as many random bytes as the scenario says, drawn by the model's name."""
        generator = torch.Generator()
        generator.manual_seed(seed_of(f"{self._seed} {model.name}"))
        physical_devices("cpu")[0].require_host_memory(model.weight_bytes, f"random weights of {model.name}")
        words = torch.randint(-(2**62), 2**62, (-(-model.weight_bytes // 8),), generator=generator)
        return {"content": words.view(torch.uint8)[: model.weight_bytes]}

    def module(self, model: MLModel) -> nn.Module:
        """Return a module that holds a model's bytes."""
        return _Bytes(model.weight_bytes, "meta").eval()

    def parts(self, model: MLModel, of: int) -> Sequence[Mapping[str, Tensor]]:
        """Return for each of so many GPUs as many whole rows of what is folded as it can have, and a piece of the rest.

        Behind the last byte there are zeros, so that all get as much.
        """
        size = part_bytes(model.weight_bytes, of)
        content = self.weights(model)["content"]
        content = torch.cat([content, content.new_zeros(of * size - len(content))])
        rest = size % _ROW
        whole, left = content[: of * (size - rest)].view(of, -1), content[of * (size - rest) :].view(of, -1)
        return [{"content": part} for part in torch.cat([whole, left], dim=1)]

    def part(self, model: MLModel, of: int) -> nn.Module:
        """Return a module that holds a part of a model's bytes."""
        return _Bytes(part_bytes(model.weight_bytes, of), "meta").eval()

    def run(self, call: RunnerCall) -> Tensor:
        """Fold the weights and the inputs, and work for the rest of the run time."""
        return self.run_batch([call])[0]

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        """Fold for every task, and work for the rest of the batch's run time."""
        if calls[0].team is not None:
            return [self._run_together(call, calls[0].team) for call in calls]
        device, left_us = calls[0].device, float(calls[0].run_us)

        def burst() -> None:
            self._work(device, _BURST)

        each_us = self._calibration.each_us(device, lambda: _duration_us(device, burst) / _BURST)
        for call in calls:
            left_us -= self._calibration.folding_us(device, call.workflow, call.task, self._measure_folding(call))
        self._work(device, max(0, round(left_us / each_us)))
        return [_folded_together(call) for call in calls]

    def _run_together(self, call: RunnerCall, team: Team) -> Tensor:
        """Work and fold on one of several GPUs; what they have is added up in the end."""
        device, size = call.device, team.size

        def burst() -> None:
            self._through_layers(device, _BURST, team)

        each_us = self._calibration.each_us(device, lambda: _duration_us(device, burst) / _BURST, size)
        named = f"{call.task} on {size}"
        left_us = call.run_us - self._calibration.folding_us(device, call.workflow, named, self._measure_folding(call))
        if team not in self._adding_us:  # nobody has met this team before: all of them measure it now
            nothing = self._through_layers(device, 0, team)
            self._adding_us[team] = _duration_us(device, lambda: team.add_up(nothing))
        left_us -= self._adding_us[team] * (2 if call.split else 1)
        team.add_up(self._through_layers(device, max(0, round(left_us / each_us)), team))
        return _folded_together(call)

    def _through_layers(self, device: torch.device, times: int, team: Team) -> Tensor:
        """Go so many times through two layers, of which this GPU has columns of the one and rows of the other."""
        self._work(device, 0)
        factors = self._factors[device]
        key = device, team.rank, team.size
        if key not in self._layers:
            own = team.rank, team.size
            self._layers[key] = [(columns(factor, *own), rows(factor, *own)) for factor in factors]
        layers, product = self._layers[key], torch.zeros_like(factors[0])
        for number in range(times):
            product = through_both(factors[0], *layers[number % len(layers)])
        return product

    def _measure_folding(self, call: RunnerCall) -> Callable[[], float]:
        return lambda: _duration_us(call.device, lambda: _folded_together(call), _pass_through_caches)

    def _work(self, device: torch.device, times: int) -> None:
        if device not in self._factors:
            side, pieces = _CORE_SIDE, 1
            if device.type == "cuda":
                card = find_cards()[device.index or 0]
                side, pieces = as_wide_as(card.processors, card.cache_bytes)
            self._factors[device] = [torch.full((side, side), 1 / side, device=device) for _ in range(pieces)]
        factors = self._factors[device]
        product = torch.empty_like(factors[0])
        for number in range(times):
            factor = factors[number % len(factors)]
            torch.mm(factor, factor, out=product)


def as_wide_as(processors: int, cache_bytes: int) -> tuple[int, int]:
    """Return side and number of square matrices whose products, in turn, fill a whole card, and not from its cache.

    A product is worked off in tiles, one per multiprocessor at a time; all factors are twice what the cache holds.

    >>> as_wide_as(132, 50 << 20)
    (1536, 12)
    """
    side = _TILE * math.ceil(math.sqrt(processors))
    return side, math.ceil(2 * cache_bytes / (4 * side**2))


def _folded_together(call: RunnerCall) -> Tensor:
    """Return 128 numbers that depend on every byte of the weights and the inputs, and on their order.

    Where GPUs have parts of the weights, what each has folded is added up.
    """
    total, contents = folded(received(call)), [module.get_buffer("content") for module in call.modules.values()]
    if call.team is None or not call.split:
        of_models = [folded(content) for content in contents]
    else:
        rank, team = call.team.rank, call.team
        of_models = list(team.add_up(torch.stack([_folded_part(content, rank) for content in contents])))
    for of_model in of_models:
        total = total * _SPREAD + of_model
    return total


def _folded_part(content: Tensor, rank: int) -> Tensor:
    """Return what a part adds to what its model is folded to: whole rows, and a piece of one or two others."""
    rest = len(content) % _ROW
    before = content.new_zeros(rank * rest % _ROW)
    return folded(content[: len(content) - rest]) + folded(torch.cat([before, content[len(content) - rest :]]))


def folded(data: Tensor) -> Tensor:
    """Add up bytes in rows of 128 words, modulo two to the power of 64.

    Parameters
    ----------
    data
        One-dimensional, uint8, at an address that eight divides.

    Returns
    -------
    Tensor
        Shape [128], int64.
    """
    whole = len(data) // _ROW * _ROW
    total = data[:whole].view(torch.int64).view(-1, _FOLD).sum(0)
    rest = data[whole:]
    if len(rest):
        total = total + torch.cat([rest, rest.new_zeros(_ROW - len(rest))]).view(torch.int64)
    return total


def _duration_us(
    device: torch.device, work: Callable[[], object], before: Callable[[torch.device], object] = lambda device: None
) -> float:
    """Return the median time of some work, the first time left out; something is done before it each time."""
    physical = next(each for each in physical_devices(device.type) if each.device == device)
    physical.wait()
    stream, times = physical.stream(), list[float]()
    for _ in range(_REPEATS + 1):
        before(device)
        times.append(stream.carry_out(work)[1].duration_us)
    return median(times[1:])


def _pass_through_caches(device: torch.device) -> None:
    """Leave nothing in a core's caches: weights that are folded again and again would come from there."""
    if device.type == "cpu":
        torch.ones(_CACHED_BYTES // 8, dtype=torch.int64).sum()  # bytes would be widened first, eight times as much
