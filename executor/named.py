"""What a user names on the command line: ``name:key=value,key=value``, or ``module:attribute`` of the user's own code.

Policies and runners are both named so; what differs is what they are called and the error they raise.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path

from truenorth.models.errors import UserError

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
        """Return an attribute of a module of the user's, installed or in the working folder."""
        here, name = str(Path.cwd()), f"{self.word} {module_name}:{attribute}"
        added = here not in sys.path
        if added:
            sys.path.append(here)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # a module of the user's may raise anything
            said = f"{error}" if isinstance(error, ImportError | SyntaxError) else f"{type(error).__name__}: {error}"
            folder = (getattr(error, "name", None) or "").partition(".")[0]
            if isinstance(error, ImportError) and folder in FOLDERS:
                said += f" (import it from truenorth.{folder})"
            raise self.error(
                f"{name}: module {module_name} cannot be imported: {said}; allowed is one that is installed or lies "
                "in the working folder"
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
        except Exception as error:  # and so may a class of options
            raise self.error(f"{self.word} {name}: {type(error).__name__}: {error}") from None


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
