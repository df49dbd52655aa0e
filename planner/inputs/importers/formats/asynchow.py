"""AsyncHow: everyday plans with steps, durations and an order among the steps; DAGs without models.

Source: github.com/fangru-lin/graph-llm-asynchow-plan, data/async_benchmark.pkl and its siblings (commit 66f9bcff). They
are pickles, which are never read here; what is read are JSON lines made of them: per plan id, title, n, durations_s
(per step [low, high] in seconds), edges (pairs of steps, START and END included) and answer_s (the shortest completion
with unlimited parallelism, [low, high]).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from truenorth.executor.policies.options import one_of, option
from truenorth.models.scenario.errors import FieldError, Where, quote
from truenorth.models.scenario.section import Record, problem, refuse_empty
from truenorth.models.workload import ANY_KIND, Edge, Task, Workflow
from truenorth.planner.inputs.importers.csv_files import CHUNK_ROWS, open_text
from truenorth.planner.inputs.importers.json_files import LogName, LongSeconds, Seconds, json_lines, read_entries
from truenorth.planner.inputs.importers.rows import Tally
from truenorth.planner.inputs.importers.tables import DagJobs, DAGOptions, build_workflow

_ENDS = ("low", "high")
_START, _END = "START", "END"


def _two(meaning: str) -> BeforeValidator:
    def refuse_others(value: object) -> object:
        """Refuse a list of other than two entries."""
        if isinstance(value, list) and len(value) != 2:
            raise problem(f"has {len(value)} entries; allowed are two, {meaning}")
        return value

    return BeforeValidator(refuse_others)


def _range(least_us: int) -> AfterValidator:
    def refuse_others(span: list[int]) -> list[int]:
        """Refuse a range that begins too early or ends before it begins."""
        if not least_us <= span[0] <= span[1]:
            allowed = f"low <= high, with low at least {least_us} us"
            raise problem(f"is no range of times; allowed is {allowed}")
        return span

    return AfterValidator(refuse_others)


_Span = Annotated[list[Seconds], _two("[low, high]"), _range(1)]


class _Plan(Record):
    id: LogName
    durations_s: Annotated[dict[LogName, _Span], refuse_empty("step")]
    edges: list[Annotated[list[LogName], _two("the step before and the step after")]]
    answer_s: Annotated[list[LongSeconds], _two("[low, high]"), _range(0)]


@dataclass(frozen=True, slots=True)
class AsyncHow(DAGOptions):
    """Reads plans in JSON lines.

    Parameters
    ----------
    duration
        Which end of a step's range counts: ``low`` or ``high``. Nearly every range is a single value.
    """

    duration: str = option("low", one_of(*_ENDS))

    def read(self, files: Sequence[Path], tally: Tally) -> Iterator[DagJobs]:
        """Yield the plans of the files."""
        before = 0
        others: list[str] = []
        plans = self._plans(files, tally, others)
        while chunk := list(islice(plans, CHUNK_ROWS)):
            yield self.jobs(chunk, before)
            before += len(chunk)
        if others:
            named = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
            tally.notes.append(f"plans whose published answer is not their longest path: {len(others):,} ({named})")

    def _plans(self, files: Sequence[Path], tally: Tally, others: list[str]) -> Iterator[Workflow]:
        """Yield the plans as workflows; the ids of those with another answer than their longest path go to `others`."""
        seen: set[str] = set()
        for path in files:
            with open_text(path) as file:
                lines = json_lines(file, str(path))
                for workflow, answer_us in read_entries(lines, lambda value: self._plan(value, seen), tally):
                    if workflow.critical_path_us != answer_us:
                        others.append(workflow.name)
                    yield workflow

    def _plan(self, value: object, seen: set[str]) -> tuple[Workflow, int]:
        """Return a plan and its published answer; `seen` are the ids of those before it."""
        plan = _Plan.model_validate(value)
        if plan.id in seen:
            raise FieldError(("id",), f"{quote(plan.id)} stands in an earlier plan; allowed is a new id")
        seen.add(plan.id)
        where: dict[str, Where] = {step: ("durations_s", step) for step in plan.durations_s}
        for bound in (_START, _END):
            if bound in where:
                raise FieldError(where[bound], "is a bound of the plan; allowed are other names of steps")
        before, end = _before(plan), _ENDS.index(self.duration)
        tasks = [
            Task(step, {ANY_KIND: span[end]}, inputs=tuple(Edge(one, 0) for one in before[step]))
            for step, span in plan.durations_s.items()
        ]
        return build_workflow(plan.id, tasks, where), plan.answer_s[end]


def _before(plan: _Plan) -> dict[str, dict[str, None]]:
    """Return the steps that come directly before each step."""
    steps = plan.durations_s
    before: dict[str, dict[str, None]] = {step: {} for step in steps}
    for position, (first, second) in enumerate(plan.edges):
        for place, (step, bound) in enumerate(((first, _START), (second, _END))):
            if step != bound and step not in steps:
                problem_text = f"{quote(step)} is no step; allowed are steps with a duration"
                raise FieldError(("edges", position, place), problem_text)
        if first == _START or second == _END:
            continue
        if first in before[second]:
            problem_text = f"{quote(first)} before {quote(second)} stands twice; allowed is once"
            raise FieldError(("edges", position), problem_text)
        before[second][first] = None
    return before
