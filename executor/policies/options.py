"""What a user names on the command line: ``name:key=value,key=value``, or ``module:attribute`` of the user's own code.

In place of the module there may be the path of its file, ``mine.py``. Policies and runners are both named so; what
differs is what they are called and the error they raise. Their options are frozen dataclasses whose fields say how they
are read from text.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from truenorth.models.errors import UserError
from truenorth.models.units import parse_time

T = TypeVar("T")


def option(default: T, read: Callable[[str], T]) -> T:
    """Return a dataclass field that `read` reads from text; it raises ValueError for a text it cannot read."""
    made: T = field(default=default, metadata={"read": read})
    return made


def switch(text: str) -> bool:
    """Read on or off.

    >>> switch("off"), switch("1")
    (False, True)
    """
    known = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
    if text.lower() not in known:
        raise ValueError(f"{text!r} is not on or off")
    return known[text.lower()]


def count(text: str) -> int:
    """Read a whole number of at least 0."""
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is no whole number of at least 0")
    return int(text)


def count_from_1(most: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers of at least 1.

    >>> count_from_1()("2000")
    2000
    """

    def read(text: str) -> int:
        value = count(text)
        if value < 1 or (most is not None and value > most):
            raise ValueError(f"{value} is not allowed; at least 1" + ("" if most is None else f", at most {most}"))
        return value

    return read


def counts(text: str) -> tuple[int, ...]:
    """Read whole numbers of at least 1, joined by ``+``.

    >>> counts("1+2")
    (1, 2)
    """
    return tuple(map(count_from_1(), text.split("+")))


def names(text: str) -> tuple[str, ...]:
    """Read names with a plus sign between them.

    >>> names("chat+search")
    ('chat', 'search')
    """
    return tuple(text.split("+"))


def factor(text: str) -> float:
    """Read a finite number of at least 0."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is no finite number of at least 0")
    return value


def duration(text: str) -> int:
    """Read a time of at least 0 with its unit, in microseconds."""
    value = parse_time(text)
    if value < 0:
        raise ValueError(f"{text!r} is negative")
    return value


def positive_duration(text: str) -> int:
    """Read a time above 0 with its unit, in microseconds."""
    value = duration(text)
    if not value:
        raise ValueError(f"{text!r} is not above 0")
    return value


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return a reader of one of these words."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return text

    return read


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What is seen of the workers, and when a task queues up.

    Parameters
    ----------
    period
        Every so many microseconds each worker publishes its state; 0: the view is always fresh.
    remaining
        Whether the running task counts with its remaining time as load, or with its full run time.
    enqueue
        A task with several inputs queues up when its ``first`` or its ``last`` one arrives.
    own_decisions
        Whether who decides knows the work that it has sent to a worker at once, or only once it is published.
    """

    period: int = option(1_000, duration)
    remaining: bool = option(True, switch)
    enqueue: str = option("first", one_of("first", "last"))
    own_decisions: bool = option(True, switch)


BATCHES_OFF = -1
"""Stands for no batches."""


def batching(text: str) -> int:
    """Read how batches are formed: ``greedy``, ``off`` or ``delay:TIME``; in microseconds of delay.

    >>> batching("greedy"), batching("off"), batching("delay:20ms")
    (0, -1, 20000)
    """
    if text in ("greedy", "off"):
        return 0 if text == "greedy" else BATCHES_OFF
    word, _, time = text.partition(":")
    if word != "delay" or not time:
        raise ValueError(f"{text!r} is not greedy, off or delay:TIME")
    return duration(time)


@dataclass(frozen=True, slots=True)
class QueueOptions(ViewOptions):
    """How a worker with a queue keeps its memory, besides.

    Parameters
    ----------
    lookahead
        How many queued tasks the prefetch looks at.
    prefetch
        Most models that a GPU prefetches between two starts of tasks; 0: none.
    evict
        ``lookahead``: models that the local queue does not need first, then the one needed furthest in the future;
        equals by least recent use, and one that a later, larger one makes superfluous stays. ``lookahead-fifo``: the
        same, but equals by their loads, oldest first, and nothing is spared. ``lru``: least recent use alone.
        ``fifo``: the one loaded longest ago.
    batch
        ``greedy``: a task in turn takes along what is ready of its batch class in its GPU's queue, up to the largest
        batch; ``delay:TIME``: but a batch that is not full starts only once that task has been ready for so long, and
        those behind it wait; ``off``: every task is a batch of one.
    """

    lookahead: int = option(3, count)
    prefetch: int = option(1, count)
    evict: str = option("lookahead", one_of("lookahead", "lookahead-fifo", "lru", "fifo"))
    batch: int = option(0, batching)


