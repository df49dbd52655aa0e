"""A timeline with all that is needed to show it; tables of answers with timelines or rows; what is proved, in words.

Is a plan near enough to its bound that ratios to it say something? There is one definition, and one sentence, for all
tables. The least possible value lies between bound and plan. A policy's ratio to it therefore lies between its value
over the plan's and its value over the bound: the further the two are apart, the less the first one says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.errors import no_attribute
from truenorth.models.instance import Instance
from truenorth.models.metrics import Metrics
from truenorth.models.objective import Objective, completion_us
from truenorth.models.record import ABSENT, encode
from truenorth.models.streams import Fitted
from truenorth.models.timeline import Timeline
from truenorth.solvers.bounds.closed_form import METHODS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A timeline to be shown.

    Parameters
    ----------
    name
        Of the plan or policy that made it.
    clairvoyant
        Whether whoever made it knew the future.
    instance
        What the timeline belongs to: the scenario's instance, or a policy's twin of it.
    timeline
        Places every task.
    truth
        The instance with the run times that held, by which slowdowns count; None: that one.
    """

    name: str
    clairvoyant: bool
    instance: Instance
    timeline: Timeline
    truth: Instance | None = None


def fitted_laws(instance: Instance) -> list[Fitted]:
    """Return what step laws of an instance were fitted to, and how far off they are; absent as a key if none was."""
    streams = instance.streams
    return ABSENT if streams is None or not streams.fitted else streams.fitted


class Answer:
    """What every answer can do; `truenorth.calls` adds what draws and writes, which stands to the right of answers."""

    __slots__ = ()
    save: Callable[..., Any]

    if not TYPE_CHECKING:  # which is to see what is missing

        def __getattr__(self, name: str) -> Any:
            # Only what is missing comes here. Notebooks and copies ask for much that begins so, and are to go on.
            raise AttributeError(name) if name.startswith("_") else no_attribute(self, name)

    def frame(self) -> pd.DataFrame:
        """Return the answer as a tidy table: a row of what ``--json`` prints, unless an answer has rows of its own."""
        record = self.record  # type: ignore[attr-defined]
        return frame_of_document(record() if callable(record) else record)

    def to_frame(self) -> pd.DataFrame:
        """Return `frame()`, under the name that pandas has for it."""
        return self.frame()


class WithTimelines(Answer):
    """An answer that holds timelines: a plan, a simulation, a comparison, a run on devices."""

    __slots__ = ()
    gantt: Callable[..., Figure]

    @property
    def shown(self) -> Iterable[Shown]:
        """The timelines, the first one in front."""
        raise NotImplementedError

    def chosen(self, of: str | None = None) -> Shown:
        """Return the first timeline, or the one of that name.

        Raises
        ------
        ValueError
            If there is none.
        """
        known = {shown.name: shown for shown in self.shown}
        found = next(iter(known.values()), None) if of is None else known.get(of)
        if found is None:
            raise ValueError(
                f"there is no timeline of {of}; allowed are {', '.join(known)}" if known else "no plan was found"
            )
        return found

    def tasks(self, of: str | None = None) -> pd.DataFrame:
        """Return one row per task of the first timeline: job, workflow, task, models, gpu, start_s, end_s.

        A task on several GPUs names them all: ``s0/g0+s0/g1``.

        Of a comparison, `of` names the contender whose timeline it is: the plan, a policy of the house or of your own.
        """
        import pandas as pd

        shown = self.chosen(of)
        instance, timeline = shown.instance, shown.timeline
        job, ids = instance.task_job, [gpu.id for gpu in instance.cluster.gpus]
        return pd.DataFrame(
            {
                "job": job,
                "workflow": [instance.jobs[j].workflow.name for j in job],
                "task": [instance.task_name(task) for task in range(instance.n_tasks)],
                "models": [
                    "+".join(instance.models[model].name for model in instance.task_needs(task))
                    for task in range(instance.n_tasks)
                ],
                "gpu": ["+".join(ids[gpu] for gpu in instance.places.gpus[place]) for place in timeline.place],
                "start_s": timeline.start_us / MICROSECONDS_PER_SECOND,
                "end_s": timeline.end_us / MICROSECONDS_PER_SECOND,
            }
        )

    def residencies(self, of: str | None = None) -> pd.DataFrame:
        """Return one row per residency: gpu, model, slot, load_start_s, ready_s, end_s (NaN: never), initial."""
        import pandas as pd

        shown = self.chosen(of)
        instance, timeline = shown.instance, shown.timeline
        rows = [
            (
                instance.place_name(residency.gpu),
                instance.models[residency.model].name,
                residency.slot,
                residency.load_start_us / MICROSECONDS_PER_SECOND,
                residency.ready_us / MICROSECONDS_PER_SECOND,
                np.nan if residency.end_us is None else residency.end_us / MICROSECONDS_PER_SECOND,
                residency.initial,
            )
            for residency in timeline.residencies
        ]
        columns = ["gpu", "model", "slot", "load_start_s", "ready_s", "end_s", "initial"]
        return pd.DataFrame(rows, columns=columns)

    def jobs(self, of: str | None = None) -> pd.DataFrame:
        """Return one row per job: workflow, release, completion, latency, critical path, slowdown, due time, tardiness.

        Times are in seconds, deadlines relative to the release, NaN where there is none. Slowdowns of a simulation
        with wrong estimates count by the run times that held.
        """
        import pandas as pd

        shown = self.chosen(of)
        instance, timeline = shown.truth or shown.instance, shown.timeline
        completion = completion_us(instance, timeline)
        latency = completion - instance.job_release_us
        deadline = np.array([np.nan if job.deadline_us is None else job.deadline_us for job in instance.jobs], float)
        return pd.DataFrame(
            {
                "job": np.arange(len(instance.jobs)),
                "workflow": [job.workflow.name for job in instance.jobs],
                "release_s": instance.job_release_us / MICROSECONDS_PER_SECOND,
                "completion_s": completion / MICROSECONDS_PER_SECOND,
                "latency_s": latency / MICROSECONDS_PER_SECOND,
                "critical_path_s": instance.job_critical_us / MICROSECONDS_PER_SECOND,
                "slowdown": latency / instance.job_ideal_us,
                "weight": [float(job.weight) for job in instance.jobs],
                "deadline_s": deadline / MICROSECONDS_PER_SECOND,
                "tardiness_s": np.maximum(np.nan_to_num(latency - deadline), 0) / MICROSECONDS_PER_SECOND,
            }
        )


