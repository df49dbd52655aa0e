"""AsyncHow: everyday plans with steps, durations and an order among the steps; DAGs without models.

Source: github.com/fangru-lin/graph-llm-asynchow-plan, data/async_benchmark.pkl and its siblings (commit 66f9bcff). They
are pickles, which are never read here; what is read are JSON lines made of them: per plan id, title, n, durations_s
(per step [low, high] in seconds), edges (pairs of steps, START and END included) and answer_s (the shortest completion
with unlimited parallelism, [low, high]).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

from executor.policies.options import one_of, option
from models.scenario.errors import FieldError, InputError, Where, quote
from models.scenario.limits import MAX_HORIZON_US
from models.scenario.quantities import MAX_TIME_US
from models.workload import ANY_KIND, Edge, Task, Workflow
from planner.inputs.importers.csv_files import CHUNK_ROWS
from planner.inputs.importers.format import Format, Hardware
from planner.inputs.importers.json_files import items_at, json_lines, mapping_at, member, name_at, refuse, time_at
from planner.inputs.importers.rows import Tally
from planner.inputs.importers.source import open_text
from planner.inputs.importers.tables import DagJobs, DAGOptions, build_workflow

_ENDS = ("low", "high")
_START, _END = "START", "END"


@dataclass(frozen=True, slots=True)
class AsyncHow(DAGOptions):
    """Reads plans in JSON lines.

    Parameters
    ----------
    duration
        Which end of a step's range counts: ``low`` or ``high``. Nearly every range is a single value.
    """

    duration: str = option("low", one_of(*_ENDS))

    def hardware(self, files: Sequence[Path], tally: Tally) -> Hardware:
        """Return eight GPUs, which stand for people; nothing is loaded."""
        return Hardware(memory_bytes=10**9, weight_bytes=10**9, load_bandwidth=Fraction(10**9), servers=8)

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
                for text in json_lines(file, str(path)):
                    tally.read += 1
                    try:
                        workflow, answer_us = self._plan(mapping_at(text.data(), ()), seen)
                    except FieldError as error:
                        refuse(text, error, tally)
                    except InputError as error:
                        tally.refuse(error, "row: is no JSON")
                    else:
                        if workflow.critical_path_us != answer_us:
                            others.append(workflow.name)
                        yield workflow

    def _plan(self, plan: dict[str, object], seen: set[str]) -> tuple[Workflow, int]:
        """Return a plan and its published answer; `seen` are the ids of those before it."""
        name = name_at(member(plan, "id"), ("id",))
        if name in seen:
            raise FieldError(("id",), f"{quote(name)} stands in an earlier plan; allowed is a new id")
        seen.add(name)
        steps = mapping_at(member(plan, "durations_s"), ("durations_s",))
        if not steps:
            raise FieldError(("durations_s",), "is empty; allowed is at least one step")
        where = {name_at(step, ("durations_s",)): ("durations_s", step) for step in steps}
        for bound in (_START, _END):
            if bound in steps:
                raise FieldError(where[bound], "is a bound of the plan; allowed are other names of steps")
        runtime_us = {step: self._chosen(steps[step], way, 1, MAX_TIME_US) for step, way in where.items()}
        before = _before(member(plan, "edges"), steps)
        inputs = {step: tuple(Edge(one, 0) for one in earlier) for step, earlier in before.items()}
        tasks = [Task(step, {ANY_KIND: runtime_us[step]}, inputs=inputs[step]) for step in steps]
        return build_workflow(name, tasks, where), self._chosen(
            member(plan, "answer_s"), ("answer_s",), 0, MAX_HORIZON_US
        )

    def _chosen(self, value: object, where: Where, least_us: int, most_us: int) -> int:
        """Return the end of a range that counts, in microseconds."""
        span = items_at(value, where)
        if len(span) != len(_ENDS):
            raise FieldError(where, f"has {len(span)} entries; allowed are two, [low, high]")
        low, high = (time_at(end, (*where, position), most_us) for position, end in enumerate(span))
        if not least_us <= low <= high:
            raise FieldError(where, f"is no range of times; allowed is low <= high, with low at least {least_us} us")
        return (low, high)[_ENDS.index(self.duration)]


def _before(edges: object, steps: dict[str, object]) -> dict[str, dict[str, None]]:
    """Return the steps that come directly before each step."""
    before: dict[str, dict[str, None]] = {step: {} for step in steps}
    for position, item in enumerate(items_at(edges, ("edges",))):
        where = ("edges", position)
        pair = [name_at(end, (*where, place)) for place, end in enumerate(items_at(item, where))]
        if len(pair) != 2:
            raise FieldError(where, f"has {len(pair)} entries; allowed are two, the step before and the step after")
        for place, (step, bound) in enumerate(zip(pair, (_START, _END), strict=True)):
            if step != bound and step not in steps:
                raise FieldError((*where, place), f"{quote(step)} is no step; allowed are steps with a duration")
        first, second = pair
        if first == _START or second == _END:
            continue
        if first in before[second]:
            raise FieldError(where, f"{quote(first)} before {quote(second)} stands twice; allowed is once")
        before[second][first] = None
    return before


FORMAT = Format(
    name="asynchow",
    title="everyday plans of AsyncHow as DAGs of steps, in JSON lines",
    source="github.com/fangru-lin/graph-llm-asynchow-plan (MIT); Lin et al., ICML 2024",
    notes=(
        "a plan is a job, a step a task that needs no model; a GPU stands for a person who works on one step at a time",
        "a step takes the low end of its range (duration=high: the high end)",
        "steps hand nothing on: transfers take no time",
        "plans have no arrivals: all are released at 0 (copies, interval)",
    ),
    reader=AsyncHow,
)
