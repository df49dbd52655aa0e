"""What has to hold on a device before timings of whole workloads count, step by step: figures with their goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from experiments.benchmarks.devices.dispatch import chains
from experiments.benchmarks.devices.parts import Remembered
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.devices.alone import have_same_bits
from truenorth.executor.devices.crew import Sharing
from truenorth.executor.devices.cuda import STREAMS
from truenorth.executor.devices.physical import Physical, activation_bytes, physical_devices
from truenorth.executor.devices.records import STARTED_AGAIN
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station, StationWork
from truenorth.executor.devices.streams import Stream
from truenorth.executor.devices.weights import ALIGNMENT, HostWeights, aligned, packed_bytes
from truenorth.executor.errors import DeviceError
from truenorth.executor.runners.architectures import ARCHITECTURES
from truenorth.executor.runners.synthetic import SyntheticRunner
from truenorth.executor.runners.transformers_runner import TransformersOptions, TransformersRunner
from truenorth.models import GPU, Instance, MLModel, Restrictions

_LOADED_BYTES = {"cpu": 12_500_000, "cuda": 1_000_000_000}
_TOO_MUCH_BYTES = 1 << 50
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its goal; `met` is None where this device cannot tell."""

    step: str
    value: float | None
    unit: str
    goal: str
    met: bool | None
    note: str = ""

    def __str__(self) -> str:
        """Return it in a line."""
        value = "-" if self.value is None else f"{self.value:.4g}"
        met = {None: "", True: " (met)", False: " (NOT met)"}[self.met]
        return f"{self.step}: {value} {self.unit}; goal {self.goal}{met} {self.note}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


Step = tuple[str, Callable[[str], Iterator[Figure]]]
"""Its name, and what takes it on a kind of device."""


def take_steps(named: Sequence[Step], device: str) -> Iterator[Figure]:
    """Take one step after the other; one that ends with an error is a figure too."""
    for name, take in named:
        try:
            yield from take(device)
        except Exception as error:  # the steps after it are still worth taking
            said = str(error).partition("\n")[0]
            yield Figure(name, None, "", "ends", False, f"{type(error).__name__}: {said}")


def compute_architectures(device: str) -> Iterator[Figure]:
    """Run every architecture of the paper once, then again from another address; and see what that takes in memory."""
    physical, computed, different, most = physical_devices(device)[0], 0, list[str](), 0
    runner = Remembered(TransformersRunner(TransformersOptions(size="small" if device == "cpu" else "full")))
    for name in ARCHITECTURES:
        outputs: list[Tensor] = []
        model = MLModel(name, packed_bytes(runner.weights(MLModel(name, 1))))
        station = _station(model, runner, physical)
        work = StationWork(0, "w", name, 1, [0], {"": (_given(physical), 2000)})
        for address in (0, ALIGNMENT):
            station.load(0, address)
            taken = activation_bytes(physical, partial(_run_into, outputs, station, work))
            most = max(most, taken)
        computed += 1
        different += [] if have_same_bits(*outputs) else [name]
        del station
    total = len(ARCHITECTURES)
    yield Figure("architectures", computed, f"of {total} computed", f"{total}", computed == total)
    yield Figure("bit equality", len(different), "differ at another address", "0", not different, ", ".join(different))
    yield Figure("activations", most / _MB, "MB beside the weights", "known", True)


def refuse_too_much(device: str) -> Iterator[Figure]:
    """Ask for more host memory than there is."""
    try:
        physical_devices(device)[0].host_memory(_TOO_MUCH_BYTES)
    except DeviceError as error:
        yield Figure("pinned memory", 1, "clear error", "1", "\n" not in str(error), str(error))


def start_soon(device: str) -> Iterator[Figure]:
    """Replay chains on one GPU."""
    late = median(record.dispatch_us for record in _played(chains(1, 60, 5000, 0.9), device).records.runs)
    goal = 30 if device == "cuda" else 100
    yield Figure("dispatch", late, "us in the median", f"at most {goal}", late <= goal)


def scale(device: str) -> Iterator[Figure]:
    """Give n GPUs n times the work of one."""
    alone = None
    for gpus in range(1, len(physical_devices(device)) + 1):
        run = _played(chains(gpus, 40 * gpus, 5000, 2.0), device)
        taken = int(run.timeline.end_us.max())
        alone = alone or taken
        share = alone / taken
        yield Figure(f"{gpus} GPUs", share, "of the speed of one, each", "at least 0.95", share >= 0.95)


def keep_streams_apart(device: str) -> Iterator[Figure]:
    """Ask for one stream more than there are."""
    physical = physical_devices(device)[0]
    if not physical.is_cuda:
        yield Figure("streams", None, "apart", "the 33rd is refused", None, "a core has none")
        return
    held: list[Stream] = []
    try:
        while len(held) <= STREAMS:
            held.append(physical.stream())
    except DeviceError as error:
        yield Figure("streams", len(held), "apart", "the next is refused", True, str(error))
        return
    yield Figure("streams", len(held), "apart", "at most 32", False, "two of them are one")


