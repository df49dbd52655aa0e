"""What a model may take: told before it is built, watched while it is."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from tests import instances as make
from truenorth.models import Job, Objective
from truenorth.models.formulations import allowance, milp
from truenorth.models.formulations.allowance import Allowance, GivenUpError, free_bytes


@pytest.fixture
def _ten_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "free_bytes", lambda: 20)  # of which a model may take half


@pytest.mark.usefixtures("_ten_bytes")
def test_a_model_fits_up_to_its_share_of_the_memory() -> None:
    Allowance().fit(5, 2)
    assert Allowance().most(3) == 3
    with pytest.raises(GivenUpError, match=r"^5\.0e\+00 terms take 1\.5e-08 GB, of which 1e-08 GB are free$"):
        Allowance().fit(5, 3)


def test_a_model_fits_into_the_time_that_is_left() -> None:
    Allowance(lambda: 2.0).fit(1000, 0, 0.002)
    with pytest.raises(GivenUpError, match=r"^1\.0e\+03 terms take 3 s to build, of which 2 s are left$"):
        Allowance(lambda: 2.0).fit(1000, 0, 0.003)
    with pytest.raises(GivenUpError, match="no time was left"):
        Allowance(lambda: 0.0).go_on()


def test_the_limit_of_the_process_counts() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    free = free_bytes()
    mapped = 10 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (mapped, before[1]))
    try:
        assert 0 <= free_bytes() < min(free + 1, mapped)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_problem_stops_growing_once_time_is_up() -> None:
    built = make.instance([Job(make.chain(make.task("t", 5, ["m"])), 0)] * 4, {"m": 3}, make.cluster(2))
    looks = 0

    def left() -> Iterator[float]:
        nonlocal looks
        while True:
            looks += 1
            yield 1.0 if looks < 30 else 0.0

    clock = left()
    with pytest.raises(GivenUpError, match="no time was left"):
        milp.formulate(built, Objective.MAKESPAN, allowance=Allowance(lambda: next(clock)))
    assert looks == 30
    whole = milp.formulate(built, Objective.MAKESPAN)
    assert len(whole.problem.constraints()) > 30
