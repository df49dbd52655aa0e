"""Calls of well-known libraries whose arguments, or whose very names, are settings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Found = tuple[tuple[str, ...], ast.expr | str, bool]
"""A key, its value (an expression, or a text that is known), and whether it is a helper's."""

_MODEL_ZOOS = ("torchvision.models.", "keras.applications.", "tensorflow.keras.applications.", "transformers.models.")
_DATASET_ZOOS = ("torchvision.datasets.", "torchaudio.datasets.", "torchtext.datasets.", "torch_geometric.datasets.")
_NOT_MODELS = ("list_models", "get_weight", "get_model_weights", "get_model_builder")
_HELPERS = (
    "Tokenizer", "TokenizerFast", "Processor", "FeatureExtractor", "Config", "Scheduler", "AutoencoderKL", "VAE",
)  # fmt: skip
_POSITION = {
    "from_pretrained": ("model", 0),
    "create_model": ("model", 0),
    "create_model_and_transforms": ("model", 0),
    "get_model": ("model", 0),
    "SentenceTransformer": ("model", 0),
    "CrossEncoder": ("model", 0),
    "WhisperModel": ("model", 0),
    "LLM": ("model", 0),
    "YOLO": ("model", 0),
    "DataLoader": ("batch_size", 1),
    "load_dataset": ("dataset", 0),
    "load_from_disk": ("dataset", 0),
    "ImageFolder": ("dataset", 0),
    "DatasetFolder": ("dataset", 0),
    "read_csv": ("dataset", 0),
    "read_parquet": ("dataset", 0),
}
"""What the positional argument at an index is."""
_KEYWORD = {
    "load_dataset": ("path", "dataset"),
    "load_from_disk": ("dataset_path", "dataset"),
    "ImageFolder": ("root", "dataset"),
    "DatasetFolder": ("root", "dataset"),
}
"""The keyword that may stand in its place, where the vocabulary does not know it."""
_WHOLE_NAME = {"whisper.load_model": ("model", 0), "clip.load": ("model", 0), "torch.hub.load": ("model", 1)}
_BUILDERS = frozenset(["json", "csv", "parquet", "text", "imagefolder", "audiofolder", "arrow", "webdataset"])
_WEAK = frozenset(("read_csv", "read_parquet"))
_TAKE_DTYPE = ("from_pretrained", "pipeline", "LLM", "autocast")
_CASTS = {"half": "fp16", "bfloat16": "bf16"}
_MODELS = ("model", "pipe", "net")


def takes_dtype(name: str) -> bool:
    """Say whether ``dtype=`` of this call is the precision of a model, and not that of a tensor."""
    return name.endswith(_TAKE_DTYPE)


def is_helper(name: str) -> bool:
    """Say whether a call makes a tokeniser, a configuration or another part beside the model."""
    owner = name.rsplit(".", 2)[-2:]
    return len(owner) == 2 and owner[0].endswith(_HELPERS)


def name_arguments(call: ast.Call, name: str, dotted: Callable[[ast.expr], str]) -> Iterator[Found]:
    """Yield the settings of a call that no keyword of the vocabulary states.

    Parameters
    ----------
    call
        The call.
    name
        Its dotted name, imports followed.
    dotted
        The dotted name of any expression.
    """
    last = name.rsplit(".", 1)[-1]
    yield from _zoos(call, name, last, dotted)
    if last == "load_dataset" and _is_builder(call):
        yield from (
            (("dataset",), word.value, False) for word in call.keywords if word.arg in ("data_files", "data_dir")
        )
    else:
        yield from _positional(call, name, last)
    if last == "autocast":
        yield from _autocast(call, name)
    if isinstance(call.func, ast.Attribute) and any(word in _owner(call.func).lower() for word in _MODELS):
        yield from _cast(call, call.func.attr)


def _zoos(call: ast.Call, name: str, last: str, dotted: Callable[[ast.expr], str]) -> Iterator[Found]:
    """Yield what calls into collections of models and datasets name by the very function they call."""
    if name.startswith(_MODEL_ZOOS) and last not in (*_NOT_MODELS, *_POSITION) and not last.endswith("_Weights"):
        if not name.startswith(_MODEL_ZOOS[0]) or last.islower():
            yield ("model",), last, False
    elif name.startswith(_DATASET_ZOOS) and last not in _POSITION and last[:1].isupper():
        yield ("dataset",), last, False
    elif isinstance(call.func, ast.Subscript) and dotted(call.func.value).endswith("models.__dict__"):
        yield ("model",), call.func.slice, False
    elif isinstance(call.func, ast.Call) and _gets_attribute(call.func, dotted):
        yield ("model",), call.func.args[1], False


def _gets_attribute(call: ast.Call, dotted: Callable[[ast.expr], str]) -> bool:
    """Say whether a call is ``getattr(models, name)`` of a collection of models."""
    if dotted(call.func) != "getattr" or len(call.args) < 2:
        return False
    return f"{dotted(call.args[0])}.".startswith(_MODEL_ZOOS)


def _positional(call: ast.Call, name: str, last: str) -> Iterator[Found]:
    field, index = _WHOLE_NAME.get(name) or _POSITION.get(last) or ("", 0)
    helper = last in _WEAK or is_helper(name)
    if field and len(call.args) > index and not any(isinstance(word, ast.Starred) for word in call.args):
        yield (field,), call.args[index], helper
    if last in _KEYWORD:
        spelled, field = _KEYWORD[last]
        yield from (((field,), word.value, helper) for word in call.keywords if word.arg == spelled)


def _is_builder(call: ast.Call) -> bool:
    """Say whether ``load_dataset`` names a format, so that the data are its files."""
    first = call.args[0] if call.args else None
    return isinstance(first, ast.Constant) and first.value in _BUILDERS


def _autocast(call: ast.Call, name: str) -> Iterator[Found]:
    """Yield the precision of automatic casts that state none: PyTorch's default for the device."""
    if any(word.arg == "dtype" for word in call.keywords):
        return
    device = call.args[0] if call.args else next((w.value for w in call.keywords if w.arg == "device_type"), None)
    kind = device.value if isinstance(device, ast.Constant) else None
    if kind == "cuda" or ".cuda." in name:
        yield ("precision",), "fp16", False
    else:
        yield ("precision",), "bf16" if kind == "cpu" or ".cpu." in name else "amp", False


def _cast(call: ast.Call, method: str) -> Iterator[Found]:
    """Yield the precision that a model is cast to: ``model.half()``, ``pipe.to("cuda", torch.float16)``."""
    if method in _CASTS and not call.args:
        yield ("precision",), _CASTS[method], False
    elif method == "to":
        yield from (
            (("precision",), argument, False) for argument in call.args[:2] if isinstance(argument, ast.Attribute)
        )
        yield from ((("precision",), word.value, False) for word in call.keywords if word.arg == "dtype")


def _owner(function: ast.Attribute) -> str:
    """Return the last name of what a method is called on."""
    value = function.value
    return value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