def share_copy_engine(device: str) -> Iterator[Figure]:
    """Let two planned GPUs on one device load the same time; they take turns."""
    on = _two_loads(_LOADED_BYTES[device])
    sharing: Sharing | None = "parallel" if device == "cuda" else None
    if device == "cpu" and len(physical_devices(device)) < on.n_gpus:
        yield Figure("copy engine", None, "", "", None, "one core alone")
        return
    run = run_live(on, parse_policy("jit"), SyntheticRunner, LiveSettings(device, sharing))
    loads = sorted(run.records.loads, key=lambda load: load.start_us)
    both_us = max(load.end_us for load in loads) - loads[0].start_us
    share = sum(load.size_bytes for load in loads) / both_us * 1e6 / run.copy_peak
    met = 0.95 <= share <= 1.02 if device == "cuda" else None
    yield Figure("copy engine", share, "of the peak of a bare copy, two GPUs together", "0.95 to 1.02", met)


def warm_transfers(device: str) -> Iterator[Figure]:
    """Compare the first transfer of a run with the others."""
    devices = physical_devices(device)
    on = _crossing()
    sharing: Sharing | None = "parallel" if device == "cuda" and len(devices) < 2 else None
    if device == "cpu" and len(devices) < 2:
        yield Figure("transfers", None, "", "", None, "one core alone")
        return
    run = run_live(on, parse_policy("jit"), SyntheticRunner, LiveSettings(device, sharing))
    taken = [record.took_us for record in run.records.transfers]
    first = taken[0] / max(1.0, median(taken))
    yield Figure("transfers", first, "times the median takes the first", "at most 3", first <= 3)


class Asserting(SyntheticRunner):
    """Fails an assertion on the device in job 1."""

    def run(self, call: RunnerCall) -> Tensor:
        """Compute a task, after that."""
        if call.job == 1:
            torch.zeros(1, device=call.device)[torch.tensor([5], device=call.device)].sum()
        return super().run(call)


def survive_assert(device: str) -> Iterator[Figure]:
    """Let a kernel fail an assertion: the process of its device ends, and another takes its place."""
    if device == "cpu":
        yield Figure("device assert", None, "", "", None, "a core answers after every error")
        return

    gpus = len(physical_devices(device))
    run = run_live(chains(gpus, 4, 2000, 0.5), parse_policy("jit"), Asserting, LiveSettings(device, limit_s=5.0))
    lost = [failure.message for failure in run.records.failures if failure.job == 1]
    again = [fault for fault in run.records.faults if fault.what == STARTED_AGAIN]
    well = len(lost) == len(again) == 1
    yield Figure("device assert", len(again), "processes started again, with one job", "1", well, "; ".join(lost))


STEPS: Sequence[Step] = (
    ("architectures", compute_architectures),
    ("pinned memory", refuse_too_much),
    ("dispatch", start_soon),
    ("more GPUs", scale),
    ("streams", keep_streams_apart),
    ("copy engine", share_copy_engine),
    ("transfers", warm_transfers),
    ("device assert", survive_assert),
)
"""In this order."""


def _station(model: MLModel, runner: Remembered, physical: Physical) -> Station:
    gpu = GPU("s0/g0", 0, "A", model.weight_bytes + ALIGNMENT, Fraction(1))
    return Station(gpu, [model], HostWeights([model], runner, physical.host_memory), runner, physical)


def _run_into(outputs: list[Tensor], station: Station, work: StationWork) -> None:
    (output,), _ = station.run([work])
    outputs.append(output.cpu())


def _given(physical: Physical) -> Tensor:
    return torch.arange(2000, device=physical.device).to(torch.uint8)


def _played(on: Instance, device: str) -> LiveRun:
    """Replay what SRPT makes of an instance."""
    plan = simulate(on, parse_policy("srpt"))
    return run_live(on, replay(on, plan), SyntheticRunner, LiveSettings(device), plan=plan)


def _crossing() -> Instance:
    """Return chains whose tasks take turns on two GPUs, since their models may be on one each."""
    on = chains(2, 20, 2000, 0.9)
    pins = {model.name: frozenset({place % 2}) for place, model in enumerate(on.models)}
    return replace(on, restrictions=Restrictions(model_gpus=pins))


def _two_loads(size_bytes: int) -> Instance:
    """Return two GPUs that each load a model of this size at the same time."""
    on = chains(2, 2, 1000, 1.0)
    models = tuple(replace(model, weight_bytes=size_bytes) for model in on.models)
    gpus = tuple(replace(gpu, memory_bytes=len(models) * aligned(size_bytes)) for gpu in on.cluster.gpus)
    jobs = tuple(replace(job, release_us=0) for job in on.jobs)
    return replace(on, models=models, cluster=replace(on.cluster, gpus=gpus), jobs=jobs)
