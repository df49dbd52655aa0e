"""How a task uses a model: bytes in, bytes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from executor.runners.inputs import as_bytes, picture, tokens


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a task asks of a model.

    Parameters
    ----------
    prompt
        Tokens that it reads.
    answer
        Tokens that it writes, one by one.
    side
        Of a picture, in pixels.
    """

    prompt: int = 0
    answer: int = 0
    side: int = 0


def _written(model: Any, word: Tensor, count: int, name: str, **given: object) -> Tensor:
    """Let a model write, always the likeliest token; return the tokens and the scores of the last one."""
    words, memory = [], None
    for _ in range(count):
        step = model(**{name: word}, **given, past_key_values=memory, use_cache=True)
        memory, scores = step.past_key_values, step.logits[:, -1]
        word = scores.argmax(-1, keepdim=True)
        words.append(word)
    return as_bytes(*words, scores)


def go_on(model: Any, data: Tensor, effort: Effort) -> Tensor:
    """Continue a prompt."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size, first=4)
    return _written(model, prompt, effort.answer, "input_ids")


def translate(model: Any, data: Tensor, effort: Effort) -> Tensor:
    """Read a text and write another."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size - 1, first=4)
    return _answered(model, effort, model.get_encoder()(input_ids=prompt), prompt)


def caption(model: Any, data: Tensor, effort: Effort) -> Tensor:
    """Describe a picture."""
    seen = picture(data, model.config.encoder.image_size)
    return _answered(model, effort, model.get_encoder()(pixel_values=seen), seen)


def _answered(model: Any, effort: Effort, read: object, like: Tensor) -> Tensor:
    start = torch.full((1, 1), model.config.decoder_start_token_id, dtype=torch.long, device=like.device)
    return _written(model, start, effort.answer, "decoder_input_ids", encoder_outputs=read)


def judge(model: Any, data: Tensor, effort: Effort) -> Tensor:
    """Read a text and give the scores of its classes, and what they rest on."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size, first=4)
    prompt[:, -1] = model.config.eos_token_id
    judged = model(input_ids=prompt)
    return as_bytes(judged.logits, judged.encoder_last_hidden_state)


def detect(model: Any, data: Tensor, effort: Effort) -> Tensor:
    """Give boxes in a picture and the scores of their classes."""
    found = model(pixel_values=picture(data, effort.side))
    return as_bytes(found.pred_boxes, found.logits)


def measure_depth(model: Any, data: Tensor, effort: Effort) -> Tensor:
    """Give the depth of every point of a picture."""
    return as_bytes(model(pixel_values=picture(data, effort.side)).predicted_depth)


def speak(model: Any, data: Tensor, effort: Effort) -> Tensor:
    """Read a text aloud: give the samples of the sound."""
    vocabulary = model.config.model_config.vocab_size
    return as_bytes(model(input_ids=tokens(data, effort.prompt, vocabulary, first=1)).waveform)
