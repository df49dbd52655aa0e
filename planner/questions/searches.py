"""Questions that are searched for: plans, for run times as they are or as they are estimated, and bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from truenorth.planner.questions.options import RAY, SEED, TIME_LIMIT, WORKERS, OptionKind, asked
from truenorth.planner.questions.question import Question

if TYPE_CHECKING:
    from truenorth.models.timeline import Timeline
    from truenorth.planner.inputs.told import Told
    from truenorth.solvers.incumbents import Progress


@dataclass(frozen=True)
class SearchQuestion(Question):
    """How a plan is looked for."""

    verb: ClassVar[str] = "plan"
    _: KW_ONLY
    time_limit_s: float = asked(60.0, TIME_LIMIT)
    method: str = asked("auto", "How to search.", OptionKind.CHOICE, choices=("auto", "cp-sat", "milp", "search"))
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    iterations: int | None = asked(None, "Steps of local search, for repeatable runs.", OptionKind.WHOLE, least=1)
    ray: str | None = asked(None, RAY)
    watch: Callable[[Progress], None] | None = None
    stop: threading.Event | None = None


@dataclass(frozen=True)
class PlanQuestion(SearchQuestion):
    """Plan a scenario as well as the time allows.

    Parameters
    ----------
    time_limit_s
        Wall-clock seconds for plan and bound together; the first plan is made even if it takes longer.
    method, workers, seed, iterations
        As in `solvers.budget.Budget`.
    ray
        Address of a Ray cluster whose workers look for plans as well.
    watch
        Called whenever plan or bound improve.
    stop
        Set it to end early with the best plan so far.
    hint
        A feasible timeline; the plan is never worse.
    starts
        Timelines of online policies that were simulated before; None: simulate some first.

    Raises
    ------
    QuestionError
        If there is no such cluster, or no such method.
    """

    _: KW_ONLY
    hint: Timeline | None = None
    starts: Sequence[Timeline] | None = None


@dataclass(frozen=True)
class UncertainPlanQuestion(SearchQuestion):
    """Plan a scenario for run times that are estimates.

    Parameters
    ----------
    told
        What is known of the run times.
    plan_for
        The median, the 90 % quantile, or the best mean over samples.
    samples
        How many run-time vectors are drawn, to choose by or to tell what the plan is worth.
    time_limit_s, method, workers, seed, iterations, ray, watch, stop
        As those of `truenorth.plan`; the time is divided among the candidates.
    """

    told: Told
    plan_for: str = "p50"
    _: KW_ONLY
    samples: int = 8


@dataclass(frozen=True)
class BoundQuestion(Question):
    """Bound a scenario as well as the time allows.

    Parameters
    ----------
    schedule
        A timeline file whose regret is to be taken apart; it has half of the time, and the plan that bounding finds.
    ray
        Address of a Ray cluster whose workers price sections of a long trace.
    watch
        Called whenever the bound improves.
    stop
        Set it to end early with the best bound so far.

    Raises
    ------
    InputError
        If the schedule cannot be read, breaks a rule, or did not happen in the given run times.
    QuestionError
        If there is no such cluster.
    """

    verb: ClassVar[str] = "bound"
    _: KW_ONLY
    time_limit_s: float = asked(60.0, TIME_LIMIT)
    schedule: Path | None = asked(
        None,
        "Also say what this plan or timeline loses, and to what.",
        OptionKind.FILE,
        metavar="TIMELINE",
        in_sweeps=False,
    )
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    ray: str | None = asked(None, RAY)
    watch: Callable[[Progress], None] | None = None
    stop: threading.Event | None = None
