"""Configurations of the models of the Compass paper, by their widths; `transformers` is handed in."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

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
