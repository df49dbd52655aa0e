"""The nodes of a Ray cluster that have devices: which there are, whether they can serve, and who gets which.

No node may differ from this machine in what both must agree on: Python, Ray and Truenorth. Whoever finds nodes is
connected to the cluster, and hands in the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truenorth.executor.errors import DeviceError
from truenorth.models import GPU

_ANSWER_S = 120.0
"""How long a node may take to say what it has."""
_RESOURCES = {"cpu": "CPU", "cuda": "GPU"}
"""What Ray calls devices of a kind."""
_SAME = {"python": "Python", "ray": "Ray", "truenorth": "Truenorth"}


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node.

    Parameters
    ----------
    id, name
        As Ray and as a person knows it.
    devices
        How many it has.
    """

    id: str
    name: str
    devices: int


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes with devices of a kind.

    Parameters
    ----------
    ray
        The module, connected.
    kind
        ``cpu`` or ``cuda``.
    nodes
        In the order of their names.
    """

    ray: Any
    kind: str
    nodes: Sequence[RayNode]

    def __str__(self) -> str:
        """Name them."""
        return f"the cluster of {', '.join(node.name for node in self.nodes)}"

    def seat(self, gpus: Sequence[GPU]) -> list[tuple[RayNode, int]]:
        """Return a device for each planned GPU, as far as there are any: its node, and which it is there.

        GPUs of a server share a node while that has devices left; servers go where most are left.
        """
        taken, home, seats = Counter[RayNode](), dict[int, RayNode](), list[tuple[RayNode, int]]()

        def left(node: RayNode) -> int:
            return node.devices - taken[node]

        for gpu in gpus[: sum(node.devices for node in self.nodes)]:
            if gpu.server not in home or not left(home[gpu.server]):
                home[gpu.server] = max(self.nodes, key=left)
            node = home[gpu.server]
            seats.append((node, taken[node]))
            taken[node] += 1
        return seats

    def options(self, node: RayNode, devices: int = 1) -> dict[str, Any]:
        """Return what makes Ray start something on a node that holds some of its devices."""
        held = {"num_cpus": devices} if self.kind == "cpu" else {"num_cpus": 0, "num_gpus": devices}
        return held | {"scheduling_strategy": _on(self.ray, node.id)}


def find_nodes(ray: Any, kind: str) -> Nodes:
    """Return the nodes of a cluster that have devices of a kind.

    Raises
    ------
    DeviceError
        If there is none, or one cannot serve.
    """
    if kind not in _RESOURCES:
        raise DeviceError(f"device {kind!r} is unknown; allowed are {', '.join(_RESOURCES)}")
    alive = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: (node["NodeName"], node["NodeID"]))
    count = {node["NodeID"]: int(node["Resources"].get(_RESOURCES[kind], 0)) for node in alive}
    having = [node for node in alive if count[node["NodeID"]]]
    if not having:
        raise DeviceError(
            f"no node of the cluster has a {_RESOURCES[kind]}; allowed is a cluster that has, or another --device"
        )
    alike, seen = Counter(node["NodeName"] for node in having), Counter[str]()
    found = []
    for node in having:
        name = node["NodeName"]
        seen[name] += 1
        found.append(
            RayNode(node["NodeID"], f"{name} #{seen[name]}" if alike[name] > 1 else name, count[node["NodeID"]])
        )
    _require_alike(ray, found)
    return Nodes(ray, kind, found)


def _require_alike(ray: Any, nodes: Sequence[RayNode]) -> None:
    """Raise for a node that has not what this machine has."""

    def tell() -> dict[str, str]:
        """Return versions; it is sent whole, since a node may not even have this package."""
        import platform
        from importlib import import_module
        from importlib.metadata import PackageNotFoundError, version

        found = {"python": platform.python_version()}
        for package in ("ray", "truenorth"):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "none"
        try:
            import_module("torch")  # whether it is installed says little: a library that it needs may be missing
        except (ImportError, OSError) as error:
            found["torch"] = f"{type(error).__name__}: {error}"
        return found

    ask, here = ray.remote(tell), tell()
    asked = {
        node: ask.options(num_cpus=0, max_retries=0, scheduling_strategy=_on(ray, node.id)).remote() for node in nodes
    }
    for node, answer in asked.items():
        try:
            _require_same(node.name, ray.get(answer, timeout=_ANSWER_S), here)
        except ray.exceptions.RayError as error:
            raise DeviceError(f"node {node.name} does not say what it has: {in_a_line(error)}") from None


def _require_same(name: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raise for what differs.

    >>> _require_same("n", {"python": "3.11.7", "ray": "2.9", "truenorth": "1"}, {"python": "3.11.7", "ray": "2.60"})
    Traceback (most recent call last):
    truenorth.executor.errors.DeviceError: node n has Ray 2.9, this machine 2.60; install the same there
    >>> _require_same("n", {**dict.fromkeys(_SAME, "1"), "torch": "none"}, dict.fromkeys(_SAME, "1"))
    Traceback (most recent call last):
    truenorth.executor.errors.DeviceError: node n has no PyTorch (none); install truenorth[devices,cluster] there
    """
    for package, called in _SAME.items():
        if there[package] != here[package]:
            raise DeviceError(
                f"node {name} has {called} {there[package]}, this machine {here[package]}; install the same there"
            )
    if "torch" in there:
        raise DeviceError(f"node {name} has no PyTorch ({there['torch']}); install truenorth[devices,cluster] there")


def _on(ray: Any, node: str) -> Any:
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def in_a_line(error: BaseException) -> str:
    """Return what Ray raises as one line; of what was raised on a node that."""
    cause = getattr(error, "cause", None) or error
    said = str(cause).strip().partition("\n")[0]
    return said if isinstance(cause, DeviceError) else f"{type(cause).__name__}: {said}"
