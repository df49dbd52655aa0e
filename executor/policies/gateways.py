"""Gateways of language models: requests of streams go to a node when they are ready, and are served in that order.

What routers in front of continuous batching do. A request is sent once, when it is ready, to a node that holds or is
loading its models or has room for them; if there is none, models and plain tasks go as `lru` places them. On a node
requests join in the order in which their inputs arrive, each as early as it fits; nobody passes a head that waits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from truenorth.executor.errors import PolicyError
from truenorth.executor.execution import NOWHERE
from truenorth.executor.policies.baselines import Lru, LruOptions
from truenorth.executor.policies.homed import Homes
from truenorth.executor.policies.options import count, count_from_1, counts, factor, names, nearest, option, switch
from truenorth.executor.policies.prefixes import Prefixes
from truenorth.executor.policy import Knows
from truenorth.executor.site import Site
from truenorth.models import NONE, StreamSpeed, Tokens
from truenorth.models.cluster import MICROSECONDS_PER_SECOND
from truenorth.models.features import HELD, Feature, Features
from truenorth.models.prefixes import with_cached
from truenorth.models.slo import is_named
from truenorth.models.streams import PICOSECONDS
from truenorth.models.strides import Rank


@dataclass(frozen=True, slots=True)
class GatewayOptions(LruOptions):
    """Readings of a router.

    Parameters
    ----------
    limit
        Most requests that a node serves at once, fewer than its engine has seats (vLLM: ``--max-num-seqs``); None: as
        many as there are seats.
    urgent
        Names of workflows, the most urgent first, in place of the scenario's priorities: all others come after them.
        ``chat *`` stands for all that begin so.
    apart
        Numbers of nodes that serve the first of these workflows alone, the second, and so on, in order of the GPUs; all
        other requests share the other nodes.
    preempt
        Whether a request takes seats and KV of running ones of lower priority, where KV grows.
    """

    limit: int | None = option(None, count_from_1())
    urgent: tuple[str, ...] = option((), names)
    apart: tuple[int, ...] = option((), counts)
    preempt: bool = option(False, switch)

    def __post_init__(self) -> None:
        if len(self.apart) > len(self.urgent):
            numbers = "number of nodes" if len(self.apart) == 1 else "numbers of nodes"
            problem = f"option apart gives {len(self.apart)} {numbers} for {len(self.urgent)} urgent workflows"
            raise ValueError(f"{problem}; allowed is at most one for each that `urgent` names")


class Gateway(Lru):
    """Base of the routers: each chooses among the nodes that can take a request.

    Attributes
    ----------
    outstanding
        Per GPU: requests that were sent there and have not ended.
    """

    Options: ClassVar[type[object]] = GatewayOptions
    serves_streams: ClassVar[bool] = True
    supports: ClassVar[Features] = HELD | {Feature.DELAYS}

    def __init__(self, options: GatewayOptions | None = None) -> None:
        super().__init__(options)
        readings = options or GatewayOptions()
        self._limit, self._order, self._apart = readings.limit, readings.urgent, readings.apart
        self._preempts = readings.preempt

    def _accept(self, site: Site) -> None:
        """Keep to every restriction: where models may not leave, or be on many GPUs, they have homes."""
        keeps, limited = site.restrictions.no_swaps, bool(site.restrictions.max_replicas)
        if self._keep_alive_us is not None:
            super()._accept(site)
        self._stay, self._homes = keeps, Homes(site, keeps) if keeps or limited else None

    def begin(self, site: Site) -> None:
        """Count nothing yet."""
        super().begin(site)
        self.outstanding = np.zeros(site.n_gpus, np.int64)
        self._sent: dict[int, int] = {}
        self._work: dict[int, int] = {}
        self._served: set[int] = set()
        self.prefixes = self._begin_prefixes(site)
        self._check_order(site)
        if self._apart and sum(self._apart) >= site.n_gpus:
            problem = f"takes {sum(self._apart)} of {site.n_gpus} nodes; allowed is to leave one for the other requests"
            raise PolicyError(f"option apart: {problem}")
        self._rank: dict[str, int] = {}
        self._came = 0
        pools = accumulate(self._apart, initial=0)
        self._pools = [range(first, last) for first, last in pairwise((*pools, site.n_gpus))] if self._apart else []
        self._ranks = site.preempt_by_rank() if self._preempts else None
        if self._limit is not None:
            site.limits.update(dict.fromkeys(range(site.n_gpus), self._limit))

    @abstractmethod
    def choose(self, task: int, gpus: Sequence[int]) -> int:
        """Return to which of these GPUs a request goes; they are in order, and there is at least one."""

    def runnable(self, task: int, server: int) -> None:
        """Send a request to its node; place any other task as `lru` does."""
        site = self.site
        template = site.template[task]
        if site.stream[template] == NONE:
            if self._homes is None:
                super().runnable(task, server)
            else:
                self.place_in_queue(task, self._able(task, server)[0])
            return
        gpu = self._tied(task)
        # A request that is tied to one that has gone has no choice.
        if gpu == NOWHERE:
            gpu = self.choose(task, self._able(task, server))
        elif not site.could_end(task, gpu):
            self.wait_for_gpu(task, server)
            return
        self.sent(task, gpu)
        self.place(task, gpu)

    def _begin_prefixes(self, site: Site) -> Prefixes | None:
        """Return what it knows of prefixes that nodes have cached; None where none caches, or it does not ask."""
        return None

    def sent(self, task: int, gpu: int) -> None:
        """Count a request that goes to a GPU."""
        self._sent[task] = gpu
        self.outstanding[gpu] += 1
        if self.prefixes is not None:
            self.prefixes.send(task, gpu)

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Forget the prefixes of a GPU that goes."""
        if self.prefixes is not None:
            self.prefixes.forget(gpu)
        super().went(gpu, tasks)

    def ended(self, task: int, gpu: int) -> None:
        """Count a request of a GPU no more: it has ended there, or is taken away."""
        self.outstanding[gpu] -= 1

    def _check_order(self, site: Site) -> None:
        """Refuse urgent workflows that the catalogue does not have."""
        known = [workflow.name for workflow in site.catalogue]
        for by in self._order if known else ():
            if not any(is_named(by, name) for name in known):
                raise PolicyError(f"option urgent: the catalogue has no {by!r}{nearest(by, known)}")

    def urgency(self, task: int) -> int:
        """Return the priority of a request, by its workflow where these are listed."""
        return len(self._order) - self._place_in_order(task) if self._order else super().urgency(task)

    def _place_in_order(self, task: int) -> int:
        """Return where the workflow of a request stands among those that are listed, behind them if it is not."""
        name = self.site.jobs[self.site.job[task]].workflow.name
        if name not in self._rank:
            named = (at for at, each in enumerate(self._order) if is_named(each, name))
            self._rank[name] = next(named, len(self._order))
        return self._rank[name]

    def _in_pool(self, task: int, able: Sequence[int]) -> Sequence[int]:
        """Return those of these GPUs that serve requests like this one; all of them where none is left."""
        if not self._pools:
            return able
        pool = self._pools[min(self._place_in_order(task), len(self._pools) - 1)]
        return [gpu for gpu in able if gpu in pool] or able

    def _tied(self, task: int) -> int:
        """Return the GPU of a request that this one is tied to, NOWHERE if there is none."""
        site = self.site
        together = site.together[site.template[task]]
        return next((site.gpu[task + at] for at in together if at and site.gpu[task + at] != NOWHERE), NOWHERE)

    def _able(self, task: int, server: int) -> list[int]:
        """Return the GPUs that take a request and hold or load its models, or have room; else that of least wait."""
        site = self.site
        needs = site.needs[site.template[task]]
        able: Sequence[int] = site.eligible_gpus(task)
        if self._homes is not None:
            able = self._homes.of(task)
            if not able:
                listed = ", ".join(site.models[model].name for model in needs)
                raise PolicyError(f"policy {self.name}: under no_swaps, max_replicas no GPU has room for {listed}")
        able = self._in_pool(task, able)
        if not needs:
            return list(able)
        found = [gpu for gpu in able if self._has_room(gpu, needs)]
        if found:
            return found
        self.view.advance()
        waits = self.view.waits(server)
        # Somebody has to leave anyway: where it has to wait least.
        return [min(able, key=lambda gpu: (waits[gpu], gpu))]

    def eviction_order(self, gpu: int) -> list[int]:
        """Return the models that may leave a GPU, in order: none where none may."""
        return [] if self._stay else super().eviction_order(gpu)

    def _has_room(self, gpu: int, needs: Sequence[int]) -> bool:
        memory = self.site.memory[gpu]
        # Residents include models under way, whose bytes are taken already.
        absent = [model for model in needs if model not in memory.residents]
        return not absent or sum(self.site.weight_bytes[model] for model in absent) <= memory.free_bytes

    def arrived(self, task: int, missing: int) -> None:
        """Queue a request up when the last of its inputs is there; other tasks have their places already."""
        if self.site.stream[self.site.template[task]] == NONE:
            super().arrived(task, missing)
        elif not missing:
            self.enqueue(task, self.site.gpu[task])

    def withdrawn(self, task: int, gpu: int) -> None:
        """Count a request that is to be sent anew no more: it has not joined, or its GPU went before it ended."""
        super().withdrawn(task, gpu)
        if self._ranks is not None:
            self.site.touched[gpu] = None  # one that was preempted there may have waited for it
        work_us = self._work.pop(task, 0)
        # The work of what waits is counted off as it leaves the queue.
        if task in self._served:
            self._served.remove(task)
            self._count(gpu, -work_us)
        if task in self._sent:
            self.ended(task, self._sent.pop(task))

    def finished(self, task: int, gpu: int) -> None:
        """Count a request no more."""
        if task in self._sent:
            self.ended(task, self._sent.pop(task))
            self._served.discard(task)
            self._count(gpu, -self._work.pop(task))
        super().finished(task, gpu)

    def expected_answer(self, task: int) -> float:
        """Return how many tokens the answer of a request is expected to have, as far as the policy has an opinion."""
        return 0.0

    def _work_us(self, task: int, gpu: int) -> int:
        """Return the work that a task brings to a GPU: of a request its prefill, and its part of full steps."""
        site = self.site
        if site.stream[site.template[task]] == NONE:
            return super()._work_us(task, gpu)
        if task not in self._work:
            speed = site.speed(task, gpu)
            # Its part of the iterations of a full GPU, of which it is one of as many as are served at once.
            most = min(speed.seats, site.limits.get(gpu, speed.seats))
            steps_us = self.expected_answer(task) * speed.tau[most] / most
            # Kept: what is counted off must be what was counted on, whatever has been learnt meanwhile.
            self._work[task] = speed.prefill_us(site.tokens[task].uncached) + round(steps_us)
        return self._work[task]

    def _bring_up(self, task: int, gpu: int) -> bool:
        """Go on with the task in turn; where KV grows no model is loaded before the node is empty."""
        serving, ready = self.site.state[gpu].serving, self.site.memory[gpu].ready
        # The load would take the room into which requests grow, time and again.
        if (
            serving is not None
            and serving.speed.block
            and not ready.issuperset(self.site.needs[self.site.template[task]])
        ):
            return False
        return super()._bring_up(task, gpu)

    def _begin(self, task: int, gpu: int) -> bool:
        """Let a request join, if it can now; idle models make room for its KV."""
        site = self.site
        if site.stream[site.template[task]] == NONE:
            return super()._begin(task, gpu)
        lacking = site.lacks_room(task)
        has_room = not lacking or self._make_room(gpu, lacking, site.needs[site.template[task]])
        if not (has_room and site.may_join(task)) and (self._ranks is None or not site.make_way(task)):
            return False
        site.join(task)
        self._served.add(task)
        self.in_turn[gpu] = NOWHERE
        self.started(task, gpu)
        return True

    def act(self, gpus: Sequence[int]) -> None:
        """Make room where all that a node serves was preempted, and go on as ever."""
        states = self.site.state
        for gpu in gpus:
            lacking = states[gpu].lacks_to_go_on()
            if lacking:
                self._make_room(gpu, lacking, ())
            if self._ranks is not None:
                self.site.stand_by(gpu)
        super().act(gpus)
        for gpu in gpus if self._ranks is not None else ():
            # Where nobody waits, or who waits can join for none of them.
            while self._goes_back(gpu) and self.site.bring_back(gpu):
                pass

    def enqueue(self, task: int, gpu: int) -> None:
        """Queue a request up, by its rank if a higher one preempts."""
        site = self.site
        if self._ranks is not None and site.stream[site.template[task]] != NONE:
            if not site.speed(task, gpu).block:
                problem = f"KV of requests is reserved on {site.state[gpu].id}; allowed is on where all KV grows"
                raise PolicyError(f"option preempt: {problem}")
            self._came += 1
            self._ranks[task] = Rank(-self.urgency(task), self._came)
        super().enqueue(task, gpu)

    def _serve(self, gpu: int) -> bool:
        """Let one join again that was preempted if it goes first; else go on with the task in turn, or the next."""
        if self._ranks is not None and self._goes_back(gpu):
            return self.site.bring_back(gpu)
        return super()._serve(gpu)

    def _goes_back(self, gpu: int) -> bool:
        """Say whether the next to join a GPU was preempted there: nobody waits who goes before and could join."""
        serving, task = self.site.state[gpu].serving, self.in_turn[gpu]
        if self._ranks is None or serving is None or not serving.preempted:
            return False
        if task == NOWHERE:
            place = self.next_in_turn(gpu)
            task = NOWHERE if place is None else self.queue[gpu][place]
        # Tasks that are no requests have no rank.
        if task not in self._ranks or self._ranks[task].below >= self._ranks[serving.preempted[0].task].below:
            return True
        return not self.site.could_join(task)

    def _make_room(self, gpu: int, lacking: int, needs: Sequence[int]) -> bool:
        """Have idle models leave as far as KV needs their room, but only if that suffices; say whether it does."""
        sizes = self.site.weight_bytes
        idle = [model for model in self.eviction_order(gpu) if model not in needs]
        if sum(sizes[model] for model in idle) < lacking:
            return False
        for model in idle:
            self.evict(model, gpu)
            lacking -= sizes[model]
            if lacking <= 0:
                break
        return True


