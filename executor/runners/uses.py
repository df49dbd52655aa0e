"""How tasks use a model: the bytes of each go in, numbers for each come out, all in one pass.

Numbers that go in have the kind (dtype) that the model's weights have.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.errors import DeviceError

DRAWN_BYTES = 131_072
"""How much a task without inputs draws for itself: as much as a small picture needs."""


def seed_of(text: str) -> int:
    """Return a seed that is the same in every process.

    >>> seed_of("opt")
    3298662876
    """
    return crc32(text.encode())


def received(call: RunnerCall) -> Tensor:
    """Return the bytes from all predecessors, one after the other; where there are none, drawn by job and task.

    Returns
    -------
    Tensor
        One-dimensional, uint8, not empty, on the device of the call.
    """
    if sum(len(data) for data in call.inputs.values()):
        return torch.cat(list(call.inputs.values()))
    generator = torch.Generator(call.device)
    generator.manual_seed(seed_of(f"{call.job}/{call.workflow}/{call.task}"))
    return torch.randint(0, 256, (DRAWN_BYTES,), dtype=torch.uint8, device=call.device, generator=generator)


def stretch(data: Tensor, size: int) -> Tensor:
    """Return the first bytes of something, repeated as often as it takes.

    >>> stretch(torch.tensor([1, 2, 3]), 5).tolist()
    [1, 2, 3, 1, 2]
    """
    return data.repeat(-(-size // len(data)))[:size]


def tokens(data: Sequence[Tensor], count: int, vocabulary: int, first: int = 0) -> Tensor:
    """Read the bytes of each task as tokens, two bytes each.

    Parameters
    ----------
    first
        The smallest token; those below have a special meaning.

    Returns
    -------
    Tensor
        Shape [tasks, count], at least `first` and below `vocabulary`.

    >>> tokens([torch.tensor([1, 0, 0, 7], dtype=torch.uint8)], 2, 200, first=10).tolist()
    [[76, 17]]
    """
    pairs = torch.stack([stretch(each, 2 * count).view(count, 2) for each in data]).long()
    return (pairs[..., 0] * 256 + pairs[..., 1]) % (vocabulary - first) + first


def pictures(data: Sequence[Tensor], side: int) -> Tensor:
    """Read the bytes of each task as a square picture of three colours.

    Returns
    -------
    Tensor
        Shape [tasks, 3, side, side], float32 from 0 to 1.

    >>> pictures([torch.tensor([0, 255], dtype=torch.uint8)], 2)[0, 0].tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    return torch.stack([stretch(each, 3 * side * side).view(3, side, side) for each in data]).float() / 255


def sounds(data: Sequence[Tensor], channels: int, length: int) -> Tensor:
    """Read the bytes of each task as a sound of so many channels.

    Returns
    -------
    Tensor
        Shape [tasks, channels, length], float32 from -1 to 1.

    >>> sounds([torch.tensor([0, 255], dtype=torch.uint8)], 1, 3).tolist()
    [[[-1.0, 1.0, -1.0]]]
    """
    return torch.stack([stretch(each, channels * length).view(channels, length) for each in data]).float() / 127.5 - 1


def rows(*parts: Tensor) -> list[Tensor]:
    """Return what tensors whose first dimension counts tasks hold for each: numbers of 32 bits, one after the other.

    Tokens stay exact, since there are fewer than 2^24 of them.

    >>> [row.tolist() for row in rows(torch.tensor([[1], [2]]), torch.tensor([0.5, 1.5]))]
    [[1.0, 0.5], [2.0, 1.5]]
    """
    return list(torch.cat([part.detach().float().reshape(len(part), -1) for part in parts], 1))


def as_bytes(output: Tensor) -> Tensor:
    """Return the bytes that a tensor of any kind consists of.

    >>> as_bytes(torch.tensor([1.0])).tolist()
    [0, 0, 128, 63]
    """
    return output.detach().contiguous().view(-1).view(torch.uint8)


_COLUMNS = (("prompt", "answer"), ("ContextTokens", "GeneratedTokens"))
"""Names of the two columns; the second pair is that of the Azure traces of language models."""


