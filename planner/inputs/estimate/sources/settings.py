"""A setting of a job: the key it stands under, its value, and how much its place says; which keys mean which field."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib.resources import files

Constant = str | int | float | bool | tuple[object, ...]
"""What a setting may be; tuples stand for lists."""

VOCABULARY = tomllib.loads(
    files("truenorth.planner.inputs.estimate.sources").joinpath("vocabulary.toml").read_text(encoding="utf-8")
)
"""The words by which files say what a job is."""


def listed(sort: str) -> tuple[str, ...]:
    """Return the words of a sort."""
    return tuple(VOCABULARY["sorts"][sort].split())


def _by_word(of: str) -> dict[str, str]:
    """Return what each word of a table of the vocabulary means."""
    return {word: meaning for meaning, words in VOCABULARY[of].items() for word in words.split()}


EVALUATION = frozenset(listed("evaluation"))
GPUS_PER_NODE, NODES = "gpus_per_node", "nodes"
"""Beside the fields of a description; their product is a number of GPUs."""
MAX_NUMBER = 10**15
_MAX_NAME = 300
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FIELD, _PRECISION_OF = _by_word("keys"), _by_word("precisions")
_AMBIGUOUS_IN_CODE, _PROCESSES, _ELSEWHERE, _NO_NAMES = (
    frozenset(listed(sort)) for sort in ("ambiguous_in_code", "processes", "elsewhere", "no_names")
)
_FLAG_MEANS = {"load_in_8bit": "int8", "load_in_4bit": "int4", "half": "fp16"}
_FLAG = re.compile(r"(?:use_)?(fp16|bf16|amp)(?:_enabled)?|half|load_in_[48]bit")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_NUMBERS = re.compile(r"\d{1,4}(?:,\d{1,4}){0,200},?")
_GRES = re.compile(r"gpu(?::[\w.-]{1,40})?(?::(\d{1,4}))?")


class SettingOrigin(IntEnum):
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
    origin: SettingOrigin
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


def field_of(path: Sequence[str], origin: SettingOrigin = SettingOrigin.CONFIG) -> tuple[str, bool] | None:
    """Return the field that a key means where it stands, and whether it is the evaluation's; None if it means none.

    >>> field_of(("trainer", "max_epochs")), field_of(("per_device_eval_batch_size",))
    (('epochs', False), ('batch_size', True))
    >>> field_of(("model", "name")), field_of(("name",)), field_of(("lr_scheduler", "total_steps"))
    (('model', False), None, None)
    """
    if is_aside(path[:-1]):
        return None
    parts = [words(part) for part in path[-4:]]
    plain = ["_".join(word for word in part if word not in EVALUATION) for part in parts]
    evaluation = any(EVALUATION.intersection(part) for part in parts)
    keys = ["_".join(part for part in plain[-2:] if part), plain[-1]] if len(plain) > 1 else [plain[-1]]
    for key in keys:
        in_code = origin in (SettingOrigin.ASSIGNMENT, SettingOrigin.CALL)
        ambiguous = (in_code and key in _AMBIGUOUS_IN_CODE) or (origin < SettingOrigin.CONFIG and key in _PROCESSES)
        if key in _FIELD and not ambiguous:
            return _FIELD[key], evaluation
    return None


def is_aside(sections: Sequence[str]) -> bool:
    """Say whether sections such as ``lr_scheduler`` have steps and epochs of their own.

    >>> is_aside(("train", "lr_scheduler")), is_aside(("trainer",))
    (True, False)
    """
    return any(_ELSEWHERE.intersection(words(section)) for section in sections[-4:])


def is_off(path: Sequence[str], value: Constant | None) -> bool:
    """Say whether a setting is a switch that is off: it says what the job does not do, not what it does.

    >>> is_off(("fp16",), False), is_off(("fp16", "enabled"), "false"), is_off(("mixed_precision",), "no")
    (True, True, False)
    """
    return _flag(path) is not None and (value is False or str(value).lower() in _FALSE)


def read_value(field: str, path: Sequence[str], value: Constant) -> str | int | float | None:
    """Return a setting's value as the field holds it; None if it is none for this field.

    >>> read_value("batch_size", ("bs",), "1e3"), read_value("gpus_per_node", ("gpus",), "0,1,2")
    (1000, 3)
    >>> read_value("precision", ("precision",), "bf16-mixed"), read_value("precision", ("fp16",), True)
    ('bf16', 'fp16')
    """
    if field in ("model", "dataset"):
        return _name(value)
    if field == "precision":
        return _precision(path, value)
    if field == GPUS_PER_NODE:
        return _count(path, value)
    number = _number(value)
    if number is None or number <= 0 or (field != "epochs" and number != int(number)):
        return None
    return number if field == "epochs" else int(number)


def _name(value: Constant) -> str | None:
    if not isinstance(value, str) or not value.strip() or len(value) > _MAX_NAME or not value.isprintable():
        return None
    return None if value.strip().lower() in _NO_NAMES else value.strip()


def _flag(path: Sequence[str]) -> str | None:
    """Return the precision that a switch turns on; None for a key that is no switch."""
    for key in ("_".join(words(path[-1])), "_".join(words("_".join(path[-2:])))):
        found = _FLAG.fullmatch(key)
        if found:
            return _FLAG_MEANS.get(key) or found[1]
    return None


def _precision(path: Sequence[str], value: Constant) -> str | None:
    flag = _flag(path)
    text = str(value).lower().removeprefix("torch.")
    if flag is not None and (value is True or text in _TRUE):
        return flag
    return _PRECISION_OF.get(text)


def _number(value: Constant) -> float | None:
    if isinstance(value, bool | tuple):
        return None
    try:
        number = float(value.replace("_", "").replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return number if -MAX_NUMBER < number < MAX_NUMBER else None


def _count(path: Sequence[str], value: Constant) -> int | None:
    """Return how many GPUs a number, a list of their numbers or a Slurm resource is."""
    if isinstance(value, tuple):
        return len(value) or None
    text, last = str(value), words(path[-1])[-1]
    if _NUMBERS.fullmatch(text) and ("," in text or (last in ("ids", "devices") and len(words(path[-1])) > 1)):
        return text.strip(",").count(",") + 1
    if last == "gres" and (found := _GRES.fullmatch(text)):
        return int(found[1] or 1)
    number = _number(value)
    return int(number) if number is not None and number > 0 and number == int(number) else None
