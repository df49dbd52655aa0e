"""What a log is mapped to: the cluster that its format documents, or a scenario whose workflows its requests drive.

Either makes the files of an import: a scenario document, and its arrivals as a CSV file beside it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import comb
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.places import MAX_PLACES
from truenorth.models.record import guard
from truenorth.models.scenario import InputError, Scenario, load_scenario, scenario_from
from truenorth.models.scenario.disaggregated import DECODE, PREFILL
from truenorth.models.scenario.errors import Plain, quote
from truenorth.models.scenario.files import read_text
from truenorth.models.scenario.requests import BLOCKS_COLUMN, TOKEN_COLUMNS
from truenorth.models.scenario.work import build_workflows
from truenorth.models.scenario.writing import scenario_text
from truenorth.models.streams import BLOCK, PICOSECONDS, Fitted, StreamClass
from truenorth.models.units import gigabytes, gigabytes_per_s, say_size, seconds
from truenorth.models.workload import ANY_KIND, WHOLE, Task, Workflow
from truenorth.planner.inputs.importers.format import Hardware
from truenorth.planner.inputs.importers.tables import DagJobs, Requests, Texts
from truenorth.planner.inputs.importers.workload import CALL, REQUEST, Served, Workload


class Target(Protocol):
    """The scenario of an import without its arrivals."""

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        ...

    @property
    def words(self) -> str:
        """The cluster in words."""
        ...

    def load_us(self, model: str) -> int:
        """Return how long a model takes to load where that is quickest."""
        ...

    def content(self, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the scenario file; `arrivals` is its section ``workload``."""
        ...

    def text(
        self,
        workload: Workload,
        arrivals: dict[str, Any],
        comments: list[str],
        path: Path,
        more: Mapping[str, Any],
    ) -> str:
        """Return the scenario file's text, with more sections.

        Raises
        ------
        InputError
            If it cannot be of the sort that the path names.
        """
        return scenario_text(path, self.content(workload, arrivals) | dict(more), comments)


