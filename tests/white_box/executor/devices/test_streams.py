"""Requests of streams on devices: answers are those of each request alone; joins, seats and times are the engine's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.executor.devices.faulty import be_killed, hang
from tests.executor.devices.small import KV_BYTES, WORDS, Decoding, decoder
from tests.night import by_day
from tests.streams.worlds import as_served, chats, cluster, queues, random_chats
from truenorth.executor import parse_policy, replay, simulate
from truenorth.executor.devices.alone import different_outputs
from truenorth.executor.devices.decoding import Answer, Read, SeatedDecoder
from truenorth.executor.devices.physical import physical_devices
from truenorth.executor.devices.profiling import TypicalRequest, measure, one_thread_each
from truenorth.executor.devices.records import STARTED_AGAIN
from truenorth.executor.devices.run import LiveRun, LiveSettings, run_live
from truenorth.executor.errors import DeviceError
from truenorth.executor.simulation import Durations, simulate_recorded
from truenorth.models import Instance, MLModel, Tokens, check
from truenorth.models.streams import StreamSpeed

GATEWAYS = ("round_robin", "least_requests", "least_tokens", "prefix_affinity")
KEPT = LiveSettings(sharing="serial", keep_outputs=True)


@pytest.fixture(scope="module")
def module() -> Iterator[nn.Module]:
    with torch.random.fork_rng(), one_thread_each():
        torch.manual_seed(3)
        yield decoder()


def by_hand(module: nn.Module, request: int, tokens: Tokens) -> list[int]:
    """Return an answer, every token of it by a pass over all tokens before it, without a cache."""
    words = [(31 * at + 17 * request) % WORDS for at in range(tokens.prompt)]
    with torch.inference_mode():
        for _ in range(tokens.output):
            words.append(int(module(input_ids=torch.tensor([words]), use_cache=False).logits[0, -1].argmax()))
    return words[tokens.prompt :]


@pytest.mark.parametrize("seed", by_day(range(4), 1))
def test_answers_do_not_depend_on_who_is_beside(module: nn.Module, seed: int) -> None:
    """Requests of random lengths join and leave four seats at random; chunks of random lengths, several at a time."""
    rng = random.Random(seed)
    requests = {at: Tokens(n := rng.randint(1, 30), n, rng.randint(1, 12)) for at in range(12)}
    served = SeatedDecoder("m", module, 4, 42, physical_devices("cpu")[0])
    waiting, reading, writing = list(requests), dict[int, int](), dict[int, int]()
    found: dict[int, list[int]] = {}
    while waiting or reading or writing:
        while waiting and len(reading) + len(writing) < 4 and rng.random() < 0.6:
            reading[waiting.pop(0)] = 0
        reads = [Read(at, begin, rng.randint(1, requests[at].prompt - begin)) for at, begin in reading.items()]
        done = [at for at, begin, count in reads if begin + count == requests[at].prompt]
        last = [at for at in done if requests[at].output == 1] + [at for at, left in writing.items() if left == 1]
        answers = served.iterate(
            reads, list(writing), [Answer(at, requests[at].prompt, requests[at].output) for at in last]
        )
        found.update({at: answer.tolist() for at, answer in zip(last, answers, strict=True)})
        writing = {at: left - 1 for at, left in writing.items() if left > 1}
        writing |= {at: requests[at].output - 1 for at in done if requests[at].output > 1}
        reading = {at: begin + count for at, begin, count in reads if at not in done}
    assert found == {at: by_hand(module, at, tokens) for at, tokens in requests.items()}


def speed(**changes: object) -> StreamSpeed:
    given: dict[str, object] = {"chunk": 8, "seats": 3, "step_us": {1: 1000, 3: 1500}, "kv_bytes": KV_BYTES}
    return StreamSpeed(Fraction(20_000), **given | changes)  # type: ignore[arg-type]


def served(
    requests: Sequence[tuple[int, Tokens]], gpus: int = 1, memory: int = 10_000_000, **changes: object
) -> Instance:
    """Return requests of a model that has to be loaded first."""
    return chats(cluster(gpus, memory), {"A": speed(**changes)}, requests, [MLModel("llm", 100_000)])


def together(count: int) -> list[tuple[int, Tokens]]:
    """Return requests of different lengths that all come at 0; every third finds half of its prompt cached."""
    rng = random.Random(count)
    lengths = [rng.randint(2, 20) for _ in range(count)]
    return [(0, Tokens(n, n // 2 if at % 3 == 2 else n, rng.randint(1, 8))) for at, n in enumerate(lengths)]


@pytest.mark.parametrize("policy", by_day(GATEWAYS, 1))
def test_gateways_serve_live_and_keep_the_rules(policy: str) -> None:
    """Every request gets its tokens, those that it gets alone; iterations add up to what was asked for."""
    made = served([(at * 2_000, tokens) for at, (_, tokens) in enumerate(together(12))], gpus=2)
    run = run_live(made, parse_policy(policy), Decoding, KEPT)
    assert run.records.failures == []
    assert check(made, run.timeline) == []
    assert made.streams is not None
    assert {task: len(answer) for task, answer in run.outputs.items()} == dict(enumerate(made.streams.output.tolist()))
    assert different_outputs(made, Decoding, "cpu", run.outputs, 30) == []
    assert sum(iteration.prompt_tokens for iteration in run.records.iterations) == made.streams.uncached.sum()
    assert sum(iteration.decodes for iteration in run.records.iterations) == (made.streams.output - 1).sum()


def test_a_request_without_a_cached_prompt_is_answered_by_hand() -> None:
    made = served([(0, Tokens(13, 13, 5))])
    run = run_live(made, parse_policy("least_requests"), Decoding, KEPT)
    runner = Decoding()
    module = runner.module(made.models[0])
    whole = decoder()
    whole.load_state_dict(runner.weights(made.models[0]), strict=False)
    assert module is not whole
    assert run.outputs[0].tolist() == by_hand(whole, 0, Tokens(13, 13, 5))


@pytest.mark.parametrize("seed", range(6))
def test_iterations_of_given_length_are_the_strides(seed: int) -> None:
    """Taken one by one, each as long as given, they make the timeline of whole strides: the engine's two ways agree."""
    rng = random.Random(seed)
    for _ in range(10):
        made = random_chats(rng, rng.randint(1, 25))
        for policy in GATEWAYS:
            strides = simulate(made, parse_policy(policy))
            one_by_one = simulate_recorded(made, parse_policy(policy), Durations(iterations={0: ()}))
            assert as_served(one_by_one) == as_served(strides)
            assert one_by_one.place.tolist() == strides.place.tolist()


