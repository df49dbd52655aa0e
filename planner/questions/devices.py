"""Questions of devices, which are answered in real time: profiles, replays and trials."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import ClassVar

from truenorth.planner.questions.options import (
    DEVICE,
    DEVICES_ON_RAY,
    PATIENCE,
    RUNNER,
    SAMPLES,
    SEED,
    VIRTUAL,
    OptionKind,
    asked,
)
from truenorth.planner.questions.question import Question


@dataclass(frozen=True)
class ProfileQuestion(Question):
    """Measure run times, loads and transfers, on this machine or a Ray cluster's.

    Parameters
    ----------
    folder
        Where every round is kept as it ends; None: nowhere.
    watch
        Told how many rounds are done, those of the warm-up included.
    stop
        Set it to end early with the rounds that have ended.
    """

    verb: ClassVar[str] = "profile"
    device: str = asked(MISSING, "What is measured.", OptionKind.CHOICE, choices=DEVICE.choices)
    _: KW_ONLY
    runner: str | None = asked(None, RUNNER)
    rounds: int = asked(10, "How often every workflow is run, after the warm-up.", OptionKind.WHOLE, least=1)
    beside: int = asked(0, "How many more GPUs do the same meanwhile.", OptionKind.WHOLE, least=0)
    memory: bool = asked(False, "Let tasks hold, as `memory`, what they take beside the weights.", OptionKind.FLAG)
    ray: str | None = asked(None, DEVICES_ON_RAY)
    folder: Path | None = None
    watch: Callable[[int], None] | None = None
    stop: threading.Event | None = None


@dataclass(frozen=True)
class ReplayQuestion(Question):
    """Carry out a plan or an online policy on devices, in real time.

    Parameters
    ----------
    policy
        A path: of a plan or timeline file; text: a policy with its parameters, or such a file's name.
    """

    verb: ClassVar[str] = "replay"
    policy: str | Path = ""
    _: KW_ONLY
    device: str = asked("cpu", DEVICE)
    runner: str | None = asked(None, RUNNER)
    virtual: str | None = asked(None, VIRTUAL)
    ray: str | None = asked(None, DEVICES_ON_RAY)
    limit_s: float = asked(30.0, PATIENCE)
    samples: Path | None = asked(None, SAMPLES)
    check_outputs: bool = asked(False, "Afterwards run every task alone and compare its output.", OptionKind.FLAG)
    seed: int = asked(0, SEED)

    def typed(self) -> list[str]:
        """Return what is typed behind the scenario: a plan's file, or the policy, and the options."""
        return [str(self.policy)] * isinstance(self.policy, Path) + super().typed()

    def said(self) -> Iterator[tuple[str, str]]:
        """Yield the policy, unless a plan is carried out, and the other options."""
        if not isinstance(self.policy, Path):
            yield "--policy", self.policy
        yield from super().said()


@dataclass(frozen=True)
class TrialQuestion(Question):
    """Run plans and policies on the same devices, again and again in random order.

    Parameters
    ----------
    folder
        Where every run is kept as it ends; None: nowhere.
    watch
        Told how many runs are done.
    stop
        Set it to end early with the runs that have ended.
    """

    verb: ClassVar[str] = "trial"
    policies: Sequence[str] = asked(
        ("plan", "compass", "srpt"),
        "Contenders, separated by commas: plan, policies, plan files; the first is compared to.",
        OptionKind.NAMES,
    )
    _: KW_ONLY
    repeats: int = asked(5, "How often all of them run.", OptionKind.WHOLE, least=1)
    device: str = asked("cpu", DEVICE)
    runner: str | None = asked(None, RUNNER)
    virtual: str | None = asked(None, VIRTUAL)
    ray: str | None = asked(None, DEVICES_ON_RAY)
    limit_s: float = asked(30.0, PATIENCE)
    samples: Path | None = asked(None, SAMPLES)
    count_faults: bool = asked(False, "Let runs with faults count in the means, too.", OptionKind.FLAG)
    time_limit_s: float = asked(
        60.0, "Time for making the plan; plain numbers are seconds.", OptionKind.SECONDS, name="time_limit"
    )
    seed: int = asked(0, SEED)
    folder: Path | None = None
    watch: Callable[[int], None] | None = None
    stop: threading.Event | None = None
