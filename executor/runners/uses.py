"""How tasks use a model: the bytes of each go in, numbers for each come out, all in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from executor.runners.inputs import pictures, rows, tokens


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


def _written(model: Any, word: Tensor, count: int, name: str, **given: object) -> list[Tensor]:
    """Let a model write, always the likeliest token; return the tokens and the scores of the last one."""
    words, memory = [], None
    for _ in range(count):
        step = model(**{name: word}, **given, past_key_values=memory, use_cache=True)
        memory, scores = step.past_key_values, step.logits[:, -1]
        word = scores.argmax(-1, keepdim=True)
        words.append(word)
    return rows(*words, scores)


def go_on(model: Any, data: Sequence[Tensor], effort: Effort) -> list[Tensor]:
    """Continue a prompt."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size, first=4)
    return _written(model, prompt, effort.answer, "input_ids")


def translate(model: Any, data: Sequence[Tensor], effort: Effort) -> list[Tensor]:
    """Read a text and write another."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size - 1, first=4)
    return _answered(model, effort, model.get_encoder()(input_ids=prompt), prompt)


def caption(model: Any, data: Sequence[Tensor], effort: Effort) -> list[Tensor]:
    """Describe a picture."""
    seen = pictures(data, model.config.encoder.image_size)
    return _answered(model, effort, model.get_encoder()(pixel_values=seen), seen)


def _answered(model: Any, effort: Effort, read: object, like: Tensor) -> list[Tensor]:
    start = torch.full((len(like), 1), model.config.decoder_start_token_id, dtype=torch.long, device=like.device)
    return _written(model, start, effort.answer, "decoder_input_ids", encoder_outputs=read)


def judge(model: Any, data: Sequence[Tensor], effort: Effort) -> list[Tensor]:
    """Read a text and give the scores of its classes, and what they rest on."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size, first=4)
    prompt[:, -1] = model.config.eos_token_id
    judged = model(input_ids=prompt)
    return rows(judged.logits, judged.encoder_last_hidden_state)


def detect(model: Any, data: Sequence[Tensor], effort: Effort) -> list[Tensor]:
    """Give boxes in a picture and the scores of their classes."""
    found = model(pixel_values=pictures(data, effort.side))
    return rows(found.pred_boxes, found.logits)


def measure_depth(model: Any, data: Sequence[Tensor], effort: Effort) -> list[Tensor]:
    """Give the depth of every point of a picture."""
    return rows(model(pixel_values=pictures(data, effort.side)).predicted_depth)


def speak(model: Any, data: Sequence[Tensor], effort: Effort) -> list[Tensor]:
    """Read texts aloud, one after the other since sounds differ in length: give the samples of each."""
    vocabulary = model.config.model_config.vocab_size
    texts = tokens(data, effort.prompt, vocabulary, first=1)
    return [row for text in texts for row in rows(model(input_ids=text[None]).waveform)]
