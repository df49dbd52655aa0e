"""LRU, Dally, Hadar and RLTune: decisions derived by hand.

GPUs have 10 bytes and load one byte per microsecond; a transfer takes 1 us plus 1 us per byte.
"""

from __future__ import annotations

import pytest

from tests.executor.scripted import runs
from tests.instances import chain, cluster, gpu, instance, network, task
from truenorth.executor import parse_policy, simulate
from truenorth.executor.policies.bookings import Bookings
from truenorth.executor.policies.hadar import Hadar
from truenorth.models import Cluster, InitialResidency, Instance, Job, check

HADAR = parse_policy("hadar")


def on_g1(run: int, jobs: int = 2) -> Instance:
    """Return equal jobs at 0 whose model x (4 bytes) is on the second of two GPUs; they arrive at the first."""
    work = chain(task("t", run, ["x"]))
    held = (InitialResidency(1, 0),)
    return instance([Job(work, 0, ingress=0) for _ in range(jobs)], {"x": 4}, cluster(2), initial=held)


def test_lru_goes_where_the_model_is_until_waiting_exceeds_the_load_on_an_idle_gpu() -> None:
    # The third would wait 6 us on g1: to load x on g0, which is idle, takes 4. The fourth finds g0 taken.
    waiting = [(1, 0, 3), (1, 3, 6), (1, 6, 9), (1, 9, 12)]
    assert runs(simulate(on_g1(3, jobs=4), parse_policy("lru"))) == [*waiting[:2], (0, 4, 7), waiting[2]]
    assert runs(simulate(on_g1(3, jobs=4), parse_policy("lru:copies=off"))) == waiting


def test_lru_copies_later_where_something_must_be_evicted() -> None:
    # g0 is full of y: to load x there counts 8. The fourth would wait for 9, and loads in 4.
    work, held = chain(task("t", 3, ["x"])), (InitialResidency(1, 0), InitialResidency(0, 1))
    on = instance([Job(work, 0, ingress=0) for _ in range(4)], {"x": 4, "y": 8}, cluster(2), initial=held)
    assert runs(simulate(on, parse_policy("lru"))) == [(1, 0, 3), (1, 3, 6), (1, 6, 9), (0, 4, 7)]


def test_lru_counts_what_is_being_loaded_as_held_and_goes_to_the_least_wait_otherwise() -> None:
    # x is nowhere: ingress g0 loads it [0, 4). At 1 the second job goes there too, behind it; y goes to the idle g1.
    x, y = chain(task("t", 4, ["x"]), name="wx"), chain(task("t", 1, ["y"]), name="wy")
    jobs = [Job(x, 0, ingress=0), Job(x, 1, ingress=1), Job(y, 1, ingress=0)]
    timeline = simulate(instance(jobs, {"x": 4, "y": 4}, cluster(2)), parse_policy("lru"))
    assert runs(timeline) == [(0, 4, 8), (0, 8, 12), (1, 5, 6)]


def test_lru_is_strictly_first_in_first_out() -> None:
    # t becomes ready at 10 on g1's kind and waits on g0, which holds m, for 5 bytes: 16. u comes at 11, stays behind.
    work = chain(task("o", {"B": 10}), task("t", 1, ["m"], {"o": 5}))
    jobs = [Job(work, 0), Job(chain(task("u", 1, ["m"]), name="v"), 11)]
    kinds = Cluster((gpu(0), gpu(1, kind="B")), network())
    on = instance(jobs, {"m": 4}, kinds, initial=(InitialResidency(0, 0),))
    assert runs(simulate(on, parse_policy("lru"))) == [(1, 0, 10), (0, 16, 17), (0, 17, 18)]


@pytest.mark.parametrize(("options", "second"), [("", 20), (":keep_alive=10us", 24), (":keep_alive=18us", 20)])
def test_lru_evicts_what_has_idled_for_longer_than_it_is_kept_alive(options: str, second: int) -> None:
    # x is used until 3; the next job comes at 20. Kept for 10 us it is evicted at 13 and loaded again [20, 24).
    work = chain(task("t", 3, ["x"]))
    on = instance([Job(work, 0), Job(work, 20)], {"x": 4}, initial=(InitialResidency(0, 0),))
    timeline = simulate(on, parse_policy(f"lru{options}"))
    assert timeline.start_us.tolist() == [0, second]
    assert [r.end_us for r in timeline.residencies if r.initial] == [13 if second == 24 else None]
    assert check(on, timeline) == []


