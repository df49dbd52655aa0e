"""An import with a catalogue: requests by model name become jobs of few workflows, on a group of servers per kind.

What the catalogue knows of a model says how long each request runs on which kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from truenorth.models.cluster import GPU, engine_kind
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario import scenario_from
from truenorth.models.scenario.disaggregated import disaggregated_sections
from truenorth.models.scenario.errors import InputError, Plain, allowed, quote
from truenorth.models.slo import ServiceLevel, ServiceLevels
from truenorth.models.units import gigabytes, gigabytes_per_s, seconds
from truenorth.models.workload import WHOLE, BatchClass, Task, Workflow
from truenorth.planner.inputs.importers.catalogue import CatalogueDocument, CatalogueModel, load_catalogue
from truenorth.planner.inputs.importers.rows import Tally
from truenorth.planner.inputs.importers.streamed import Cache, model_of_each, streamed_workload
from truenorth.planner.inputs.importers.tables import DagJobs, Requests, Texts, TokenRequests
from truenorth.planner.inputs.importers.target import Target, least_jobs, model_names, work_sections
from truenorth.planner.inputs.importers.workload import (
    MEMORY,
    Classes,
    Rounding,
    Workload,
    refuse_more,
    round_up,
    words,
)

_LISTED = 5
_REPLACED = (
    "run times of {models} are the catalogue's, in place of those that the log measured; a catalogue of your own whose "
    "models say neither runtime nor batch nor tokens keeps those of the log"
)
_NETWORK = {"bandwidth": "10 GB/s", "latency": "0 s"}


@dataclass(frozen=True, slots=True)
class _Group:
    """Requests of one model on as many GPUs each: where they stand, and their run times by kind, perhaps memory."""

    model: str
    gpus: int
    rows: Ints
    figures: pd.DataFrame

    def rounded(self, most: int) -> pd.DataFrame:
        """Return the figures rounded up to so many classes."""
        return pd.DataFrame(round_up(self.figures.to_numpy(np.int64), most), columns=self.figures.columns)

    @property
    def label(self) -> str:
        """The name of the group's workflows."""
        return self.model if self.gpus == 1 else f"{self.model} x {self.gpus}"


def match(document: CatalogueDocument, names: Texts) -> dict[str, str]:
    """Return the catalogue's model of each name of a log that it has: by name or alias, else without regard to case."""
    known = {alias: name for name, model in document.models.items() for alias in (name, *model.aliases)}
    lowered: dict[str, set[str]] = {}
    for alias, name in known.items():
        lowered.setdefault(alias.casefold(), set()).add(name)
    found: dict[str, str] = {}
    for text in names:
        alike = lowered.get(text.casefold(), set())
        if text in known or len(alike) == 1:
            found[text] = known.get(text) or next(iter(alike))
    return found


def join(
    document: CatalogueDocument, requests: Requests, release_us: Ints, classes: Classes
) -> tuple[Workload, dict[str, int]]:
    """Return the requests that the catalogue knows as jobs, and how many there are of each model that it does not have.

    There are few workflows: one for each model, class of run time and number of GPUs.

    Raises
    ------
    QuestionError
        If the catalogue has none of the models, or a model's rule needs what the log does not have.
    """
    codes, names = pd.factorize(requests.model)
    known = match(document, names)
    if not known:
        listed = ", ".join(map(quote, names[:5]))
        problem = f"has none of the log's models, such as {listed}; allowed is a catalogue with their names or aliases"
        raise QuestionError(problem, "catalogue")
    ours = sorted(set(known.values()), key=list(document.models).index)
    place = np.array([ours.index(known[name]) if name in known else -1 for name in names], np.int64)[codes]
    kept = np.flatnonzero(place >= 0)
    groups = [group for index, name in enumerate(ours) for group in _groups(name, document, requests, place == index)]
    distinct = [len(group.figures.drop_duplicates()) for group in groups]
    most = classes.per_group(sum(distinct), len(groups))
    figures = [group.rounded(most) if most else group.figures for group in groups]
    rounding = Rounding.of([(group.figures, made) for group, made in zip(groups, figures, strict=True)])
    workflow = np.full(len(codes), -1, np.int64)
    workflows: list[Workflow] = []
    for group, made in zip(groups, figures, strict=True):
        number, tables = _number_distinct(made)
        workflow[group.rows] = number + len(workflows)
        workflows += _workflows(group, document.models[group.model], tables)
    refuse_more(len(workflows))
    unmatched = {name: int(count) for name, count in zip(names, np.bincount(codes), strict=True) if name not in known}
    times = words(most if rounding else 0, sum(distinct))
    replaced = [name for name in ours if requests.timed and document.models[name].knows_times]
    if replaced:
        times = f"run times of {len(replaced)} of {len(ours)} models are the catalogue's, not the log's; {times}"
    mapping = f"{times}; {len(ours)} model{'s' * (len(ours) > 1)} of the catalogue"
    deadline_us = None if requests.deadline_us is None else requests.deadline_us[kept]
    weight = None if requests.weight is None else requests.weight[kept]
    line = None if requests.line is None else requests.line[kept]
    of_each = workflow[kept], release_us[kept], deadline_us
    joined = Workload(tuple(workflows), *of_each, mapping, weight, rounding, line=line)
    return joined, unmatched


