"""From the document's cluster to the cluster of the core types."""

from __future__ import annotations

from models.availability import Availability
from models.cluster import GPU, Cluster, Link, Network
from models.scenario.document import ClusterSection, GroupSection, NetworkSection
from models.scenario.errors import FieldError, Where, blame
from models.scenario.quantities import MAX_GPUS


def build_cluster(section: ClusterSection) -> Cluster:
    """Return the cluster; servers are numbered across groups in file order.

    Raises
    ------
    FieldError
        If there are too many GPUs, or the core types refuse one.
    """
    groups = section.server_groups
    if sum(group.count * group.gpus_per_server for group in groups) > MAX_GPUS:
        form = "groups" if section.groups is not None else "servers"
        raise FieldError(("cluster", form), f"gives too many GPUs; allowed are {MAX_GPUS}")
    gpus: list[GPU] = []
    first_server = 0
    for position, group in enumerate(groups):
        with blame((*_group_path(section, position), "gpu"), "a GPU with positive figures"):
            gpus += [
                _gpu(group, server, place)
                for server in range(first_server, first_server + group.count)
                for place in range(group.gpus_per_server)
            ]
        first_server += group.count
    return Cluster(tuple(gpus), _network(section.network))


def _group_path(section: ClusterSection, position: int) -> Where:
    """Return where a group stands in the document."""
    return ("cluster",) if section.groups is None else ("cluster", "groups", position)


def _gpu(group: GroupSection, server: int, place: int) -> GPU:
    gpu = group.gpu
    return GPU(
        f"s{server}/g{place}",
        server,
        gpu.kind,
        gpu.memory_bytes,
        gpu.load_bandwidth,
        gpu.slots or (),
        gpu.load_overhead,
        Availability.of(group.available),
    )


def _network(section: NetworkSection | None) -> Network:
    """Return the network; without a section there is one GPU and nothing to transfer."""
    if section is None:
        return Network(Link(), Link())
    between = Link(section.latency, section.bandwidth)
    inside = section.within_server
    if inside is None:
        return Network(between, between, section.staged)
    within = Link(
        between.latency_us if inside.latency is None else inside.latency,
        between.bandwidth if inside.bandwidth is None else inside.bandwidth,
    )
    return Network(between, within, section.staged)
