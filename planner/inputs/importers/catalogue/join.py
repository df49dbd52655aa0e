"""Requests of a log by model name: what the catalogue knows of the model says how long each runs on which kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from models.errors import QuestionError
from models.instance import Ints
from models.scenario.errors import quote
from models.workload import ANY_KIND, BatchClass, Task, Workflow
from planner.inputs.importers.catalogue.document import CatalogueDocument, CatalogueModel
from planner.inputs.importers.classes import MOST_WORKFLOWS, Classes
from planner.inputs.importers.tables import Requests, Texts

DEFAULT_CLASSES = 4
"""Classes of run time per model, where requests of a model differ and nothing else is asked for."""


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
    workflow = np.full(len(codes), -1, np.int64)
    workflows: list[Workflow] = []
    several = 0
    for index, name in enumerate(ours):
        rows = np.flatnonzero(place == index)
        made, of_row = _of_model(name, document, requests, rows, classes)
        workflow[rows] = of_row + len(workflows)
        workflows += made
        several += len(made) > 1
    if len(workflows) > MOST_WORKFLOWS:
        raise QuestionError(f"makes {len(workflows):,} workflows; allowed are {MOST_WORKFLOWS:,}", "runtime_classes")
    unmatched = {name: int(count) for name, count in zip(names, np.bincount(codes), strict=True) if name not in known}
    cut = (
        "run times as they are" if classes.most == 0 else f"up to {classes.most or DEFAULT_CLASSES} classes of run time"
    )
    mapping = f"{cut} for each of {len(ours)} models of the catalogue"
    return Joined(tuple(workflows), kept.astype(np.int64), workflow[kept], unmatched, mapping)


def _of_model(
    name: str, document: CatalogueDocument, requests: Requests, rows: Ints, classes: Classes
) -> tuple[list[Workflow], Ints]:
    """Return the workflows of a model, and which of them each of its requests is a job of. Shape [rows]."""
    section = document.models[name]
    gpus = np.ones(len(rows), np.int64) if requests.gpus is None else requests.gpus[rows]
    made: list[Workflow] = []
    of_row = np.empty(len(rows), np.int64)
    for wide in np.unique(gpus).tolist():
        among = np.flatnonzero(gpus == wide)
        label = name if wide == 1 else f"{name} x {wide}"
        if section.runtime is not None or section.batch is not None:
            of_row[among] = len(made)
            made.append(_workflow(label, name, section, None, wide))
            continue
        times = _times(name, document, requests, rows[among])
        klass, tables = _classes(times, DEFAULT_CLASSES if classes.most is None else classes.most)
        of_row[among] = klass + len(made)
        for number, table in enumerate(tables, start=1):
            own = label if len(tables) == 1 else f"{label} {number} of {len(tables)}"
            made.append(_workflow(own, name, section, table, wide))
    return made, of_row


def _times(name: str, document: CatalogueDocument, requests: Requests, rows: Ints) -> dict[str, Ints]:
    """Return the run time of each request on each kind. Shape [rows] each.

    Raises
    ------
    QuestionError
        If the log lacks tokens or run times.
    """
    section = document.models[name]
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


def _classes(times: dict[str, Ints], most: int) -> tuple[Ints, list[dict[str, int]]]:
    """Return classes of equally many requests by run time, and each one's mean per kind; 0: one per distinct time.

    Requests are ordered by their run time on the first kind; equal ones share a class.
    """
    table = pd.DataFrame(times)
    first = table.iloc[:, 0]
    if most == 0 or len(table.drop_duplicates()) <= most:
        klass = table.groupby(list(table.columns), sort=True).ngroup()
    else:
        below = first.rank(method="min").astype("int64") - 1
        klass = pd.Series(pd.factorize(below * most // len(table), sort=True)[0])
    means = table.groupby(klass.to_numpy()).mean().round().astype("int64")
    tables = [{str(kind): int(us) for kind, us in row.items()} for row in means.to_dict("records")]
    return np.asarray(klass, np.int64), tables


def _workflow(label: str, model: str, section: CatalogueModel, table: dict[str, int] | None, gpus: int) -> Workflow:
    """Return a workflow of equal tasks side by side, one per GPU."""
    steps = ["run"] if gpus == 1 else [f"run{index}" for index in range(gpus)]
    if section.batch is not None:
        batch = BatchClass(label, section.batch, (model,), section.share, section.memory)
        return Workflow(label, tuple(Task.of_class(step, batch) for step in steps))
    runtime = table or section.runtime or {ANY_KIND: 1}
    return Workflow(label, tuple(Task(step, runtime, (model,), (), section.share, section.memory) for step in steps))
