"""The CUDA path on a card that pretends: what may overtake what, clocks, waits with a limit, and how a card fails."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tests.executor.devices.pretended import (
    ASSERT,
    FULL,
    HANGS,
    LOST,
    RECOVERS,
    PretendedCard,
    RaceError,
    Stepped,
    Wall,
)
from tests.executor.devices.small import BYTES, WIDTH, Small
from truenorth.executor.devices import physical
from truenorth.executor.devices.runner import RunnerCall
from truenorth.executor.devices.station import Station, StationWork
from truenorth.executor.devices.streams import CudaStream, Pending
from truenorth.executor.devices.weights import HostWeights, aligned
from truenorth.executor.errors import DeviceError
from truenorth.models import GPU, MLModel

PLACE = aligned(BYTES)


@pytest.fixture
def card() -> PretendedCard:
    return PretendedCard()


def station(card: PretendedCard, models: int = 2, before: Callable[[RunnerCall], None] = lambda call: None) -> Station:
    """Return a GPU with room for two models."""
    made, runner, on = [MLModel(f"m{at}", BYTES) for at in range(models)], Small(before), card.physical()
    return Station(
        GPU("s0/g0", 0, "A", 2 * PLACE, Fraction(1)), made, HostWeights(made, runner, on.host_memory), runner, on
    )


def work(job: int, *models: int, inputs: dict[str, tuple[Tensor, int]] | None = None) -> StationWork:
    return StationWork(job, "w", "t", 10, models, inputs or {})


def expected(job: int, model: str = "m0") -> Tensor:
    runner = Small()
    weights = runner.weights(MLModel(model, BYTES))
    return torch.tanh(torch.nn.functional.linear(torch.full((WIDTH,), job + 1.0), weights["weight"], weights["bias"]))


# -- what the judge judges ------------------------------------------------------------------------------------------


def test_a_run_that_does_not_wait_for_its_weights_is_a_race(card: PretendedCard) -> None:
    on = card.physical()
    copies, computes, arena, host = on.stream(), on.stream(), on.memory(64), on.host_memory(64)
    copies.enqueue(lambda: arena.copy_(host, non_blocking=True), label="load")
    with pytest.raises(RaceError, match=r"^run reads what load writes$"):
        computes.enqueue(arena.sum, label="run")


def test_a_copy_over_what_a_run_reads_is_a_race_and_beside_it_none(card: PretendedCard) -> None:
    on = card.physical()
    copies, computes, arena, host = on.stream(), on.stream(), on.memory(64), on.host_memory(32)
    run = computes.enqueue(arena[:32].sum, label="run")
    copies.enqueue(lambda: arena[32:].copy_(host, non_blocking=True), label="beside")
    with pytest.raises(RaceError, match=r"^over writes what run reads$"):
        copies.enqueue(lambda: arena[:32].copy_(host, non_blocking=True), label="over")
    copies.enqueue(lambda: arena[:32].copy_(host, non_blocking=True), after=[run.end], label="behind")


@pytest.mark.parametrize("waits", [False, True])
def test_an_output_is_there_for_the_host_once_it_has_been_waited_for(card: PretendedCard, waits: bool) -> None:
    made = card.physical().stream().enqueue(lambda: torch.ones(4), label="run")
    if waits:
        made.wait()
        card.read_by_host(made.result)
        return
    with pytest.raises(RaceError, match=r"^the host reads what run writes$"):
        card.read_by_host(made.result)


def test_an_event_keeps_a_stream_behind_another_one_and_all_before_that(card: PretendedCard) -> None:
    """c waits for b, which has waited for a: what a wrote is there for c."""
    on = card.physical()
    a, b, c = on.stream(), on.stream(), on.stream()
    first = a.enqueue(lambda: torch.ones(4), label="a")
    second = b.enqueue(lambda: torch.ones(4), after=[first.end], label="b")
    c.enqueue(first.result.sum, after=[second.end], label="c")
    starts = {operation.label: (operation.start_ns, operation.end_ns) for operation in card.operations}
    assert starts["a"][1] <= starts["b"][0] < starts["b"][1] <= starts["c"][0]


def test_copies_share_an_engine_each_way_and_kernels_go_beside(card: PretendedCard) -> None:
    """Two copies in, one after the other; a copy out and a kernel beside them, each on a stream of its own."""
    on = card.physical()
    arena, host = on.memory(4000), on.host_memory(4000)
    streams = [on.stream() for _ in range(4)]
    streams[0].enqueue(lambda: arena[:1000].copy_(host[:1000]), label="in 1")
    streams[1].enqueue(lambda: arena[1000:2000].copy_(host[1000:2000]), label="in 2")
    streams[2].enqueue(lambda: host[2000:3000].copy_(arena[2000:3000]), label="out")
    streams[3].enqueue(arena[3000:].sum, label="run")
    first, second, out, run = card.operations
    assert [operation.kind for operation in card.operations] == ["in", "in", "out", "kernel"]
    assert (second.start_ns, second.end_ns - second.start_ns) == (first.end_ns, 1000)
    assert max(out.start_ns, run.start_ns) < second.end_ns


# -- stations -------------------------------------------------------------------------------------------------------


def test_runs_are_enqueued_before_anybody_waits_and_in_order(card: PretendedCard) -> None:
    """A load and three runs of a lane, each on the output of the one before, without a wait in between: no race."""
    gpu, pending, fresh = station(card), list[Pending[list[Tensor]]](), torch.zeros(WIDTH)
    load = gpu.begin_load(0, 0)
    enqueued_ns = card.clock.at_ns
    for job in range(3):
        inputs = {"before": (fresh, 4 * WIDTH)} if pending else {}
        pending.append(gpu.begin_run([work(job, 0, inputs=inputs)]))
        fresh = pending[-1].result[0]
    assert card.of("job 2")[-1].end_ns > card.clock.at_ns  # the card is still busy
    assert card.of("load m0")[0].start_ns >= 0
    spans = [load.wait(), *(each.wait() for each in pending)]
    assert enqueued_ns < spans[-1].start_ns
    for before, after in itertools.pairwise(spans):
        assert before.end_ns <= after.start_ns + 1000  # up to what the clock is read to
    card.read_by_host(fresh)
    assert torch.equal(pending[0].result[0], expected(0))


def test_a_load_waits_for_the_runs_that_read_there_and_for_no_others(card: PretendedCard) -> None:
    """m2 takes the place of m0, which a run reads that nobody has waited for; a run of m1 on another lane goes on."""
    gpu = station(card, models=3)
    gpu.load_alone([0, 1])
    card.kernel_ns = 1_000_000
    reads, other = gpu.begin_run([work(0, 0)]), gpu.begin_run([work(1, 1)], lane=1)
    load = gpu.begin_load(2, 0)
    run = gpu.begin_run([work(2, 2)], lane=2)
    reading, loading = card.of("job 0")[-1], card.of("load m2")[0]
    assert loading.start_ns == reading.end_ns
    assert card.of("job 1")[0].start_ns < reading.end_ns
    assert card.of("job 2")[0].start_ns >= loading.end_ns
    for each in (reads, other, load, run):
        each.wait()
    assert torch.equal(reads.result[0], expected(0))
    assert torch.equal(run.result[0], expected(2, "m2"))


def test_a_model_is_loaded_elsewhere_behind_the_runs_that_read_it(card: PretendedCard) -> None:
    gpu = station(card)
    gpu.load(0, 0)
    card.kernel_ns = 1_000_000
    run = gpu.begin_run([work(0, 0)])
    gpu.begin_load(0, PLACE)
    assert card.of("load m0")[1].start_ns == card.of("job 0")[-1].end_ns
    again = gpu.begin_run([work(0, 0)])
    assert again.wait().start_ns >= run.wait().end_ns
    assert torch.equal(again.result[0], run.result[0])


def test_lanes_run_beside_each_other(card: PretendedCard) -> None:
    gpu = station(card)
    gpu.load(0, 0)
    card.kernel_ns = 1_000_000
    spans = [each.wait() for each in [gpu.begin_run([work(job, 0)], lane=job) for job in range(3)]]
    assert max(span.start_ns for span in spans) < min(span.end_ns for span in spans)


@pytest.mark.parametrize("staged", [False, True])
def test_transfers_go_through_pinned_memory_where_they_are_staged(card: PretendedCard, staged: bool) -> None:
    gpu = station(card)
    sent = card.physical().stream().enqueue(lambda: torch.arange(100), label="made")
    sent.wait()
    received, _ = gpu.receive(sent.result, 160, staged)
    again, _ = gpu.receive(sent.result, 80, staged)
    assert [operation.kind for operation in card.of("receive")] == (["out", "in"] if staged else ["kernel"]) * 2
    assert received.view(torch.int64).tolist() == list(range(20))
    assert again.view(torch.int64).tolist() == list(range(10))


def test_one_more_stream_than_there_are_is_refused(card: PretendedCard) -> None:
    held = [CudaStream(card) for _ in range(32)]
    with pytest.raises(DeviceError, match=r"^all 32 streams .* allowed are fewer planned GPUs per device, and larger"):
        card.physical().stream()
    del held[5]
    assert isinstance(card.physical().stream(), CudaStream)


# -- clocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speed", [1.0, 1.0001])
def test_starts_and_ends_are_the_cards_on_the_hosts_clock(speed: float) -> None:
    """Runs of 3 ms over 20 s, each waited for late; the card's clock is 100 us/s fast. Read to 5 us and its drift."""
    card = PretendedCard(kernel_ns=3_000_000, speed=speed)
    stream = card.physical().stream()
    for _ in range(20):
        pending = stream.enqueue(lambda: torch.ones(1), label="run")
        card.clock.sleep_until(card.clock.at_ns + 1_000_000_000)
        span, ran = pending.wait(), card.operations[-1]
        most = 5_000 + 4.1e9 * abs(speed - 1)
        assert abs(span.start_ns - ran.start_ns) < most
        assert abs(span.end_ns - ran.end_ns) < most
        assert span.duration_us == pytest.approx(3000, abs=2)


