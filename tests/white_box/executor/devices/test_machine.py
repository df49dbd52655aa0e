"""What cards say of themselves, by a management library that pretends."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from tests.executor.devices.pretended import PretendedCard
from truenorth.executor.devices import machine
from truenorth.executor.devices.cuda import _uuid
from truenorth.executor.devices.machine import describe_cards, describe_machine, observe
from truenorth.executor.devices.physical import activation_bytes, physical_devices
from truenorth.executor.devices.run import LiveSettings
from truenorth.executor.errors import DeviceError


class RefusedError(Exception):
    pass


class Library(SimpleNamespace):
    """Knows a card and a slice of another; the slice itself answers nothing, and no card has a PCIe generation."""

    NVMLError = RefusedError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, works: bool = True) -> None:
        super().__init__()
        self.works, self.open, self.asked, self.energy, self.sampled = works, 0, 0, 5_000, threading.Event()

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.works:
            raise RefusedError
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "550.1"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in ("GPU-0", "MIG-7"):
            raise RefusedError
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:  # noqa: N802
        return f"the card of {handle}"

    def answer(self, handle: str, value: int) -> int:
        if handle.startswith("MIG-"):
            raise RefusedError
        return value

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        self.asked += 1
        return self.answer(handle, 1000 * kind + self.asked)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        return self.answer(handle, 300_500)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # noqa: N802
        return self.answer(handle, 700_000)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        self.sampled.set()
        return self.answer(handle, 0x1 | 0x4 | 0x40)

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:  # noqa: N802
        return self.answer(handle, 61)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:  # noqa: N802
        raise RefusedError

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:  # noqa: N802
        return self.answer(handle, 16)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        self.energy += 2_000
        return self.answer(handle, self.energy)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_a_card_tells_clocks_power_and_why_it_is_held_down(library: Library) -> None:
    """Idling is no reason; what one question is refused for is None, and the others are answered."""
    (told,) = describe_cards([PretendedCard().physical()] * 2)
    assert told == {
        "name": "pretended card 0", "uuid": "GPU-0", "driver": "550.1", "sm_clock_mhz": 1001, "memory_clock_mhz": 2002,
        "held_down_by": ["power cap", "hardware thermal"], "power_w": 300.5, "power_limit_w": 700.0,
        "temperature_c": 61, "pcie_generation": None, "pcie_width": 16, "energy_j": 7.0,
    }  # fmt: skip
    assert library.open == 0


def test_a_slice_is_asked_by_its_own_name_and_answers_by_its_card(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = PretendedCard()
    card.uuid = "MIG-7"
    (told,) = describe_cards([card.physical()])
    assert (told["uuid"], told["power_w"]) == ("MIG-7", 300.5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7,MIG-8")
    assert [_uuid("of the card", index) for index in range(2)] == ["MIG-7", "MIG-8"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert _uuid("5", 1) == "GPU-5"


def test_a_run_is_watched_before_during_and_after(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Energy is what the meter moved by; samples are taken until the block ends, and none behind it."""
    monkeypatch.setattr(machine, "_SAMPLE_S", 0.001)
    with observe([PretendedCard().physical()]) as seen:
        library.sampled.clear()
        assert library.sampled.wait(10)
    assert (seen.before[0]["energy_j"], seen.after[0]["energy_j"], seen.energy_j) == (7.0, 9.0, 2.0)
    (during,) = seen.during
    low, high = during["sm_clock_mhz"]
    assert seen.before[0]["sm_clock_mhz"] < low <= high < seen.after[0]["sm_clock_mhz"]
    assert (during["mean_power_w"], during["most_power_w"]) == (300.5, 300.5)
    assert during["held_down_by"] == ["hardware thermal", "power cap"]
    assert library.open == 0


def test_where_nothing_answers_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Library(works=False))
    unknown = PretendedCard(index=3)
    for devices in (physical_devices("cpu"), [unknown.physical()]):
        assert describe_machine(devices)["cuda"] == []
        with observe(devices) as seen:
            pass
        assert (list(seen.before), list(seen.during), list(seen.after), seen.energy_j) == ([], [], [], None)
    monkeypatch.setitem(sys.modules, "pynvml", Library())
    assert describe_cards([unknown.physical()]) == []


def test_memory_that_is_older_than_the_profiler_is_given_back_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    """A thousand numbers of four bytes are made, then half as many; what goes meanwhile was there before."""
    held = [torch.zeros(5000)]

    def run() -> None:
        held.append(torch.ones(1000))
        held.append(torch.ones(500))
        del held[0]

    assert activation_bytes(physical_devices("cpu")[0], run) == 6000
    assert capfd.readouterr().err == ""


def test_a_card_tells_the_most_that_was_held_beside_what_was_held_before() -> None:
    card = PretendedCard()
    arena = card.physical().memory(10_000)
    stream = card.physical().stream()
    taken = activation_bytes(card.physical(), lambda: stream.carry_out(lambda: arena[:400].to(torch.int64) + 1))
    assert taken == 2 * 8 * 400


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"^a limit of 0 s gives everything up at once; allowed is more than 0 s$"):
        LiveSettings(limit_s=0)
