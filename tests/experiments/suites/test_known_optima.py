"""Plans of instances with known optima: each is found and proved."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import truenorth as tn
from experiments.suites import graphs, paging, shops
from experiments.suites.case import KNOWN_OPTIMA, Bracket, Case
from tests.experiments.suites.plans import PATIENCE_S, needs_data, proved
from tests.night import by_day
from truenorth.models import completion_us
from truenorth.models.scenario import InputError

SHOP = """\
2 2
2 2 0 3 1 5 1 1 4
2 1 1 2 1 0 6
"""


@cache
def job_shops() -> list[Case]:
    return list(shops.job_shop_cases(KNOWN_OPTIMA))


@cache
def answers_of_async_how() -> list[Case]:
    return list(graphs.async_how_cases(KNOWN_OPTIMA))


def only(cases: list[Case], name: str) -> Case:
    (case,) = [case for case in cases if case.name == name]
    return case


def test_heft() -> None:
    (case,) = graphs.heft_cases()
    assert proved(case) == 73


def test_a_flexible_job_shop_by_hand(tmp_path: Path) -> None:
    # Only the first operation of job 0 has a choice. On machine 0 it takes 3, and that machine is busy for 3 + 6 = 9,
    # which can be done: [0, 3) and [3, 9), job 1 having been on machine 1 in [0, 2). On machine 1, that is busy for
    # 5 + 4 + 2 = 11.
    path = tmp_path / "two_by_two.txt"
    path.write_text(SHOP)
    assert proved(Case("fjsp", "two by two", shops.read_job_shop(path), None)) == 9


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2 2\n2 2", "2\n2 2", "two_by_two.txt:1: header: allowed are the numbers of jobs and machines"),
        ("2 2\n2 2", "3 2\n2 2", "two_by_two.txt:3: jobs: 2 follow; allowed are the 3 announced"),
        ("1 0 6", "1 0", "two_by_two.txt:3: operation 1: the line ends here"),
        ("1 0 6", "1 2 6", "two_by_two.txt:3: operation 1: allowed are machines below 2"),
    ],
)
def test_a_damaged_job_shop_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "two_by_two.txt"
    path.write_text(SHOP.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        shops.read_job_shop(path)
    assert message in str(refused.value)


@needs_data
@pytest.mark.parametrize(
    ("name", "optimum"), by_day([("fattahi1", 66), ("fattahi11", 468), ("fattahi2", 107), ("fattahi6", 320)], 2)
)
def test_fattahi(name: str, optimum: int) -> None:
    case = only(job_shops(), name)
    assert case.known == Bracket.optimum(optimum)
    assert proved(case) == optimum


@needs_data
@pytest.mark.parametrize(
    ("name", "optimum"),
    [("PCMAX_U_1_0010_05_3", 125), ("PCMAX_U_1_0050_25_8", 97), ("PCMAX_NU_3_0010_05_9", 19014)],
)
def test_parallel_machines(name: str, optimum: int) -> None:
    case = only(list(shops.parallel_machine_cases(KNOWN_OPTIMA)), name)
    assert case.known == Bracket.optimum(optimum)
    assert proved(case) == optimum


@needs_data
def test_async_how() -> None:
    plans = answers_of_async_how()
    assert len(plans) == 926
    for case in plans[::150]:
        assert case.known is not None
        assert proved(case) == case.known.upper


@needs_data
def test_the_one_answer_of_async_how_that_is_wrong() -> None:
    # async_829: 4, then 2, then 1, one after the other, take 1,209,600 + 4,838,400 + 172,800 s; the answer omits 1.
    case = only(answers_of_async_how(), "async_829 low")
    assert case.known == Bracket.optimum(6_048_000)
    assert proved(case) == 1_209_600 + 4_838_400 + 172_800


def test_triplets_fill_their_bins_and_are_packed() -> None:
    sizes = shops.triplets(30, 1)
    assert (len(sizes), sum(sizes), min(sizes) > shops.CAPACITY // 4 - 1) == (
        30,
        10 * shops.CAPACITY,
        True,
    )
    case = next(shops.triplet_cases())
    assert case.known == Bracket.optimum(1_000_000)
    assert proved(case) == 1_000_000


@pytest.mark.parametrize("index", by_day(range(4), 2))
def test_paging_is_as_good_as_belady(index: int) -> None:
    case = list(paging.cases())[index]
    assert case.known is not None
    assert proved(case) == case.known.upper


def test_loads_counted_from_a_makespan_are_the_loads_of_the_plan() -> None:
    # Belady: pages 1, 2 come in, 3 replaces 2, 1 is there, 2 comes again: four loads. Five runs of 3 us: 55 us.
    case = paging.case([1, 2, 3, 1, 2], 2, "by hand")
    found = tn.plan(case.scenario, time_limit=PATIENCE_S)
    assert found.timeline is not None
    assert found.metrics is not None
    assert found.result.value is not None
    assert completion_us(case.scenario.instance, found.timeline).tolist() == [5 * paging.RUN_US + 4 * paging.LOAD_US]
    assert found.metrics.loads == case.value(found.result.value) == 4
