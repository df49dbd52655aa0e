"""KV of prompts that moves between GPUs on devices: how answers go on, what travels, and who waits for it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.executor.devices.faulty import Raise, be_killed, failing_transfers
from tests.executor.devices.pretended import PretendedCard
from tests.executor.devices.small import KV_BYTES, WORDS, Decoding, decoder
from tests.night import by_day
from tests.streams.worlds import cluster
from tests.white_box.executor.devices.test_cards_live import cards
from tests.white_box.executor.devices.test_streams import by_hand, module
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.crew import seatings_of
from truenorth.executor.devices.decoding import TOKEN_BYTES, Answer, Read, SeatedDecoder, SentKV
from truenorth.executor.devices.outputs import Outputs
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.records import STARTED_AGAIN
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.devices.shelf import Ref
from truenorth.executor.devices.station import Station
from truenorth.executor.devices.weights import HostWeights
from truenorth.executor.errors import DeviceError
from truenorth.models import Edge, Instance, Job, MLModel, StreamClass, Task, Tokens, Workflow, check
from truenorth.models.streams import StreamSpeed

__all__ = ["cards", "module"]

KEPT = LiveSettings(sharing="serial", keep_outputs=True)
SAID_BYTES = 3 * KV_BYTES
"""What scenarios here say that a token holds, which is what is sent: more than it does."""
APART = {"prefill": ("prefill", "A"), "decode": ("decode", "B")}
TOGETHER = dict.fromkeys(("prefill", "decode"), ("chat", "A"))


def moved(
    tokens: Sequence[tuple[Tokens, Tokens]],
    roles: Mapping[str, tuple[str, str]] = APART,
    gpus: int = 2,
    gap_us: int = 1_000,
    kv_bytes: int = SAID_BYTES,
) -> Instance:
    """Return requests whose prompts are worked off by a class on one kind of GPU, and that go on on another."""
    speed = StreamSpeed(Fraction(20_000), chunk=8, seats=3, step_us={1: 1000, 3: 1500}, kv_bytes=kv_bytes)
    classes = {name: StreamClass(name, {kind: speed}, ("llm",)) for name, kind in roles.values()}
    first = Task.of_stream("prefill", classes[roles["prefill"][0]], first_token=True)
    rest = Task.of_stream("decode", classes[roles["decode"][0]], None, (Edge("prefill", 0, kv=True),))
    flow = Workflow("w", (first, rest))
    jobs = [
        Job(flow, at * gap_us, tokens={"prefill": before, "decode": after}) for at, (before, after) in enumerate(tokens)
    ]
    kinds = list(dict.fromkeys(kind for _, kind in roles.values()))
    return Instance(cluster(gpus, 1_000_000, kinds), (MLModel("llm", 100_000),), tuple(jobs))


def lengths(count: int) -> list[tuple[Tokens, Tokens]]:
    """Return tokens of requests, the first one of every other counted to the prompt of what goes on, as files may."""
    rng = random.Random(count)
    drawn = [(rng.randint(2, 25), rng.randint(1, 9)) for _ in range(count)]
    return [(Tokens(n, n, 1), Tokens(n + at % 2, 0, m)) for at, (n, m) in enumerate(drawn)]


def whole_model() -> nn.Module:
    """Return the decoder of the runner with its weights."""
    whole = decoder()
    whole.load_state_dict(Decoding().weights(MLModel("llm", 100_000)), strict=False)
    return whole


def in_one(made: Instance, model: nn.Module) -> dict[int, list[int]]:
    """Return the answers of requests that nobody divides, by hand: the first token of each, and what comes after it."""
    found: dict[int, list[int]] = {}
    for job in range(len(made.jobs)):
        first, rest = made.tasks_of(job)
        assert made.streams is not None
        before, after = made.streams.tokens(first), made.streams.tokens(rest)
        answer = by_hand(model, first, before._replace(output=1 + after.output))
        found[first], found[rest] = answer[:1], answer[1:]
    return found


@pytest.mark.parametrize("seed", by_day(range(4), 1))
def test_an_answer_goes_on_among_others_where_its_kv_was_laid(module: nn.Module, seed: int) -> None:
    """Prompts are worked off in one decoder, chunk by chunk; the rest of each is read off another, in any seat."""
    rng = random.Random(seed)
    here, there = (SeatedDecoder("m", module, 3, 42, physical_devices("cpu")[0]) for _ in range(2))
    requests = {at: Tokens(n := rng.randint(1, 30), n, rng.randint(2, 12)) for at in range(12)}
    found, waiting = dict[int, list[int]](), list[SentKV]()
    for at, (prompt, _, _) in requests.items():
        half = rng.randint(0, prompt - 1)
        reads = [Read(at, 0, half), Read(at, half, prompt - half)][not half :]
        for read in reads[:-1]:
            here.iterate([read], ())
        first, kv = here.iterate(reads[-1:], (), [Answer(at, prompt, 1, with_kv=True)])
        assert kv.nbytes == TOKEN_BYTES + prompt * KV_BYTES
        found[at] = first.tolist()
        padded = torch.cat([kv, kv.new_full((rng.randint(0, 99),), 255)])
        waiting.append(SentKV(at, prompt, padded))
    left = dict[int, int]()
    while waiting or left:
        joining = [waiting.pop(0) for _ in range(3 - len(left)) if waiting and rng.random() < 0.6]
        left |= {one.request: requests[one.request].output - 1 for one in joining}
        writes = rng.sample(list(left), len(left))
        last = [at for at in writes if left[at] == 1]
        asked = [Answer(at, requests[at].prompt + 1, requests[at].output - 1) for at in last]
        for at, answer in zip(last, there.iterate([], writes, asked, joining), strict=True):
            found[at] += answer.tolist()
        left = {at: count - 1 for at, count in left.items() if count > 1}
    assert found == {at: by_hand(module, at, tokens) for at, tokens in requests.items()}


def sent_sizes(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return what is to hold how many bytes have arrived for each request, as they lie in shared memory."""
    arrived = dict[int, int]()
    receive = Outputs.receive

    def note(outputs: Outputs, source: int, target: int, gpu: int, copy: Ref) -> None:
        device = outputs._leave.__self__  # type: ignore[attr-defined]
        arrived[target] = len(device._crew.shelf.bytes_at(copy.piece, copy.offset))
        receive(outputs, source, target, gpu, copy)

    monkeypatch.setattr(Outputs, "receive", note)
    return arrived