class RoundRobin(Gateway):
    """Every class of requests goes around the nodes that can take it (vLLM router, SGLang: ``round_robin``)."""

    uses: ClassVar[str | None] = "none"

    def begin(self, site: Site) -> None:
        """Begin with the first node."""
        super().begin(site)
        self._last: dict[int, int] = {}

    def choose(self, task: int, gpus: Sequence[int]) -> int:
        """Return the next node behind the one that was chosen last, from the end to the first."""
        stream = self.site.stream[self.site.template[task]]
        last = self._last.get(stream, NOWHERE)
        self._last[stream] = chosen = next((gpu for gpu in gpus if gpu > last), gpus[0])
        return chosen


class LeastRequests(Gateway):
    """A request goes where the fewest are that have not ended, queued or served (AIBrix: ``least-request``)."""

    uses: ClassVar[str | None] = "outstanding requests"

    def choose(self, task: int, gpus: Sequence[int]) -> int:
        """Return the node of the fewest requests."""
        return self.least_of(self.outstanding, task, gpus)

    def least_of(self, row: NDArray[np.int64] | NDArray[np.float64], task: int, gpus: Sequence[int]) -> int:
        """Return which of these GPUs has the least value in a row; of equals the ingress server's, then the lowest."""
        # Of equals the nearest: the job's inputs are there.
        favoured = set(self.view.gpus_of[self.site.job_ingress[self.site.job[task]]])
        return min(gpus, key=lambda gpu: (row[gpu], gpu not in favoured, gpu))


