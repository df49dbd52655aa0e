"""Load times, transfer times and what fits a GPU, by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests import instances as make
from truenorth.models import GPU, Cluster, Link, Network

GB = 10**9


def test_a_load_is_the_ceiling_of_the_quotient_plus_the_overhead() -> None:
    # opt on the authors' T4: 5.72 / 10.17 s = 562 438.5447... us.
    t4 = make.gpu(memory_bytes=14 * GB, load_bandwidth=Fraction("10.17") * GB)
    assert t4.load_us(5_720_000_000) == 562_439
    assert replace(t4, load_overhead_us=7).load_us(5_720_000_000) == 562_446
    # A quotient that is whole stays as it is: 10.17 GB take exactly one second.
    assert t4.load_us(10_170_000_000) == 1_000_000
    assert t4.load_us(10_170_000_001) == 1_000_001


def test_a_transfer_pays_latency_even_for_nothing() -> None:
    network = Network(Link(5, Fraction(make.MB)), Link(2, None))
    assert network.transfer_us(0, make.gpu(0), make.gpu(1), same_server=False) == 5
    assert network.transfer_us(3, make.gpu(0), make.gpu(1), same_server=False) == 8
    assert network.transfer_us(3, make.gpu(0), make.gpu(1), same_server=True) == 2


def test_a_staged_transfer_rounds_its_three_legs_together() -> None:
    # Each leg carries 3 bytes per us, so that 1 byte takes 1/3 + 1/3 + 1/3 = 1 us; leg by leg it would be 3.
    third = Fraction(3 * make.MB)
    a, b = make.gpu(0, load_bandwidth=third), make.gpu(1, load_bandwidth=third)
    network = Network(Link(10, third), Link(20, None), staged=True)
    assert network.transfer_us(1, a, b, same_server=False) == 11
    # Within the server only the two copies count: 2/3 us, rounded up.
    assert network.transfer_us(1, a, b, same_server=True) == 21
    assert network.transfers_us([0, 1, 4], a, b, same_server=False) == [10, 11, 14]


def test_a_staged_transfer_copies_at_each_ends_own_bandwidth() -> None:
    slow, fast = make.gpu(0, load_bandwidth=Fraction(make.MB)), make.gpu(1, load_bandwidth=Fraction(4 * make.MB))
    network = Network(Link(0, Fraction(2 * make.MB)), Link(), staged=True)
    # 8 bytes: 8 us out of the slow GPU, 4 us of network, 2 us into the fast one.
    assert network.transfer_us(8, slow, fast, same_server=False) == 14


@pytest.mark.parametrize(
    ("slots", "sizes", "expected"),
    [
        ((), [4, 6], True),
        ((), [5, 6], False),
        ((6, 4), [4, 6], True),
        ((6, 4), [5, 5], False),  # 10 bytes in all, but the slot of 4 is too small
        ((6, 4), [1, 1, 1], False),  # three models, two slots
        ((4, 6), [6], True),
        ((5, 5), [6], False),
        ((5, 5), [], True),
    ],
)
def test_what_fits_together(slots: tuple[int, ...], sizes: list[int], expected: bool) -> None:
    assert make.gpu(slots=slots).fits(sizes) is expected


@pytest.mark.parametrize(
    "changes",
    [
        {"memory_bytes": 0},
        {"load_bandwidth": Fraction(0)},
        {"load_overhead_us": -1},
        {"slots": (10, 0)},
        {"slots": (5, 4)},
    ],
)
def test_impossible_gpus(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="GPU s0/g0"):
        make.gpu(0, None, **changes)


def test_impossible_links_and_clusters() -> None:
    with pytest.raises(ValueError, match="latency"):
        Link(-1)
    with pytest.raises(ValueError, match="bandwidth"):
        Link(0, Fraction(0))
    with pytest.raises(ValueError, match="at least one"):
        Cluster((), make.network())
    same: GPU = make.gpu()
    with pytest.raises(ValueError, match="differ"):
        Cluster((same, same), make.network())