def test_a_span_lies_between_the_order_and_the_wait() -> None:
    """A card whose clock runs at double speed cannot say that a run ended before it was seen to, or began too early."""
    card = PretendedCard(speed=2.0)
    stream = card.physical().stream()
    stream.carry_out(lambda: torch.ones(1))
    card.clock.sleep_until(2_000_000_000)
    asked = card.clock.now_ns()
    span = stream.enqueue(lambda: torch.ones(1), not_before_ns=asked).wait()
    assert asked <= span.start_ns <= span.end_ns <= card.clock.now_ns()
    late = stream.enqueue(lambda: torch.ones(1), not_before_ns=card.clock.at_ns + 5_000_000)
    card.clock.sleep_until(card.clock.at_ns + 6_000_000)
    assert late.wait().duration_us >= 0


# -- failures -------------------------------------------------------------------------------------------------------


def test_what_fails_on_the_card_is_raised_by_whoever_waits_not_by_whoever_launches() -> None:
    """It recovers: the error is raised once, the card answers, and the next run is right."""
    card = PretendedCard(failing={"job 0": RECOVERS})
    gpu = station(card)
    gpu.load(0, 0)
    failed = gpu.begin_run([work(0, 0)])
    with pytest.raises(torch.AcceleratorError, match=r"^CUDA error: device-side recovers triggered"):
        failed.wait()
    assert card.physical().answers()
    (output,), _ = gpu.run([work(1, 0)])
    assert torch.equal(output, expected(1))


