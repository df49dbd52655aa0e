"""The studies that read sweeps: what they count, and what they set beside each other."""

from __future__ import annotations

import pandas as pd

from experiments.half_the_servers_2026_11_21 import __main__ as half
from experiments.half_the_servers_2026_11_21.figure import RATES, figure
from experiments.worth_2026_11_21 import __main__ as worth


def tried(policy: str, values: dict[int, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"cell": servers, half.RATE: 2.0, "policy": policy, half.SERVERS: servers, "value": value,
             "p95_slowdown": 2 * value, "lower_bound": 1.6 / servers}
            for servers, value in values.items()
        ]
    )  # fmt: skip


def test_fewest_is_the_number_from_which_on_the_target_is_reached() -> None:
    rows = tried("hash", {5: 1.8, 2: 1.9, 3: 2.1, 4: 2.0})  # 2 reaches it, 3 does not
    assert half.fewest(rows, "value", 2.0) == 4
    assert half.fewest(rows, "value", 1.0) is None
    assert half.fewest(rows, "value", 3.0) == 2
    assert half.fewest(tried("heft", {2: float("nan")}), "value", 3.0) is None


def test_every_target_has_a_row_and_every_policy_a_column() -> None:
    frame = pd.concat([tried("compass", {1: 2.5, 2: 1.7, 3: 1.4}), tried("hash", {1: 9.0, 2: 3.5, 3: 2.9})])
    table = half.needed(half.averaged(half.with_bound(frame)))
    assert list(table["target"]) == [
        "mean slowdown <= 1.5", "mean slowdown <= 2", "mean slowdown <= 3", "p95 slowdown <= 5",
    ]  # fmt: skip
    assert list(table["compass"]) == [3, 2, 1, 1]
    assert list(table["hash"].fillna(0)) == [0, 0, 3, 0]
    assert list(table[half.BOUND].fillna(0)) == [2, 1, 1, 0]  # 1.6 on one server, 0.8 on two


def test_a_panel_per_window_and_load_shows_who_is_there() -> None:
    draws = [tried("compass", {1: 2.5, 2: 1.7}).assign(**{half.RATE: rate}) for rate in RATES]
    rows = pd.concat(draws, ignore_index=True)
    frame = half.averaged(half.with_bound(rows.assign(cell=rows.index)))
    made = figure({"a": frame, "b": frame})
    assert [len(axes.get_lines()) for axes in made.axes] == [3] * 6  # Compass, the bound, and the target


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
