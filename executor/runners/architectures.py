"""The models of the Compass paper: their configurations, small and as published, and how a task uses each.

Configurations are written here, by their widths, `transformers` being handed in; weights are drawn or lie in a local
folder: nothing is ever downloaded.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from truenorth.executor.runners import uses
from truenorth.executor.runners.uses import WorkSize

Config = Any
"""A configuration of `transformers`, which has no types."""

Make = Callable[[ModuleType], Config]
"""Makes a configuration, given the library."""


def _layers(d_model: int, layers: int, heads: int, ffn: int) -> dict[str, int]:
    """Return the widths of an encoder and an equal decoder, as several configurations call them."""
    return {
        "d_model": d_model,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": ffn,
        "decoder_ffn_dim": ffn,
    }


def opt(hidden: int, layers: int, heads: int, vocabulary: int) -> Make:
    """Configure a decoder that continues a text."""
    return lambda hf: hf.OPTConfig(
        hidden_size=hidden,
        word_embed_proj_dim=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        ffn_dim=4 * hidden,
        vocab_size=vocabulary,
    )


def llama(hidden: int, layers: int, heads: int, vocabulary: int) -> Make:
    """Configure a decoder of today: relative positions, gated layers, four heads to a key and its value."""
    return lambda hf: hf.LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 4,
        intermediate_size=7 * hidden // 2,
        vocab_size=vocabulary,
        max_position_embeddings=131_072,
    )


def marian(d_model: int, layers: int, heads: int, vocabulary: int) -> Make:
    """Configure an encoder and a decoder that translate."""
    last = vocabulary - 1
    return lambda hf: hf.MarianConfig(
        **_layers(d_model, layers, heads, 4 * d_model),
        vocab_size=vocabulary,
        pad_token_id=last,
        decoder_start_token_id=last,
    )


def mt5(d_model: int, layers: int, heads: int, vocabulary: int) -> Make:
    """Configure a translator with relative positions and gated layers."""
    return lambda hf: hf.MT5Config(
        d_model=d_model,
        d_kv=64,
        d_ff=8 * d_model // 3,
        num_layers=layers,
        num_heads=heads,
        vocab_size=vocabulary,
        decoder_start_token_id=0,
    )


def captioning(hidden: int, layers: int, heads: int, vocabulary: int, side: int) -> Make:
    """Configure a ViT that sees a picture and a GPT-2 that describes it."""

    def config(hf: ModuleType) -> Config:
        """Return the configuration of both halves."""
        eye = hf.ViTConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
            image_size=side,
        )
        end = vocabulary - 1
        pen = hf.GPT2Config(
            n_embd=hidden, n_layer=layers, n_head=heads, vocab_size=vocabulary, bos_token_id=end, eos_token_id=end
        )
        both = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(eye, pen)
        both.decoder_start_token_id = end
        return both

    return config


def bart(d_model: int, layers: int, heads: int, vocabulary: int) -> Make:
    """Configure an encoder and a decoder that put a text into one of three classes."""
    return lambda hf: hf.BartConfig(**_layers(d_model, layers, heads, 4 * d_model), vocab_size=vocabulary, num_labels=3)


def detr(layers: int, ffn: int, **backbone: object) -> Make:
    """Configure a ResNet, an encoder and a decoder that find things in a picture; `backbone` is the ResNet's."""
    return lambda hf: hf.DetrConfig(
        **_layers(256, layers, 8, ffn),
        backbone_config=hf.ResNetConfig(out_features=["stage4"], **backbone),
        use_timm_backbone=False,
    )


def glpn(depths: list[int], hidden: list[int]) -> Make:
    """Configure four stages of a transformer over a picture, and a decoder that measures depth."""
    return lambda hf: hf.GLPNConfig(depths=depths, hidden_sizes=hidden)


