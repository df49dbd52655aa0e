"""Addresses: what overlaps in time never overlaps in memory; what does not fit in one piece is said and repaired."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from tests.executor.devices.small import Small, gpus, unpackable
from tests.instances import chain, gpu, instance, random_instance, task
from truenorth.executor import parse_policy
from truenorth.executor.devices.addresses import AddressSpace, Move, Packing, pack
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.weights import HostWeights, aligned, packed_bytes
from truenorth.executor.simulation import simulate
from truenorth.models import Instance, Job, MLModel, Residency, Timeline, check

K = 256


def space(memory: int, *sizes: int) -> AddressSpace:
    """Return the space of a GPU; the room for rounding is one piece of 256 bytes per model."""
    return AddressSpace(gpu(memory_bytes=memory), sizes)


def test_slots_have_fixed_aligned_addresses() -> None:
    """Slots of 300, 256 and 10 bytes begin at 0, 512 and 768 and end at 1024."""
    slotted = AddressSpace(gpu(memory_bytes=566, slots=(300, 256, 10)), [10, 200, 300])
    assert slotted.size_bytes == 1024
    assert (slotted.take(0, 2), slotted.take(1, 1), slotted.take(2, 0)) == ([], [], [])
    assert slotted.address == {0: 768, 1: 512, 2: 0}


def test_by_bytes_the_smallest_gap_that_fits_is_taken() -> None:
    """Models of 2, 1, 1 and 1 pieces lie side by side; 0 and 2 leave; model 4 of 1 piece takes the smaller gap."""
    here = space(5 * K, 2 * K, K, K, K, K)
    for model in range(4):
        here.take(model, None)
    assert here.address == {0: 0, 1: 2 * K, 2: 3 * K, 3: 4 * K}
    here.free(0)
    here.free(2)
    assert here.take(4, None) == []
    assert here.address[4] == 3 * K


def test_a_wanted_address_is_taken_if_it_is_free() -> None:
    here = space(4 * K, K, K, K)
    here.take(0, None, 2 * K)
    here.take(1, None, 2 * K)
    assert here.address == {0: 2 * K, 1: 0}


def test_models_slide_together_with_as_few_bytes_as_possible() -> None:
    """Memory a b c d e of 1 3 1 1 1 pieces and 5 pieces of rounding behind; a and d leave, f of 7 pieces comes.

    Free: a (1), d (1) and the end (5 + 0). Joining d's and the end's room (6) is too little, so all three are needed:
    b, c, e slide to 0, 3, 4.
    """
    here = space(7 * K, K, 3 * K, K, K, K, 7 * K)
    here.size_bytes = 12 * K
    for model in range(5):
        here.take(model, None)
    here.free(0)
    here.free(3)
    assert here.take(5, None) == [Move(1, 0, K), Move(2, 3 * K, 4 * K), Move(4, 4 * K, 6 * K)]
    assert here.address == {1: 0, 2: 3 * K, 4: 4 * K, 5: 5 * K}


def test_only_the_cheaper_side_slides() -> None:
    """Big model 0 (4 pieces), gap (1), model 2 (1), gap (1), model 4 (1); 2 pieces are wanted: only model 2 slides."""
    here = space(8 * K, 4 * K, K, K, K, K, 2 * K)
    here.size_bytes = 8 * K
    for model in range(5):
        here.take(model, None)
    here.free(1)
    here.free(3)
    assert here.take(5, None) == [Move(2, 4 * K, 5 * K)]
    assert here.address == {0: 0, 2: 4 * K, 4: 7 * K, 5: 5 * K}


def stays(*given: tuple[int, int, int | None]) -> tuple[Residency, ...]:
    """Return residencies (model, load start, end) on GPU 0; a load takes one microsecond."""
    return tuple(Residency(model, 0, start, start + 1, end) for model, start, end in given)


def plan_of(sizes: list[int], memory: int, residencies: tuple[Residency, ...]) -> tuple[Instance, Timeline]:
    made = instance([Job(chain(task("x", 1)), 0)], on=gpus(1, memory))
    models = tuple(MLModel(f"m{index}", size) for index, size in enumerate(sizes))
    return replace(made, models=models), Timeline.build(1, [], residencies)


def test_a_plan_that_a_first_fit_would_fragment_is_packed() -> None:
    """a, b, c, d of one piece fill four (of nine with rounding, which the sizes below make useless).

    a and c leave at 10 for e, twice as large. Packed, a and c lie side by side: nothing moves.
    """
    large = 100 * K
    residencies = stays((0, 0, 10), (1, 1, None), (2, 2, 10), (3, 3, None), (4, 10, None))
    made, plan = plan_of([large, large, large, large, 2 * large], 4 * large, residencies)
    packing = pack(made, plan)
    assert packing.unpacked == ()
    assert abs(packing.loads[0, 0] - packing.loads[0, 2]) == large
    assert packing.loads[0, 4] == min(packing.loads[0, 0], packing.loads[0, 2])


def test_a_plan_that_cannot_be_packed_is_reported() -> None:
    made, plan = unpackable()
    assert check(made, plan) == []
    packing = pack(made, plan)
    assert (packing.unpacked, packing.loads) == ((0,), {})


def test_addresses_of_random_plans_never_collide() -> None:
    """Whatever is resident at the same time lies apart, inside the arena; an unpacked GPU has no addresses."""
    packed = 0
    for seed in range(60):
        made = random_instance(random.Random(seed))
        plan = simulate(made, parse_policy("jit"))
        packing = pack(made, plan)
        for g, device in enumerate(made.cluster.gpus):
            if device.slots or g in packing.unpacked:
                assert not any(where == g for where, _ in packing.loads)
                continue
            packed += _assert_apart(made, plan, g, packing)
    assert packed > 20


def _assert_apart(made: Instance, plan: Timeline, g: int, packing: Packing) -> int:
    """Compare every two residencies of a GPU; return how many there are."""
    ordered = sorted((r for r in plan.residencies if r.gpu == g), key=lambda r: (not r.initial, r.load_start_us))
    load, places = 0, []
    for stay in ordered:
        address = packing.initial[g, stay.model] if stay.initial else packing.loads[g, load]
        load += not stay.initial
        places.append((stay, address, address + aligned(int(made.weight_bytes[stay.model]))))
    room = AddressSpace(made.cluster.gpus[g], made.weight_bytes.tolist()).size_bytes
    for index, (stay, low, high) in enumerate(places):
        assert 0 <= low < high <= room
        for other, other_low, other_high in places[:index]:
            apart_in_time = other.end_us is not None and other.end_us <= stay.load_start_us
            assert apart_in_time or high <= other_low or other_high <= low
    return len(places)


def test_tied_weights_are_packed_once() -> None:
    """The same tensor under two names, and a view of it with another shape: 64 bytes, rounded to 256, then 64 more."""
    tensor = torch.arange(16.0)
    assert packed_bytes({"a": tensor, "b": tensor}) == 64
    assert packed_bytes({"a": tensor, "b": tensor.view(4, 4)}) == 256 + 64
    assert packed_bytes({}) == 1


def test_weights_come_back_bit_for_bit_from_any_address() -> None:
    """Odd sizes and mixed types; the views of a copy of the flat bytes elsewhere equal the weights."""

    class Mixed(Small):
        def weights(self, model: MLModel) -> dict[str, torch.Tensor]:
            return {
                "half": torch.randn(3, 5).to(torch.bfloat16),
                "whole": torch.tensor([True, False, True]),
                "empty": torch.zeros(0, 7),
                "number": torch.tensor(7, dtype=torch.int64),
            }

    torch.manual_seed(0)
    host = HostWeights([MLModel("m", 1000)], Mixed(), physical_devices("cpu")[0].host_memory)
    torch.manual_seed(0)
    weights = Mixed().weights(MLModel("m", 1000))
    arena = torch.zeros(2000, dtype=torch.uint8)
    arena[512:1512] = host.flat[0]
    views = host.views(0, arena[512:])
    assert {name: view.dtype for name, view in views.items()} == {name: t.dtype for name, t in weights.items()}
    assert all(torch.equal(views[name], weights[name]) for name in weights)
