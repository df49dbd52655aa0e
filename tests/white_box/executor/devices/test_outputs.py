"""What models compute does not depend on what was evicted, reloaded or moved meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from tests.executor.devices.faulty import In, Raise, small
from tests.executor.devices.small import BYTES, PIECE, Small, gpus, instance, unpackable
from tests.executor.scripted import Listed
from tests.instances import chain, task
from truenorth.executor import parse_policy, replay
from truenorth.executor.devices.alone import different_outputs, outputs_alone
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.shelf import Shelf, make_piece
from truenorth.executor.runners.factory import FactoryRunner
from truenorth.executor.runners.synthetic import SyntheticRunner
from truenorth.executor.runners.uses import DRAWN_BYTES
from truenorth.models import Instance, Job, MLModel, Placement, Residency, Timeline, check

ABC = chain(task("a", 100, ["m0"]), task("b", 100, ["m1"], {"a": 64}), task("c", 100, ["m2"], {"b": 64}))
KEPT = LiveSettings(keep_outputs=True)


def different(on: Instance, run: LiveRun) -> list[int]:
    assert run.records.failures == []
    assert len(run.outputs) == on.n_tasks
    return different_outputs(on, Small, "cpu", run.outputs, 30)


def test_a_reference_computed_by_hand() -> None:
    """m0 applied to 1, m1 to what came out: the runner's formula without any device."""
    on = instance([ABC], ["m0", "m1", "m2"], gpus(1, BYTES))
    values = torch.ones(16)
    for model, (_, output) in zip(on.models, outputs_alone(on, Small, "cpu", range(3), 30), strict=True):
        weights = Small().weights(model)
        values = torch.tanh(torch.nn.functional.linear(values, weights["weight"], weights["bias"]))
        assert torch.equal(output, values)
        values = torch.full((16,), 1.0) + values


def test_constant_thrashing_changes_no_bit() -> None:
    """Task k of a chain needs model k mod 3 and runs on GPU k mod 2, which holds one model: every run needs a load."""
    tasks = [task(f"t{k}", 50, [f"m{k % 3}"], {f"t{k - 1}": 64} if k else None) for k in range(30)]
    on = instance([chain(*tasks)], ["m0", "m1", "m2"], gpus(2, BYTES))
    run = run_live(on, lambda: Listed([k % 2 for k in range(30)], prefetch=0), Small, KEPT)
    assert (len(run.records.loads), len(run.records.transfers)) == (30, 29)
    assert sum(residency.end_us is not None for residency in run.timeline.residencies) == 28
    assert different(on, run) == []


def test_thrashing_beside_other_jobs_changes_no_bit() -> None:
    """Three jobs' chains at once, loads overlap runs of others."""
    workflows = [
        chain(*[task(f"t{k}", 50, [f"m{(k + turn) % 3}"], {f"t{k - 1}": 64} if k else None) for k in range(12)])
        for turn in range(3)
    ]
    on = instance(workflows, ["m0", "m1", "m2"], gpus(2, 2 * BYTES))
    run = run_live(on, parse_policy("compass"), Small, KEPT)
    assert check(on, run.timeline) == []
    assert different(on, run) == []


def test_different_weights_would_be_noticed() -> None:
    on = instance([ABC], ["m0", "m1", "m2"], gpus(1, 3 * BYTES))
    run = run_live(on, parse_policy("jit"), Small, KEPT)
    one_bit_off = (run.outputs[1].view(torch.int32) ^ 1).view(torch.float32)
    assert different_outputs(on, Small, "cpu", {**run.outputs, 1: one_bit_off}, 30) == [1]


class Bias(Small):
    def run(self, call: RunnerCall) -> Tensor:
        return call.modules["m0"].get_parameter("bias") if call.task == "a" else super().run(call)


def test_an_output_that_is_a_view_of_weights_outlives_them() -> None:
    """The first task hands out m0's bias; then m1 takes m0's place. What travels is a copy, not what lies there now."""

    on = instance([ABC], ["m0", "m1", "m2"], gpus(1, BYTES))
    run = run_live(on, parse_policy("jit"), Bias, KEPT)
    assert torch.equal(run.outputs[0], Small().weights(on.models[0])["bias"])
    assert different_outputs(on, Bias, "cpu", run.outputs, 30) == []


def test_a_reference_that_fails_counts_as_different() -> None:
    """The job's tasks ran, and cannot be run again."""
    on = instance([ABC], ["m0", "m1", "m2"], gpus(1, 3 * BYTES))
    run = run_live(on, parse_policy("jit"), Small, KEPT)
    refusing = partial(small, In(Raise(RuntimeError("no"))))
    assert different_outputs(on, refusing, "cpu", run.outputs, 30) == [0, 1, 2]


def test_models_that_must_move_still_compute_the_same() -> None:
    """The plan fits by bytes, but not in pieces: it is said, models make way, and nothing else changes."""
    on, plan = unpackable()
    run = run_live(on, replay(on, plan), Small, KEPT, plan=plan)
    assert run.unpacked == (0,)
    assert len(run.records.moves) >= 1
    assert check(on, run.timeline) == []
    assert different(on, run) == []


