"""The manners of the command: one line per error, one object with ``--json``, and what each exit code means."""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command

from truenorth.solvers.trust import SolverFaultWarning

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    from truenorth.models.instance import Instance
    from truenorth.planner.answers.whatif import Sweep
    from truenorth.solvers.result import Result

_PIPE_WIDTH, _ENDLESS = 150, 10_000
_STANDARD_ERROR = 2
DONE, NOT_ACHIEVED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

_TYPED: ContextVar[Sequence[str]] = ContextVar("what was typed behind the command's name", default=())


class UsageError(Exception):
    """The command cannot do what it was asked; the message says what is wrong and what is allowed."""


def run(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; an error becomes one line on standard error."""
    _prepare_streams()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # In a context of its own, so that what this run has read and promised does not outlive it.
    context = copy_context()
    context.run(_TYPED.set, arguments)
    try:
        code = context.run(app, args=list(arguments), prog_name="truenorth", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        return _complain(str(error))
    except typer.TyperException as error:
        return _complain(_described(error))
    except BrokenPipeError:
        return _leave_unread()
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):  # typer ends the process over one
            raise
        return _leave_unread()
    except OSError as error:
        return _complain(f"{error.filename or 'standard output'}: {error.strerror}")
    except (KeyboardInterrupt, typer.Abort):
        say("truenorth: interrupted")
        return INTERRUPTED
    except Exception as error:
        from truenorth.models.errors import UserError  # not before something has failed: `--help` waits for no models

        if not isinstance(error, UserError):
            raise
        return _complain(_by_option(error, app, arguments))
    return code if isinstance(code, int) else DONE


def typed() -> str:
    """Return the command that runs, as it was typed."""
    return shlex.join(["truenorth", *_TYPED.get()])


def _leave_unread() -> int:
    """End quietly: whoever read our output has gone, and the interpreter is not to complain when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def _described(error: typer.TyperException) -> str:
    """Return a usage error in words."""
    describe: Callable[[], str] | None = getattr(error, "format_message", None)
    return str(error) if describe is None else describe()


def _by_option(error: Exception, app: typer.Typer, arguments: Sequence[str]) -> str:
    """Return an error in words, with the verb's option in place of the argument of the Python call that it names."""
    argument = getattr(error, "argument", "")
    if not argument:
        return str(error)
    verbs: Mapping[str, Any] = getattr(get_command(app), "commands", {})
    verb = next((verbs[word] for word in arguments if word in verbs), None)
    options = {option.name: option.opts[-1] for option in (verb.params if verb else ())}
    option = options.get(argument, "")
    return str(error).replace(argument, option, 1) if option.startswith("-") else str(error)


def _complain(message: str) -> int:
    say(f"truenorth: error: {' '.join(message.split())}")
    return BAD_INPUT


def show(record: object, view: Callable[[], object], as_json: bool, written: Iterable[Path | None] = ()) -> None:
    """Print a record as one JSON object, or what a person reads; then say which files were written."""
    if as_json:
        from truenorth.models.record import encode

        print(json.dumps(encode(record)))
    else:
        _show_in_words(view())
    for path in written:
        if path is not None:
            say(f"wrote {path}")


def lazily(view: str, answer: object) -> Callable[[], object]:
    """Return what makes the view of an answer, by the name of a function in `planner.show`, which waits until then."""
    module, _, function = view.partition(".")
    return lambda: getattr(import_module(f"truenorth.planner.show.{module}"), function)(answer)


def kept(what: str, output: Path | None) -> str:
    """Return where what was found before an interruption is; without a file it is shown and no more."""
    return f"{what} is shown; without -o no file keeps it" if output is None else f"{what} is in {output}"


def ended(achieved: bool, interrupted: str | None = None) -> int:
    """Return how a verb ends; of one that was interrupted say what is kept."""
    if interrupted is not None:
        say(f"truenorth: interrupted; {interrupted}")
        return INTERRUPTED
    return DONE if achieved else NOT_ACHIEVED


def ended_replications(made: Sweep, achieved: bool, finished: int) -> int:
    """Return how replications end; say which of them failed, or how many are kept."""
    for error in made.errors:
        say(f"replication {error.cell}: {error.error}")
    return ended(achieved, None if made.complete else f"{finished} finished replications are kept")


def _show_in_words(view: object) -> None:
    """Print what a person reads."""
    from rich.console import Console

    # A table squeezed into the 80 columns that a pipe is supposed to have helps nobody, nor does one that is cut.
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else max(_PIPE_WIDTH, _least_width(view))
    # Whatever a view says is data: no name is mark-up, an emoji's code, or a command to the terminal.
    Console(markup=False, emoji=False, width=width).print(_Spelt(view), crop=is_terminal)


def _least_width(view: Any) -> int:
    """Return how wide a view is in which no word is broken."""
    from rich.console import Console
    from rich.measure import Measurement

    endless = Console(width=_ENDLESS)
    return Measurement.get(endless, endless.options, view).minimum if hasattr(view, "__rich_measure__") else 0


@dataclass(frozen=True, slots=True)
class _Spelt:
    """A view whose control characters are spelt out."""

    view: Any

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield what the view yields."""
        for segment in console.render(self.view, options):
            yield segment if segment.control else segment._replace(text=_spell_out(segment.text))


def _spell_out(text: str) -> str:
    r"""Return a text with everything that is no character to print, but for line feeds, as an escape.

    >>> _spell_out("a\x1b[2Jb\n")
    'a\\x1b[2Jb\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def say(message: str) -> None:
    """Tell a person something beside the output proper."""
    print(_spell_out(message), file=sys.stderr)


def say_if_late(result: Result) -> None:
    """Tell of a plan that a time limit did not allow for."""
    if result.first_plan_late:
        say("truenorth: the time limit was too short for a first plan; it was made all the same, and not improved")
    elif not result.within_limit:
        say(f"truenorth: planning took {result.runtime_s:.1f} s, longer than the limit of {result.time_limit_s:g} s")


def compile_kernels(instance: Instance, method: str | None) -> None:
    """Compile what plans and bounds need before their clock starts, and tell who waits at a terminal why.

    Parameters
    ----------
    method
        How the plan is searched for, if one is: a window that it does not support is refused before.
    """
    from truenorth.solvers.first_use import compile_once

    def tell() -> None:
        if sys.stderr.isatty():
            say("truenorth: compiling kernels, once on this machine; it takes about a minute, which no limit counts")

    compile_once(instance, tell, method)


def _prepare_streams() -> None:
    """Make sure that there are streams to write to, and that they take every character.

    A closed descriptor is opened on nothing: the next file opened would else get its number, and with it what
    libraries print.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def prepare_folder(path: Path) -> None:
    """Make a folder for results, and refuse one that cannot be written before any work is done for it.

    Raises
    ------
    UsageError, InputError
        If it cannot be made, or its files cannot be written.
    """
    from truenorth.models.scenario import assert_writable, promise

    promise()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: no folder can be made here: {error.strerror}; name another") from None
    assert_writable(path / "table.csv")


@contextmanager
def reported() -> Iterator[None]:
    """Say what scenarios are hardly meant to say, and report solvers that contradict themselves, each in one line."""
    found: dict[str, SolverFaultWarning] = {}
    said = set[str]()
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def hear(message: Warning | str, *context: Any, **more: Any) -> None:
            from truenorth.models.errors import ScenarioWarning

            if isinstance(message, SolverFaultWarning):
                found.setdefault(message.solver, message)
            elif not isinstance(message, ScenarioWarning):
                shown(message, *context, **more)
            elif str(message) not in said:
                said.add(str(message))
                say(f"truenorth: warning: {message}")

        warnings.simplefilter("always", SolverFaultWarning)
        warnings.showwarning = hear
        try:
            yield
        finally:
            for fault in found.values():
                say(_in_words(fault))


def _in_words(fault: SolverFaultWarning) -> str:
    from truenorth.models.scenario import InputError
    from truenorth.planner.answers.versions import write_report

    try:
        where = f"please report it with {write_report(fault)}"
    except InputError as error:
        where = f"no report could be written: {error}"
    return f"truenorth: warning: {fault}; {where}"


def name_untested(record: object) -> object:
    """Return an answer that names the solvers of versions that nobody has tried; they are named to a person, too."""
    from truenorth.models.record import encode
    from truenorth.planner.answers.versions import untested_solvers

    untested = untested_solvers()
    if not untested:
        return record
    say(f"truenorth: warning: {', '.join(untested)}: untested with this version of Truenorth")
    return encode(record) | {"untested_solvers": untested}