@dataclass(frozen=True, slots=True)
class TokenOptions(GatewayOptions):
    """Readings of routing by tokens.

    Parameters
    ----------
    known
        Whether it knows how long every answer will be, as no gateway does; else the mean of the class so far counts.
        It then counts exact tokens by the same rule, which may need more servers than the mean does.
    """

    known: bool = option(False, switch)


@dataclass(slots=True, eq=False)
class ClassLoad:
    """What is outstanding of a stream class, per GPU, and how long its answers have been so far.

    Parameters
    ----------
    requests, contexts
        Requests that have not ended, and the tokens of their prompts, cached or not.
    prompts, answers
        Tokens of prompts without a first token yet that are to be worked off, and of answers where these are known.
    ended, generated
        Requests that have ended, and the tokens of their answers.
    """

    requests: NDArray[np.int64]
    contexts: NDArray[np.int64]
    prompts: NDArray[np.int64]
    answers: NDArray[np.int64]
    ended: int = 0
    generated: int = 0

    @property
    def mean_answer(self) -> float:
        """Tokens of an answer in the mean so far; 0 before the first has ended."""
        return self.generated / self.ended if self.ended else 0.0

    def with_one(self, tokens: Tokens, uncached: NDArray[np.int64]) -> ClassLoad:
        """Return the load with a request of these tokens on every GPU besides, of whose prompt so many are left."""
        rows = (self.requests + 1, self.contexts + tokens.prompt, self.prompts + uncached)
        return ClassLoad(*rows, self.answers + tokens.output, self.ended, self.generated)


