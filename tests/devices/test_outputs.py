"""What models compute does not depend on what was evicted, reloaded or moved meanwhile."""

from __future__ import annotations

from dataclasses import replace

import torch

from executor import replay
from executor.devices.alone import different_outputs, outputs_alone
from executor.devices.run import LiveRun, LiveSettings, run_live
from executor.policies.parse import parse_policy
from models import Instance, MLModel, Placement, Residency, Timeline, Workflow, check
from tests.devices.small import BYTES, Small, gpus, instance
from tests.executor.scripted import Listed
from tests.instances import chain, task

ABC = chain(task("a", 100, ["m0"]), task("b", 100, ["m1"], {"a": 64}), task("c", 100, ["m2"], {"b": 64}))
KEPT = LiveSettings(keep_outputs=True)


def different(on: Instance, run: LiveRun) -> list[int]:
    assert run.records.failures == []
    assert len(run.outputs) == on.n_tasks
    return different_outputs(on, Small(), "cpu", run.outputs)


def test_a_reference_computed_by_hand() -> None:
    """m0 applied to 1, m1 to what came out: the runner's formula without any device."""
    on = instance([ABC], ["m0", "m1", "m2"], gpus(1, BYTES))
    values = torch.ones(16)
    for model, (_, output) in zip(on.models, outputs_alone(on, Small(), "cpu"), strict=True):
        weights = Small().weights(model)
        values = torch.tanh(torch.nn.functional.linear(values, weights["weight"], weights["bias"]))
        assert torch.equal(output, values)
        values = torch.full((16,), 1.0) + values


def test_constant_thrashing_changes_no_bit() -> None:
    """Task k of a chain needs model k mod 3 and runs on GPU k mod 2, which holds one model: every run needs a load."""
    tasks = [task(f"t{k}", 50, [f"m{k % 3}"], {f"t{k - 1}": 64} if k else None) for k in range(30)]
    on = instance([chain(*tasks)], ["m0", "m1", "m2"], gpus(2, BYTES))
    run = run_live(on, lambda: Listed([k % 2 for k in range(30)], prefetch=0), Small(), KEPT)
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
    run = run_live(on, parse_policy("compass"), Small(), KEPT)
    assert check(on, run.timeline) == []
    assert different(on, run) == []


def test_different_weights_would_be_noticed() -> None:
    on = instance([ABC], ["m0", "m1", "m2"], gpus(1, 3 * BYTES))
    run = run_live(on, parse_policy("jit"), Small(), KEPT)
    one_bit_off = {**run.outputs, 1: run.outputs[1].view(torch.int32) ^ 1}
    assert different_outputs(on, Small(), "cpu", {**one_bit_off, 1: one_bit_off[1].view(torch.float32)}) == [1]


def test_models_that_must_move_still_compute_the_same() -> None:
    """Memory for four pieces. a, b, c, d are loaded; a and c go and leave two pieces apart; the double one needs both.

    By bytes that fits. Whether it fits in one piece is a matter of addresses: the packing finds some, because it
    may put a and c side by side; without a plan, the models were put down in the order of their loads and must move.
    """
    on, plan = _fragmented()
    assert check(on, plan) == []
    packed = run_live(on, replay(on, plan), Small(), KEPT, plan=plan)
    moved = run_live(on, replay(on, plan), Small(), KEPT)
    assert (packed.unpacked, packed.records.moves) == ((), [])
    assert [(move.model, move.gpu) for move in moved.records.moves] == [(1, 0)]
    for run in (packed, moved):
        assert run.records.failures == []
        assert different_outputs(on, Small(), "cpu", run.outputs) == []
        assert check(on, run.timeline) == []


def _fragmented() -> tuple[Instance, Timeline]:
    names = ["a", "b", "c", "d", "big"]
    tasks = [task(f"t_{name}", 10, [name]) for name in names] + [task("again_b", 10, ["b"]), task("again_d", 10, ["d"])]
    size = 1280
    made = instance([Workflow("w", tuple(tasks))], names, gpus(1, 4 * size))
    models = tuple(MLModel(name, 2 * size if name == "big" else size) for name in names)
    made = replace(made, models=models)
    load, double = made.load_time(0, 0), made.load_time(4, 0)
    ready = [load * (index + 1) for index in range(4)]
    start = ready[3] + 10
    placements = [Placement(index, 0, ready[index], ready[index] + 10) for index in range(3)]
    placements += [Placement(3, 0, ready[3], start), Placement(4, 0, start + double, start + double + 10)]
    placements += [Placement(5, 0, start + double + 10, start + double + 20)]
    placements += [Placement(6, 0, start + double + 20, start + double + 30)]
    residencies = [
        Residency(index, 0, load * index, ready[index], start if index in (0, 2) else None) for index in range(4)
    ]
    residencies.append(Residency(4, 0, start, start + double))
    return made, Timeline.build(7, placements, residencies)
