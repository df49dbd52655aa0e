"""Run a policy, or replay a plan, on devices: set up, warm up, start the clock, and say what was measured."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from truenorth.executor.devices.addresses import Packing, pack
from truenorth.executor.devices.crew import Crew, Sharing, assign
from truenorth.executor.devices.live import LiveDevice
from truenorth.executor.devices.machine import Observed, observe
from truenorth.executor.devices.nodes import Nodes
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.processes import Equipment, ProcessSource, Template
from truenorth.executor.devices.records import Clock, Digest, Records, measured
from truenorth.executor.devices.runner import MakeRunner
from truenorth.executor.engine import Engine
from truenorth.executor.errors import DeviceError, PolicyError
from truenorth.executor.policies.baselines import Jit
from truenorth.executor.policies.gateways import LeastRequests
from truenorth.executor.policies.homed import Homed
from truenorth.executor.policy import Policy
from truenorth.executor.simulation import twin_for
from truenorth.models import Instance, Timeline
from truenorth.models.branches import open_paths
from truenorth.models.features import LOADED, SERVING, Feature, require


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """How planned GPUs become devices.

    Parameters
    ----------
    device
        ``cpu`` or ``cuda``.
    sharing
        Several planned GPUs on one physical device: None, each has its own (a core of the CPU); ``parallel``, side by
        side; ``serial``, one run at a time.
    limit_s
        How much longer than given a run, a load or a transfer may take before it is given up.
    keep_outputs
        Whether the outputs of all tasks are kept.
    weighs
        Whether what tasks hold is measured behind the run on cores, too, where that takes long.
    ray
        Address of the Ray cluster whose nodes have the devices; None: this machine has them.
    """

    device: str = "cpu"
    sharing: Sharing | None = None
    limit_s: float = 30.0
    keep_outputs: bool = False
    weighs: bool = False
    ray: str | None = None

    def __post_init__(self) -> None:
        """Refuse a limit that gives everything up at once."""
        if not self.limit_s > 0:
            raise DeviceError(f"a limit of {self.limit_s:g} s gives everything up at once; allowed is more than 0 s")


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What happened on devices.

    Parameters
    ----------
    timeline
        As it was measured; tasks of a failed job end at once.
    records
        Every run, load and transfer, failures and moves.
    unpacked
        GPUs for whose plan by bytes no addresses were found without moving models.
    copy_peak
        Bandwidth of bare pinned copies just before the run, in bytes per second; 0 if there are no models.
    machine
        What cards said before, during and after the run.
    devices
        Name of the physical device of each GPU.
    digests
        Of every output, by task.
    outputs
        By task, if they were kept, in the host's memory.
    clocks
        Of every node of a cluster, compared with this machine's before the run and again behind it.
    held_bytes
        By template of a task: most that it took beside the weights, where that was measured.
    """

    timeline: Timeline
    records: Records
    unpacked: tuple[int, ...]
    copy_peak: float
    machine: Observed
    devices: tuple[str, ...]
    digests: Mapping[int, Digest]
    outputs: Mapping[int, Tensor]
    clocks: Sequence[Clock] = ()
    held_bytes: Mapping[int, int] = field(default_factory=dict)

    @property
    def not_finite(self) -> list[int]:
        """Tasks whose output holds something that is no finite number, in their order."""
        return sorted(task for task, digest in self.digests.items() if not digest.finite)

    @property
    def not_numbers(self) -> list[int]:
        """Tasks whose output holds not-a-number, in their order."""
        return sorted(task for task, digest in self.digests.items() if not digest.numbers)


def run_live(
    instance: Instance,
    policy: Callable[[], Policy],
    runner: MakeRunner,
    settings: LiveSettings,
    *,
    seed: int = 0,
    plan: Timeline | None = None,
    nodes: Nodes | None = None,
) -> LiveRun:
    """Return what a policy makes of an instance on devices, in real time.

    Parameters
    ----------
    policy
        Makes the policy of this run, as for `executor.simulate`.
    runner
        Makes the runner that computes the tasks.
    seed
        Of the ingress servers.
    plan
        What the policy replays, if it does; its residencies by bytes get their addresses beforehand.
    nodes
        Where the devices are; None: in this machine.

    Raises
    ------
    DeviceError
        If devices or runner cannot serve the instance.
    PolicyError
        If the policy cannot, or misbehaves.
    """
    with live_crew(instance, runner, settings, nodes) as crew:
        run = run_on(crew, instance, policy, settings, seed=seed, plan=plan)
        if not settings.weighs:
            return run
        with suppress(DeviceError):  # what is stuck now takes nothing away from what was measured
            crew.renew()
            crew.prepare(range(instance.n_gpus), weighs=True)
        return replace(run, held_bytes=dict(crew.held_bytes))