def _groups(name: str, document: CatalogueDocument, requests: Requests, ours: NDArray[np.bool_]) -> Iterator[_Group]:
    """Yield the requests of a model by their number of GPUs. Shape of `ours`: [requests]."""
    gpus = np.ones(len(ours), np.int64) if requests.gpus is None else requests.gpus
    for wide in np.unique(gpus[ours]).tolist():
        rows = np.flatnonzero(ours & (gpus == wide))
        figures = _times(name, document, requests, rows)
        if requests.memory_bytes is not None and requests.memory_bytes.any():
            if document.models[name].batch is not None:  # its requests would no longer be alike
                held = f"{name} has batches, whose requests hold equally much"
                raise QuestionError(f"{held}; allowed is its memory in the catalogue alone", "catalogue")
            figures[MEMORY] = requests.memory_bytes[rows]
        yield _Group(name, wide, rows, pd.DataFrame(figures))


def _times(name: str, document: CatalogueDocument, requests: Requests, rows: Ints) -> dict[str, Ints]:
    """Return the run time of each request on each kind. Shape [rows] each.

    Raises
    ------
    QuestionError
        If the log lacks tokens or run times.
    """
    section = document.models[name]
    if section.stream is not None:
        problem = f"{name} is served in a stream, by tokens; allowed is truenorth import tokens, which reads such logs"
        raise QuestionError(problem, "catalogue")
    alike = section.runtime or {kind: by_size[1] for kind, by_size in (section.batch or {}).items()}
    if alike:
        return {kind: np.full(len(rows), us, np.int64) for kind, us in alike.items()}
    if section.tokens is not None:
        if requests.tokens_in is None or requests.tokens_out is None:
            problem = (
                f"{name} has rates per token, but the log's tokens are not read; allowed is a log with both columns"
            )
            raise QuestionError(problem, "catalogue")
        into, out = requests.tokens_in[rows], requests.tokens_out[rows]
        return {
            kind: np.maximum(rate.start + rate.input * into + rate.output * out, 1)
            for kind, rate in section.tokens.items()
        }
    if requests.by_kind:
        unknown = [kind for kind in requests.by_kind if kind not in document.kinds]
        if unknown:
            problem = f"has no kind {quote(unknown[0])} of the log; allowed are {', '.join(document.kinds)}"
            raise QuestionError(problem, "catalogue")
        return {kind: column[rows] for kind, column in requests.by_kind.items()}
    if not requests.timed:
        problem = (
            f"{name} has no run times, nor has the log; allowed are a column of run times, or runtime, batch or tokens"
        )
        raise QuestionError(problem, "catalogue")
    factors = section.factor or {kind: known.factor for kind, known in document.kinds.items()}
    own = requests.runtime_us[rows].astype(np.float64)
    return {kind: np.maximum(np.rint(own * float(by)), 1).astype(np.int64) for kind, by in factors.items()}


def _number_distinct(figures: pd.DataFrame) -> tuple[Ints, list[dict[str, int]]]:
    """Return which of the distinct rows of a table each row is, and those, in order."""
    grouped = figures.groupby(list(figures.columns), sort=True)
    distinct = grouped.size().index.to_frame(index=False).to_dict("records")
    return np.asarray(grouped.ngroup(), np.int64), [{str(key): int(of) for key, of in row.items()} for row in distinct]


def _workflows(group: _Group, section: CatalogueModel, distinct: Sequence[dict[str, int]]) -> Iterator[Workflow]:
    """Yield workflows of equal tasks side by side, one per GPU: one workflow for each distinct figures of a group."""
    steps = ["run"] if group.gpus == 1 else [f"run{index}" for index in range(group.gpus)]
    for number, runtime in enumerate(distinct, start=1):
        label = group.label if len(distinct) == 1 else f"{group.label} {number} of {len(distinct)}"
        demand = ((group.model,), section.share, runtime.pop(MEMORY, section.memory))
        if section.batch is not None:
            batch = BatchClass(label, section.batch, *demand)
            yield Workflow(label, tuple(Task.of_class(step, batch) for step in steps))
        else:
            models, share, memory = demand
            yield Workflow(label, tuple(Task(step, runtime, models, (), share, memory) for step in steps))


