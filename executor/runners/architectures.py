"""The models of the Compass paper: their configurations, small and as published, and how a task uses each.

Configurations are written here and weights are drawn or lie in a local folder: nothing is ever downloaded.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from truenorth.executor.runners import configurations, uses
from truenorth.executor.runners.configurations import Make
from truenorth.executor.runners.uses import Effort


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of model.

    Parameters
    ----------
    kind
        The class in `transformers`.
    small, full
        Configurations: tens of megabytes at most, and as published.
    use
        Runs the model on the bytes of each task.
    efforts
        What a task asks for, by size.
    """

    kind: str
    small: Make
    full: Make
    use: Callable[[Any, Sequence[Tensor], Effort], list[Tensor]]
    efforts: Mapping[str, Effort]


def library() -> ModuleType:
    """Return `transformers`, which from now on looks for nothing on the network."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    return transformers


ARCHITECTURES: Mapping[str, Architecture] = {
    "opt": Architecture(  # OPT-1.3B
        "OPTForCausalLM",
        configurations.opt(384, 6, 6, 8192),
        configurations.opt(2048, 24, 32, 50272),
        uses.go_on,
        {"small": Effort(prompt=256, answer=4), "full": Effort(prompt=64, answer=32)},
    ),
    "marian": Architecture(  # opus-mt
        "MarianMTModel",
        configurations.marian(128, 3, 4, 4096),
        configurations.marian(512, 6, 8, 59514),
        uses.translate,
        {"small": Effort(prompt=768, answer=8), "full": Effort(prompt=64, answer=32)},
    ),
    "mt5": Architecture(  # mT5-base
        "MT5ForConditionalGeneration",
        configurations.mt5(192, 3, 4, 8192),
        configurations.mt5(768, 12, 12, 250112),
        uses.translate,
        {"small": Effort(prompt=768, answer=8), "full": Effort(prompt=64, answer=32)},
    ),
    "vit": Architecture(  # vit-gpt2-image-captioning
        "VisionEncoderDecoderModel",
        configurations.captioning(192, 3, 4, 4096, 192),
        configurations.captioning(768, 12, 12, 50257, 224),
        uses.caption,
        {"small": Effort(answer=8), "full": Effort(answer=16)},
    ),
    "nli": Architecture(  # bart-large-mnli
        "BartForSequenceClassification",
        configurations.bart(192, 3, 4, 4096),
        configurations.bart(1024, 12, 16, 50265),
        uses.judge,
        {"small": Effort(prompt=128), "full": Effort(prompt=128)},
    ),
    "detr": Architecture(  # detr-resnet-50
        "DetrForObjectDetection",
        configurations.detr(
            2, 512, hidden_sizes=[32, 64, 128, 256], embedding_size=32, depths=[2, 2, 2, 2], layer_type="basic"
        ),
        configurations.detr(6, 2048),
        uses.detect,
        {"small": Effort(side=224), "full": Effort(side=640)},
    ),
    "depth": Architecture(  # glpn-nyu
        "GLPNForDepthEstimation",
        configurations.glpn([2, 2, 2, 2], [32, 64, 160, 256]),
        configurations.glpn([3, 8, 27, 3], [64, 128, 320, 512]),
        uses.measure_depth,
        {"small": Effort(side=128), "full": Effort(side=480)},
    ),
    "txt2speech": Architecture(  # fastspeech2_conformer with its vocoder
        "FastSpeech2ConformerWithHifiGan",
        configurations.small_speech,
        configurations.full_speech,
        uses.speak,
        {"small": Effort(prompt=24), "full": Effort(prompt=128)},
    ),
}
"""By the names that the authors' workflows give them."""


def build(architecture: Architecture, size: str) -> nn.Module:
    """Return a module with random weights; size is ``small`` or ``full``."""
    hf = library()
    config = (architecture.small if size == "small" else architecture.full)(hf)
    module: nn.Module = getattr(hf, architecture.kind)(config)
    return module