@pytest.mark.parametrize(
    ("tau", "second"),
    [("0us", (0, 4, 9)), ("4us", (0, 6, 11)), ("10us", (1, 5, 10)), ("inf", (1, 5, 10)), ("auto", (0, 7, 12))],
)
def test_dally_declines_a_load_for_half_of_tau(tau: str, second: tuple[int, int, int]) -> None:
    # x is on g1, which runs the first task [0, 5). The second may load x on the idle g0 (4 us, no eviction) once it has
    # waited tau / 2: at 0, at 2, or at 5 and never, when g1 is free. auto: the first task waited 0, so that the mean
    # is 0.9 x 4 + 0.1 x 0 = 3.6 and tau 7: at 3.
    timeline = simulate(on_g1(5), parse_policy(f"dally:tau={tau}"))
    assert runs(timeline) == [(1, 0, 5), second]


@pytest.mark.parametrize(("tau", "start"), [("4us", 8), ("16us", 20), ("18us", 22), ("42us", 20)])
def test_dally_declines_an_eviction_for_tau(tau: str, start: int) -> None:
    # As before, but g0 is full of y, and g1 is busy until 20: at tau it evicts and loads for 4 us, unless g1 is free.
    work = chain(task("t", 20, ["x"]))
    held = (InitialResidency(1, 0), InitialResidency(0, 1))
    on = instance([Job(work, 0, ingress=0) for _ in range(2)], {"x": 4, "y": 8}, cluster(2), initial=held)
    assert int(simulate(on, parse_policy(f"dally:tau={tau}")).start_us[1]) == start


def test_dally_takes_any_gpu_for_a_model_that_is_nowhere() -> None:
    # However patient: the first job loads x on its ingress g1 at once. The second, at 1, waits for it: it is coming.
    work = chain(task("t", 5, ["x"]))
    on = instance([Job(work, 0, ingress=1), Job(work, 1, ingress=0)], {"x": 4}, cluster(2))
    assert runs(simulate(on, parse_policy("dally:tau=inf"))) == [(1, 4, 9), (1, 9, 14)]


def test_rltune_weighs_work_by_how_long_it_has_waited() -> None:
    # One GPU, busy until 10. a (3 us, since 1): 3 x 3 = 9; b (2 us, since 9): 4. Waits 9 and 1, mean 5:
    # 9 / (1 + 1.8) = 3.2 < 4 / (1 + 0.2) = 3.3, so a goes first; without the waits b would.
    jobs = [Job(chain(task("t", us), name=name), at) for name, us, at in (("long", 10, 0), ("a", 3, 1), ("b", 2, 9))]
    assert simulate(instance(jobs), parse_policy("rltune")).start_us.tolist() == [0, 10, 13]


@pytest.mark.parametrize(("balance", "second"), [("0.3", (0, 4, 7)), ("0", (1, 3, 6))])
def test_rltune_balances_waits(balance: str, second: tuple[int, int, int]) -> None:
    # The second task: on g0 it ends at 4 + 3 = 7 and the waits are 3 and 3; behind the first on g1 it ends at 6, the
    # waits 0 and 6. 7 + 0.3 x 0 < 6 + 0.3 x 6.
    timeline = simulate(on_g1(3), parse_policy(f"rltune:balance={balance}"))
    assert runs(timeline) == [(1, 0, 3), second]


@pytest.mark.parametrize(("reload", "where"), [("0", 0), ("1", 1)])
def test_rltune_counts_what_it_evicts_and_the_queue_needs(reload: str, where: int) -> None:
    # Job x (1 us, 6 bytes) finds g0 with y and free since 0, and g1 with z; both would have to evict. y is needed by
    # the other job, which waits behind it: evicting it counts 6 us more.
    sizes = {"x": 6, "y": 6, "z": 6}
    first, second = chain(task("t", 1, ["x"]), name="first"), chain(task("t", 9, ["y"]), name="second")
    held = (InitialResidency(0, 1), InitialResidency(1, 2))
    jobs = [Job(first, 0, ingress=0), Job(second, 0, ingress=0)]
    on = instance(jobs, sizes, cluster(2), initial=held)
    timeline = simulate(on, parse_policy(f"rltune:reload={reload},balance=0,room=0"))
    assert int(timeline.place[0]) == where


def test_hadar_takes_the_kind_of_least_finish_and_price() -> None:
    # One window of 10 us. g0 (4 us) is cheaper than g1 (6 us). The second job would end at 8 on g0, at a price of
    # 0.1 x 100^0.4 = 0.63 per us since 0.4 of the window is booked: 8 + 2.5 > 6 + 0.1 x 6.
    work = chain(task("t", {"A": 4, "B": 6}))
    on = instance([Job(work, 0) for _ in range(2)], on=Cluster((gpu(0), gpu(1, kind="B")), network()))
    assert runs(simulate(on, parse_policy("hadar:window=10us,windows=4"))) == [(0, 0, 4), (1, 0, 6)]