def freed(monkeypatch: pytest.MonkeyPatch) -> list[Ref]:
    """Return what is to hold all memory that is given back."""
    found: list[Ref] = []
    made = Outputs.__init__

    def init(outputs: Outputs, instance: Instance, leave: object, free: object) -> None:
        def note(ref: Ref) -> None:
            found.append(ref)
            free(ref)  # type: ignore[operator]

        made(outputs, instance, leave, note)  # type: ignore[arg-type]

    monkeypatch.setattr(Outputs, "__init__", init)
    return found


def test_kv_is_sent_and_the_answer_is_that_of_a_request_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives are n times the bytes of a token, and the first token; nobody goes on before; nothing stays."""
    made = moved(lengths(6))
    assert made.streams is not None
    arrived, given_back = sent_sizes(monkeypatch), freed(monkeypatch)
    run = run_live(made, parse_policy("least_requests"), Decoding, KEPT)
    assert run.records.failures == []
    assert check(made, run.timeline) == []
    assert {task: answer.tolist() for task, answer in run.outputs.items()} == in_one(made, whole_model())
    sent = {transfer.target: transfer for transfer in run.records.transfers}
    assert set(sent) == {1, 3, 5, 7, 9, 11}
    for decode, transfer in sent.items():
        assert decode is not None
        assert transfer.subject == decode - 1
        assert transfer.size_bytes == made.streams.prompt[decode - 1] * SAID_BYTES
        assert arrived[decode] == transfer.size_bytes + TOKEN_BYTES
        assert run.timeline.end_us[decode - 1] <= transfer.start_us
        assert transfer.end_us <= run.timeline.start_us[decode]
    assert len(given_back) == len(set(given_back)) == 2 * len(sent)  # where it was computed, and where it arrived


@pytest.mark.nightly
def test_on_the_same_gpu_nothing_is_sent() -> None:
    """One class on one GPU does both: the answer goes on with KV that lies there, beside prompts of others."""
    made = moved(lengths(5), TOGETHER, gpus=1)
    run = run_live(made, parse_policy("least_requests"), Decoding, KEPT)
    assert (run.records.failures, run.records.transfers, check(made, run.timeline)) == ([], [], [])
    assert {task: answer.tolist() for task, answer in run.outputs.items()} == in_one(made, whole_model())


@pytest.mark.nightly
def test_a_plan_keeps_its_nodes_and_its_order() -> None:
    """Seven tokens of the last prompt are cached, as zeros, which nobody computes by hand."""
    made = moved([*lengths(7), (Tokens(12, 5, 1), Tokens(13, 0, 4))])
    plan = simulate(made, parse_policy("least_tokens"))
    run = run_live(made, replay(made, plan), Decoding, KEPT, plan=plan)
    assert (run.records.failures, check(made, run.timeline)) == ([], [])
    assert different_outputs(made, Decoding, "cpu", run.outputs, 30) == []
    one_token_off = {**run.outputs, 15: run.outputs[15] + torch.tensor([0, 0, 0, 1])}
    assert different_outputs(made, Decoding, "cpu", one_token_off, 30) == [15]
    assert run.timeline.place.tolist() == plan.place.tolist()
    assert (run.timeline.start_us >= plan.start_us).all()


def failing(size_bytes: int, tries: int) -> Decoding:
    """Let so many tries fail to send so many bytes."""
    failing_transfers(Raise(RuntimeError("no")), size_bytes, tries)
    return Decoding()


def faults(run: LiveRun) -> list[str]:
    return [fault.what for fault in run.records.faults]


@pytest.mark.nightly
@pytest.mark.parametrize(("tries", "failed"), [(99, [1]), (2, [])])
def test_kv_that_does_not_arrive_is_sent_again_and_then_fails_its_job(tries: int, failed: list[int]) -> None:
    """The second of three requests has a prompt of its own length."""
    made = moved([(Tokens(n, n, 1), Tokens(n + 1, 0, 3)) for n in (5, 9, 5)])
    runner = partial(failing, 9 * SAID_BYTES + TOKEN_BYTES, tries)
    run = run_live(made, parse_policy("least_requests"), runner, KEPT)
    assert [failure.job for failure in run.records.failures] == failed
    assert faults(run) == ["transfer to decode"] * min(tries, 3)
    assert {task: answer.tolist() for task, answer in run.outputs.items() if task // 2 not in failed} == {
        task: answer for task, answer in in_one(made, whole_model()).items() if task // 2 not in failed
    }


@dataclass(frozen=True)
class InLast:
    """Ends the process of a device, once, in the prompt of the last of four jobs."""

    done: Path

    def __call__(self, words: Tensor) -> None:
        if words.shape[1] > 1 and int(words[0, 0]) == 6 * 17 % WORDS and not self.done.exists():
            self.done.touch()
            be_killed()


@pytest.mark.nightly
def test_what_ends_the_process_that_computed_kv_takes_nothing_from_what_was_put_out(tmp_path: Path) -> None:
    """Whose prompts are read then fails; the others go on from what lies in shared memory."""
    made = moved([(Tokens(n, n, 1), Tokens(n + 1, 0, 6)) for n in (5, 7, 6, 4)])
    runner = partial(Decoding, InLast(tmp_path / "done"))
    run = run_live(made, parse_policy("least_requests"), runner, replace(KEPT, sharing=None))
    failed = {failure.job for failure in run.records.failures}
    assert 3 in failed
    assert 0 not in failed
    assert STARTED_AGAIN in faults(run)
    kept = [job for job in range(4) if job not in failed]
    by_hand_of = in_one(made, whole_model())
    assert {task: run.outputs[task].tolist() for job in kept for task in made.tasks_of(job)} == {
        task: by_hand_of[task] for job in kept for task in made.tasks_of(job)
    }


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (Tokens(4, 4, 1), Tokens(5, 1, 3), "computes 1 prompt tokens beside the KV that comes in; allowed are 0"),
        (Tokens(4, 4, 1), Tokens(6, 0, 3), "has 6 prompt tokens, and KV of 4 comes in; allowed are as many, or the"),
        (Tokens(4, 4, 1), Tokens(3, 0, 3), "has 3 prompt tokens, and KV of 4 comes in; allowed are as many, or the"),
        (Tokens(4, 4, 2), Tokens(5, 0, 3), "goes on after 2 output tokens; allowed is 1"),
    ],
)
def test_requests_that_do_more_than_go_on_are_refused(before: Tokens, after: Tokens, said: str) -> None:
    with pytest.raises(DeviceError, match=f"^job 0, decode: {said}"):
        seatings_of(moved([(before, after)]))


def test_kv_of_another_model_or_of_several_requests_or_sent_on_is_refused() -> None:
    speed = StreamSpeed(Fraction(20_000), 8, 1, {1: 1000}, kv_bytes=SAID_BYTES)
    one, other = (StreamClass(name, {"A": speed}, (name,)) for name in ("one", "other"))
    first, second = Task.of_stream("first", one), Task.of_stream("second", one)

    def asked(*tasks: Task) -> Instance:
        given = {task.name: Tokens(4, 0 if task.inputs else 4, 1) for task in tasks}
        models = MLModel("one", 100_000), MLModel("other", 100_000)
        return Instance(cluster(1, 1_000_000), models, (Job(Workflow("w", tasks), 0, tokens=given),))

    def going_on(name: str, stream: StreamClass, *sources: str) -> Task:
        return Task.of_stream(name, stream, None, tuple(Edge(source, 0, kv=True) for source in sources))

    with pytest.raises(DeviceError, match=r"^job 0, rest: runs other, and its KV is of one; allowed is the same model"):
        seatings_of(asked(first, going_on("rest", other, "first")))
    with pytest.raises(DeviceError, match=r"^job 0, rest: takes in KV of several requests; allowed is that of one on"):
        seatings_of(asked(first, second, going_on("rest", one, "first", "second")))
    chain = first, going_on("rest", one, "first"), going_on("more", one, "rest")
    with pytest.raises(DeviceError, match=r"^job 0, more: goes on with KV that was not computed where it comes from;"):
        seatings_of(asked(*chain))


def test_more_kv_than_the_scenario_says_is_not_sent() -> None:
    made, runner, physical = moved(lengths(1), kv_bytes=KV_BYTES - 1), Decoding(), physical_devices("cpu")[0]
    host = HostWeights(made.models, runner, physical.host_memory)
    station = Station(made.cluster.gpus[0], made.models, host, runner, physical)
    station.load_alone([0])
    first, rest = (seatings_of(made)[template, gpu_class] for template, gpu_class in ((0, 0), (1, 1)))
    said = f"^stream prefill: a token of llm holds {KV_BYTES} B of KV, which is sent, and kv_per_token is 127 B;"
    with pytest.raises(DeviceError, match=said):
        station.decoder(first)
    assert station.decoder(rest).kv_bytes == KV_BYTES


@pytest.mark.nightly
@pytest.mark.parametrize("staged", [True, False])
def test_kv_travels_between_cards(cards: tuple[PretendedCard, PretendedCard], staged: bool) -> None:
    """A race would fail its job."""
    made = moved(lengths(4))
    network = replace(made.cluster.network, staged=staged)
    made = replace(made, cluster=replace(made.cluster, network=network))
    run = run_live(made, parse_policy("least_requests"), Decoding, LiveSettings("cuda", keep_outputs=True))
    assert (run.records.failures, check(made, run.timeline)) == ([], [])
    assert len(run.records.transfers) == 4
    assert {task: answer.tolist() for task, answer in run.outputs.items()} == in_one(made, whole_model())