@dataclass(frozen=True, slots=True)
class Documented(Target):
    """Equal servers, models of one size, and a workflow per distinct request.

    Parameters
    ----------
    asked_for
        Whether the command's options say anything of it, be it what the format documents.
    """

    hardware: Hardware
    asked_for: bool = False

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.hardware.gpus

    @property
    def words(self) -> str:
        """The cluster in words."""
        size, memory = say_size(self.hardware.weight_bytes), say_size(self.hardware.memory_bytes)
        load_s = self.hardware.load_us / 1e6
        return f"{self.gpus} GPUs of {memory}, models of {size}, a load takes {load_s:.4g} s"

    def load_us(self, model: str) -> int:
        """Return how long any model takes to load."""
        return self.hardware.load_us

    def content(self, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the scenario file."""
        return document(self.hardware, workload, arrivals)


@dataclass(frozen=True, slots=True)
class Driven(Target):
    """A scenario that keeps its cluster, models and workflows, and gets other arrivals."""

    scenario: Scenario

    @classmethod
    def load(cls, path: Path) -> Driven:
        """Return the scenario of a file.

        Raises
        ------
        InputError
            If it is none.
        """
        return cls(load_scenario(path))

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.scenario.instance.n_gpus

    @property
    def words(self) -> str:
        """The cluster in words."""
        return f"{self.gpus} GPUs, and the models and workflows, of {self.scenario.source.file}"

    def load_us(self, model: str) -> int:
        """Return how long a model takes to load where that is quickest."""
        instance = self.scenario.instance
        names = [known.name for known in instance.models]
        return int(instance.load_us[names.index(model)].min())

    def content(self, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the scenario file."""
        content: dict[str, Any] = self.scenario.source.data()
        return content | {"workload": arrivals}

    def text(
        self,
        workload: Workload,
        arrivals: dict[str, Any],
        comments: list[str],
        path: Path,
        more: Mapping[str, Any],
    ) -> str:
        """Return the scenario's own text with other arrivals; its comments and formatting stay."""
        file = Path(self.scenario.source.file)
        if (path.suffix.lower() == ".json") != (file.suffix.lower() == ".json"):
            problem = f"is not of the sort of {file.name}; allowed is a name that ends in {file.suffix}"
            raise InputError(str(path), None, "file", problem)
        if path.suffix.lower() == ".json":
            return scenario_text(path, self.content(workload, arrivals))
        text = "\n".join(read_text(file).splitlines()) + "\n"
        return scenario_text(path, {"workload": arrivals}, comments).join(self._around_workload(text))

    def _around_workload(self, text: str) -> tuple[str, str]:
        """Return the lines before and after the section ``workload``, which must be one of block style."""
        source = self.scenario.source
        sections = source.root.content if source.root else None
        lines = text.splitlines(keepends=True)
        starts = sorted(line for line, _ in sections.values()) if isinstance(sections, dict) else []
        first = sections["workload"][0] if isinstance(sections, dict) else 0
        if len(set(starts)) < len(starts) or not lines[first - 1].startswith("workload"):
            raise InputError(
                source.file, first, "workload", "does not begin a line; allowed is every section on lines of its own"
            )
        last = next((line for line in starts if line > first), len(lines) + 1) - 1
        while last > first and (not lines[last - 1].strip() or lines[last - 1].startswith(("#", "..."))):
            last -= 1  # comments and blank lines after the section stay
        return "".join(lines[: first - 1]), "".join(lines[last:])

    def workload(self, found: Requests | DagJobs, rows: Ints, release_us: Ints) -> Workload:
        """Return requests as jobs of the scenario's workflows: by the names in the log, else by run time.

        A request whose model is the name of a workflow, or of a model that one workflow alone needs, becomes a job of
        it. Where no name of the log is the scenario's, the shorter a request ran, the less work it becomes: requests
        are ordered by run time (equal ones by release) and cut into as many parts of equal size as there are workflows;
        the shortest become jobs of the workflow with the least work.

        Parameters
        ----------
        rows, release_us
            Positions in release order, and their releases from time zero. Shape [jobs].

        Raises
        ------
        QuestionError
            If the log's jobs are workflows already, or only some of its names are the scenario's.
        """
        if isinstance(found, DagJobs):
            raise QuestionError("the log's jobs are DAGs already; allowed are logs of requests", "workflows")
        if found.share is not None:
            allowed = "allowed are the format's options without shares, memory and batches, which the scenario brings"
            raise QuestionError(f"the log says how its requests share a GPU; {allowed}", "workflows")
        workflows, asked = tuple(build_workflows(self.scenario.document).values()), found.at(rows)
        named = _by_name(workflows, asked.model)
        if named is not None:
            mapping = f"requests by the name of their model, among {len(workflows)} workflows"
            return Workload(workflows, named, release_us, asked.deadline_us, mapping, asked.weight, line=asked.line)
        if not found.timed:
            raise QuestionError("the log has neither names of the scenario nor run times; allowed is one", "workflows")
        work = [sum(task.fastest_us for task in workflow.tasks) for workflow in workflows]
        by_work = np.argsort(work, kind="stable")
        order = np.argsort(asked.runtime_us, kind="stable")
        rank = np.empty(len(rows), np.int64)
        rank[order] = np.arange(len(rows))
        names = ", ".join(workflows[index].name for index in by_work.tolist())
        unknown = "no model of the log is one of the scenario's"
        mapping = f"requests by run time, shortest first, in {len(workflows)} equal parts: {names}; {unknown}"
        of_each = by_work[rank * len(workflows) // len(rows)]
        return Workload(workflows, of_each, release_us, asked.deadline_us, mapping, asked.weight, line=asked.line)


def _by_name(workflows: Sequence[Workflow], models: Texts) -> Ints | None:
    """Return the workflow that each request's model names; None if the log has no name in common with the scenario.

    Raises
    ------
    QuestionError
        If it names the workflows of some requests only, which would be a wrong mix without a word.
    """
    users: dict[str, set[int]] = {}
    for index, workflow in enumerate(workflows):
        for model in {model for task in workflow.tasks for model in task.models}:
            users.setdefault(model, set()).add(index)
    users |= {workflow.name: {index} for index, workflow in enumerate(workflows)}
    codes, names = pd.factorize(models)
    if not any(name in users for name in names):
        return None
    told = np.array([min(users[name]) if len(users.get(name, ())) == 1 else -1 for name in names], np.int64)
    silent = int((told[codes] < 0).sum())
    if silent:
        name = names[int(np.argmax(told < 0))]
        why = f"is needed by {len(users[name])} workflows" if name in users else "is none of the scenario's"
        problem = f"{len(codes) - silent} of {len(codes)} requests name a workflow, or a model of one workflow alone"
        allowed = "allowed is a log in which all do, or none"
        raise QuestionError(f"{problem}; {silent} do not: {quote(name)} {why}; {allowed}", "workflows")
    return told[codes]


def assert_valid(target: Target, workload: Workload) -> None:
    """Refuse what a scenario file may not say, by building the scenario with one job of every workflow."""
    scenario_from(target.content(replace(workload, split=False), {"jobs": least_jobs(workload)}))


def least_jobs(workload: Workload) -> list[dict[str, Any]]:
    """Return one job of every workflow, as a scenario's section ``workload.jobs`` has it."""
    served = workload.served is not None
    return [
        {
            "release": "0 s",
            "workflow": each.name,
            **({"tokens": {task.name: [1, 1, 1] for task in each.tasks}} if served else {}),
        }
        for each in workload.workflows
    ]


def document(hardware: Hardware, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a scenario file.

    Parameters
    ----------
    arrivals
        Its section ``workload``.
    """
    names = model_names(workload)
    return {
        "cluster": {
            "servers": hardware.servers,
            "gpus_per_server": hardware.gpus_per_server,
            "gpu": {
                "kind": hardware.kind,
                "memory": gigabytes(hardware.memory_bytes),
                "load_bandwidth": gigabytes_per_s(hardware.load_bandwidth),
                "load_overhead": seconds(hardware.load_overhead_us),
            },
            "network": {
                "bandwidth": gigabytes_per_s(hardware.network_bandwidth),
                "latency": seconds(hardware.network_latency_us),
            },
            **({"places": _place_rule(hardware, workload)} if workload.gangs else {}),
        },
        **({"models": {name: {"weights": gigabytes(hardware.weight_bytes)} for name in names}} if names else {}),
        **work_sections(workload),
        "workload": arrivals,
    }


def _place_rule(hardware: Hardware, workload: Workload) -> str:
    """Return which GPUs of a server runs take: any, unless these are too many sets."""
    sizes = {task.gpus for workflow in workload.workflows for task in workflow.tasks}
    sets = sum(hardware.servers * comb(hardware.gpus_per_server, size) for size in sizes - {1})
    return "any" if sets <= MAX_PLACES // 2 else "aligned"


def model_names(workload: Workload) -> list[str]:
    """Return the models that any task needs, in order of their names."""
    return sorted({model for workflow in workload.workflows for task in workflow.tasks for model in task.models})


def work_sections(workload: Workload) -> dict[str, Any]:
    """Return the sections of classes, where there are any, and of workflows, and by how much they are rounded."""
    batches = _batches(workload.workflows)
    workflows = {of.name: {"tasks": {task.name: _task(task) for task in of.tasks}} for of in workload.workflows}
    rounding = workload.rounding
    rounded = {} if rounding is None else {"rounded_up": Plain(f"{rounding.most:.4f}")}
    streams = {
        task.stream.name: _stream(task.stream)
        for workflow in workload.workflows
        for task in workflow.tasks
        if task.stream is not None
    }
    classes = ({"batches": batches} if batches else {}) | ({"streams": streams} if streams else {})
    return rounded | classes | {"workflows": workflows}


def _stream(stream: StreamClass) -> dict[str, Any]:
    """Return the section of a stream class."""
    cache = {"prefix_cache": "node", "prefix_block": stream.prefix_block} if stream.prefix_block else {}
    if stream.modes:
        modes = [{"gpus": gpus, **_law(each)} for gpus, each in stream.by_degree.items()]
        return {"models": list(stream.models), "modes": modes, **cache}
    return {"models": list(stream.models), **_law(stream), **cache}


def _law(stream: StreamClass) -> dict[str, Any]:
    """Return how requests of a class are served."""
    speeds = stream.speeds
    amended = {
        "context": {kind: f"{speed.context_ps / PICOSECONDS:.6f} us" for kind, speed in speeds.items()},
        "mixed": {kind: seconds(speed.mixed_us) for kind, speed in speeds.items()},
        "budget": {kind: "shared" if speed.shared else "separate" for kind, speed in speeds.items()},
        "kv": {kind: "grows" if speed.block else "reserved" for kind, speed in speeds.items()},
        "block": {kind: speed.block or BLOCK for kind, speed in speeds.items()},
    }
    said = any(speed.amended for speed in speeds.values())
    return {
        "prefill": {kind: f"{float(speed.prefill_rate):.12g} /s" for kind, speed in speeds.items()},
        "chunk": {kind: speed.chunk for kind, speed in speeds.items()},
        "concurrency": {kind: speed.seats for kind, speed in speeds.items()},
        "step": {kind: _by_size(speed.step_us) for kind, speed in speeds.items()},
        "kv_per_token": {kind: f"{speed.kv_bytes} B" for kind, speed in speeds.items()},
        **(amended if said else {}),
        **({"fitted": {each.kind: _fitted(each) for each in stream.fitted}} if stream.fitted else {}),
    }


def _fitted(law: Fitted) -> dict[str, Any]:
    """Return what a law was fitted to."""
    errors = {"mean_error": law.mean_error, "p95_error": law.p95_error}
    said = {"log": law.log} | ({} if law.requests is None else {"requests": law.requests})
    return said | {name: Plain(f"{error:.6f}") for name, error in errors.items() if error is not None}


def _task(task: Task) -> dict[str, Any]:
    if task.stream is not None:
        tied = {} if task.tied_to is None else {"with": task.tied_to}
        after = {edge.source: {"bytes": "0 B", **({"hold": True} if edge.hold else {})} for edge in task.inputs}
        return {"stream": task.stream.name, **tied, **({"after": after} if after else {})}
    if task.batch is not None:
        section: dict[str, Any] = {"batch": task.batch.name}
    else:
        runtimes = {kind: seconds(us) for kind, us in task.runtime_us.items()}
        section = {"models": list(task.models), "runtime": runtimes.get(ANY_KIND, runtimes)}
        section |= _demand(task.share, task.memory_bytes)
        section |= {"gpus": task.gpus} if task.gpus > 1 else {}
        if task.gpus > 1:
            del section["models"]
    if task.inputs:
        section["after"] = {edge.source: f"{edge.size_bytes} B" for edge in task.inputs}
    return section


def _batches(workflows: Sequence[Workflow]) -> dict[str, Any]:
    """Return the sections of the batch classes."""
    classes = {task.batch.name: task.batch for of in workflows for task in of.tasks if task.batch is not None}
    return {
        name: {
            "models": list(batch.models),
            "runtime": _by_size(batch.runtime_us[ANY_KIND])
            if ANY_KIND in batch.runtime_us
            else {kind: _by_size(table) for kind, table in batch.runtime_us.items()},
            **_demand(batch.share, batch.memory_bytes),
        }
        for name, batch in classes.items()
    }


def _by_size(table: Mapping[int, int]) -> dict[str, str]:
    return {Plain(size): seconds(us) for size, us in table.items()}


def _demand(share: int, memory_bytes: int) -> dict[str, Any]:
    """Return share and memory where they are not the defaults."""
    section = {} if share == WHOLE else {"share": Plain(Decimal(share) / WHOLE)}
    return section | ({"memory": gigabytes(memory_bytes)} if memory_bytes else {})


def _requests(served: Served, workflow: Ints, split: bool) -> pd.DataFrame:
    """Return the columns of the tokens of requests, prefill apart from decode if they are split."""
    computed = PREFILL if split else REQUEST
    table = pd.DataFrame(served.tokens, columns=[f"{computed}.{what}" for what in TOKEN_COLUMNS])
    if served.blocks is not None:  # which say what is cached
        del table[f"{computed}.uncached"]
        table[f"{computed}.{BLOCKS_COLUMN}"] = [" ".join(map(str, blocks)) for blocks in served.blocks]
    if not split:
        return table
    rest = table.pop(f"{PREFILL}.output") - 1
    several = rest > 0
    # The first token is of the prompt from which a decode goes on; see `models.scenario.disaggregated.parts`.
    decodes = {f"{DECODE}.prompt": served.tokens[:, 0] + 1, f"{DECODE}.output": rest}
    for name, column in decodes.items():
        table[name] = pd.Series(column).where(several).astype("Int64")
    both = several.groupby(workflow).transform("nunique") > 1
    if both.any():
        table["path"] = pd.Series(np.where(several, 0, 1)).where(both).astype("Int64")
    return table


def _calls(served: Served) -> pd.DataFrame:
    """Return the columns of jobs that are sessions: tokens and delays of each call, empty where a job has fewer."""
    calls = served.calls
    if calls is None:
        raise ValueError("requests that are jobs by themselves have no calls")
    columns: dict[str, pd.Series[Any]] = {}
    jobs = int(calls.job.max()) + 1
    for place in range(int(calls.place.max()) + 1):
        at = np.flatnonzero(calls.place == place)
        name, job = CALL.format(place + 1), calls.job[at]
        figures = dict(zip(TOKEN_COLUMNS, served.tokens[at].T, strict=True))
        if served.blocks is not None:  # which say what is cached
            del figures["uncached"]
        figures |= {"delay_us": calls.delay_us[at]} if place else {}
        for what, values in figures.items():
            columns[f"{name}.{what}"] = pd.Series(values, index=job).reindex(range(jobs)).astype("Int64")
        if served.blocks is not None:
            texts = [" ".join(map(str, served.blocks[row])) for row in at.tolist()]
            columns[f"{name}.{BLOCKS_COLUMN}"] = pd.Series(texts, index=job).reindex(range(jobs))
    return pd.DataFrame(columns)


def trace_text(workload: Workload) -> str:
    """Return the arrivals as the CSV file of a trace."""
    names = pd.Index([guard(workflow.name) for workflow in workload.workflows])
    workflow = pd.Categorical.from_codes(workload.workflow, categories=names)
    table = pd.DataFrame({"time_us": workload.release_us, "workflow": workflow})
    if workload.deadline_us is not None:
        deadline = pd.Series(workload.deadline_us).astype("Int64")
        table["deadline_us"] = deadline.where(deadline >= 0)
    if workload.weight is not None:
        table["weight"] = workload.weight
    if workload.served is not None:
        calls = workload.served.calls
        of_requests = _requests(workload.served, workload.workflow, workload.split) if calls is None else None
        table = pd.concat([table, _calls(workload.served) if of_requests is None else of_requests], axis=1)
    for task, delay_us in workload.delay_us.items():
        table[f"{task}.delay_us"] = pd.Series(delay_us).astype("Int64").where(delay_us >= 0)
    if workload.line is not None:
        table["line"] = workload.line
    if workload.label is not None:
        table["label"] = [guard(str(label)) for label in workload.label]
    text = io.StringIO()
    table.to_csv(text, index=False, lineterminator="\n")
    return text.getvalue()
