"""Why a size is too small, by prices: certificates of them are of the window that the verifier prices."""

from __future__ import annotations

import threading
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from tests.gangs import moldable, servers, window
from truenorth.models import Objective
from truenorth.planner.answers.servers.decide import _searched
from truenorth.planner.answers.servers.goal import Goal
from truenorth.solvers.bounds.lagrangian.improve import METHOD as LAGRANGIAN
from truenorth.solvers.bounds.verify import verify


def test_prices_of_a_size_pay_for_every_gpu_of_a_mode_and_verify() -> None:
    """One after the other on 4 GPUs they take 30 in the mean; torn into parts they could take 25.5."""
    four = window(*(moldable({1: 40, 4: 12}) for _ in range(4)), on=servers(1, 4))
    goal = Goal(four, Objective.MEAN_LATENCY, Fraction(26))
    found: Any = SimpleNamespace(bound_method=LAGRANGIAN, runtime_s=5.0, lower_bound=Fraction(28))
    refuted = _searched(goal, (1,), found, LAGRANGIAN, 10.0, threading.Event())
    assert refuted.certificate is not None
    assert verify(four, refuted.certificate).valid
    assert refuted.bound is not None
    assert 26 < refuted.bound <= 30
