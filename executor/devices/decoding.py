"""A decoder with memory for KV that serves several requests at once: the iterations of continuous batching.

A decoder of `transformers` is handed positions, a mask and a cache that lies in seats; so requests of any lengths share
a step, and join and leave between steps. What lies in a seat can be put out and laid into a seat elsewhere: so one node
computes a prompt, and another goes on with its answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from truenorth.executor.devices.physical import Physical
from truenorth.executor.errors import DeviceError
from truenorth.models import StreamClass

_ALONG, _ACROSS = 31, 17
"""The next token of a prompt is so many words further in the vocabulary, and so is the next request: what prompts say
has no effect on how long they take, but answers tell them apart."""


class Read(NamedTuple):
    """Prompt tokens of a request to be worked off: from which on, and how many."""

    request: int
    begin: int
    tokens: int


class Answer(NamedTuple):
    """What a request is to put out: so many tokens from one on, and the KV of those before if that is sent."""

    request: int
    begin: int
    tokens: int
    with_kv: bool = False


class SentKV(NamedTuple):
    """KV of a prompt that was computed elsewhere: who goes on with it, its tokens, and what was put out there."""

    request: int
    tokens: int
    data: Tensor


TOKEN_BYTES = torch.long.itemsize
"""Of the first token, which travels before the KV of its prompt."""


def served_model(stream: StreamClass) -> str:
    """Return the name of the model that answers the requests of a class.

    Raises
    ------
    DeviceError
        If there is none, or several.
    """
    if len(stream.models) != 1:
        raise DeviceError(f"stream {stream.name}: names {len(stream.models)} models; a device serves those of one")
    return stream.models[0]


class SeatedDecoder:
    """A causal decoder whose requests sit in seats, each with room for so many tokens of KV.

    Requests are numbers. Those that are asked for a token sit in front; whoever takes no part any more gives up the
    seat.

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
    physical
        Where the memory for KV is taken.

    Raises
    ------
    DeviceError
        If the module is no such decoder, knows fewer positions, or there is not so much memory.
    """

    def __init__(self, name: str, module: nn.Module, seats: int, longest: int, physical: Physical) -> None:
        config: Any = getattr(module, "config", None)
        if not hasattr(module, "lm_head") or getattr(config, "is_encoder_decoder", True):
            raise DeviceError(
                f"model {name}: is no decoder with a cache of keys and values; allowed are those of --runner "
                "transformers: a model named llm or opt, or any language model with configs=FOLDER or weights=FOLDER"
            )
        positions = getattr(config, "max_position_embeddings", longest)
        if longest > positions:
            raise DeviceError(
                f"model {name}: a request has {longest} tokens, prompt and answer; allowed are {positions}"
            )
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kind = next(module.parameters()).dtype
        shape = (config.num_hidden_layers, 2, seats, heads, longest, width)
        self._module, self._device, self._vocabulary = module, physical.device, int(config.vocab_size)
        # One more: to who goes on from elsewhere the first token is no answer.
        self._words = torch.zeros((seats, longest + 1), dtype=torch.long, device=physical.device)
        # The last to be made: whoever makes it waits for the device, after which any stream may use all of this.
        self._kv = physical.memory(prod(shape) * kind.itemsize).view(kind).view(shape)
        self._least = torch.finfo(kind).min
        self._sitting: list[int | None] = [None] * seats
        self._lengths = [0] * seats  # tokens whose keys and values lie there

    @property
    def kv_bytes(self) -> int:
        """Bytes that a token holds."""
        return self._kv[:, :, 0, :, 0].nbytes

    @torch.inference_mode()
    def iterate(
        self,
        reads: Sequence[Read],
        writes: Collection[int],
        answers: Sequence[Answer] = (),
        sent: Sequence[SentKV] = (),
    ) -> list[Tensor]:
        """Take an iteration; return the answers that are wanted, complete with its tokens, each before its KV if asked.

        Parameters
        ----------
        reads
            Prompt tokens to be worked off. Behind the last of a prompt comes its request's first token.
        writes
            Requests that get one token more; their prompts have been worked off before.
        sent
            KV of those among them whose prompts were worked off elsewhere, as they join.
        """
        self._seat(reads, writes, sent)
        for request, begin, tokens in reads:
            seat = self._sitting.index(request)
            if self._lengths[seat] != begin:  # it begins: what of its prompt is cached counts as there, all zeros
                self._lengths[seat] = begin
                self._kv[:, :, seat, :, :begin] = 0
            at = torch.arange(begin, begin + tokens, device=self._device)
            self._pass(seat, seat + 1, (at * _ALONG + request * _ACROSS)[None] % self._vocabulary)
        if writes:
            ends = torch.tensor(self._lengths[: len(writes)], device=self._device)
            self._pass(0, len(writes), self._words[: len(writes)].gather(1, ends[:, None]))
        made: list[Tensor] = []
        for request, begin, tokens, with_kv in answers:
            seat = self._sitting.index(request)
            made.append(self._words[seat, begin : begin + tokens].clone())
            if with_kv:
                made.append(self._lift(seat, begin))
        return made

    def _lift(self, seat: int, tokens: int) -> Tensor:
        """Return the KV of a prompt behind its first token, as bytes."""
        kv = self._kv[:, :, seat, :, :tokens]
        lifted = torch.empty(TOKEN_BYTES + kv.nbytes, dtype=torch.uint8, device=self._device)
        lifted[:TOKEN_BYTES].view(torch.long).copy_(self._words[seat, tokens : tokens + 1])
        lifted[TOKEN_BYTES:].view(kv.dtype).view(kv.shape).copy_(kv)
        return lifted

    def _lay(self, sent: SentKV, seat: int) -> None:
        """Lay into a seat what was lifted elsewhere; bytes behind it, with which it came, say nothing."""
        kv = self._kv[:, :, seat, :, : sent.tokens]
        self._words[seat, sent.tokens : sent.tokens + 1] = sent.data[:TOKEN_BYTES].view(torch.long)
        kv.copy_(sent.data[TOKEN_BYTES : TOKEN_BYTES + kv.nbytes].view(kv.dtype).view(kv.shape))
        self._sitting[seat], self._lengths[seat] = sent.request, sent.tokens

    def _seat(self, reads: Sequence[Read], writes: Collection[int], sent: Sequence[SentKV]) -> None:
        """Let go who takes no part any more, have those who write sit in front, and the others anywhere."""
        wanted, reading = set(writes), [read.request for read in reads]
        # Who comes from elsewhere may have sat here in an earlier run.
        stay = wanted.union(reading).difference(one.request for one in sent)
        self._sitting = [one if one in stay else None for one in self._sitting]
        for one in sent:
            self._lay(one, self._sitting.index(None))
        behind = [seat for seat in range(len(writes), len(self._sitting)) if self._sitting[seat] in wanted]
        for seat in range(len(writes)):
            if self._sitting[seat] not in wanted:
                self._change_seats(seat, behind.pop())
        for request in reading:
            if request not in self._sitting:
                seat = self._sitting.index(None, len(writes))
                self._sitting[seat], self._lengths[seat] = request, 0

    def _change_seats(self, one: int, other: int) -> None:
        """Swap two seats with all that lies there: somebody who reads may be in the way."""
        here, there, used = [one, other], [other, one], max(self._lengths[one], self._lengths[other])
        self._kv[:, :, here, :, :used] = self._kv[:, :, there, :, :used]
        self._words[here] = self._words[there]
        self._sitting[one], self._sitting[other] = self._sitting[other], self._sitting[one]
        self._lengths[one], self._lengths[other] = self._lengths[other], self._lengths[one]

    def _pass(self, first: int, end: int, words: Tensor) -> None:
        """Pass words, a row per seat, behind what lies in these seats, and note the word that follows in each."""
        begins = torch.tensor(self._lengths[first:end], device=self._device)
        at = begins[:, None] + torch.arange(words.shape[1], device=self._device)
        used = max(self._lengths[first:end]) + words.shape[1]
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
        self._words[first:end].scatter_(1, at[:, -1:] + 1, made.logits[:, -1].argmax(-1, keepdim=True))
        for seat in range(first, end):
            self._lengths[seat] += words.shape[1]


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
