"""The engine that is fitted serves as the rules say, and what was put into a log is found in it again."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from tests.night import by_day
from tests.streams.one_by_one import Node, Request, Speed, serve
from truenorth.solvers.fitting.engine_kernel import EngineLimits, LoggedRequests
from truenorth.solvers.fitting.law import LawNumbers, ServedLog, fit_law, predict

LAW = LawNumbers(13_000.0, 40.0, 41.0, 0.07, 900.0)
LIMITS = EngineLimits(16, 128, 16, 60)


def requests(count: int, seed: int, gap_us: int) -> LoggedRequests:
    """Return requests of up to 300 tokens of prompt and 100 of answer."""
    rng = random.Random(seed)
    arrival = np.cumsum([rng.randint(0, gap_us) for _ in range(count)]).astype(np.float64)
    prompt, output = ([rng.randint(1, most) for _ in range(count)] for most in (300, 100))
    return LoggedRequests(arrival, np.array(prompt), np.array(output))


def served(asked: LoggedRequests, limits: EngineLimits, law: LawNumbers) -> ServedLog:
    """Return the log of one engine of this law."""
    count = len(asked.prompt)
    empty = ServedLog(asked, np.zeros(count), np.zeros(count), np.zeros(count, np.int64))
    first_us, end_us, _ = predict(empty, limits, law.law(limits.seats))
    return ServedLog(asked, first_us, end_us, empty.engine)


@pytest.mark.parametrize("seed", by_day(range(12), 4))
def test_it_serves_as_one_iteration_after_the_other(seed: int) -> None:
    """To some microseconds, of which an empty engine drops fractions; with and without scarce KV."""
    asked = requests(30, seed, 40_000)
    limits = LIMITS._replace(room=10_000) if seed % 2 else LIMITS._replace(room=26 + seed)
    log = served(asked, limits, LAW)
    tau = [0, *(int(LAW.first_us + LAW.each_us * k) for k in range(limits.seats))]
    rate = Fraction(1_000_000, 41)
    speed = Speed(rate, limits.chunk, limits.seats, tau, 1, Fraction(7, 100), 900, True, limits.block)
    rows = zip(asked.arrival_us.tolist(), asked.prompt.tolist(), asked.output.tolist(), strict=True)
    plain = [Request("a", n, n, m, int(at)) for at, n, m in rows]
    slow = serve([Node({"a": speed}, limits.room * limits.block)], plain, [list(range(len(plain)))])
    assert np.abs(log.first_us - [each.first for each in slow]).max() < 20
    assert np.abs(log.end_us - [each.end for each in slow]).max() < 20
    # Short of KV somebody is preempted, else nobody.
    assert any(each.preempted for each in slow) != bool(seed % 2)


def test_a_law_is_found_in_its_own_log() -> None:
    """Of the earlier half of 200 requests, of which up to 64 run at once and others wait; equal seeds find the same."""
    asked, limits = requests(200, 3, 40_000), EngineLimits(64, 1024, 16, 10_000)
    log = served(asked, limits, LAW)
    half = np.arange(200) < 100
    found = fit_law(log, limits, half, 0)
    assert found.numbers == fit_law(log, limits, half, 0).numbers
    assert found.loss < 1e-4
    first_us, end_us, preempted = predict(log, limits, found.numbers.law(limits.seats))
    assert preempted == 0
    for now_us, then_us in ((first_us, log.first_us), (end_us, log.end_us)):
        error = (now_us - asked.arrival_us).mean() / (then_us - asked.arrival_us).mean() - 1
        assert abs(error) < 0.01


def test_a_log_without_load_does_not_know_steps_of_many() -> None:
    """A request at a time: what each further decode adds is nowhere to be seen."""
    asked = requests(40, 5, 0)
    asked = asked._replace(arrival_us=np.arange(40, dtype=np.float64) * 60e6)
    found = fit_law(served(asked, LIMITS, LAW), LIMITS, np.ones(40, bool), 0)
    assert found.numbers.each_us == 0 or "each_us" in found.unclear
    assert found.loss < 0.01