def test_after_an_assertion_that_stays_nothing_is_answered() -> None:
    """The run behind it was launched before anybody knew; whatever is called since raises the same."""
    card = PretendedCard(failing={"job 0": ASSERT})
    gpu = station(card)
    gpu.load(0, 0)
    first, behind = gpu.begin_run([work(0, 0)]), gpu.begin_run([work(1, 0)])
    assert card.physical().answers()  # nobody knows yet
    for each in (first, behind):
        with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):
            each.wait()
    assert not card.physical().answers()
    with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):
        gpu.run([work(2, 0)])
    with pytest.raises(DeviceError, match=r"^pretended card 0: 5 bytes of memory: CUDA error: device-side assert"):
        card.physical().memory(5)


def test_a_card_that_is_lost_raises_at_the_launch_and_one_that_is_full_goes_on() -> None:
    card = PretendedCard(failing={"job 0": FULL, "job 2": LOST})
    gpu = station(card)
    gpu.load(0, 0)
    with pytest.raises(torch.OutOfMemoryError):
        gpu.begin_run([work(0, 0)])
    assert torch.equal(gpu.run([work(1, 0)])[0][0], expected(1))
    with pytest.raises(torch.AcceleratorError, match="the device is lost"):
        gpu.begin_run([work(2, 0)])
    assert not card.physical().answers()


