"""A decoder with memory for KV that serves several requests at once: the iterations of continuous batching.

A decoder of `transformers` is handed positions, a mask and a cache that lies in seats; so requests of any lengths share
a step, and join and leave between steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from truenorth.executor.errors import DeviceError

_WORDS = 31
"""Prompts count in steps of so many through the vocabulary: what they say has no effect on how long they take."""


class Decoder:
    """A causal decoder whose requests sit in seats, each with room for so many tokens of KV.

    Parameters
    ----------
    name
        Of the model, for messages.
    module
        A decoder of `transformers`, on its device, weights included.
    seats
        Most requests at once.
    longest
        Most tokens of a request, prompt and answer.

    Attributes
    ----------
    lengths
        Per seat: tokens whose keys and values lie there.
    last
        Per seat: the token that was written last. Shape [seats, 1].

    Raises
    ------
    DeviceError
        If the module is no such decoder, or knows fewer positions.
    """

    def __init__(self, name: str, module: nn.Module, seats: int, longest: int, device: torch.device) -> None:
        config: Any = getattr(module, "config", None)
        if not hasattr(module, "lm_head") or getattr(config, "is_encoder_decoder", True):
            raise DeviceError(
                f"model {name}: is no decoder with a cache of keys and values; allowed are those of --runner "
                "transformers: a model named opt, or any language model with configs=FOLDER or weights=FOLDER"
            )
        positions = getattr(config, "max_position_embeddings", longest)
        if longest > positions:
            raise DeviceError(
                f"model {name}: a request has {longest} tokens, prompt and answer; allowed are {positions}"
            )
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kind = next(module.parameters()).dtype
        self._module, self._device = module, device
        self._kv = torch.zeros((config.num_hidden_layers, 2, seats, heads, longest, width), dtype=kind, device=device)
        self._least = torch.finfo(kind).min
        self.lengths = [0] * seats
        self.last = torch.zeros((seats, 1), dtype=torch.long, device=device)

    @property
    def kv_bytes(self) -> int:
        """Bytes that a token holds."""
        return self._kv[:, :, 0, :, 0].nbytes

    @torch.inference_mode()
    def read(self, seat: int, count: int) -> None:
        """Work off so many more tokens of a seat's prompt; what is written last is the token behind them."""
        begin = self.lengths[seat]
        words = torch.arange(begin, begin + count, device=self._device) * _WORDS % self._module.config.vocab_size
        self._pass(seat, seat + 1, words[None])

    @torch.inference_mode()
    def write(self, requests: int) -> None:
        """Give each request in the first so many seats one token more: a step."""
        self._pass(0, requests, self.last[:requests])

    def _pass(self, first: int, end: int, words: Tensor) -> None:
        """Pass words, a row per seat, behind what lies in these seats."""
        begins = torch.tensor(self.lengths[first:end], device=self._device)
        at = begins[:, None] + torch.arange(words.shape[1], device=self._device)
        used = max(self.lengths[first:end]) + words.shape[1]
        unseen = torch.arange(used, device=self._device) > at[:, None, :, None]
        mask = torch.zeros(unseen.shape, dtype=self._kv.dtype, device=self._device).masked_fill_(unseen, self._least)
        made = self._module(
            input_ids=words,
            attention_mask=mask,
            position_ids=at,
            past_key_values=_Seats(self._kv[:, :, first:end], at, used),
            use_cache=True,
            logits_to_keep=1,  # of a prompt only the last token's scores are needed, as in engines
        )
        self.last[first:end] = made.logits[:, -1].argmax(-1, keepdim=True)
        for seat in range(first, end):
            self.lengths[seat] += words.shape[1]


class _Seats:
    """What a decoder of `transformers` asks of its cache in one pass.

    Parameters
    ----------
    kv
        Keys and values of the seats that take part. Shape [layers, 2, seats, heads, tokens, width].
    at
        Where those of the pass belong. Shape [seats, words].
    used
        How many tokens the longest request has then.
    """

    def __init__(self, kv: Tensor, at: Tensor, used: int) -> None:
        self._kv, self._at, self._used = kv, at, used
        self._rows = torch.arange(len(at), device=at.device)[:, None]

    def get_seq_length(self, layer: int = 0) -> int:
        """Return how many tokens lie there; positions are given, so nothing follows from it."""
        return self._used - self._at.shape[1]

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> Sequence[Tensor]:
        """Keep the keys and values of a layer; return all that lie there."""
        for kept, new in zip(self._kv[layer], (keys, values), strict=True):
            kept[self._rows, :, self._at] = new.transpose(1, 2)
        return [kept[:, :, : self._used] for kept in self._kv[layer]]
