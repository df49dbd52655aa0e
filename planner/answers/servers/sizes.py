"""A scenario on other numbers of servers: the same jobs, models and limits, each group cut or continued."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from models import Instance, InstanceError
from models.errors import QuestionError
from models.scenario import InputError, Scenario, ScenarioDocument
from models.scenario.document import ClusterSection, PlaceSection
from models.scenario.errors import FieldError
from models.scenario.hardware import build_cluster
from models.scenario.places import build_initial, build_restrictions

_GROUP = re.compile(r"group\s+(\d+)")
_SERVER = re.compile(r"s(\d+)(/g\d+)?")

Mix = tuple[int, ...]
"""How many servers of each group."""


def is_within(small: Mix, large: Mix) -> bool:
    """Say whether a mix has no more servers of any group than another."""
    return all(a <= b for a, b in zip(small, large, strict=True))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Builds a scenario on any mix of its groups of servers.

    Parameters
    ----------
    scenario
        With the jobs, at any size.
    any_gone
        Whether any server may be gone, and not the last of its group first.
    """

    scenario: Scenario
    any_gone: bool = False

    def __post_init__(self) -> None:
        document = self.scenario.document
        self.scenario.instance.require_always_available("the question of how many servers")
        if len(self.counts) == 1 and not self.any_gone:
            return
        named = [place for entry in _entries(document) for place in entry.on]
        named += [entry.gpu for entry in document.options.initial_residency]
        if any(_GROUP.fullmatch(place) is None for place in named):
            anew = "which other numbers of servers in several groups would number anew"
            problem = f"names servers, {'of which any may be gone' if self.any_gone else anew}"
            raise InputError(self.scenario.source.file, None, "restrictions or options", f"{problem}; name groups")

    @property
    def counts(self) -> Mix:
        """Servers of each group in the scenario itself."""
        return tuple(group.count for group in self.scenario.document.cluster.server_groups)

    @property
    def gpus_per_server(self) -> Mix:
        """GPUs of a server of each group."""
        return tuple(group.gpus_per_server for group in self.scenario.document.cluster.server_groups)

    @property
    def prices(self) -> tuple[Fraction, ...] | None:
        """Price of a server of each group for an hour; None unless there are several groups with prices.

        Raises
        ------
        QuestionError
            If some of several groups have no price.
        """
        groups = self.scenario.document.cluster.server_groups
        if len(groups) == 1:
            return None
        prices = [group.price_per_hour for group in groups]
        if any(price is None for price in prices):
            raise QuestionError(f"{self.scenario.source.file}: every one of several groups needs a price_per_hour here")
        return tuple(Fraction(price or 0) for price in prices)

    def at(self, mix: Mix) -> Scenario:
        """Return the scenario on a mix.

        Raises
        ------
        InstanceError
            If some task can run nowhere there.
        """
        if sum(mix) == 0:
            raise InstanceError("there is no server")
        if mix == self.counts:
            return self.scenario
        self._refuse_missing_network(mix)
        document = self._document(mix)
        try:
            cluster = build_cluster(document.cluster)
            initial = build_initial(document, cluster)
        except FieldError as error:
            raise self.scenario.source.error(error.where, error.problem) from None
        try:
            restrictions = build_restrictions(document, cluster)
        except FieldError as error:  # its names were known at the scenario's own size: here they leave nothing
            raise InstanceError(f"a restriction {error.problem.partition(';')[0]}") from None
        old, servers = self.scenario.instance, sum(mix)
        # An ingress only names who plans the job online: a server that is not there leaves the choice open.
        jobs = old.jobs
        if any(job.ingress is not None and job.ingress >= servers for job in jobs):
            jobs = tuple(replace(job, ingress=None) if (job.ingress or 0) >= servers else job for job in jobs)
        instance = Instance(cluster, old.models, jobs, old.overlap_loads, initial, restrictions, old.catalogue)
        groups = document.cluster.server_groups
        prices = tuple(group.price_per_hour for group in groups for _ in range(group.count))
        return replace(self.scenario, instance=instance, document=document, prices_per_hour=prices)

    def _refuse_missing_network(self, mix: Mix) -> None:
        gpus = sum(count * per for count, per in zip(mix, self.gpus_per_server, strict=True))
        if gpus > 1 and self.scenario.document.cluster.network is None:
            problem = "key 'network' is missing; needed to ask about several GPUs"
            raise InputError(self.scenario.source.file, None, "cluster", problem)

    def _document(self, mix: Mix) -> ScenarioDocument:
        document = self.scenario.document
        initial = [entry for entry in document.options.initial_residency if _kept(entry.gpu, mix, alone=len(mix) == 1)]
        return document.model_copy(
            update={
                "cluster": _cluster(document.cluster, mix),
                "restrictions": document.restrictions.model_copy(
                    update={
                        "pin": tuple(_pinned(entry, mix) for entry in document.restrictions.pin),
                        "forbid": tuple(
                            entry for entry in (_cut(e, mix) for e in document.restrictions.forbid) if entry.on
                        ),
                    }
                ),
                "options": document.options.model_copy(update={"initial_residency": tuple(initial)}),
            }
        )


def _entries(document: ScenarioDocument) -> Sequence[PlaceSection]:
    return (*document.restrictions.pin, *document.restrictions.forbid)


def _cluster(section: ClusterSection, mix: Mix) -> ClusterSection:
    if section.groups is None:
        return section.model_copy(update={"servers": mix[0]})
    groups = [
        group.model_copy(update={"count": count}) for group, count in zip(section.groups, mix, strict=True) if count
    ]
    return section.model_copy(update={"groups": tuple(groups)})


def _pinned(entry: PlaceSection, mix: Mix) -> PlaceSection:
    """Return a pin with the places that the mix has; a model that may be nowhere rules the mix out."""
    cut = _cut(entry, mix)
    if not cut.on:
        raise InstanceError(f"the places that {entry.model or entry.workflow} is pinned to are not there")
    return cut


def _cut(entry: PlaceSection, mix: Mix) -> PlaceSection:
    places: list[str] = []
    for place in entry.on:
        group = _GROUP.fullmatch(place)
        if group is None:
            places += [place] if _kept(place, mix, alone=True) else []
        elif mix[int(group[1]) - 1]:
            position = sum(count > 0 for count in mix[: int(group[1])])
            places.append(f"group {position}")
    update: dict[str, Any] = {"on": tuple(places)}
    return entry.model_copy(update=update)


def _kept(place: str, mix: Mix, alone: bool) -> bool:
    """Say whether a named server or GPU is there; servers keep their names where there is one group."""
    server = _SERVER.fullmatch(place)
    return alone and server is not None and int(server[1]) < mix[0]
