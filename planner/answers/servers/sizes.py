"""A scenario on other numbers of servers, and which of them are asked about, in what order.

The jobs, models and limits are the same; each group is cut or continued. A mix that lacks some group may be unable to
serve what no job takes, and is not to be blamed for that: models, workflows and branches that nobody asks for are left
out of a scenario where nothing can hold or run them, and restrictions on them, so that the mix answers for its jobs
alone and its scenario, written down, can be read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, pairwise, product
from math import prod
from typing import Any, NamedTuple

from truenorth.models import GPU, Cluster, Instance, InstanceError, Job, MLModel, Restrictions, ServiceLevels, Workflow
from truenorth.models.branches import branch_of
from truenorth.models.cluster import MICROSECONDS_PER_SECOND, Interval
from truenorth.models.errors import QuestionError
from truenorth.models.features import HELD, LOADED, MOLDABLE, Feature, require
from truenorth.models.places import Places
from truenorth.models.scenario import InputError, Scenario, ScenarioDocument
from truenorth.models.scenario.build import build_cluster, build_initial, build_restrictions
from truenorth.models.scenario.disaggregated import DECODE, PREFILL
from truenorth.models.scenario.document import ClusterSection, PlaceSection
from truenorth.models.scenario.errors import FieldError
from truenorth.models.streams import Tokens
from truenorth.models.workload import sizes_of
from truenorth.planner.answers.servers.layouts import Pool, with_layouts
from truenorth.planner.answers.servers.outages import Outages
from truenorth.planner.answers.servers.record import Size
from truenorth.solvers.budget import Budget

_DECIMALS = 6


def taken_models(jobs: Iterable[Job]) -> frozenset[str]:
    """Return the names of the models that jobs need."""
    workflows = {id(job.workflow): job.workflow for job in jobs}
    return frozenset(name for workflow in workflows.values() for task in workflow.tasks for name in task.models)


def without_idle_parts(document: ScenarioDocument, cluster: Cluster, jobs: Sequence[Job]) -> ScenarioDocument:
    """Return a document without models that no job needs and no GPU holds, and without restrictions on the idle."""
    needed, asked = taken_models(jobs), {job.workflow.name for job in jobs}
    gpus = set(cluster.gpus)
    models = {
        name: section
        for name, section in document.models.items()
        if name in needed or any(gpu.fits([section.weights]) for gpu in gpus)
    }
    bound = {
        key: tuple(entry for entry in entries if entry.model in needed or entry.workflow in asked)
        for key, entries in (("pin", document.restrictions.pin), ("forbid", document.restrictions.forbid))
    }
    replicas = {name: most for name, most in document.restrictions.max_replicas.items() if name in models}
    restrictions = document.restrictions.model_copy(update=bound | {"max_replicas": replicas})
    return document.model_copy(update={"models": models, "restrictions": restrictions})


def runnable(
    catalogue: Iterable[Workflow], cluster: Cluster, models: tuple[MLModel, ...], restrictions: Restrictions
) -> tuple[Workflow, ...]:
    """Return the workflows of which every task can run on some GPU."""

    def run(workflows: Iterable[Workflow]) -> bool:
        try:
            Instance(cluster, models, tuple(map(_least_job, workflows)), restrictions=restrictions)
        except InstanceError:
            return False
        return True

    every = tuple(catalogue)
    return every if run(every) else tuple(workflow for workflow in every if run([workflow]))


def _least_job(workflow: Workflow) -> Job:
    """Return the job of a workflow that asks for least: one token each where only a job says how many."""
    unsaid = [task.name for task in workflow.tasks if task.stream is not None and task.tokens is None]
    return Job(workflow, 0, tokens=dict.fromkeys(unsaid, Tokens(1, 1, 1)) or None)


def leave_out_idle(data: dict[str, Any], instance: Instance, models: Collection[str]) -> None:
    """Leave out of a scenario's data what an instance has not: models, workflows that no job takes, their branches.

    Parameters
    ----------
    data
        With the jobs of the instance in ``workload``; it is changed.
    models
        The names of those that stay.
    """
    if data.get("models"):
        data["models"] = {name: model for name, model in data["models"].items() if name in models}
    runs = {workflow.name for workflow in instance.catalogue}
    takers: dict[str, set[int]] = {}
    for job in instance.jobs:
        takers.setdefault(job.workflow.name, set()).add(branch_of(job.workflow))
    cut = {name for name in takers if name not in runs}
    data["workflows"] = {
        name: _without_branches(flow, sorted(takers[name])) if name in cut else flow
        for name, flow in data["workflows"].items()
        if name in runs or name in takers
    }
    for job in data["workload"]["jobs"]:
        if job["workflow"] in cut:
            kept = sorted(takers[job["workflow"]])
            branch = kept.index(job.pop("path", 0))
            job.update({"path": branch} if len(kept) > 1 else {})


def _without_branches(workflow: Mapping[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    """Return a workflow with some of its branches; what they may have been chosen with is shared among them."""
    branches = workflow["branches"]
    gone = {task for index, branch in enumerate(branches) if index not in kept for task in branch["tasks"]}
    tasks = {name: _without_inputs(task, gone) for name, task in workflow["tasks"].items() if name not in gone}
    if len(kept) == 1:
        return {"tasks": tasks}
    chances = [Fraction(branches[index]["probability"]) for index in kept]
    shares = [round(chance / sum(chances), _DECIMALS) for chance in chances[1:]]
    shares.insert(0, 1 - sum(shares, Fraction(0)))
    written = [{**branches[index], "probability": float(share)} for index, share in zip(kept, shares, strict=True)]
    return {"tasks": tasks, "branches": written}


def _without_inputs(task: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    after = task.get("after") or []
    if isinstance(after, Mapping):
        return {**task, "after": {name: size for name, size in after.items() if name not in gone}}
    return {**task, "after": [name for name in ([after] if isinstance(after, str) else after) if name not in gone]}


_GROUP = re.compile(r"group\s+(\d+)")
_SERVER = re.compile(r"s(\d+)(/g\d+(-\d+)?)?")

Mix = tuple[int, ...]
"""How many servers of each group."""


def is_within(small: Mix, large: Mix) -> bool:
    """Say whether a mix has no more servers of any group than another."""
    return all(a <= b for a, b in zip(small, large, strict=True))


class EngineSort(NamedTuple):
    """GPUs of a pool that work alone, or engines of so many of them."""

    pool: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Builds a scenario on any mix of its groups of servers.

    Parameters
    ----------
    scenario
        With the jobs, at any size.
        With a group for each layout of a server where its engines are to be chosen.
    any_gone
        Whether any server may be gone, and not the last of its group first.
    split
        Whether groups come in pairs, of prefill and of decode, which share the count of one.

    Attributes
    ----------
    pools
        The groups of servers of one sort, as they follow each other: a group each, or its layouts.
    grouped
        Whether servers are listed in groups, whose counts are the most that there may be.
    sorts
        An engine of each number of GPUs of each pool.
    """

    scenario: Scenario
    any_gone: bool = False
    split: bool = False
    pools: tuple[Pool, ...] = field(init=False)
    grouped: bool = field(init=False)
    sorts: Mapping[EngineSort, GPU] = field(init=False)
    _taken_s: tuple[float, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        grouped = self.scenario.document.cluster.groups is not None
        expanded, pools = with_layouts(self.scenario)
        object.__setattr__(self, "scenario", expanded)
        object.__setattr__(self, "pools", pools)
        object.__setattr__(self, "grouped", grouped)
        sorts: dict[EngineSort, GPU] = {}
        for gpu in self.scenario.instance.cluster.gpus:
            sorts.setdefault(EngineSort(gpu.group, gpu.gpus), gpu)
        object.__setattr__(self, "sorts", sorts)
        if self.split:
            taken_s = tuple(_taken_s(self.scenario.instance, gpu) for gpu in sorts.values())
            object.__setattr__(self, "_taken_s", taken_s)
        document = self.scenario.document
        instance = self.scenario.instance
        # Beside models of runs on several GPUs nothing that no policy serves there.
        supports = LOADED if any(instance.needs) and instance.gangs else HELD | MOLDABLE | {Feature.DEGREES}
        require(instance, "the question of how many servers", supports)
        if self.chooses_engines and document.cluster.away:
            problem = "has servers that are away, whose engines are to be chosen; write engines, or leave away out"
            raise InputError(self.scenario.source.file, None, "cluster.away", problem)
        if instance.gangs:
            self._refuse_with_gangs()
        if self.any_gone and document.cluster.away:
            problem = "has servers that are away at times of their own, and any server may be gone; ask without --spare"
            raise InputError(self.scenario.source.file, None, "cluster.away", problem)
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

    def _refuse_with_gangs(self) -> None:
        """Refuse what is not known to be sound, or true, of runs on several GPUs."""
        problem = ""
        if self.any_gone and self.scenario.instance.template_gpus.max() > min(self.gpus_per_server):
            # Which servers make up aligned places depends on which of them is gone.
            problem = "runs on several servers, any of which may be gone; ask without spare ones"
        elif not isinstance(self.scenario.document.cluster.places, str):
            problem = "listed places; ask with aligned ones, or any"
        if problem:
            problem = f"how many servers are enough for runs on several GPUs is not known with {problem}"
            raise InputError(self.scenario.source.file, None, "cluster", problem)

    def refuse_too_many_places(self, largest: Mix) -> None:
        """Refuse sizes where runs on several GPUs have more places than are listed: that refutes no size.

        Raises
        ------
        InputError
            At the cluster.
        """
        instance = self.scenario.instance
        if not instance.gangs:
            return
        try:
            Places.of(build_cluster(_cluster(self.scenario.document.cluster, largest)), sizes_of(instance.workflows))
        except InstanceError as error:
            problem = f"{error} (asked about are up to {sum(largest)} servers)"
            raise InputError(self.scenario.source.file, None, "cluster", problem) from None

    def with_all_places(self, mix: Mix) -> Mix:
        """Return a mix with as many servers more as it takes to have every sort of place that some size has.

        Runs on several GPUs may be faster where a place of more GPUs, or of another kind, begins to be there: what is
        to hold for every size is asked of this one.
        """
        widest = max(sizes_of(self.scenario.instance.workflows))
        return tuple(max(count, -(-widest // per)) for count, per in zip(mix, self.gpus_per_server, strict=True))

    def at_any_size(self) -> Scenario:
        """Return the scenario on servers on which no run takes longer than on any others.

        Raises
        ------
        InstanceError
            If they have too many places.
        """
        return self.at(self.with_all_places(self.counts)) if self.scenario.instance.gangs else self.scenario

    @property
    def counts(self) -> Mix:
        """Servers of each group in the scenario itself."""
        return tuple(group.count for group in self.scenario.document.cluster.server_groups)

    @property
    def own(self) -> Mix | None:
        """The mix that the scenario itself is; None where engines are to be chosen."""
        return None if self.chooses_engines else self.counts

    @property
    def chooses_engines(self) -> bool:
        """Whether engines are to be chosen."""
        return any(pool.open for pool in self.pools)

    def engines(self, mix: Mix) -> list[int]:
        """Return how many engines of each sort a mix has."""
        found = dict.fromkeys(self.sorts, 0)
        layouts = (layout for pool in self.pools for layout in pool.layouts)
        for count, pool, layout in zip(mix, self.pool_of, layouts, strict=True):
            for size in layout:
                found[EngineSort(pool, size)] += count
        return list(found.values())

    @property
    def gpus_per_server(self) -> Mix:
        """GPUs of a server of each group."""
        return tuple(group.gpus_per_server for group in self.scenario.document.cluster.server_groups)

    @property
    def packed_alike(self) -> bool:
        """Whether it is the same which engines share a server: transfers do not differ, or there are none."""
        network = self.scenario.instance.cluster.network
        tasks = (task for workflow in self.scenario.instance.workflows for task in workflow.tasks)
        return network.within == network.between or not any(task.inputs or task.input_bytes for task in tasks)

    @property
    def one_price(self) -> bool:
        """Whether all servers cost the same: they are of one group, or of both that one was made into."""
        return len(self.pools) == (2 if self.split else 1)

    @property
    def prices(self) -> tuple[Fraction, ...] | None:
        """Price of a server of each group for an hour; None if the one group there is has none.

        Raises
        ------
        QuestionError
            If some of several groups have no price.
        """
        prices = [group.price_per_hour for group in self.scenario.document.cluster.server_groups]
        if self.one_price and None in prices:
            return None
        if any(price is None for price in prices):
            raise QuestionError(f"{self.scenario.source.file}: every one of several groups needs a price_per_hour here")
        return tuple(Fraction(price or 0) for price in prices)

    @property
    def price_per_gpu(self) -> list[Fraction]:
        """Price of a GPU of each pool for an hour, where there are prices."""
        each = dict(zip(self.pool_of, zip(self.prices or (), self.gpus_per_server, strict=False), strict=False))
        return [price / gpus for price, gpus in each.values()]

    @property
    def pool_of(self) -> list[int]:
        """The pool of each group."""
        return [pool.position for pool in self.pools for _ in pool.layouts]

    def weigh(self, weights: Sequence[Fraction], cluster: Cluster, mix: Mix) -> list[Fraction]:
        """Return the weight of each GPU of the cluster of a mix, given those of the sorts of engines."""
        by_sort = dict(zip(self.sorts, weights, strict=True))
        there = [pool for pool, count in zip(self.pool_of, mix, strict=True) if count]
        return [by_sort[EngineSort(there[gpu.group], gpu.gpus)] for gpu in cluster.gpus]

    def of_pools(self, mix: Mix) -> Mix:
        """Return how many servers of each pool a mix has, whatever their engines, and those of its pair with them."""
        shared = 2 if self.split else 1
        own = [pool // shared for pool in self.pool_of]
        return tuple(
            sum(n for n, of in zip(mix, own, strict=True) if of == each.position // shared) for each in self.pools
        )

    def said(self, cluster: Mapping[str, Any], mix: Mix) -> dict[str, Any]:
        """Return the cluster of a scenario's data at a mix, each group with its engines where these were chosen."""
        if not cluster.get("groups") and not self.chooses_engines:
            return {**cluster, "servers": mix[0]}
        alike = {key: value for key, value in cluster.items() if key in ("gpus_per_server", "gpu")}
        written = cluster.get("groups") or [alike]
        layouts = [
            (written[pool.position], layout if pool.open else None) for pool in self.pools for layout in pool.layouts
        ]
        groups = [
            {**group, "count": count, **({} if layout is None else {"engines": list(layout)})}
            for (group, layout), count in zip(layouts, mix, strict=True)
            if count
        ]
        kept = {key: value for key, value in cluster.items() if key not in (*alike, "servers", "groups")}
        return {**kept, "groups": groups}

    def price(self, mix: Mix) -> Fraction | None:
        """Return the price of a mix for an hour; None without prices."""
        prices = self.prices
        if prices is None:
            return None
        return sum((price * count for price, count in zip(prices, mix, strict=True)), Fraction(0))

    def cost(self, mix: Mix) -> Fraction:
        """Return what is to be least: the price of a mix of several groups for an hour, the servers of one."""
        paid = None if self.one_price else self.price(mix)
        return Fraction(sum(mix)) if paid is None else paid

    def rank(self, mix: Mix) -> tuple[Fraction, int]:
        """Return by what a size is better than another: the cheapest, then the fewest servers."""
        return self.cost(mix), sum(mix)

    def order(self, mix: Mix) -> tuple[Fraction, int, float, Mix]:
        """Return what sizes are sorted by: the best first, of equal ones the likeliest to be enough last."""
        return *self.rank(mix), self._throughput(mix), mix

    def likely(self, sizes: Sequence[Mix]) -> list[Mix]:
        """Return of sizes in order the likeliest to be enough of each cost, where prefill is apart; else all."""
        if not self.split:
            return list(sizes)
        return [mix for mix, after in pairwise((*sizes, ())) if not after or self.rank(mix) != self.rank(after)]

    def _throughput(self, mix: Mix) -> float:
        """Return how often per second the engines of prefill, or those of decode if these are slower, do all work."""
        rates = [0.0, 0.0]
        for sort, count, taken_s in zip(self.sorts, self.engines(mix), self._taken_s, strict=bool(self._taken_s)):
            rates[sort.pool % 2] += count / taken_s
        return min(rates)

    def explains(self, mix: Mix) -> tuple[bool, Fraction, int, int]:
        """Return what sizes below a floor are compared by: the dearest says most, of those the one of most groups.

        One that lacks prefill or decode, where these are apart, says least.
        """
        return not self.lacks_a_role(mix), self.cost(mix), sum(map(bool, mix)), -sum(mix)

    def lacks_a_role(self, mix: Mix) -> bool:
        """Say whether prefill is apart from decode, and a mix has no node of one of them."""
        return self.split and len({pool % 2 for pool, count in zip(self.pool_of, mix, strict=True) if count}) < 2

    def loads(self, mix: Mix) -> dict[str, float]:
        """Return about what share of the time until the last arrival prefill and decode take; empty if not apart.

        Above 1 the queue of a role grows until then, whatever the policy.
        """
        until_s = float(self.scenario.instance.job_release_us[-1]) / MICROSECONDS_PER_SECOND
        if not self.split or not until_s:
            return {}
        windows = {PREFILL: 0.0, DECODE: 0.0}  # as a role's nodes do in a second
        for gpu, count, taken_s in zip(self.sorts.values(), self.engines(mix), self._taken_s, strict=True):
            windows[gpu.kind.rpartition(" ")[2]] += count / taken_s
        return {role: 1 / (each * until_s) for role, each in windows.items() if each}

    def size(self, mix: Mix | None) -> Size:
        """Return how many servers, and of priced groups also how many of each and for how much an hour."""
        if self.prices is None and (self.chooses_engines or self.split):
            return Size(None, None) if mix is None else Size(sum(mix), list(mix))
        if self.prices is None:
            return Size(None if mix is None else sum(mix))
        return Size(None, None, None) if mix is None else Size(sum(mix), list(mix), float(self.price(mix) or 0))

    def at(self, mix: Mix) -> Scenario:
        """Return the scenario on a mix.

        Raises
        ------
        InstanceError
            If some task can run nowhere there.
        """
        if sum(mix) == 0:
            raise InstanceError("there is no server")
        if mix == self.own:
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
        # Groups that are there can all run what they ran; checking that workflow by workflow takes time.
        if not all(mix) or _entries(self.scenario.document):  # what no job takes may need what is not there
            models = tuple(model for model in models if model.name in document.models)
            catalogue = runnable(catalogue, cluster, models, restrictions)
        instance = Instance(cluster, models, self._jobs(mix), old.overlap_loads, initial, restrictions, catalogue)
        return replace(self.scenario, instance=instance, document=document)

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
        pinned = tuple(_pinned(entry, mix) for entry in document.restrictions.pin)
        forbidden = tuple(entry for entry in (_cut(each, mix) for each in document.restrictions.forbid) if entry.on)
        restrictions = document.restrictions.model_copy(update={"pin": pinned, "forbid": forbidden})
        options = document.options.model_copy(update={"initial_residency": tuple(initial)})
        return document.model_copy(update={"cluster": cluster, "restrictions": restrictions, "options": options})


def _taken_s(instance: Instance, gpu: GPU) -> float:
    """Return about how long an engine takes for all requests that it can serve: prompts, and steps of full seats."""
    streams, taken_us = instance.streams, 1.0
    if streams is not None:
        stream_of = streams.template[instance.task_template]
        for stream, of in enumerate(streams.classes):
            if (speed := of.speed_on(gpu.kind)) is not None:
                own = stream_of == stream
                decodes = streams.output[own] - (streams.uncached[own] > 0)
                taken_us += speed.prefill_us(int(streams.uncached[own].sum()))
                taken_us += float(decodes.sum()) * speed.tau[-1] / speed.seats
    return taken_us / 1e6


def _is_bound(job: Job) -> bool:
    """Say whether the input of a job lies at one server."""
    return job.ingress is not None and any(task.input_bytes for task in job.workflow.tasks)


def _entries(document: ScenarioDocument) -> Sequence[PlaceSection]:
    return (*document.restrictions.pin, *document.restrictions.forbid)


def _cluster(section: ClusterSection, mix: Mix) -> ClusterSection:
    update: dict[str, Any] = {"away": _away(section, mix)}
    if section.groups is None:
        return section.model_copy(update=update | {"servers": mix[0]})
    groups = [
        group.model_copy(update={"count": count}) for group, count in zip(section.groups, mix, strict=True) if count
    ]
    return section.model_copy(update=update | {"groups": tuple(groups)})


def _away(section: ClusterSection, mix: Mix) -> dict[int, tuple[Interval, ...]]:
    """Return when the servers of a mix are away: those of a group as its servers in the file, in turn over and over.

    Invariant: the servers of a mix are those of every mix that it is within, at the same times.
    Because: when a server is away follows from its group and its place there.
    If wrong: a plan at one size is none at a larger one, and the hunt refutes what is enough.
    """
    found: dict[int, tuple[Interval, ...]] = {}
    first = server = 0
    for group, count in zip(section.server_groups, mix, strict=True):
        for place in range(count):
            away = section.away.get(first + place % group.count)
            found |= {} if away is None else {server: away}
            server += 1
        first += group.count
    return found


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


class Case(NamedTuple):
    """What a policy is simulated on: the servers that are there, and which draw of failures strikes them."""

    mix: Mix
    draw: int | None = None


MOST_MIXES = 20_000
"""More mixes of priced groups than these are not enumerated."""
_HEADROOM, _MORE, _MORE_ENGINES = 2, 8, 2
"""Without a maximum, sizes up to so many times the fluid bound and some more are looked at; fewer more with engines to
choose, of which there are many mixes."""


@dataclass(slots=True)
class Sizing:
    """Which of the sizes is the least that meets the levels.

    Parameters
    ----------
    sizes, levels
        The scenario at any size, and the service levels.
    candidates
        The sizes in question, cheapest first.
    budget
        Time, workers and seed; it is told a few words whenever the work turns to something else.
    spare
        The levels must still be met with any so many servers gone.
    noise
        What policies are told of run times, or what happens in place of them, wherever one is simulated; see
        `planner.answers.uncertain.spec`. Bounds and plans are of the scenario as it stands.
    failures
        The levels must still be met in each of these draws, wherever a policy is simulated.
    """

    sizes: Sizes
    levels: ServiceLevels
    candidates: list[Mix]
    budget: Budget
    spare: int = 0
    noise: str | None = None
    failures: Outages | None = None
    _left: dict[Mix, list[Mix]] = field(default_factory=dict)
    _built: dict[Mix, Scenario | InstanceError] = field(default_factory=dict)

    def scenario(self, mix: Mix) -> Scenario:
        """Return the scenario on a mix, with the levels as its own.

        Raises
        ------
        InstanceError
            If some task can run nowhere there.
        """
        if mix not in self._built:
            try:
                self._built[mix] = replace(self.sizes.at(mix), slo=self.levels)
            except InstanceError as error:
                self._built[mix] = error
        made = self._built[mix]
        if isinstance(made, InstanceError):
            raise made
        return made

    def left_of(self, mix: Mix) -> list[Mix]:
        """Return every mix that is left of one with all that is spare gone: plans serve it if they serve them all."""
        if mix not in self._left:
            self._left[mix] = remainders(mix, self.spare)
        return self._left[mix]

    def cases(self, mix: Mix) -> Iterator[Case]:
        """Yield what a size is simulated in: whole, with any servers gone that are spare, in draws of failures."""
        yield from (Case(left) for gone in range(self.spare + 1) for left in remainders(mix, gone))
        outages = [] if self.failures is None else self.failures.count(mix)
        # In a draw without an outage nothing happens otherwise.
        yield from (Case(mix, draw) for draw, count in enumerate(outages) if count)

    def scenario_in(self, case: Case) -> Scenario:
        """Return the scenario of a case, with the levels as its own.

        Raises
        ------
        InstanceError
            If some task can run nowhere there.
        """
        whole = self.scenario(case.mix)
        if self.failures is None or case.draw is None:
            return whole
        return self.failures.strike(whole, case.mix, case.draw)

    @property
    def left_s(self) -> float:
        """Seconds until time is up; 0 after a stop."""
        return self.budget.left_s


def remainders(mix: Mix, gone: int) -> list[Mix]:
    """Return every mix that may be left of one with so many servers gone, whatever their groups.

    >>> remainders((2, 1), 1), remainders((1, 0), 2)
    ([(1, 1), (2, 0)], [(0, 0)])
    """
    kept = max(0, sum(mix) - gone)
    ranges = (range(max(0, count - gone), count + 1) for count in mix)
    return [left for left in product(*ranges) if sum(left) == kept]


def candidates(sizes: Sizes, most: int | None, least_gpus: int, spare: int = 0) -> list[Mix]:
    """Return the sizes in question, cheapest first: groups up to their counts or `most`, mere servers further.

    Parameters
    ----------
    least_gpus
        A lower bound: sizes with fewer GPUs are left out, except the largest of them, which is refuted by name.

    Raises
    ------
    QuestionError
        If there are too many mixes, or none that leaves a server when all that is spare is gone.
    """
    upto = [pool.count if most is None else most for pool in sizes.pools]
    # Mere servers have no count of their own that would be the most; of groups there are as many as there are.
    if most is None and not sizes.grouped:
        least = -(-least_gpus // sizes.gpus_per_server[0])
        upto = [max(upto[0], _HEADROOM * least + (_MORE_ENGINES if sizes.chooses_engines else _MORE) + spare)]
    alike = sizes.packed_alike
    fleets = [pool.fleets(count, alike, MOST_MIXES) for pool, count in zip(sizes.pools, upto, strict=True)]
    if len(sizes.counts) > 1 and prod(map(len, fleets)) > MOST_MIXES:
        what = "fleets of the servers' engines" if sizes.chooses_engines else "mixes of the groups"
        raise QuestionError(f"there are more than {MOST_MIXES} {what}; allowed are fewer", "most")
    mixes = [mix for parts in product(*fleets) if sum(mix := tuple(chain.from_iterable(parts)))]
    mixes = [mix for mix in mixes if is_within(sizes.of_pools(mix), tuple(upto))] if sizes.split else mixes
    if (largest := max(map(sum, mixes))) <= spare:
        problem = f"{spare} spare servers of at most {largest} leave none; allowed are fewer, or more servers (--max)"
        raise QuestionError(problem, "spare")
    return sorted(mixes, key=sizes.order)
