"""The engines that serve what is recommended: how many of which, on what, and how vLLM is told so.

One engine serves one stream class. That holds where every node serves requests of one class in the simulation, and
nothing else; of other fleets it is said why no engines are written down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from truenorth.executor import POLICIES, parse_policy
from truenorth.executor.policies.gateways import GatewayOptions, PrefixAffinity
from truenorth.models import GPU, Instance, StreamClass
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.holds import Holds
from truenorth.models.instance import NONE
from truenorth.models.scenario.disaggregated import DECODE, PREFILL
from truenorth.models.slo import is_named
from truenorth.models.stream_tables import StreamTables
from truenorth.planner.answers.servers.deployable import Alternative

_JOINED = re.compile(r"(\d+)x(.+)")
"""A tensor-parallel group that is described as one GPU: ``4xH100``."""
BLOCKS = (1, 8, 16, 32, 64, 128)
"""Tokens of a block of KV that vLLM takes."""
_CONNECTOR = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
"""By which vLLM sends KV from engine to engine: both ends say the same, and the proxy before them which is which."""


_OTHERS = "all others"
_MOST_NAMED = 8
"""Workflows whose numbers are said one by one."""


class NoEnginesError(Exception):
    """Why a fleet is no set of engines with one model each, in words."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Equal engines.

    Parameters
    ----------
    stream, gpu
        The stream class that they serve, and the kind of their GPUs.
    workflow
        The one whose requests alone they serve; None: any of the class.
    replicas, gpus
        How many engines, and GPUs of each.
    settings
        Of vLLM, by the names of its engine arguments; a flag has the value true.
    adapters
        Of the class; the engine needs the path of each.
    kv_tokens
        Tokens that the KV memory holds; None: KV is not limited.
    longest
        Tokens of the longest request in the window, prompt and answer.
    drain_s
        For how long an engine that is to go may finish what it serves.
    role
        What of a request it does, where prefill is apart from decode; else None.
    priorities
        What is to be sent with requests of each workflow, or of each priority of the scenario: vLLM serves the lowest
        number first, and those without one as 0. Empty where all are equal.
    block
        Tokens of a block of KV in the scenario, 0 where KV does not grow; it is a setting only if vLLM takes it.
    """

    stream: str
    gpu: str
    workflow: str | None
    replicas: int
    gpus: int
    settings: tuple[tuple[str, int | str | bool], ...]
    adapters: tuple[str, ...]
    kv_tokens: int | None
    longest: int
    drain_s: int
    role: str | None = None
    priorities: tuple[tuple[str, int], ...] = ()
    block: int = 0

    @property
    def flags(self) -> list[str]:
        """The settings as ``vllm serve`` takes them.

        >>> settings = ("max_num_seqs", 64), ("enable_lora", True)
        >>> Engine("chat", "H100", None, 1, 1, settings, (), None, 9, 0).flags
        ['--max-num-seqs=64', '--enable-lora']
        """
        named = [(f"--{name.replace('_', '-')}", value) for name, value in self.settings]
        return [name if value is True else f"{name}={value}" for name, value in named]


def engines_of(best: Alternative) -> list[Engine]:
    """Return the engines of what is recommended, in the order of its GPUs.

    Raises
    ------
    NoEnginesError
        If it is no set of engines with one model each.
    """
    instance, streams = best.ran.instance, best.ran.instance.streams
    if streams is None or (streams.template == NONE).any():
        raise NoEnginesError("not every task is a request of a language model")
    if _options(best).preempt:
        raise NoEnginesError("a request preempts others as it comes (preempt=on), and vLLM's only where KV runs out")
    served = _classes_served(best, instance, streams)
    made: dict[Engine, int] = {}
    for gpu, (stream, workflow) in enumerate(zip(served, _pools(best, instance), strict=True)):
        engine = _engine(best, streams, instance.cluster.gpus[gpu], stream, workflow)
        made[engine] = made.get(engine, 0) + 1
    return [replace(engine, replicas=count) for engine, count in made.items()]


def asked_of_gateway(best: Alternative) -> list[str]:
    """Return what the answer asks of the gateway before the engines, and of their caches, a line each."""
    streams, said = best.ran.instance.streams, list[str]()
    if streams is None:
        return said
    caches = streams.prefixes is not None and not isinstance(streams.prefixes, Holds)
    follows = _follows_prefixes(best)
    if any(len(offsets) > 1 for offsets in streams.together) or (follows and not caches):
        said.append("The answer holds only if the gateway keeps the calls of a session on one engine.")
    if follows and caches:
        said.append("The answer holds only if the gateway sends requests to engines that have their prefix cached.")
    if isinstance(streams.prefixes, Holds):
        said.append("vLLM cannot hold KV for a later call (hold): its prefix cache stands in for that, so keep it on.")
    if caches:
        said.append("The scenario's nodes cache prefixes: keep vLLM's prefix cache on.")
    return said


def _follows_prefixes(best: Alternative) -> bool:
    """Say whether the policy sends requests to nodes that have their prefix, or the call before."""
    known = best.policy.partition(":")[0] in POLICIES
    return known and issubclass(parse_policy(best.policy).policy, PrefixAffinity)


def _classes_served(best: Alternative, instance: Instance, streams: StreamTables) -> list[int]:
    """Return the class that each GPU serves; one that served nothing serves what its group may serve."""
    runs = best.ran.timeline.runs
    classes = streams.template[instance.task_template[runs.task]]
    found = list[int]()
    for number, gpu in enumerate(instance.cluster.gpus):
        of_gpu = np.unique(classes[runs.gpu == number]).tolist()
        of_gpu = of_gpu or [at for at, stream in enumerate(streams.classes) if stream.speed_on(gpu.kind) is not None]
        if len(of_gpu) != 1:
            names = ", ".join(streams.classes[at].name for at in of_gpu)
            raise NoEnginesError(f"{gpu.id} serves several models in turn ({names}), and an engine serves one")
        found += of_gpu
    return found


def _role(instance: Instance, streams: StreamTables, stream: int) -> str | None:
    """Return what engines of a class do of a request: compute its prompt, decode, or both (None).

    A proxy knows both sorts of engines by one name, so that their classes are to be called as ``--split`` calls them.
    """
    source, target, edge = instance.edges()
    moved = streams.kv_edge[edge]
    if not moved.any():
        return None
    of_task = streams.template[instance.task_template]
    roles = {PREFILL: source[moved], DECODE: target[moved]}
    found, own = [role for role, tasks in roles.items() if (of_task[tasks] == stream).any()], of_task == stream
    alone = {PREFILL: streams.output[own] == 1, DECODE: streams.uncached[own] == 0}
    name = streams.classes[stream].name
    if len(found) != 1 or not alone[found[0]].all() or not name.endswith(f" {found[0]}"):
        raise NoEnginesError(f"KV is sent from node to node, and {name} is no class of prefill or decode by --split")
    return found[0]


def _pools(best: Alternative, instance: Instance) -> list[str | None]:
    """Return per GPU the workflow that it serves alone; None where it serves all others."""
    options, own = _options(best), list[str | None]()
    for workflow, count in zip(options.urgent, options.apart, strict=False):
        own += [workflow] * count
    return own + [None] * (len(instance.cluster.gpus) - len(own))


def _options(best: Alternative) -> GatewayOptions:
    """Return the options of the policy; of one that is no gateway those of none."""
    known = best.policy.partition(":")[0] in POLICIES
    options = parse_policy(best.policy).options if known else None
    return options if isinstance(options, GatewayOptions) else GatewayOptions()


def _engine(best: Alternative, streams: StreamTables, gpu: GPU, stream: int, workflow: str | None) -> Engine:
    """Return the engine on a GPU."""
    served, role = streams.classes[stream], _role(best.ran.instance, streams, stream)
    speed = served.speed_on(gpu.kind)
    # Where prefill is apart its name and the kind of its nodes end in what they do.
    shown, kind_name = (text.removesuffix(f" {role}") for text in (served.name, gpu.kind))
    kind = _JOINED.fullmatch(kind_name)
    gpus, name = (int(kind[1]), kind[2]) if kind else (1, kind_name)
    requests = streams.template[best.ran.instance.task_template] == stream
    longest, drain_s = int(streams.held[requests].max(initial=0)), ceil(gpu.drain_us / MICROSECONDS_PER_SECOND)
    weights = {model.name: model.weight_bytes for model in best.ran.instance.models}
    priorities = _priorities(best) if workflow is None else ()
    kv_tokens = _kv_tokens(served, gpu, weights)
    settings: dict[str, int | str | bool] = {
        **({"tensor_parallel_size": gpus} if gpus > 1 else {}),
        **dict(_limits(best, served, gpu)),
        **_kv(served, gpu, kv_tokens, gpus),
        **({"enable_lora": True, "max_loras": len(served.adapters)} if served.adapters else {}),
        **({"scheduling_policy": "priority"} if priorities else {}),
        **({} if role is None else {"kv_transfer_config": _CONNECTOR}),
    }
    adapters = tuple(each.removeprefix(f"{served.name}/") for each in served.adapters)
    said, block = tuple(settings.items()), 0 if speed is None else speed.block
    return Engine(shown, name, workflow, 1, gpus, said, adapters, kv_tokens, longest, drain_s, role, priorities, block)


def _limits(best: Alternative, served: StreamClass, gpu: GPU) -> Iterator[tuple[str, int]]:
    """Yield the most requests at once, and the most tokens of an iteration: vLLM counts a decode as one of them."""
    speed = served.speed_on(gpu.kind)
    if speed is None:
        raise NoEnginesError(f"{served.name} does not run on {gpu.kind}")
    seats = min(speed.seats, best.limit or speed.seats)
    yield "max_num_seqs", seats
    yield "max_num_batched_tokens", speed.chunk if speed.shared else speed.chunk + seats


def _kv_tokens(served: StreamClass, gpu: GPU, weights: Mapping[str, int]) -> int | None:
    """Return the tokens that fit beside the models and all adapters, of whole blocks where KV grows."""
    speed = served.speed_on(gpu.kind)
    if speed is None or not speed.kv_bytes:
        return None
    room = gpu.memory_bytes - sum(weights[name] for name in (*served.models, *served.adapters))
    block = speed.block or 1
    return max(0, room) // (speed.kv_bytes * block) * block


def _kv(served: StreamClass, gpu: GPU, tokens: int | None, gpus: int) -> dict[str, int]:
    """Return the settings of KV memory, per GPU; nothing where none is left beside all adapters."""
    speed = served.speed_on(gpu.kind)
    if speed is None or not tokens:
        return {}
    found = {"kv_cache_memory_bytes": tokens * speed.kv_bytes // gpus}
    return found | ({"block_size": speed.block} if speed.block in BLOCKS else {})


def _priorities(best: Alternative) -> tuple[tuple[str, int], ...]:
    """Return the numbers to send with requests that share nodes; nothing where all are of one priority.

    By workflow, or where that is not one number each, or too many to read, by the priority that the scenario says.
    """
    options, jobs = _options(best), best.ran.instance.jobs
    if options.urgent:
        first = len(options.apart)
        order = [(name, at) for at, name in enumerate(options.urgent[first:])]
        covered = all(any(is_named(by, job.workflow.name) for by in options.urgent) for job in jobs)
        order += [] if covered or not order else [(_OTHERS, len(order))]
        return tuple(order) if len(order) > 1 else ()
    priorities = sorted({job.priority for job in jobs}, reverse=True)
    found = dict.fromkeys((job.workflow.name, priorities.index(job.priority)) for job in jobs)
    if len(priorities) == 1:
        return ()
    if len(found) > min(len({name for name, _ in found}), _MOST_NAMED):
        return tuple((f"priority {each} of the scenario", at) for at, each in enumerate(priorities))
    return tuple(sorted(found, key=lambda each: (each[1], each[0])))
