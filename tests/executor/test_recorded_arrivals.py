"""The figures of the released simulator on its recorded arrivals (PROBLEM.md, section 5), seed 0."""

from __future__ import annotations

import pytest

from experiments.authors import ARRIVALS
from experiments.benchmarks.compass_figures import CORRECTED, CORRECTED_ADJUSTED, RELEASED, Figures, figures

pytestmark = pytest.mark.skipif(not ARRIVALS.is_dir(), reason="the recorded arrivals are not beside the repository")


@pytest.mark.parametrize(("rate", "share"), [(2, 1.05), (3, 1.05), (4, 1.0)])
def test_compass_is_no_straw_man(rate: int, share: float) -> None:
    assert figures(rate, "compass", 0).mean_slowdown <= share * CORRECTED[rate].mean


@pytest.mark.parametrize("rate", [2, 3])
def test_adjustment_is_on_because_it_is_better(rate: int) -> None:
    assert figures(rate, "compass", 0).mean_slowdown < figures(rate, "compass:adjust=off", 0).mean_slowdown


@pytest.mark.parametrize(
    ("policy", "theirs", "rate"),
    [
        ("compass-released", RELEASED, 2),
        ("compass-released", RELEASED, 3),
        ("compass-released:remaining=on,shared=on", CORRECTED, 2),
        ("compass-released:remaining=on,shared=on", CORRECTED, 3),
        ("compass-released:remaining=on,shared=on,adjust=on", CORRECTED_ADJUSTED, 2),
        ("compass-released:remaining=on,shared=on,adjust=on", CORRECTED_ADJUSTED, 3),
    ],
)
def test_released_compass_gives_the_released_figures(policy: str, theirs: dict[int, Figures], rate: int) -> None:
    ours, known = figures(rate, policy, 0), theirs[rate]
    assert ours.mean_slowdown == pytest.approx(known.mean, rel=0.1)
    assert ours.p50_slowdown == pytest.approx(known.median, rel=0.1)
    assert ours.p95_slowdown == pytest.approx(known.p95, rel=0.15)
    assert ours.hit_rate == pytest.approx(known.hit_rate, abs=0.01)
