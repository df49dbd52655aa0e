"""A setting of a job: the key it stands under, its value, and how much its place says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

Constant = str | int | float | bool | tuple[object, ...]
"""What a setting may be; tuples stand for lists."""

EVALUATION = frozenset(["eval", "evaluation", "val", "valid", "validation", "test", "testing", "dev"])
"""Words that mark a setting of the evaluation, not of the job proper."""
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Origin(IntEnum):
    """Where a setting comes from; a higher one overrides a lower one, and among equals the later one wins."""

    DEFAULT = 1
    """Default of an option, of a dataclass or class attribute, or of a parameter."""
    ASSIGNMENT = 2
    """An assignment or a literal dictionary in source."""
    CALL = 3
    """An argument of a call in source."""
    CONFIG = 4
    """A configuration file."""
    SCRIPT = 5
    """A launch line in a shell script."""
    COMMAND = 6
    """The launch line that the caller gave."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and its value.

    Parameters
    ----------
    path
        The key behind the keys of the mappings that it stands in, as written.
    value
        None if the setting is there but its value cannot be known; from a configuration file or
        a launch line, this makes the field unknown.
    origin, file, line
        Where it stands.
    weak
        Of the evaluation or of a helper such as a tokeniser: counts only if nothing else does.
    certain
        False in a branch that may not run: several such that disagree say nothing.
    """

    path: tuple[str, ...]
    value: Constant | None
    origin: Origin
    file: str
    line: int
    weak: bool = False
    certain: bool = True


def words(key: str) -> list[str]:
    """Return the words of a key in lower case.

    >>> words("--perDevice_Batch-size"), words("MODEL_NAME")
    (['per', 'device', 'batch', 'size'], ['model', 'name'])
    """
    return [word for word in re.split(r"[^a-z0-9]+", _CAPITALS.sub("_", key[:200]).lower()) if word]


def canonical(key: str) -> str:
    """Return a key in one spelling.

    >>> canonical("--batch-size"), canonical("batchSize")
    ('batch_size', 'batch_size')
    """
    return "_".join(words(key))