def small_speech(hf: ModuleType) -> Config:
    """Configure a conformer and a vocoder that speak, with few layers."""
    words = hf.FastSpeech2ConformerConfig(
        hidden_size=128,
        encoder_layers=2,
        encoder_linear_units=512,
        decoder_layers=2,
        decoder_linear_units=512,
        duration_predictor_channels=128,
        speech_decoder_postnet_units=128,
    )
    sound = hf.FastSpeech2ConformerHifiGanConfig(upsample_initial_channel=128)
    return hf.FastSpeech2ConformerWithHifiGanConfig(model_config=words.to_dict(), vocoder_config=sound.to_dict())


def full_speech(hf: ModuleType) -> Config:
    """Configure a conformer and a vocoder that speak, as published."""
    return hf.FastSpeech2ConformerWithHifiGanConfig()


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
    use: Callable[[Any, Sequence[Tensor], WorkSize], list[Tensor]]
    efforts: Mapping[str, WorkSize]


def library() -> ModuleType:
    """Return `transformers`, which from now on looks for nothing on the network."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    return transformers


ARCHITECTURES: Mapping[str, Architecture] = {
    "opt": Architecture(  # OPT-1.3B
        "OPTForCausalLM",
        opt(384, 6, 6, 8192),
        opt(2048, 24, 32, 50272),
        uses.go_on,
        {"small": WorkSize(prompt=256, answer=4), "full": WorkSize(prompt=64, answer=32)},
    ),
    "llm": Architecture(  # Llama 3.1 8B; small: for requests of streams on cores
        "LlamaForCausalLM",
        llama(256, 4, 8, 8192),
        llama(4096, 32, 32, 128_256),
        uses.go_on,
        {"small": WorkSize(prompt=256, answer=4), "full": WorkSize(prompt=64, answer=32)},
    ),
    "marian": Architecture(  # opus-mt
        "MarianMTModel",
        marian(128, 3, 4, 4096),
        marian(512, 6, 8, 59514),
        uses.translate,
        {"small": WorkSize(prompt=768, answer=8), "full": WorkSize(prompt=64, answer=32)},
    ),
    "mt5": Architecture(  # mT5-base
        "MT5ForConditionalGeneration",
        mt5(192, 3, 4, 8192),
        mt5(768, 12, 12, 250112),
        uses.translate,
        {"small": WorkSize(prompt=768, answer=8), "full": WorkSize(prompt=64, answer=32)},
    ),
    "vit": Architecture(  # vit-gpt2-image-captioning
        "VisionEncoderDecoderModel",
        captioning(192, 3, 4, 4096, 192),
        captioning(768, 12, 12, 50257, 224),
        uses.caption,
        {"small": WorkSize(answer=8), "full": WorkSize(answer=16)},
    ),
    "nli": Architecture(  # bart-large-mnli
        "BartForSequenceClassification",
        bart(192, 3, 4, 4096),
        bart(1024, 12, 16, 50265),
        uses.judge,
        {"small": WorkSize(prompt=128), "full": WorkSize(prompt=128)},
    ),
    "detr": Architecture(  # detr-resnet-50
        "DetrForObjectDetection",
        detr(2, 512, hidden_sizes=[32, 64, 128, 256], embedding_size=32, depths=[2, 2, 2, 2], layer_type="basic"),
        detr(6, 2048),
        uses.detect,
        {"small": WorkSize(side=224), "full": WorkSize(side=640)},
    ),
    "depth": Architecture(  # glpn-nyu
        "GLPNForDepthEstimation",
        glpn([2, 2, 2, 2], [32, 64, 160, 256]),
        glpn([3, 8, 27, 3], [64, 128, 320, 512]),
        uses.measure_depth,
        {"small": WorkSize(side=128), "full": WorkSize(side=480)},
    ),
    "txt2speech": Architecture(  # fastspeech2_conformer with its vocoder
        "FastSpeech2ConformerWithHifiGan",
        small_speech,
        full_speech,
        uses.speak,
        {"small": WorkSize(prompt=24), "full": WorkSize(prompt=128)},
    ),
}
"""By the names that the authors' workflows give them."""


def build(architecture: Architecture, size: str) -> nn.Module:
    """Return a module with random weights; size is ``small`` or ``full``."""
    hf = library()
    config = (architecture.small if size == "small" else architecture.full)(hf)
    module: nn.Module = getattr(hf, architecture.kind)(config)
    return module