def test_what_happened_follows_from_its_iterations() -> None:
    """With as long as load and iterations took, the wait for each included, the simulator gives the measured times."""
    made = served(together(9))
    policy = parse_policy("least_requests")
    run = run_live(made, policy, Decoding, KEPT)
    (load,) = run.records.loads
    iterations = [iteration.end_us - iteration.ordered_us for iteration in run.records.iterations]
    durations = Durations(loads={(0, 0): [load.end_us]}, iterations={0: iterations})
    assert as_served(simulate_recorded(made, policy, durations)) == as_served(run.timeline)


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["least_tokens", "round_robin"])
def test_a_plan_keeps_its_nodes_and_its_order(policy: str) -> None:
    """Nobody joins before the plan has it, and on every GPU requests join in the planned order."""
    made = served([(at * 500, tokens) for at, (_, tokens) in enumerate(together(12))], gpus=2)
    plan = simulate(made, parse_policy(policy))
    run = run_live(made, replay(made, plan), Decoding, KEPT, plan=plan)
    assert run.records.failures == []
    assert check(made, run.timeline) == []
    assert run.timeline.place.tolist() == plan.place.tolist()
    assert queues(made, run.timeline) == queues(made, plan)
    assert (run.timeline.start_us >= plan.start_us).all()


def most_at_once(run: LiveRun) -> int:
    """Return how many requests are served at once at most, each from its start to its end."""
    change = [(at, -1) for at in run.timeline.end_us.tolist()] + [(at, 1) for at in run.timeline.start_us.tolist()]
    most = here = 0
    for _, by in sorted(change):
        here += by
        most = max(most, here)
    return most