@contextmanager
def live_crew(
    instance: Instance, runner: MakeRunner, settings: LiveSettings, nodes: Nodes | None = None
) -> Iterator[Crew]:
    """Set devices up and warm them, for one run after another.

    Raises
    ------
    DeviceError
        If devices or runner cannot serve the instance.
    """
    gpus, serial = instance.cluster.gpus, settings.sharing == "serial"
    source: Callable[[Equipment], ProcessSource] = Template
    if nodes is None:
        physical = assign(instance.n_gpus, physical_devices(settings.device), settings.sharing)
    else:
        if instance.gangs:
            raise DeviceError("nodes of a Ray cluster run nothing on several GPUs yet; allowed is no --ray")
        from truenorth.executor.devices.on_ray import RaySource, devices_of

        physical = assign(instance.n_gpus, devices_of(nodes, gpus), settings.sharing, str(nodes))
        source = partial(RaySource, nodes, gpus)
    if instance.gangs and len(set(physical)) < instance.n_gpus:
        problem = f"the scenario has {instance.n_gpus} GPUs, and these are {len(set(physical))}"
        raise DeviceError(f"runs on several GPUs take a device for each: {problem}; allowed is no --virtual")
    crew = Crew(instance, runner, physical, gpus, settings.limit_s, serial, source)
    try:
        crew.prepare(range(instance.n_gpus))
        yield crew
    finally:
        crew.close()


def run_on(
    crew: Crew,
    instance: Instance,
    policy: Callable[[], Policy],
    settings: LiveSettings,
    *,
    seed: int = 0,
    plan: Timeline | None = None,
    stop: Callable[[], bool] | None = None,
) -> LiveRun:
    """Return what a policy makes of an instance on devices that are set up; their memories are empty at first.

    Whatever ended a process in an earlier run touches this one no more. The other parameters and errors are those of
    `run_live`.

    Parameters
    ----------
    stop
        Asked again and again whether to give up; None: never.

    Raises
    ------
    StoppedError
        If it was told to give up.
    """
    supported = LOADED if instance.gangs else SERVING - {Feature.ADAPTERS} | {Feature.DELAYS}
    require(instance, "a run on devices", supported)
    instance.require_always_available("a run on devices")
    instance.require_reserved_kv("a run on devices")
    made = policy()
    if twin_for(instance, made) is not instance:
        raise PolicyError("this policy runs on a twin of the instance, whose models no device has")
    if not made.knows_paths and open_paths(instance) is not None:
        raise PolicyError("online policies do not run workflows with branches on devices yet; allowed is a plan")
    packing = Packing() if plan is None else pack(instance, plan)
    crew.renew()
    peak = crew.measure_copies()
    clocks = [*crew.compare_clocks()]
    device = LiveDevice(instance, crew, packing, settings.keep_outputs)
    crew.load_initial(packing.initial)
    restricted = instance.restrictions.no_swaps or instance.restrictions.max_replicas
    stand_in = LeastRequests if instance.streams is not None else Homed if restricted else Jit
    with _quiet_collector(), observe(crew.physical) as machine:
        timeline = Engine(instance, made, device, seed, stand_in=stand_in).run(stop)
    device.finish()
    clocks += crew.compare_clocks()
    return LiveRun(
        measured(timeline, device.records),
        device.records,
        packing.unpacked,
        peak,
        machine,
        tuple(physical.name for physical in crew.physical),
        device.digests,
        device.kept,
        clocks,
        dict(crew.held_bytes),
    )


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Collect what earlier runs left behind, and let Python's collector look at nothing that was there before.

    A full collection holds every thread up for tens of milliseconds, and engine, site and policy of a run point at one
    another, so that its outputs would stay until then.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