class LeastTokens(LeastRequests):
    """A request goes where the fewest tokens are outstanding: prompts until their first token, answers until they end.

    Of an answer the mean of its class so far counts, 0 before the first has ended (llm-d's token-aware scorers).
    """

    Options: ClassVar[type[object]] = TokenOptions
    uses: ClassVar[str | None] = "outstanding tokens"

    def __init__(self, options: TokenOptions | None = None) -> None:
        super().__init__(options)
        self.knows_lengths = options is not None and options.known

    @classmethod
    def knows_with(cls, options: object | None) -> Knows:
        """Return that it knows how long a request runs if it knows answers."""
        return Knows.RUN_TIMES if isinstance(options, TokenOptions) and options.known else cls.knows

    @classmethod
    def uses_with(cls, options: object | None) -> str:
        """Return what it counts, exactly if it knows answers."""
        exact = ", exact lengths of answers" if isinstance(options, TokenOptions) and options.known else ""
        return f"{super().uses_with(options)}{exact}"

    def begin(self, site: Site) -> None:
        """Know of no answer yet."""
        super().begin(site)
        self._prompts: dict[int, int] = {}
        self.loads: dict[int, ClassLoad] = {}

    def choose(self, task: int, gpus: Sequence[int]) -> int:
        """Return the node of the fewest tokens."""
        return self.least_of(self.outstanding_tokens(), task, gpus)

    def outstanding_tokens(self) -> NDArray[np.float64]:
        """Return the tokens that are outstanding on every GPU; how long answers will be is the mean so far."""
        row = np.zeros(self.site.n_gpus)
        for load in self.loads.values():
            row += load.prompts
        for load in self.loads.values():
            row += self.answers(load)
        return row

    def answers(self, load: ClassLoad) -> NDArray[np.float64]:
        """Return the tokens of outstanding answers on every GPU: exactly, or as many as the mean so far makes them."""
        return np.asarray(load.answers if self.knows_lengths else load.requests * load.mean_answer, np.float64)

    def expected_answer(self, task: int) -> float:
        """Return the mean of the class so far, or how long the answer will be if that is known."""
        return float(self.site.tokens[task].output) if self.knows_lengths else self.load_of(task).mean_answer

    def load_of(self, task: int) -> ClassLoad:
        """Return what is outstanding of a request's class."""
        stream = self.site.stream[self.site.template[task]]
        if stream not in self.loads:
            self.loads[stream] = ClassLoad(*np.zeros((4, self.site.n_gpus), np.int64))
        return self.loads[stream]

    def uncached(self, task: int, gpu: int) -> int:
        """Return how many tokens of a prompt are expected to be left to compute on a GPU, as far as that is asked."""
        return self.site.tokens[task].uncached

    def sent(self, task: int, gpu: int) -> None:
        """Count the tokens of a request."""
        load, tokens = self.load_of(task), self.site.tokens[task]
        load.requests[gpu] += 1
        load.contexts[gpu] += tokens.prompt
        # Kept: who is cut is computed again from the start, but was counted as it was.
        self._prompts[task] = self.uncached(task, gpu)
        load.prompts[gpu] += self._prompts[task]
        load.answers[gpu] += tokens.output
        super().sent(task, gpu)  # last, for what is sent counts as cached from then on

    def answering(self, task: int, gpu: int) -> None:
        """Count a prompt no more: its first token is there."""
        self.load_of(task).prompts[gpu] -= self._prompts.pop(task)

    def ended(self, task: int, gpu: int) -> None:
        """Count an answer no more, and learn how long it was; one that is taken away has told nothing."""
        super().ended(task, gpu)
        load, tokens = self.load_of(task), self.site.tokens[task]
        load.requests[gpu] -= 1
        load.contexts[gpu] -= tokens.prompt
        # Without its first token it is taken away, and its prompt still counts.
        load.prompts[gpu] -= self._prompts.pop(task, 0)
        if self.knows_lengths:
            load.answers[gpu] -= tokens.output
        elif tokens.output:
            load.ended += 1
            load.generated += tokens.output