@pytest.mark.nightly
@pytest.mark.parametrize(("tokens_of_room", "most"), [(59, 2), (1000, 3), (39, 1)])
def test_no_more_are_served_than_seats_and_kv_allow(tokens_of_room: int, most: int) -> None:
    """Requests of 20 tokens each: three seats; room for two of them; room for one."""
    memory = 100_000 + tokens_of_room * KV_BYTES
    made = served([(0, Tokens(12, 12, 8))] * 5, memory=memory)
    run = run_live(made, parse_policy("least_requests"), Decoding, KEPT)
    assert check(made, run.timeline) == []
    assert most_at_once(run) == most


def refuse_three(words: Tensor) -> None:
    if len(words) > 2:
        raise ArithmeticError("too many")


def test_an_iteration_that_fails_fails_its_requests_and_nobody_else() -> None:
    """Two may decode together, three may not: the first three fail with their third, the fourth is served alone."""

    made = served([(0, Tokens(8, 8, 6))] * 4)
    run = run_live(made, parse_policy("least_requests"), partial(Decoding, refuse_three), KEPT)
    assert sorted(failure.job for failure in run.records.failures) == [0, 1, 2]
    assert {failure.message for failure in run.records.failures} == {"ArithmeticError: too many"}
    assert list(run.outputs) == [3]


@dataclass(frozen=True)
class In:
    """Does something with the first prompt of seven tokens."""

    do: Callable[[], object]
    done: Path

    def __call__(self, words: Tensor) -> None:
        if words.shape[1] == 7 and not self.done.exists():
            self.done.touch()
            self.do()


@pytest.mark.nightly
@pytest.mark.parametrize("do", [be_killed, hang])
def test_what_ends_a_process_costs_the_requests_that_it_served(do: Callable[[], None], tmp_path: Path) -> None:
    """It does so in the first prompt on GPU 0, with nobody beside it: the other five are answered, on both GPUs."""
    made = served([(0, Tokens(7, 7, 3)), *[(20_000, Tokens(8, 8, 3))] * 5], gpus=2, seats=1, step_us={1: 1000})
    runner = partial(Decoding, In(do, tmp_path / "done"))
    run = run_live(made, parse_policy("round_robin"), runner, LiveSettings(limit_s=1.0, keep_outputs=True))
    assert [failure.job for failure in run.records.failures] == [0]
    assert [fault.what for fault in run.records.faults] == [STARTED_AGAIN]
    assert set(run.outputs) == {1, 2, 3, 4, 5}
    assert different_outputs(made, Decoding, "cpu", run.outputs, 30) == []
    assert set(run.timeline.place.tolist()[1:]) == {0, 1}


def test_what_devices_do_not_serve_is_refused_in_one_line(module: nn.Module) -> None:
    without = chats(cluster(1), {"A": speed()}, [(0, Tokens(4, 4, 2))])
    with pytest.raises(DeviceError, match=r"^stream chat: names 0 models; a device serves those of one$"):
        run_live(without, parse_policy("least_requests"), Decoding, KEPT)
    with pytest.raises(DeviceError, match=r"^model m: a request has 513 tokens, prompt and answer; allowed are 512$"):
        SeatedDecoder("m", module, 1, 513, physical_devices("cpu")[0])
    with pytest.raises(DeviceError, match=r"^model m: is no decoder .* a model named llm or opt"):
        SeatedDecoder("m", nn.Linear(2, 2), 1, 8, physical_devices("cpu")[0])


def test_a_profile_measures_prompts_and_steps_of_every_listed_concurrency() -> None:
    """A typical prompt of 20 in chunks of 8, steps of 1 and 3; a token holds what its keys and values take."""
    asked = TypicalRequest("chat", "llm", chunk=8, prompt=20, context=24, concurrency=(1, 3))
    found = measure([MLModel("llm", 1)], [], Decoding(), "cpu", requests=[asked], rounds=3).streams["chat"]
    assert found.kv_bytes == KV_BYTES
    assert {k: len(spread.samples_us) for k, spread in found.steps.items()} == {1: 3, 3: 3}
    assert found.prefill_rate == pytest.approx(20 * 1e6 / found.prompt.median_us)