def read_lengths(path: str) -> list[tuple[int, int]]:
    """Return tokens to read and to write, a pair per row of a CSV file.

    Raises
    ------
    DeviceError
        If it cannot be read, or a row holds no such pair.
    """
    try:
        rows = list(csv.DictReader(Path(path).read_text().splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError(f"lengths {path}: cannot be read: {error}") from None
    names = next((pair for pair in _COLUMNS if rows and all(name in rows[0] for name in pair)), None)
    if names is None:
        allowed = " or ".join(",".join(pair) for pair in _COLUMNS)
        raise DeviceError(f"lengths {path}: has no rows under the columns {allowed}")
    found = []
    for line, row in enumerate(rows, 2):
        given = [(row[name] or "").strip() for name in names]
        if not all(text.isascii() and text.isdigit() and int(text) for text in given):
            raise DeviceError(f"lengths {path}:{line}: {','.join(given)}: allowed are whole numbers of at least 1")
        found.append((int(given[0]), int(given[1])))
    return found


_SAMPLES_PER_TOKEN = 320
"""Of a sound: what models of speech make one position of, 20 ms at 16 kHz."""


@dataclass(frozen=True, slots=True)
class WorkSize:
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

    def with_lengths(self, prompt: int, answer: int) -> WorkSize:
        """Return it with other lengths of what is read and written, where it has any; 0 leaves one as it is."""
        return replace(
            self,
            prompt=prompt if prompt and self.prompt else self.prompt,
            answer=answer if answer and self.answer else self.answer,
        )


def _written(model: Any, word: Tensor, count: int, name: str, **given: object) -> list[Tensor]:
    """Let a model write, always the likeliest token; return the tokens and the scores of the last one."""
    words, memory = [], None
    for _ in range(count):
        step = model(**{name: word}, **given, past_key_values=memory, use_cache=True)
        memory, scores = step.past_key_values, step.logits[:, -1]
        word = scores.argmax(-1, keepdim=True)
        words.append(word)
    return rows(*words, scores)


def go_on(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Continue a prompt."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size, first=4)
    return _written(model, prompt, effort.answer, "input_ids")


def translate(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Read a text and write another."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size - 1, first=4)
    return _answered(model, effort, model.get_encoder()(input_ids=prompt), prompt)


def caption(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Describe a picture."""
    seen = pictures(data, model.config.encoder.image_size).to(model.dtype)
    return _answered(model, effort, model.get_encoder()(pixel_values=seen), seen)


def _answered(model: Any, effort: WorkSize, read: object, like: Tensor) -> list[Tensor]:
    return _written(model, _first_word(model, like), effort.answer, "decoder_input_ids", encoder_outputs=read)


def _first_word(model: Any, like: Tensor) -> Tensor:
    start = getattr(model.config, "decoder_start_token_id", None) or 0
    return torch.full((len(like), 1), start, dtype=torch.long, device=like.device)


def judge(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Read a text and give the scores of its classes, and what they rest on."""
    prompt = tokens(data, effort.prompt, model.config.vocab_size, first=4)
    prompt[:, -1] = model.config.eos_token_id
    judged = model(input_ids=prompt)
    return rows(judged.logits, judged.encoder_last_hidden_state)


def detect(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Give boxes in a picture and the scores of their classes."""
    found = model(pixel_values=pictures(data, effort.side).to(model.dtype))
    return rows(found.pred_boxes, found.logits)


def measure_depth(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Give the depth of every point of a picture."""
    return rows(model(pixel_values=pictures(data, effort.side).to(model.dtype)).predicted_depth)


def speak(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Read texts aloud, one after the other since sounds differ in length: give the samples of each."""
    vocabulary = model.config.model_config.vocab_size
    texts = tokens(data, effort.prompt, vocabulary, first=1)
    return [row for text in texts for row in rows(model(input_ids=text[None]).waveform)]


ANY = WorkSize(prompt=64, answer=8, side=224)
"""What a task asks of a model that is used by `compute`, unless it is told otherwise."""


def compute(model: Any, data: Sequence[Tensor], effort: WorkSize) -> list[Tensor]:
    """Use a model as its configuration says: read text, see a picture or hear a sound, and write if it can.

    Raises
    ------
    ValueError
        If it is fed with something else.
    """
    name, read = model.main_input_name, _read(model, data, effort)
    writes = model.can_generate() and effort.answer
    if writes and not model.config.is_encoder_decoder:
        if name == "input_ids":
            return _written(model, read, effort.answer, "input_ids")
    elif writes:
        return _answered(model, effort, model.get_encoder()(**{name: read}), read)
    given = {name: read}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = _first_word(model, read)
    found = [part for part in model(**given).to_tuple() if isinstance(part, Tensor)]
    return rows(*[part for part in found if part.dim() and len(part) == len(data)][:1])


def _read(model: Any, data: Sequence[Tensor], effort: WorkSize) -> Tensor:
    """Return what a model is fed with."""
    config, name = model.config, model.main_input_name
    if name == "input_ids":
        vocabulary = config.get_text_config().vocab_size
        return tokens(data, effort.prompt, vocabulary, first=min(4, vocabulary - 1))
    if name == "pixel_values":
        side = getattr(config, "image_size", None) or effort.side
        return pictures(data, side if isinstance(side, int) else side[0]).to(model.dtype)
    if name == "input_features":
        return sounds(data, config.num_mel_bins, 2 * config.max_source_positions).to(model.dtype)
    if name == "input_values":
        return sounds(data, 1, _SAMPLES_PER_TOKEN * effort.prompt)[:, 0].to(model.dtype)
    raise ValueError(f"is fed with {name}; allowed are input_ids, pixel_values, input_features, input_values")