@dataclass(frozen=True, slots=True, eq=False)
class StepLaws:
    """The step laws of a stream class, GPU by GPU; all 0 where it cannot run.

    Parameters
    ----------
    prompt_us, context_us, mixed_us
        What a token of a prompt takes, and a token of context and any prompt add to an iteration.
    chunk, seats
        Most prompt tokens of an iteration, and most requests, with a limit on these as many.
    step_us
        Time of a step by the number of decodes. Shape [gpus, most seats + 1].
    """

    prompt_us: NDArray[np.float64]
    context_us: NDArray[np.float64]
    mixed_us: NDArray[np.int64]
    chunk: NDArray[np.int64]
    seats: NDArray[np.int64]
    step_us: NDArray[np.int64]

    @classmethod
    def of(cls, speeds: Sequence[StreamSpeed | None], limits: Mapping[int, int]) -> StepLaws:
        """Return the laws of these speeds, GPU by GPU, with limits on requests of some."""
        step_us = np.zeros((len(speeds), 1 + max(speed.seats for speed in speeds if speed)), np.int64)
        prompt_us, context_us = np.zeros((2, len(speeds)))
        mixed_us, chunk, seats = np.zeros((3, len(speeds)), np.int64)
        for gpu, speed in enumerate(speeds):
            if speed is not None:
                step_us[gpu, : speed.seats + 1] = speed.tau
                prompt_us[gpu] = MICROSECONDS_PER_SECOND / speed.prefill_rate
                context_us[gpu] = speed.context_ps / PICOSECONDS
                mixed_us[gpu], chunk[gpu] = speed.mixed_us, speed.chunk
                seats[gpu] = min(speed.seats, limits.get(gpu, speed.seats))
        return cls(prompt_us, context_us, mixed_us, np.maximum(chunk, 1), seats, step_us)

    def prefill_us(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how long so many tokens of prompts take, GPU by GPU."""
        return tokens * self.prompt_us - (-tokens // self.chunk) * self.mixed_us

    def decode_us(self, requests: NDArray[np.int64], contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how long a step of so many requests is, with so many tokens of context in all: as far as seats go."""
        running = np.minimum(requests, self.seats)
        beside_us = self.context_us * contexts * running / np.maximum(requests, 1)
        return self.step_us[np.arange(len(running)), running] + beside_us


class LeastWork(LeastTokens):
    """A request goes to the node that would then have the fewest seconds outstanding, by its own step law.

    A prompt counts until its first token, at the node's prefill rate; each token of an answer until that ends, at the
    node's step time of all requests that are outstanding there, this one among them, as far as there are seats. Where
    nodes cache prefixes what it has sent to a node before counts as cached there.
    """

    uses: ClassVar[str | None] = "outstanding tokens, step times"

    def _begin_prefixes(self, site: Site) -> Prefixes | None:
        return Prefixes(site) if site.caches else None

    def uncached(self, task: int, gpu: int) -> int:
        """Return how many tokens of a prompt are left to compute, by what was sent to a GPU before."""
        tokens = self.site.tokens[task]
        if self.prefixes is None:
            return tokens.uncached
        return with_cached(tokens, self.prefixes.tokens(task, gpu)).uncached

    def uncached_row(self, task: int) -> NDArray[np.int64]:
        """Return the same for every GPU."""
        site = self.site
        if self.prefixes is None:
            return np.full(site.n_gpus, site.tokens[task].uncached)
        return np.array([self.uncached(task, gpu) for gpu in range(site.n_gpus)], np.int64)

    def begin(self, site: Site) -> None:
        """Know of no class yet."""
        super().begin(site)
        self._laws: dict[int, StepLaws] = {}

    def choose(self, task: int, gpus: Sequence[int]) -> int:
        """Return the node of the least work."""
        own, row = self.load_of(task), np.zeros(self.site.n_gpus)
        for stream, load in self.loads.items():
            row += self.with_request_us(task, stream) if load is own else self.work_us(stream, load)
        return self.least_of(row, task, gpus)

    def with_request_us(self, task: int, stream: int) -> NDArray[np.float64]:
        """Return what every GPU would have to do of a request's class with the request, in microseconds."""
        return self.work_us(stream, self.loads[stream].with_one(self.site.tokens[task], self.uncached_row(task)))

    def work_us(self, stream: int, load: ClassLoad) -> NDArray[np.float64]:
        """Return how long prompts and answers of a class take on every GPU, in microseconds."""
        return self.law(stream).prefill_us(load.prompts) + self.answers(load) * self.step_us(stream, load)

    def step_us(self, stream: int, load: ClassLoad) -> NDArray[np.float64]:
        """Return how long a step of all requests of a class is on every GPU; half of each answer is generated."""
        return self.law(stream).decode_us(load.requests, load.contexts + self.answers(load) / 2)

    def law(self, stream: int) -> StepLaws:
        """Return the step laws of a class."""
        if stream not in self._laws:
            by_class = self.site.speeds[stream]
            self._laws[stream] = StepLaws.of([by_class[here] for here in self.site.gpu_class], self.site.limits)
        return self._laws[stream]


class LeastDelay(LeastWork):
    """A request goes where it takes least of everyone's time: its own until its end, and what it costs the others.

    Its prompt delays every request that is outstanding on the node, and each of their tokens comes by the longer step
    of one decode more. Requests of other classes are served before it.
    """

    def with_request_us(self, task: int, stream: int) -> NDArray[np.float64]:
        """Return what a request would take of its own and the others' time on every GPU, in microseconds."""
        tokens, load, law = self.site.tokens[task], self.loads[stream], self.law(stream)
        uncached = self.uncached_row(task)
        after, prompt_us = load.with_one(tokens, uncached), law.prefill_us(uncached)
        step_us, longer_us = self.step_us(stream, after), self.step_us(stream, after) - self.step_us(stream, load)
        own_us = law.prefill_us(after.prompts) + self.expected_answer(task) * step_us
        return own_us + load.requests * prompt_us + self.answers(load) * longer_us


@dataclass(frozen=True, slots=True)
class PrefixOptions(TokenOptions):
    """Readings of routing by prefix.

    Parameters
    ----------
    balance_abs, balance_rel
        Nodes are out of balance, and prefixes count no more, where the most requests of a node exceed the fewest by
        more than the first and by more than the second as a factor.
    precise
        Where nodes cache prefixes: whether their caches are seen (llm-d's precise scorer), and not only what was sent.
    """

    balance_abs: int = option(64, count)
    balance_rel: float = option(1.5, factor)
    precise: bool = option(False, switch)


class PrefixAffinity(LeastTokens):
    """A request goes where the one before it of its job and class went, whose prompt it goes on with (as in SGLang).

    The first of a job goes by least tokens, and so does every one while the nodes are out of balance. How much of its
    prompt is cached is the log's word wherever it goes. Where nodes cache prefixes a request with blocks goes to the
    node that has most of them, by what was sent there or as it is, of equals that of the fewest tokens.
    """

    Options: ClassVar[type[object]] = PrefixOptions
    uses: ClassVar[str | None] = "prefixes, outstanding tokens"

    def __init__(self, options: PrefixOptions | None = None) -> None:
        readings = options or PrefixOptions()
        super().__init__(readings)
        self._balance_abs, self._balance_rel = readings.balance_abs, readings.balance_rel
        self._precise = readings.precise

    @classmethod
    def uses_with(cls, options: object | None) -> str:
        """Return what it counts, the caches of nodes among it if it sees them."""
        precise = ", caches of nodes" if isinstance(options, PrefixOptions) and options.precise else ""
        return f"{super().uses_with(options)}{precise}"

    def _begin_prefixes(self, site: Site) -> Prefixes | None:
        return Prefixes(site, self._precise) if site.caches else None

    def begin(self, site: Site) -> None:
        """Know of no prefix yet."""
        super().begin(site)
        self._went: dict[tuple[int, int], int] = {}

    def choose(self, task: int, gpus: Sequence[int]) -> int:
        """Return the node of the request before it, unless that has too many."""
        most, fewest = (int(pick(self.outstanding[gpu] for gpu in gpus)) for pick in (max, min))
        # Both: small numbers are out of proportion easily, large ones by a few requests always.
        unbalanced = most - fewest > self._balance_abs and most > self._balance_rel * fewest
        if unbalanced:
            return super().choose(task, gpus)
        if self.prefixes is not None and self.site.chains[task]:
            had = {gpu: self.prefixes.tokens(task, gpu) for gpu in gpus}
            return super().choose(task, [gpu for gpu in gpus if had[gpu] == max(had.values())])
        before = self._went.get(self._prefix(task), NOWHERE)
        return before if before in gpus else super().choose(task, gpus)

    def sent(self, task: int, gpu: int) -> None:
        """Remember where the prefix lies."""
        super().sent(task, gpu)
        self._went[self._prefix(task)] = gpu

    def _prefix(self, task: int) -> tuple[int, int]:
        return self.site.job[task], self.site.stream[self.site.template[task]]
