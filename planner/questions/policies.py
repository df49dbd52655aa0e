"""Questions of policies: what one of them comes to, and what a plan comes to beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from truenorth.planner.questions.options import ESTIMATES, POLICIES, PROGRESS, SEED, WARMUP, WORKERS, OptionKind, asked
from truenorth.planner.questions.question import Question, WithProgress

if TYPE_CHECKING:
    from truenorth.solvers.incumbents import Progress


@dataclass(frozen=True)
class SimulateQuestion(WithProgress, Question):
    """Run a policy on a scenario in simulated time; the fields are the keywords of `truenorth.simulate`."""

    verb: ClassVar[str] = "simulate"
    searches: ClassVar[bool] = False
    policy: str = asked(
        MISSING, "A policy with parameters, module:Class, or a plan or timeline file.", OptionKind.POLICY
    )
    _: KW_ONLY
    noise: str | None = asked(
        None, "Seeded noise on runs and loads, or error of what is told.", OptionKind.NOISE, metavar="SPEC"
    )
    estimates: Path | None = asked(None, ESTIMATES)
    progress: Fraction | Path | None = asked(None, PROGRESS)
    warmup: Fraction = asked(Fraction(0), WARMUP)
    seed: int = asked(0, SEED)


@dataclass(frozen=True)
class CompareQuestion(WithProgress, Question):
    """Simulate the policies, then plan for the time limit, starting from the best of them.

    A policy of the user's whose timeline breaks a rule has a row that says so. A tenth of the time, at most 5 s, goes
    to the regret of each policy that is taken apart, and together no more than half of it.

    Parameters
    ----------
    policies
        As `truenorth.simulate` takes them; None: those of `planner.answers.compare.DEFAULT_POLICIES` (`ahead` up to
        `LONGEST_LISTS`), `OFFLINE_POLICIES` if there is noise and `BATCHING_POLICIES` if there are batch classes, of
        those the ones that can serve the window; for tasks on several GPUs `GANG_POLICIES` (and `SLOWER_GANG_POLICIES`
        up to `LONGEST_LISTS`); for requests of streams `STREAM_POLICIES`, on unlike nodes `WEIGHING` besides.
    noise
        How wrong the run times are that policies are told, as ``told=published:1``; plan and bound know the true ones.
    estimates
        The file of estimates that policies are told.
    progress
        The share of a run after which policies are told when it will end.
    time_limit_s
        Seconds for plan, bound and taking policies apart; simulations, which come before, are not counted.
    warmup
        Fraction of the earliest jobs that the metrics leave out; objective, ratio and gap cover every job.
    regret
        Policies, as they are named among the contenders, that are taken apart; None: the best online one and Compass.
    ray
        Address of a Ray cluster whose workers look for plans as well.

    Raises
    ------
    QuestionError
        If a policy that is to be taken apart is no contender, or ran on an instance of its own, or if there is no such
        cluster.
    NoiseError
        If the noise changes what happens: plan and bound would be those of another window.
    PolicyError
        If a policy that was named cannot serve the window.
    """

    verb: ClassVar[str] = "compare"
    policies: Sequence[str] | None = asked(None, POLICIES)
    _: KW_ONLY
    noise: str | None = asked(
        None, "How wrong the run times are that policies are told.", OptionKind.NOISE, metavar="SPEC"
    )
    estimates: Path | None = asked(None, ESTIMATES)
    progress: Fraction | Path | None = asked(None, PROGRESS)
    time_limit_s: float = asked(
        60.0,
        "Seconds for plan, bound and taking policies apart, per replication; simulations are not counted.",
        OptionKind.SECONDS,
        name="time_limit",
    )
    warmup: Fraction = asked(Fraction(0), WARMUP)
    regret: Sequence[str] | None = asked(
        None, "Policies to take apart, separated by commas (default: the best, and compass).", OptionKind.NAMES
    )
    ray: str | None = asked(
        None, "Search on this Ray cluster, too; replications on it alone.", metavar="ADDRESS", in_sweeps=False
    )
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    watch: Callable[[Progress], None] | None = None
    stop: threading.Event | None = None