FOLDERS = ("executor", "models", "planner", "solvers")
"""What is imported from `truenorth`, and once had no name before it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that can be named.

    Parameters
    ----------
    word
        What messages call it, such as ``policy``.
    error
        What is raised for every name that cannot be read.
    """

    word: str
    error: type[UserError]

    def load(self, module_name: str, attribute: str) -> object:
        """Return an attribute of a module of the user's, named by its file, installed, or in the working folder."""
        file = Path(module_name) if module_name.endswith(".py") else None
        here, name = (
            str(Path.cwd() if file is None else file.resolve().parent),
            f"{self.word} {module_name}:{attribute}",
        )
        added = here not in sys.path
        if added:
            sys.path.append(here)
        try:
            module = importlib.import_module(module_name) if file is None else _of_file(file)
        except Exception as error:  # a module of the user's may raise anything
            said = f"{error}" if isinstance(error, ImportError | SyntaxError) else f"{type(error).__name__}: {error}"
            folder = (getattr(error, "name", None) or "").partition(".")[0]
            if isinstance(error, ImportError) and folder in FOLDERS:
                said += f" (import it from truenorth.{folder})"
            raise self.error(
                f"{name}: module {module_name} cannot be imported: {said}; allowed is one that is installed or lies "
                "in the working folder, or the path of its file, such as mine.py"
            ) from None
        finally:
            if added:
                sys.path.remove(here)
        if not hasattr(module, attribute):
            known = [known for known in vars(module) if not known.startswith("_")]
            raise self.error(f"{name}: there is no {attribute} in that module{nearest(attribute, known)}")
        return getattr(module, attribute)

    def options(self, name: str, options: type | None, text: str) -> object | None:
        """Read ``key=value,key=value`` into a dataclass whose fields' metadata say how; None if there is no class."""
        known = fields(options) if is_dataclass(options) else ()
        readers = {field.name: field.metadata["read"] for field in known if "read" in field.metadata}
        values: dict[str, object] = {}
        for item in filter(None, text.split(",")):
            key, given, value = item.strip().partition("=")
            if key not in readers:
                allowed = ", ".join(readers) or "none"
                raise self.error(
                    f"{self.word} {name}: unknown option {key!r}{nearest(key, readers)}; allowed are {allowed}"
                )
            if not given or key in values:
                raise self.error(f"{self.word} {name}: option {key!r} must be given once, as {key}=value")
            try:
                values[key] = readers[key](value)
            except ValueError as error:
                raise self.error(f"{self.word} {name}: option {key}: {error}") from None
            except Exception as error:  # a reader of the user's may raise anything
                said = f"{type(error).__name__}: {error}"
                raise self.error(f"{self.word} {name}: option {key}: {said}") from None
        try:
            return options(**values) if isinstance(options, type) else None
        except ValueError as error:  # of values that do not go together
            raise self.error(f"{self.word} {name}: {error}") from None
        except Exception as error:  # and so may a class of options
            raise self.error(f"{self.word} {name}: {type(error).__name__}: {error}") from None


def _of_file(file: Path) -> ModuleType:
    """Return the module of a file, executed once; its path is its name, since others may be called as it is."""
    name = str(file.resolve())
    if name not in sys.modules:
        if not file.is_file():
            raise ImportError(f"there is no file {file}")
        loader = SourceFileLoader(name, name)
        # Known by name while it runs: dataclasses look their module up.
        sys.modules[name] = module = module_from_spec(ModuleSpec(name, loader, origin=name))
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def by_old_name(loaded: object) -> str:
    """Return a remark on a class that derives from one of Truenorth's by its old name, or nothing.

    Where the folders themselves can be imported, as in a checkout, ``executor.Policy`` is a second class of that name.
    """
    bases = loaded.__mro__ if isinstance(loaded, type) else ()
    old = next((base for base in bases if base.__module__.partition(".")[0] in FOLDERS), None)
    if old is None:
        return ""
    return f" as it is imported now: {old.__name__} from truenorth.{old.__module__.partition('.')[0]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a remark that names the closest known word, or nothing."""
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
