"""What the command says of solvers: one that contradicted itself, or that nobody has tried on what is known."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from planner.command import manners
from solvers.faults import SolverFaultWarning


@contextmanager
def reported() -> Iterator[None]:
    """Report the solvers that contradict themselves meanwhile: at the end, each in one line that names its file."""
    found: dict[str, SolverFaultWarning] = {}
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def hear(message: Warning | str, *context: Any, **more: Any) -> None:
            if isinstance(message, SolverFaultWarning):
                found.setdefault(message.solver, message)
            else:
                shown(message, *context, **more)

        warnings.simplefilter("always", SolverFaultWarning)
        warnings.showwarning = hear
        try:
            yield
        finally:
            for fault in found.values():
                manners.say(_in_words(fault))


def _in_words(fault: SolverFaultWarning) -> str:
    from models.scenario import InputError
    from planner.answers.fault_report import write_report

    try:
        where = f"please report it with {write_report(fault)}"
    except InputError as error:
        where = f"no report could be written: {error}"
    return f"truenorth: warning: {fault}; {where}"


def name_untested(record: object) -> object:
    """Return an answer that names the solvers of versions that nobody has tried; they are named to a person, too."""
    from models.record import encode
    from planner.answers.versions import untested_solvers

    untested = untested_solvers()
    if not untested:
        return record
    manners.say(f"truenorth: warning: {', '.join(untested)}: untested with this version of Truenorth")
    return encode(record) | {"untested_solvers": untested}
