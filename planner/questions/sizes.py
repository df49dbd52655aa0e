"""Questions of sizes: how many servers are enough, at all times or by the interval."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from truenorth.planner.questions.options import BY, ESTIMATES, POLICIES, SEED, TIME_LIMIT, WORKERS, OptionKind, asked
from truenorth.planner.questions.question import Question, WithEstimates

if TYPE_CHECKING:
    from truenorth.models.slo import ServiceLevels


@dataclass(frozen=True)
class SizesQuestion(WithEstimates, Question):
    """Which size meets service levels, and who may answer that.

    Parameters
    ----------
    slo
        Levels that must all hold. None: the scenario's own.
    policies
        Online policies to simulate beside it; None: `DEFAULT_POLICIES` of `planner.answers.servers.by_policy`, with
        batch classes `BATCHING_POLICIES` too, the quickest if the window is too long to plan, gateways for streams.
    most
        The largest number of servers, per group, that is looked at.
    spare
        The levels must still be met with any so many servers gone.
    failures
        How often servers fail and for how long: ``"1 per node per week, 10 min"``, with ``", 20 draws"`` behind it for
        others than 10. The levels must still be met in each draw; bounds and plans are without failures.
    noise
        Under which policies are simulated, as `truenorth.simulate` takes it, but for ``estimates=FILE``.
    estimates
        The file of estimates that they are told.
    rate
        So many times as many requests per second as the scenario says, the same ones: each release is divided by it.
    time_limit_s
        For everything together.
    watch
        Called with a few words whenever the work turns to something else.
    stop
        Set it to end early with what is known.

    Raises
    ------
    QuestionError, InputError, NoiseError, PolicyError
        If there is no level, a policy is unknown, or the scenario cannot be asked about other sizes.
    """

    verb: ClassVar[str] = "servers"
    slo: ServiceLevels | None = asked(
        None,
        "Service level, such as 'p99 slowdown <= 2' (default: the scenario's); several must all hold.",
        OptionKind.LEVELS,
    )
    _: KW_ONLY
    policies: Sequence[str] | None = asked(None, POLICIES)
    most: int | None = asked(
        None, "Most servers, per group, to look at.", OptionKind.WHOLE, name="max", least=1, most=100_000
    )
    spare: int = asked(
        0,
        "The level must still be met with any so many servers gone.",
        OptionKind.WHOLE,
        least=0,
        most=20,
        repeated=False,
    )
    failures: str | None = asked(
        None,
        "Servers fail at a rate, such as '1 per node per week, 10 min'; the level must be met in every draw.",
        metavar="RATE",
    )
    noise: str | None = asked(
        None,
        "Policies run under this noise, such as told=mean; floor and plan do not.",
        OptionKind.NOISE,
        metavar="SPEC",
    )
    estimates: Path | None = asked(None, ESTIMATES)
    rate: Fraction = asked(
        Fraction(1),
        "So many times as many requests per second, the same ones.",
        OptionKind.FACTOR,
        metavar="FACTOR",
        repeated=False,
    )
    time_limit_s: float = asked(300.0, TIME_LIMIT)
    workers: int = asked(2, WORKERS)
    seed: int = asked(0, SEED)
    watch: Callable[[str], None] | None = None
    stop: threading.Event | None = None


@dataclass(frozen=True)
class ServersQuestion(SizesQuestion):
    """Find the least number of servers that meets the service levels, or of priced groups the cheapest mix.

    Parameters
    ----------
    split
        Whether fleets count, too, on which nodes prefill or decode, and never both; the cheaper fleet is ordered.
    """

    _: KW_ONLY
    split: bool = asked(
        False, "Try prefill apart from decode, too, in every ratio; the cheaper fleet is ordered.", OptionKind.FLAG
    )


@dataclass(frozen=True)
class ScheduleQuestion(SizesQuestion):
    """Find the cheapest schedule of counts that meets the levels, for plans and per policy.

    Parameters
    ----------
    by_us
        Length of the intervals in microseconds.
    folder
        What is found out about schedules is kept there, and counts when the same is asked again; None: it is not kept.
    """

    _: KW_ONLY
    by_us: int = asked(MISSING, BY)
    folder: Path | None = None
