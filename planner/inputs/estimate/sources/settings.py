"""A setting of a job: the key it stands under, its value, and how much its place says; which keys mean which field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

Constant = str | int | float | bool | tuple[object, ...]
"""What a setting may be; tuples stand for lists."""

EVALUATION = frozenset(["eval", "evaluation", "val", "valid", "validation", "test", "testing", "dev"])
"""Words that mark a setting of the evaluation, not of the job proper."""
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
GPUS_PER_NODE, NODES = "gpus_per_node", "nodes"
"""Beside the fields of a description; their product is a number of GPUs."""
MAX_NUMBER = 10**15
_MAX_NAME = 300

_KEYS = {
    "model": "model model_name model_name_or_path model_id model_path model_arch model_tag model_pretrained "
    "name_or_path pretrained_model_name_or_path pretrained_model pretrained_model_path base_model "
    "arch architecture backbone",
    "batch_size": "batch_size batchsize batch bs bsz train_batch_size batch_size_train training_batch_size "
    "per_device_train_batch_size per_device_batch_size per_gpu_train_batch_size per_gpu_batch_size batch_size_per_gpu "
    "batch_size_per_device train_micro_batch_size_per_gpu micro_batch_size mini_batch_size minibatch_size "
    "samples_per_gpu global_batch_size",
    "steps": "steps max_steps num_steps n_steps total_steps train_steps training_steps num_train_steps max_train_steps "
    "num_training_steps total_training_steps iters max_iters num_iters n_iters train_iters total_iters iterations "
    "max_iterations num_iterations num_inference_steps inference_steps denoising_steps",
    "epochs": "epochs epoch num_epochs n_epochs nb_epochs max_epochs total_epochs train_epochs training_epochs "
    "num_train_epochs num_training_epochs",
    "precision": "precision mixed_precision train_precision dtype torch_dtype amp_dtype model_dtype fp16 use_fp16 half "
    "fp16_enabled bf16 use_bf16 bf16_enabled amp use_amp amp_enabled load_in_8bit load_in_4bit",
    "dataset": "dataset dataset_name dataset_path dataset_id dataset_dir data data_path data_dir data_root data_name "
    "train_data train_data_path train_data_dir train_file train_dataset train_path train_dir",
    "gpus": "num_processes world_size slurm_gpus tensor_parallel_size tensor_parallel total_gpus",
    GPUS_PER_NODE: "nproc_per_node gpus_per_node num_gpus_per_node ngpus_per_node gpus num_gpus n_gpus n_gpu ngpu "
    "ngpus gpu_count devices device_ids gpu_ids cuda_visible_devices gres slurm_gpus_per_node",
    NODES: "nnodes num_nodes nodes n_nodes slurm_nodes",
}
_FIELD = {key: field for field, keys in _KEYS.items() for key in keys.split()}
_AMBIGUOUS_IN_CODE = frozenset(
    [
        "steps",
        "data",
        "batch",
        "epoch",
        "model_path",
        "nodes",
        "iters",
        "gpus",
        "half",
        "dtype",
        "data_dir",
        "train_dir",
    ]
)
"""Keys that mean the job's settings in options and configurations, but too much else as names and keywords in code."""
_PROCESSES = frozenset(["num_processes", "world_size"])
"""Each has a GPU where a launcher starts them, but not where source does."""
_ELSEWHERE = frozenset(
    [
        "optimizer",
        "optim",
        "scheduler",
        "warmup",
        "logging",
        "logger",
        "log",
        "save",
        "saving",
        "checkpoint",
        "callbacks",
    ]
)
"""Sections whose steps and epochs are their own."""

_PRECISION = {
    "fp64": "fp64 float64 double 64 64-true",
    "fp32": "fp32 float32 float full 32 32-true no",
    "fp16": "fp16 float16 half f16 16 16-mixed 16-true mixed_float16",
    "bf16": "bf16 bfloat16 bf16-mixed bf16-true mixed_bfloat16",
    "fp8": "fp8 float8 float8_e4m3fn",
    "int8": "int8 8bit",
    "int4": "int4 4bit nf4",
    "amp": "amp mixed true",
}
_PRECISION_OF = {spelling: name for name, spellings in _PRECISION.items() for spelling in spellings.split()}
_FLAG_MEANS = {"load_in_8bit": "int8", "load_in_4bit": "int4", "half": "fp16"}
_FLAG = re.compile(r"(?:use_)?(fp16|bf16|amp)(?:_enabled)?|half|load_in_[48]bit")
_NO_NAMES = ("none", "null", "auto", "scratch", "resume", "latest", "last", "best")
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
    return None if value.strip().lower() in (*_NO_NAMES, *_TRUE, *_FALSE) else value.strip()


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
