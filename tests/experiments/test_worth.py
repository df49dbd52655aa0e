"""The study of Compass's means: what it sets beside each other."""

from __future__ import annotations

import pandas as pd

from experiments import worth_2026_11_21 as worth


def test_changes_are_set_beside_the_same_draw_without_them() -> None:
    rows = [
        {worth.RATE: 3.0, worth.SEED: seed, worth.CHANGE: change, "policy": policy, "value": value, "hit_rate": 0.5}
        for seed, change, policy, value in [
            (1, "none", "compass", 2.0),
            (2, "none", "compass", 4.0),
            (1, "no prefetch", "compass:prefetch=0", 3.0),
            (2, "no prefetch", "compass:prefetch=0", 5.0),
        ]
    ]
    table = worth.worth(pd.DataFrame(rows))
    assert list(table["change"]) == ["none", "no prefetch"]
    assert list(table["mean_slowdown"]) == [3, 4]
    assert list(table["ratio"]) == [1, 1.375]  # the mean of 3 / 2 and 5 / 4
    assert list(table["least_ratio"]) == [1, 1.25]
    assert list(table["greatest_ratio"]) == [1, 1.5]
