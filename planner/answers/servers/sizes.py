"""A scenario on other numbers of servers: the same jobs, models and limits, each group cut or continued."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from truenorth.models import Instance, InstanceError, Job
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, Scenario, ScenarioDocument
from truenorth.models.scenario.document import ClusterSection, PlaceSection
from truenorth.models.scenario.errors import FieldError
from truenorth.models.scenario.hardware import build_cluster, build_initial, build_restrictions
from truenorth.planner.answers.servers.taken import runnable, without_idle_parts

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
        if self.any_gone and any(map(_is_bound, self.scenario.instance.jobs)):
            problem = "has input bytes at the ingress that a job names, and any server may be gone; name no ingress"
            raise InputError(self.scenario.source.file, None, "workload", problem)
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
    def grouped(self) -> bool:
        """Whether servers are listed in groups, whose counts are the most that there may be."""
        return self.scenario.document.cluster.groups is not None

    @property
    def gpus_per_server(self) -> Mix:
        """GPUs of a server of each group."""
        return tuple(group.gpus_per_server for group in self.scenario.document.cluster.server_groups)

    @property
    def prices(self) -> tuple[Fraction, ...] | None:
        """Price of a server of each group for an hour; None if the one group there is has none.

        Raises
        ------
        QuestionError
            If some of several groups have no price.
        """
        prices = [group.price_per_hour for group in self.scenario.document.cluster.server_groups]
        if prices == [None]:
            return None
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
        old, document = self.scenario.instance, self._document(mix)
        try:
            cluster = build_cluster(document.cluster)
            initial = build_initial(document, cluster)
        except FieldError as error:
            raise self.scenario.source.error(error.where, error.problem) from None
        try:
            restrictions = build_restrictions(document, cluster)
        except FieldError as error:  # its names were known at the scenario's own size: here they leave nothing
            raise InstanceError(f"a restriction {error.problem.partition(';')[0]}") from None
        models, catalogue = old.models, old.catalogue
        if not all(mix) or _entries(self.scenario.document):  # what no job takes may need what is not there
            models = tuple(model for model in models if model.name in document.models)
            catalogue = runnable(catalogue, cluster, models, restrictions)
        instance = Instance(cluster, models, self._jobs(mix), old.overlap_loads, initial, restrictions, catalogue)
        groups = document.cluster.server_groups
        prices = tuple(group.price_per_hour for group in groups for _ in range(group.count))
        return replace(self.scenario, instance=instance, document=document, prices_per_hour=prices)

    def _jobs(self, mix: Mix) -> tuple[Job, ...]:
        """Return the jobs with each ingress at the number that its server has in a mix.

        Who plans a job online is left open where that server is not there. Its input, if it has any, lies there alone:
        such a job needs the server, so that no smaller mix serves what a larger one does not.

        Raises
        ------
        InstanceError
            If the input of a job lies at a server that is not there.
        """
        jobs, number = self.scenario.instance.jobs, self._numbers(mix)
        if all(job.ingress is None or number[job.ingress] == job.ingress for job in jobs):
            return jobs
        for job in jobs:
            if job.ingress is not None and number[job.ingress] is None and _is_bound(job):
                raise InstanceError(f"the input of a job of {job.workflow.name} lies at s{job.ingress}, not there")
        return tuple(job if job.ingress is None else replace(job, ingress=number[job.ingress]) for job in jobs)

    def _numbers(self, mix: Mix) -> list[int | None]:
        """Return which server of a mix each server of the scenario is; None if it is not there."""
        found, first = list[int | None](), 0
        for count, own in zip(mix, self.counts, strict=True):
            found += [first + place if place < count else None for place in range(own)]
            first += count
        return found

    def _refuse_missing_network(self, mix: Mix) -> None:
        gpus = sum(count * per for count, per in zip(mix, self.gpus_per_server, strict=True))
        if gpus > 1 and self.scenario.document.cluster.network is None:
            problem = "key 'network' is missing; needed to ask about several GPUs"
            raise InputError(self.scenario.source.file, None, "cluster", problem)

    def _document(self, mix: Mix) -> ScenarioDocument:
        document = self.scenario.document
        cluster = _cluster(document.cluster, mix)
        if not is_within(self.counts, mix):
            document = without_idle_parts(document, build_cluster(cluster), self.scenario.instance.jobs)
        initial = [entry for entry in document.options.initial_residency if _kept(entry.gpu, mix, alone=len(mix) == 1)]
        return document.model_copy(
            update={
                "cluster": cluster,
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


def _is_bound(job: Job) -> bool:
    """Say whether the input of a job lies at one server."""
    return job.ingress is not None and any(task.input_bytes for task in job.workflow.tasks)


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
