"""Options of questions: what stands with a field, once, for the command, for sweeps and for who repeats an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from enum import Enum, StrEnum, auto
from typing import Any


class PlanFor(StrEnum):
    """Which run times a plan is made for where they are estimates."""

    P50 = "p50"
    P90 = "p90"
    SAMPLES = "samples"


class OptionKind(Enum):
    """What an option's value is, and so how its text is read.

    Attributes
    ----------
    TEXT, WHOLE, FILE
        Text, a whole number, a path.
    SECONDS
        A time limit: seconds for the command, a time with its unit in sweeps.
    SHARE
        Of at least 0 and below 1, exactly.
    PROGRESS
        A share, or a folder of logs.
    FACTOR
        A number, exactly.
    TIME
        With its unit; in microseconds once read.
    POLICY, NAMES
        A policy with its parameters; several, separated by commas.
    NOISE
        What `planner.answers.uncertain.spec.parse_uncertainty` reads.
    LEVELS
        Service levels that must all hold.
    CHOICE
        One of a few words.
    FLAG
        Whether something is wanted; not unless it is said.
    """

    TEXT = auto()
    WHOLE = auto()
    FILE = auto()
    SECONDS = auto()
    SHARE = auto()
    PROGRESS = auto()
    FACTOR = auto()
    POLICY = auto()
    NAMES = auto()
    TIME = auto()
    NOISE = auto()
    LEVELS = auto()
    CHOICE = auto()
    FLAG = auto()


@dataclass(frozen=True, slots=True)
class Option:
    """How a field is asked for outside Python.

    Parameters
    ----------
    help
        One line for whoever types it.
    kind
        What it is.
    name
        As it is typed, and as it stands in sweeps; empty: the field's own.
    metavar
        What stands for its value in the help.
    least, most
        Of a number.
    choices
        Of a choice.
    in_sweeps
        Whether the cells of a sweep may differ in it, and so their answers; not what says how a question is answered.
    otherwise
        What holds where nothing is said, for the help; empty: the default.
    repeated
        Whether it is said where a command is repeated that asked for the default.
    """

    help: str
    kind: OptionKind = OptionKind.TEXT
    name: str = ""
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    in_sweeps: bool = True
    otherwise: str = ""
    repeated: bool = True


def asked(default: Any, text: str | Option, kind: OptionKind = OptionKind.TEXT, **more: Any) -> Any:
    """Return the field of an option, `Option` in words: its default (MISSING: it must be given), help and kind."""
    return field(default=default, metadata={"option": text if isinstance(text, Option) else Option(text, kind, **more)})


def options_of(question: Any) -> Iterator[tuple[Field[Any], Option]]:
    """Yield the fields of a question, or of a class of questions, that have an option, in their order."""
    for each in fields(question):
        if "option" in each.metadata:
            yield each, each.metadata["option"]


def name_of(each: Field[Any]) -> str:
    """Return what an option is called in sweeps; the command has dashes in it."""
    return each.metadata["option"].name or each.name


def typed_as(each: Field[Any]) -> str:
    """Return what an option is called at the command.

    >>> from truenorth.planner.questions.sizes import SizesQuestion
    >>> [typed_as(each) for each, _ in options_of(SizesQuestion)][2:]
    ['--max', '--spare', '--failures', '--noise', '--estimates', '--rate', '--time-limit', '--workers', '--seed']
    """
    return f"--{name_of(each).replace('_', '-')}"


def say(value: Any, kind: OptionKind) -> list[str]:
    """Return a value as it is typed, once for every time.

    >>> say(60.0, OptionKind.SECONDS), say(("srpt", "jit"), OptionKind.NAMES)
    (['60'], ['srpt,jit'])
    """
    if kind is OptionKind.LEVELS:
        return [str(level) for level in value]
    if kind is OptionKind.NAMES:
        return [",".join(value)]
    if kind is OptionKind.TIME:
        return [f"{value / 1e6:.12g} s"]
    return [f"{float(value):.12g}" if kind in (OptionKind.SECONDS, OptionKind.FACTOR) else str(value)]


SEED = Option("The same seed repeats a run.", OptionKind.WHOLE, least=0, most=2**31 - 1)
TIME_LIMIT = Option("Time for everything together; plain numbers are seconds.", OptionKind.SECONDS, name="time_limit")
WORKERS = Option("Processes or threads to search with.", OptionKind.WHOLE, least=1, most=64, in_sweeps=False)
WARMUP = Option("Share of the earliest jobs that the metrics leave out, such as 0.1.", OptionKind.SHARE)
POLICIES = Option("Policies, separated by commas (default: those that suit the window).", OptionKind.NAMES)
RAY = Option("Search on this Ray cluster, too: HOST:PORT of its head, or auto.", metavar="ADDRESS", in_sweeps=False)
ESTIMATES = Option(
    "Policies are told the run times of this file (estimate -o); the scenario's hold. Short for --noise told=FILE.",
    OptionKind.FILE,
    metavar="FILE",
)
DEVICE = Option("Where to run.", OptionKind.CHOICE, choices=("cpu", "cuda"))
RUNNER = Option(
    "Who computes: synthetic, transformers[:size=full,weights=FOLDER], module:factory.",
    otherwise="synthetic; for requests of streams transformers:other=llm",
)
VIRTUAL = Option(
    "Several GPUs of the scenario on one device: side by side, or one run at a time.",
    OptionKind.CHOICE,
    choices=("parallel", "serial"),
)
DEVICES_ON_RAY = Option(
    "Use the devices of this Ray cluster's nodes: HOST:PORT of its head, or auto.", metavar="ADDRESS"
)
PATIENCE = Option(
    "How much longer than given anything may take before it is given up; plain numbers are seconds.",
    OptionKind.SECONDS,
    name="limit",
)
BY = Option("Length of the intervals, such as '1 h'.", OptionKind.TIME, name="by")
PROGRESS = Option(
    "Policies are told when a job will end once it has done this share of its run, or as its log in this folder says. "
    "Short for --noise progress=.",
    OptionKind.PROGRESS,
    metavar="SHARE|LOGS",
)
CONFIDENCE = Option("With which the next window is served, too; needs --replications.", OptionKind.SHARE)
SAMPLES = Option("Samples of a profile of this scenario, to predict from.", OptionKind.FILE, metavar="FILE")
