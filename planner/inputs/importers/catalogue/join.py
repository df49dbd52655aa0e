"""Requests of a log by model name: what the catalogue knows of the model says how long each runs on which kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from models.errors import QuestionError
from models.instance import Ints
from models.scenario.errors import quote
from models.workload import BatchClass, Task, Workflow
from planner.inputs.importers.catalogue.document import CatalogueDocument, CatalogueModel
from planner.inputs.importers.classes import MEMORY, Classes, Rounding, refuse_more, round_up, words
from planner.inputs.importers.tables import Requests, Texts


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


@dataclass(frozen=True, slots=True)
class Joined:
    """Requests that the catalogue knows, as jobs.

    Parameters
    ----------
    kept
        Positions among the requests asked about. Shape [jobs].
    workflow
        Index of each one's workflow. Shape [jobs].
    unmatched
        Models of the log that the catalogue does not have, and their requests.
    """

    workflows: tuple[Workflow, ...]
    kept: Ints
    workflow: Ints
    unmatched: Mapping[str, int]
    mapping: str
    rounding: Rounding | None


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


def join(document: CatalogueDocument, requests: Requests, classes: Classes) -> Joined:
    """Return requests as jobs of few workflows: one for each model, class of run time and number of GPUs.

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
    mapping = f"{words(most if rounding else 0, sum(distinct))}; {_models(len(ours))} of the catalogue"
    return Joined(tuple(workflows), kept.astype(np.int64), workflow[kept], unmatched, mapping, rounding)


def _models(count: int) -> str:
    return "1 model" if count == 1 else f"{count} models"


def _groups(name: str, document: CatalogueDocument, requests: Requests, ours: NDArray[np.bool_]) -> Iterator[_Group]:
    """Yield the requests of a model by their number of GPUs. Shape of `ours`: [requests]."""
    gpus = np.ones(len(ours), np.int64) if requests.gpus is None else requests.gpus
    for wide in np.unique(gpus[ours]).tolist():
        rows = np.flatnonzero(ours & (gpus == wide))
        figures = _times(name, document, requests, rows)
        if requests.serving is not None and requests.serving.memory_bytes.any():
            _refuse_batch(name, document)
            figures[MEMORY] = requests.serving.memory_bytes[rows]
        yield _Group(name, wide, rows, pd.DataFrame(figures))


def _refuse_batch(name: str, document: CatalogueDocument) -> None:
    """Refuse memory per request for a model with batches, whose requests would no longer be alike."""
    if document.models[name].batch is not None:
        problem = f"{name} has batches, whose requests hold equally much; allowed is its memory in the catalogue alone"
        raise QuestionError(problem, "catalogue")


def _times(name: str, document: CatalogueDocument, requests: Requests, rows: Ints) -> dict[str, Ints]:
    """Return the run time of each request on each kind. Shape [rows] each.

    Raises
    ------
    QuestionError
        If the log lacks tokens or run times.
    """
    section = document.models[name]
    alike = section.runtime or {kind: by_size[1] for kind, by_size in (section.batch or {}).items()}
    if alike:
        return {kind: np.full(len(rows), us, np.int64) for kind, us in alike.items()}
    if section.tokens is not None:
        if requests.tokens is None:
            problem = (
                f"{name} has rates per token, but the log's tokens are not read; allowed is a log with both columns"
            )
            raise QuestionError(problem, "catalogue")
        into, out = (column[rows] for column in requests.tokens)
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
