"""Models of a few hundred weights, a decoder among them, and runners that fail, stall or wait on demand."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn

from tests.instances import network, task
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.runners.architectures import library
from truenorth.executor.runners.prototypes import Prototypes
from truenorth.models import GPU, Cluster, Instance, Job, MLModel, Placement, Residency, Timeline, Workflow

WIDTH = 16
BYTES = 1088
"""Weights of a small model: 16 x 16 and 16 numbers of 4 bytes, the second tensor aligned to 256 bytes (1024 + 64)."""


class Small:
    """Every model is one linear layer; a task applies its models to the sum of its inputs' bytes.

    Parameters
    ----------
    before
        Called in every run, to count, to wait or to raise.
    """

    def __init__(self, before: Callable[[RunnerCall], None] = lambda call: None) -> None:
        self.before = before

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        source = torch.Generator().manual_seed(zlib.crc32(model.name.encode()))
        weight, bias = torch.randn(WIDTH, WIDTH, generator=source), torch.randn(WIDTH, generator=source)
        return {"weight": weight, "bias": bias}

    def module(self, model: MLModel) -> nn.Module:
        return nn.Linear(WIDTH, WIDTH, device="meta").eval()

    def run_batch(self, calls: Sequence[RunnerCall]) -> Sequence[Tensor]:
        return [self.run(call) for call in calls]

    def run(self, call: RunnerCall) -> Tensor:
        self.before(call)
        values = torch.full((WIDTH,), float(call.job + 1), device=call.device)
        for name in sorted(call.inputs):
            values = values + call.inputs[name][: 4 * WIDTH].clone().view(torch.float32)
        for name in sorted(call.modules):
            values = torch.tanh(call.modules[name](values))
        return values


LAYERS, HEADS, HEAD, WORDS = 2, 2, 8, 61
KV_BYTES = LAYERS * 2 * 1 * HEAD * 4
"""Of a token in `decoder`: keys and values of one head for both, in both layers, 4 bytes a number."""


def decoder(_: MLModel | None = None) -> nn.Module:
    """Return a decoder of a few words."""
    hf = library()
    config = hf.LlamaConfig(
        hidden_size=HEADS * HEAD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        intermediate_size=32,
        vocab_size=WORDS,
        max_position_embeddings=512,
        initializer_range=1.0,  # so that no two words are about equally likely
    )
    module: nn.Module = hf.LlamaForCausalLM(config).eval()
    return module


class Decoding(Small):
    """Every model is a `decoder`, for requests of streams.

    Parameters
    ----------
    before
        Called with the words of every pass, to raise or to wait.
    """

    def __init__(self, before: Callable[[Tensor], None] = lambda words: None) -> None:
        super().__init__()
        self._prototypes, self._before = Prototypes(decoder, 0), before

    def weights(self, model: MLModel) -> Mapping[str, Tensor]:
        return self._prototypes.weights(model)

    def module(self, model: MLModel) -> nn.Module:
        module = self._prototypes.module(model)
        module.register_forward_pre_hook(lambda _, __, given: self._before(given["input_ids"]), with_kwargs=True)
        return module


def gpus(count: int, memory_bytes: int, slots: tuple[int, ...] = (), **changes: object) -> Cluster:
    """Return servers of one GPU each, which load 100 MB/s; a transfer takes 1 ms and 1 us per byte."""
    made = [
        GPU(f"s{index}/g0", index, "A", memory_bytes, Fraction(100_000_000), slots, **changes)  # type: ignore[arg-type]
        for index in range(count)
    ]
    return Cluster(tuple(made), network(latency_us=1000))


def instance(workflows: Sequence[Workflow], models: Sequence[str], on: Cluster, **options: object) -> Instance:
    """Return one job per workflow, all released at 0; every model has `BYTES`."""
    jobs = tuple(Job(workflow, 0) for workflow in workflows)
    options.setdefault("catalogue", tuple({workflow.name: workflow for workflow in workflows}.values()))
    return Instance(on, tuple(MLModel(name, BYTES) for name in models), jobs, **options)  # type: ignore[arg-type]


PIECE = 12_800
"""Size of the small models in `unpackable`, much larger than what rounding adds to the memory."""


def unpackable() -> tuple[Instance, Timeline]:
    """Return a plan on one GPU of four pieces that fits by bytes but not in one piece per model.

    E and F take two pieces each, so E lies in the lower half and F in the upper one, or the other way round. x and y
    replace E, z and w replace F. Then x and z make way for G: they must be neighbours, in the middle, so that y and w
    lie at the ends; and these two make way for H, which would have to lie in two places.
    """
    names = ["E", "F", "x", "y", "z", "w", "G", "H"]
    models = tuple(MLModel(name, PIECE * (2 if name.isupper() else 1)) for name in names)
    tasks = tuple(task(f"t_{name}", 10, [name]) for name in names)
    made = Instance(gpus(1, 4 * PIECE), models, (Job(Workflow("w", tasks), 0),))
    ends = {"E": "x", "F": "z", "x": "G", "z": "G", "y": "H", "w": "H"}
    start = {name: 1000 * index for index, name in enumerate(names)}
    residencies, placements = [], []
    for index, name in enumerate(names):
        ready = start[name] + made.load_time(index, 0)
        residencies.append(Residency(index, 0, start[name], ready, start[ends[name]] if name in ends else None))
        placements.append(Placement(index, 0, ready, ready + 10))
    return made, Timeline.build(len(names), placements, residencies)