class Scale(nn.Module):
    """Six numbers times the mean of the bytes that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.rand(6))

    def forward(self, data: Tensor) -> Tensor:
        return data.float().mean() * self.factors


def plain(name: str) -> nn.Module:
    return Scale()


@cache
def noting(log: Path) -> Callable[..., object]:
    """Return what compiles nothing and writes a line with what the code is given."""

    def note(graph: GraphModule, given: Sequence[Tensor]) -> Callable[..., object]:
        with log.open("a") as file:
            file.write(f"{[list(each.shape) for each in given]}\n")
        return graph.forward

    return note


def compiled(log: Path, name: str) -> nn.Module:
    """Make a module that is compiled as it is first called."""
    return cast(nn.Module, torch.compile(Scale(), backend=noting(log), dynamic=False))


def test_compiled_modules_take_weights_from_wherever_they_lie(tmp_path: Path) -> None:
    """One code for eight models, compiled at the warm-up: given are bytes and weights, so it holds where these move."""
    on, plan = unpackable()
    make = partial(FactoryRunner, partial(compiled, tmp_path / "log"))
    run = run_live(on, replay(on, plan), make, KEPT, plan=plan)
    assert (run.records.failures, len(run.records.moves) >= 1) == ([], True)
    assert (tmp_path / "log").read_text() == f"[[{DRAWN_BYTES}], [6]]\n"
    assert len({tuple(output.tolist()) for output in run.outputs.values()}) == 8
    assert different_outputs(on, partial(FactoryRunner, plain), "cpu", run.outputs, 30) == []


def test_a_moved_model_is_used_again_where_it_lies_now() -> None:
    """a, b, c lie side by side, one piece each; a and c leave for a model of two pieces, and b must move to serve it.

    Put down in the order of their loads without a look at the plan, b lies in the middle; then b runs once more.
    """
    models = (*(MLModel(name, PIECE) for name in "abc"), MLModel("long", 2 * PIECE))
    tasks = [task("t0", 10, ["a"]), task("t1", 10, ["b"], {"t0": 64}), task("t2", 10, ["c"], {"t1": 64})]
    tasks += [task("t3", 10, ["long"], {"t2": 64}), task("t4", 10, ["b"], {"t3": 64})]
    on = Instance(gpus(1, 3 * PIECE), models, (Job(chain(*tasks), 0),))
    plan = Timeline.build(
        5,
        [Placement(index, 0, 1000 * index + 500, 1000 * index + 510) for index in range(5)],
        [
            Residency(0, 0, 0, 128, 3000),
            Residency(1, 0, 1000, 1128),
            Residency(2, 0, 2000, 2128, 3000),
            Residency(3, 0, 3000, 3256),
        ],
    )
    assert check(on, plan) == []
    packed = run_live(on, replay(on, plan), Small, KEPT, plan=plan)
    moved = run_live(on, replay(on, plan), Small, KEPT)
    assert (packed.unpacked, packed.records.moves) == ((), [])
    assert [(move.model, move.gpu) for move in moved.records.moves] == [(1, 0)]
    assert [load.moves_us > 0 for load in moved.records.loads] == [False, False, False, True]
    for run in (packed, moved):
        assert check(on, run.timeline) == []
        assert different(on, run) == []


def test_a_model_that_slides_over_its_old_place_keeps_every_byte() -> None:
    """a, long, free: one, two and one pieces; a leaves for another model of two, and long slides down by one."""
    models = (MLModel("a", PIECE), MLModel("long", 2 * PIECE), MLModel("other", 2 * PIECE))
    steps = [task(f"t{k}", 10, [name], {f"t{k - 1}": 64} if k else None) for k, name in enumerate(("a", "long"))]
    steps += [task("t2", 10, ["other"], {"t1": 64}), task("t3", 10, ["long"], {"t2": 64})]
    on = Instance(gpus(1, 4 * PIECE), models, (Job(chain(*steps), 0),))
    run = run_live(on, lambda: Listed([0] * 4, prefetch=0), SyntheticRunner, KEPT)
    assert [(move.model, move.gpu) for move in run.records.moves] == [(1, 0)]
    assert len(run.records.loads) == 3
    assert different_outputs(on, SyntheticRunner, "cpu", run.outputs, 30) == []


def test_an_output_is_compared_even_if_what_it_came_of_was_lost() -> None:
    """Of a, b and c only the output of c is there; a wrong one in its place is found."""
    on = instance([ABC], ["m0", "m1", "m2"], gpus(1, BYTES))
    output = run_live(on, parse_policy("jit"), Small, KEPT).outputs[2]
    assert different_outputs(on, Small, "cpu", {2: output}, 30) == []
    assert different_outputs(on, Small, "cpu", {2: -output}, 30) == [2]


def test_who_takes_a_piece_over_appends_behind_and_has_begun_nothing() -> None:
    """The first owner has begun orders 7 and 8 on lanes 0 and 2, and two outputs; the next one adds a third."""
    shelf = Shelf([make_piece(), make_piece()])
    shelf.own(1)
    shelf.note_begun(0, 7)
    shelf.note_begun(2, 8)
    refs = [shelf.put(torch.full((3,), float(value))) for value in range(2)]
    assert [shelf.begun(1, lane) for lane in range(4)] == [7, 0, 8, 0]
    assert [shelf.begun(0, lane) for lane in range(4)] == [0, 0, 0, 0]

    shelf.own(1)
    refs.append(shelf.put(torch.full((3,), 2.0)))
    assert [shelf.begun(1, lane) for lane in range(4)] == [0, 0, 0, 0]
    assert [ref.offset + ref.size_bytes for ref in refs[:2]] == [ref.offset for ref in refs[1:]]
    assert [shelf.read(ref).tolist() for ref in refs] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