def test_hadar_books_in_windows_that_fit_the_run_times() -> None:
    # Run times of 3, 6 and 90: the median is 6 and a window 4, in whatever unit. So hours are decided as seconds are.
    def placed(unit_us: int) -> list[tuple[int, int, int]]:
        work = [chain(task("t", us * unit_us), name=f"w{us}") for us in (3, 6, 90)]
        jobs = [Job(work[at % 3], at * unit_us, ingress=0) for at in range(12)]
        return [(g, a // unit_us, b // unit_us) for g, a, b in runs(simulate(instance(jobs, on=cluster(3)), HADAR))]

    assert placed(1_000_000) == placed(3_600_000_000)
    made = HADAR()
    assert isinstance(made, Hadar)
    simulate(instance([Job(chain(task("a", 3), task("b", 6), task("c", 90)), 0)], on=cluster(3)), lambda: made)
    assert made._window_us == 4


def test_hadar_runs_in_booked_order() -> None:
    # One GPU, windows of 10 us. The first job books [0, 10) and, after it, [10, 12) for its second task. The job that
    # comes at 1 books the third window's start... but [12, 22) does not fit before the end of the windows' grid: it
    # runs after, although its inputs are there first.
    first = chain(task("a", 10), task("b", 2, after={"a": 0}))
    on = instance([Job(first, 0), Job(chain(task("t", 10), name="v"), 1)])
    assert runs(simulate(on, parse_policy("hadar:window=10us,windows=8"))) == [(0, 0, 10), (0, 10, 12), (0, 12, 22)]


def test_hadar_prices_grow_with_what_is_booked() -> None:
    # Windows of 1 s, prices from 0.1 to 10. Half of the first window of GPU 0 is booked: a run of 0.25 s begins at
    # 0.5 s there and costs 0.1 x 100^0.5 = 1 per second; elsewhere 0.1. A full window is no offer.
    books = Bookings(3, windows=4, window_us=1_000_000, prices=(0.1, 10.0))
    books.book(0, 0, 500_000, memory=0.0)
    books.book(2, 0, 1_000_000, memory=0.0)

    def offers(memory: float = 0.0, rate: float = 1e-6) -> list[tuple[float, int] | None]:
        return [books.offer(gpu, 0, 250_000, memory, 2_000_000, rate) for gpu in range(3)]

    # Delay costs 1 per second: 0.5 + 0.25 x (1 - 0.1) is less than 1 for the second window, and more than 0.1 x 1.
    assert offers() == [(pytest.approx(0.725), 500_000), (0.0, 0), (1.0, 1_000_000)]
    assert offers(rate=1e-7) == [(pytest.approx(0.1), 1_000_000), (0.0, 0), (pytest.approx(0.1), 1_000_000)]
    assert [books.first_start(gpu, 0, 250_000, 1_000_000) for gpu in range(3)] == [500_000, 0, 1_000_000]
    assert books.offer(2, 0, 250_000, 0.0, 1_000_000, 1e-6) is None
    # Where nothing is booked it pays for a quarter of a window; half of the memory is paid for the whole window.
    assert [books.windows_paid(250_000, memory) for memory in (0.0, 0.5)] == [0.25, 0.75]
    # A run of 2.5 s takes two windows and half of a third: on GPU 0 it fits before what is booked at 3.6 s ...
    books.book(0, 3_600_000, 300_000, memory=0.5)
    at_03 = 0.1 * 100**0.3
    assert books.offer(0, 0, 2_500_000, 0.0, 9_000_000, 1e-6) == pytest.approx((1 + 0.5 * (at_03 - 0.1), 1_000_000))
    # ... beside which, at 0.3, the last half window costs 0.1 x 100^0.3 per second; one of 2.8 s does not fit.
    assert books.offer(0, 0, 2_800_000, 0.0, 9_000_000, 1e-6) == (4.0, 4_000_000)
    # A quarter of a second behind the 0.3 there pays the more for the memory of which half is booked: 100^0.5 = 10.
    surcharge = 0.25 * (at_03 - 0.1) + 0.5 * (1 - 0.1)
    assert books.offer(0, 3_000_000, 250_000, 0.5, 4_000_000, 1e-6) == pytest.approx((3.3 + surcharge, 3_300_000))
    # What has passed is forgotten.
    books.advance(4_000_000, (0.1, 10.0))
    assert books.offer(0, 4_000_000, 250_000, 0.0, 9_000_000, 1e-6) == (4.0, 4_000_000)


def test_hadar_breaks_ties_by_the_ingress_server_then_the_lowest_index() -> None:
    # Five GPUs, one free: of equal offers that of the ingress server counts, whatever else is booked elsewhere.
    work = chain(task("t", 50))
    on = instance(
        [Job(work, 0, ingress=server) for server in (3, 3, 1, 0, 0)],
        on=Cluster(tuple(gpu(i) for i in range(5)), network()),
    )
    assert simulate(on, parse_policy("hadar:window=10us,windows=40")).place.tolist() == [3, 0, 1, 2, 4]