@dataclass(frozen=True, slots=True)
class Catalogued(Target):
    """A catalogue that a log is joined with.

    Parameters
    ----------
    document, file
        The catalogue and the name of its file.
    unmatched
        Filled by `workload`: models of the log that it does not have, and how many requests each has.
    """

    document: CatalogueDocument
    file: str
    unmatched: dict[str, int] = field(default_factory=dict, compare=False)

    @classmethod
    def load(cls, path: Path) -> Catalogued:
        """Return the catalogue of a file, or of the package.

        Raises
        ------
        InputError
            If it is none.
        """
        return cls(*load_catalogue(path))

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return sum(kind.count * kind.gpus_per_server for kind in self.document.kinds.values())

    @property
    def words(self) -> str:
        """The cluster in words."""
        groups = [
            f"{section.count} {engine_kind(section.gpus_per_server, kind)}"
            + ("" if section.price_per_hour is None else f" at {float(section.price_per_hour):g} per hour")
            for kind, section in self.document.kinds.items()
        ]
        return f"{', '.join(groups)}; models, kinds and prices of {self.file}"

    def load_us(self, model: str) -> int:
        """Return how long a model takes to load where that is quickest."""
        weights = self.document.models[model].weights
        gpus = [
            GPU("s0/g0", 0, kind, known.memory, known.load_bandwidth, load_overhead_us=known.load_overhead)
            for kind, known in self.document.kinds.items()
        ]
        return min(gpu.load_us(weights) for gpu in gpus)

    def workload(
        self, found: Requests | DagJobs, rows: Ints, release_us: Ints, classes: Classes, tally: Tally
    ) -> Workload:
        """Return the requests that the catalogue knows as jobs; the others are counted by model.

        Raises
        ------
        QuestionError
            If the log is of whole jobs, or as `join` says.
        """
        if isinstance(found, DagJobs):
            raise QuestionError("joins requests by model, and this log has whole jobs; allowed is without", "catalogue")
        if found.share is not None and (found.batch_us or (found.share < WHOLE).any()):
            problem = "brings shares and batches; allowed is a log without these columns"
            raise QuestionError(problem, "catalogue")
        made, unmatched = join(self.document, found.at(rows), release_us, classes)
        self.unmatched.clear()
        self.unmatched.update(unmatched)
        for model, count in unmatched.items():
            tally.left_out[f"of {model[:60]}, which the catalogue does not have"] += count
        tally.warnings += self._dropped(len(rows))
        replaced = [name for name in model_names(made) if found.timed and self.document.models[name].knows_times]
        if replaced:
            tally.warnings.append(_REPLACED.format(models=", ".join(replaced[:5]) + ", ..." * (len(replaced) > 5)))
        tally.notes += [*self._shared(made), *self._unasked(made)]
        return made

    def streamed(self, found: TokenRequests, rows: Ints, release_us: Ints, cache: Cache, tally: Tally) -> Workload:
        """Return the requests for which the catalogue has a stream as jobs of it; the others are counted by model.

        Raises
        ------
        QuestionError, InputError
            As `model_of_each` and `streamed_workload` say.
        """
        asked = found.at(rows)
        model = model_of_each(self.document, asked, match(self.document, np.unique(asked.model)), tally)
        missing = pd.Series(asked.model[model == ""]).value_counts()
        self.unmatched.clear()
        self.unmatched.update({str(name): int(count) for name, count in missing.items()})
        tally.warnings += self._dropped(len(rows))
        kept = np.flatnonzero(model != "")
        made = streamed_workload(self.document, asked.at(kept), model[kept], release_us[kept], cache, tally)
        tally.notes += self._unasked(made)
        return made

    def _dropped(self, total: int) -> list[str]:
        """Return how many requests are left out since the catalogue has no such model, and names near theirs."""
        if not self.unmatched:
            return []
        models = self.document.models.items()
        names = {alias.casefold(): alias for name, model in models for alias in (name, *model.aliases)}
        most = sorted(self.unmatched, key=self.unmatched.__getitem__, reverse=True)
        listed = []
        for name in most[:_LISTED]:
            near = get_close_matches(name.casefold(), names, n=1, cutoff=0.5)
            listed.append(quote(name) + "".join(f" (near: {names[other]})" for other in near))
        more = f" and {len(most) - _LISTED:,} more" if len(most) > _LISTED else ""
        dropped = f"{sum(self.unmatched.values()):,} of {total:,} requests are left out, since {self.file} has no model"
        return [f"{dropped} {', '.join(listed)}{more}; an alias of a model there takes them in"]

    def content(self, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the scenario file."""
        document = self.document
        content = {
            "cluster": {"groups": [self._group(kind) for kind in document.kinds], "network": self._network()},
            "models": {
                model: {"weights": gigabytes(document.models[model].weights)} for model in model_names(workload)
            },
            **work_sections(workload),
            "workload": arrivals,
            **self._resident(workload),
            **self._levels(workload),
        }
        return _split(content, workload) if workload.split else content

    def _resident(self, workload: Workload) -> dict[str, Any]:
        """Return the section of options, if models are on all GPUs from the start."""
        there = [model for model in model_names(workload) if self.document.models[model].resident]
        held = [known.gpus_per_server for known in self.document.kinds.values() for _ in range(known.count)]
        gpus = [f"s{server}/g{place}" for server, count in enumerate(held) for place in range(count)]
        initial = [{"gpu": gpu, "model": model} for gpu in gpus for model in there]
        return {"options": {"initial_residency": initial}} if initial else {}

    def _levels(self, workload: Workload) -> dict[str, Any]:
        """Return the section of service levels; those of a model are over every workflow that was made of it.

        Raises
        ------
        InputError
            At a level over what is neither a model nor a workflow.
        """
        names = {workflow.name for workflow in workload.workflows}
        for level in self.document.slo or ():
            over, known = level.workflow, {**self.document.models, **dict.fromkeys(sorted(names))}
            if over is not None and over not in self.document.models and not any(map(level.names, names)):
                problem = (
                    f"the level '{level}' is over {quote(over)}, no model of the catalogue and no workflow of the log"
                )
                raise InputError(self.file, None, "slo", f"{problem}; {allowed(over, known)}")
        asked = [level for level in self.document.slo or () if level not in self._vacuous(workload)]
        levels = tuple(
            replace(level, workflow=f"{level.workflow} *")
            if level.workflow in self.document.models and level.workflow not in names
            else level
            for level in asked
        )
        return {"slo": ServiceLevels(levels).written} if levels else {}

    def _vacuous(self, workload: Workload) -> list[ServiceLevel]:
        """Return levels of models that no request is for."""
        used = model_names(workload)
        unused = [model for model in self.document.models if model not in used]
        return [level for level in self.document.slo or () if level.workflow in unused]

    def _unasked(self, workload: Workload) -> list[str]:
        """Return which levels are left out."""
        left_out = self._vacuous(workload)
        return [f"no request is of a model of the level '{level}', which is left out" for level in left_out]

    def _shared(self, workload: Workload) -> list[str]:
        """Return what is assumed of models whose requests take shares of a GPU."""
        several = {model: WHOLE // self.document.models[model].share for model in model_names(workload)}
        return [
            f"run times of {model} are taken to hold beside {count - 1} more of its requests, which its share lets run"
            for model, count in several.items()
            if count > 1
        ]

    def _group(self, kind: str) -> dict[str, Any]:
        known = self.document.kinds[kind]
        gpu = {
            "kind": kind,
            "memory": gigabytes(known.memory),
            "load_bandwidth": gigabytes_per_s(known.load_bandwidth),
            "load_overhead": seconds(known.load_overhead),
        }
        price = known.price_per_hour
        several = {} if known.gpus_per_server == 1 else {"gpus_per_server": known.gpus_per_server}
        return {"count": known.count, **several, "gpu": gpu} | (
            {} if price is None else {"price_per_hour": Plain(f"{float(price):.12g}")}
        )

    def _network(self) -> Mapping[str, Any]:
        section = self.document.network
        if section is None:
            return _NETWORK
        network: dict[str, Any] = {
            "bandwidth": gigabytes_per_s(section.bandwidth),
            "latency": seconds(section.latency),
            "staged": section.staged,
        }
        inside = section.within_server
        if inside is not None:
            given = {
                "bandwidth": None if inside.bandwidth is None else gigabytes_per_s(inside.bandwidth),
                "latency": None if inside.latency is None else seconds(inside.latency),
            }
            network["within_server"] = {key: value for key, value in given.items() if value is not None}
        return network


def _split(content: dict[str, Any], workload: Workload) -> dict[str, Any]:
    """Return the content of a scenario file with prefill apart from decode."""
    if workload.served is None:
        raise ValueError("jobs that are no requests have no prefill")
    several = pd.Series(workload.served.tokens[:, 2] > 1).groupby(workload.workflow).agg(["sum", "size"])
    shares = {
        workload.workflows[at].name: Fraction(int(some), int(all_)) for at, some, all_ in several.itertuples(name=None)
    }
    sections = disaggregated_sections(scenario_from(content | {"workload": {"jobs": least_jobs(workload)}}), shares)
    return sections | {"workload": content["workload"]}