def test_a_wait_for_what_hangs_has_a_limit_and_so_has_one_for_the_card() -> None:
    card = PretendedCard(failing={"job 0": HANGS}, clock=Wall())
    gpu = station(card)
    gpu.load(0, 0)
    pending = gpu.begin_run([work(0, 0)])
    for wait in (pending.wait, card.physical().wait):
        with pytest.raises(DeviceError, match=r"^pretended card 0: no answer within 0\.05 s$"):
            wait(0.05)
    card.release()
    pending.wait(10)
    assert torch.equal(pending.result[0], expected(0))


def test_a_card_that_is_lost_ends_a_wait_without_a_limit() -> None:
    card = PretendedCard(failing={"job 0": HANGS}, clock=Wall())
    gpu = station(card)
    gpu.load(0, 0)
    pending = gpu.begin_run([work(0, 0)])
    threading.Timer(0.05, card.lose).start()
    with pytest.raises(torch.AcceleratorError, match="the device is lost"):
        pending.wait()


def test_more_memory_than_the_card_has_is_refused_in_one_line() -> None:
    card = PretendedCard(memory_bytes=1000)
    card.physical().memory(900)
    with pytest.raises(DeviceError, match=r"^pretended card 0: no 101 bytes of memory are free: CUDA out of memory"):
        card.physical().memory(101)


@pytest.mark.parametrize(("pinned", "needed"), [(False, 1001), (True, 1024)])
def test_host_memory_is_looked_for_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, card: PretendedCard, pinned: bool, needed: int
) -> None:
    """Of 1,112 bytes nine tenths may be taken: 1,000 (as 1,000, or pinned as 1,024 in place of 1,000) or less."""
    monkeypatch.setattr(physical, "available_bytes", lambda: 1112)
    on = card.physical() if pinned else physical.physical_devices("cpu")[0]
    on.host_memory(512 if pinned else 1000)
    size = 1000 if pinned else 1001
    kind = "pinned host memory" if pinned else "host memory"
    told = rf"^{on.name}: no {size} bytes of {kind}: {needed} bytes of this machine's memory are needed, 1112 are avail"
    with pytest.raises(DeviceError, match=told):
        on.host_memory(size)


def test_a_card_travels_to_another_process_as_plain_data(card: PretendedCard) -> None:
    one = pickle.loads(pickle.dumps([card.physical(), card.physical()]))  # noqa: S301
    assert (one[0].name, one[0].is_cuda, one[0] == one[1]) == ("pretended card 0", True, True)
    assert isinstance(one[0].card.clock, Stepped)