class WithRows(Answer):
    """An answer that is a table: a comparison, a regret, a sweep."""

    __slots__ = ()

    def frame(self) -> pd.DataFrame:
        """Return the rows as a tidy table, indexed by who or what each is about; metrics are columns."""
        rows: Sequence[Any] = self.rows  # type: ignore[attr-defined]
        return frame_of(rows)


def with_value(frame: pd.DataFrame, objective: Objective) -> pd.DataFrame:
    """Return rows whose figures of the objective are called `value`, as in grids, beside its name and unit."""
    import pandas as pd

    if frame.empty:  # nobody could serve the window
        return frame
    columns = [str(name) for name in frame.columns]
    at = columns.index("objective")
    frame.columns = pd.Index([f"value{name[9:]}" if name.startswith("objective") else name for name in columns])
    frame.insert(at, "objective", str(objective))
    frame.insert(at + 1, "unit", objective.unit)
    return frame


def frame_of_one(
    name: str, objective: Objective, value: float | None, metrics: Metrics | None, **others: object
) -> pd.DataFrame:
    """Return an answer with one timeline as a row, with the columns of grids."""
    import pandas as pd

    row = {"objective": str(objective), "unit": objective.unit, "value": value, **others}
    return pd.DataFrame([row | (encode(metrics) if metrics else {})], index=pd.Index([name], name="policy"))


def frame_of(records: Sequence[Any]) -> pd.DataFrame:
    """Return records as a data frame: a column per field, figures that they hold as `metrics` among them.

    The first column, which names them, is the index.
    """
    import pandas as pd

    flat = [encode(record) for record in records]
    flat = [{**{k: v for k, v in row.items() if k != "metrics"}, **(row.get("metrics") or {})} for row in flat]
    return pd.DataFrame(flat).set_index(next(iter(flat[0]))) if flat else pd.DataFrame()


def frame_of_document(*records: Any) -> pd.DataFrame:
    """Return records as a data frame with their keys in JSON; those of a record inside have dots between them."""
    import pandas as pd

    return pd.json_normalize([encode(record) for record in records])


CONVERGED_GAP = 0.05
"""The widest gap, (plan - bound) / plan, of a plan that counts as converged."""
WHAT_COUNTS = f"gap above {CONVERGED_GAP:.0%}, or only a formula bounds it"
"""When a plan is unconverged, in words."""


def is_converged(gap: float | None, bound_method: str | None) -> bool:
    """Say whether a plan is optimal, or near its bound where more than a formula bounds it."""
    return gap is not None and (gap == 0 or (gap <= CONVERGED_GAP and bound_method not in METHODS))


def describe_bound(bound_method: str | None) -> str:
    """Return how a bound was found, in words.

    >>> describe_bound("critical_path")
    'critical path, a formula'
    """
    if bound_method is None:
        return "none"
    return bound_method.replace("_", " ") + (", a formula" if bound_method in METHODS else "")


def tell_proof(gap: float | None, bound_method: str | None) -> str:
    """Return what is proved of a plan, as it stands below tables.

    >>> tell_proof(0.0214, "lagrangian")
    'Lower bound: lagrangian; gap of the plan: 2.1 %.'
    """
    shown = "-" if gap is None else f"{100 * gap:.1f} %"
    return f"Lower bound: {describe_bound(bound_method)}; gap of the plan: {shown}."


def warn_of(gap: float | None, bound_method: str | None) -> str | None:
    """Return what has to be known of ratios to a plan; None if it is converged."""
    if is_converged(gap, bound_method):
        return None
    if gap is None:
        return "Nothing is proved of a plan: ratios to the best show nothing of what is possible."
    return (
        f"The plan is unconverged ({WHAT_COUNTS}): ratios to it understate. "
        "The true ratio lies between ratio to best and ratio to bound."
    )
