"""What one GPU does at a time: models in its memory, batches that run, the load under way, compute that is free.

The rules of an instant (R1 to R5, T3 and its extensions to batches and shares) stand here once for everybody who
moves through time: nothing may begin that `refuse_*` refuses. The checker looks at whole timelines and stays apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from truenorth.models.cluster import GPU
from truenorth.models.growing_cache import GrowingCache
from truenorth.models.holds import HeldKV
from truenorth.models.prefix_cache import PrefixCache
from truenorth.models.prefixes import Chain
from truenorth.models.streams import StreamSpeed, Tokens
from truenorth.models.strides import Back, Rank, StreamRun, Stride
from truenorth.models.tables import LARGEST, NONE
from truenorth.models.workload import WHOLE


class Memory:
    """Weights on a GPU, shared by bytes or divided into slots, beside the memory of running tasks (rules R2 and R4).

    Parameters
    ----------
    gpu
        The GPU.
    weight_bytes
        Size of every model.

    Attributes
    ----------
    residents
        Slot of every model that is here or being loaded (None by bytes), oldest load first.
    ready
        The models that tasks may use.
    parts
        By model of which this GPU holds a part (rule G2): the place over which it is split, and the bytes of the part.
    ready_parts
        Those of them that runs on their place may use; no run on another place may.
    free_bytes
        Memory that nothing holds; with slots, the sum of the empty ones.
    """

    __slots__ = (
        "_holder", "_slots", "_weight_bytes", "free_bytes", "id", "parts", "ready", "ready_parts", "residents"
    )  # fmt: skip

    def __init__(self, gpu: GPU, weight_bytes: Sequence[int]) -> None:
        self.id = gpu.id
        self.residents: dict[int, int | None] = {}
        self.ready: set[int] = set()
        self.parts: dict[int, tuple[int, int]] = {}
        self.ready_parts: set[int] = set()
        self.free_bytes = gpu.memory_bytes
        self._slots = gpu.slots
        self._holder: list[int | None] = [None] * len(gpu.slots)
        self._weight_bytes = weight_bytes

    @property
    def slots(self) -> tuple[int, ...]:
        """Sizes of the slots; empty if memory is shared by bytes."""
        return self._slots

    def free_slot(self, model: int) -> int | None:
        """Return the smallest empty slot that is large enough, or None."""
        size = self._weight_bytes[model]
        empty = [
            (capacity, slot)
            for slot, capacity in enumerate(self._slots)
            if self._holder[slot] is None and capacity >= size
        ]
        # The smallest leaves the larger ones to larger models; of equals the lowest number.
        return min(empty)[1] if empty else None

    def has_room(self, model: int) -> bool:
        """Say whether a model fits beside everything that is here."""
        if self._slots:
            return self.free_slot(model) is not None
        return self._weight_bytes[model] <= self.free_bytes

    @property
    def empty_slots(self) -> list[int]:
        """Sizes of the slots that hold nothing."""
        return [size for size, holder in zip(self._slots, self._holder, strict=True) if holder is None]

    def holder(self, slot: int) -> int | None:
        """Return the model in a slot, or None."""
        return self._holder[slot]

    def refuse_model(self, model: int, slot: int | None) -> str | None:
        """Return which rule keeps a model from being loaded now, into this slot or (None) any; None if none does."""
        if model in self.residents:
            return f"R4 {self.id}: model {model} is there already"
        if not self._slots:
            if slot is not None:
                return f"R2 {self.id}: has no slots, so no slot {slot}"
            if self._weight_bytes[model] > self.free_bytes:
                return (
                    f"R2 {self.id}: model {model} needs {self._weight_bytes[model]} bytes, {self.free_bytes} are free"
                )
            return None
        if slot is None:
            slot = self.free_slot(model)
        if slot is None or not 0 <= slot < len(self._slots):
            return f"R2 {self.id}: no empty slot is large enough for model {model}"
        if self._holder[slot] is not None or self._slots[slot] < self._weight_bytes[model]:
            return f"R2 {self.id}: slot {slot} is taken or too small for model {model}"
        return None

    def hold_model(self, model: int, slot: int | None) -> int | None:
        """Give a model that nothing refuses its room and return its slot (None by bytes); it is not ready yet."""
        if slot is None:
            slot = self.free_slot(model)
        if slot is None:
            self.free_bytes -= self._weight_bytes[model]
        else:
            self._holder[slot] = model
            # A slot is taken whole, whatever its model leaves of it.
            self.free_bytes -= self._slots[slot]
        self.residents[model] = slot
        return slot

    def refuse_part(self, model: int, part_bytes: int) -> str | None:
        """Return which rule keeps a part of a model from being loaded now; None if none does."""
        if model in self.residents:
            return f"R4 {self.id}: model {model} is there already"
        if part_bytes > self.free_bytes:
            return f"R2 {self.id}: a part of model {model} needs {part_bytes} bytes, {self.free_bytes} are free"
        return None

    def hold_part(self, model: int, place: int, part_bytes: int) -> None:
        """Give a part of a model that nothing refuses its room; it is not ready yet."""
        self.residents[model], self.parts[model] = None, (place, part_bytes)
        self.free_bytes -= part_bytes

    def held_bytes(self, model: int) -> int:
        """Return what a model that is here holds of the memory that is shared by bytes."""
        return self.parts[model][1] if model in self.parts else self._weight_bytes[model]

    def drop_model(self, model: int) -> None:
        """Give up the room of a model that is ready."""
        if model in self.parts:
            self.ready_parts.remove(model)
            del self.residents[model]
            self.free_bytes += self.parts.pop(model)[1]
            return
        self.ready.remove(model)
        slot = self.residents.pop(model)
        if slot is None:
            self.free_bytes += self._weight_bytes[model]
        else:
            self._holder[slot] = None
            self.free_bytes += self._slots[slot]

    def refuse_bytes(self, held_bytes: int) -> str | None:
        """Return which rule keeps a task from holding memory now; None if none does."""
        # Slots divide all the memory, so that none is left for tasks.
        if held_bytes and self._slots:
            return f"R2 {self.id}: has slots, so no memory for tasks"
        if held_bytes > self.free_bytes:
            return f"R2 {self.id}: {held_bytes} bytes are needed beside the models, {self.free_bytes} are free"
        return None


def block_bytes(speed: StreamSpeed) -> int:
    """Return the bytes of a block of KV; 0 where KV does not grow, or takes no room."""
    return speed.block * speed.kv_bytes


IDLE = -1
"""Stands for the model on a copy engine that loads nothing."""


@dataclass(slots=True)
class Run:
    """A batch while it runs; a task without a batch class is a batch of one.

    Parameters
    ----------
    tasks
        Its members, lowest first.
    start_us, end_us
        When it started and when it should end by the given run time.
    batch
        The batch class of its members, NONE without one.
    models
        What its members need.
    share
        Of the GPU's compute, in parts of WHOLE.
    memory_bytes
        What all its members together hold.
    """

    tasks: Sequence[int]
    start_us: int
    end_us: int
    batch: int = NONE
    models: Sequence[int] = ()
    share: int = WHOLE
    memory_bytes: int = 0


@dataclass(slots=True)
class Request:
    """A request of a stream that is to join.

    Parameters
    ----------
    stream
        Its class.
    speed
        How that runs on the GPU.
    models
        What it needs.
    kv_bytes
        What it needs to join, and holds until it ends unless KV grows, beside the blocks of its prompt.
    chain
        Blocks of its prompt that the GPU may cache; each is held once for all that list it.
    """

    task: int
    tokens: Tokens
    stream: int
    speed: StreamSpeed
    models: Sequence[int]
    kv_bytes: int
    chain: Chain = ()


class Boundary(NamedTuple):
    """What comes at the end of a stride: whose first and last tokens, who is preempted, and who joins again."""

    first: Sequence[int]
    ended: Sequence[int]
    preempted: Sequence[int] = ()
    back: Sequence[int] = ()


class GPUState:
    """One GPU at an instant.

    Parameters
    ----------
    gpu
        The GPU.
    weight_bytes
        Size of every model.
    overlap_loads
        Whether it computes while it loads (rule R5).

    Attributes
    ----------
    runs
        The batches that run, by their first task.
    free_share
        Of compute, in parts of WHOLE; a load that blocks compute takes nothing here (see `refuse_run`).
    serving, serves
        The requests that it serves (None: none), as one of the runs, and their stream class.
    loading, load_end_us
        The model on the copy engine (IDLE: none) and when it should be ready.
    memory
        Models and what running tasks hold.
    cache
        The prefixes that it keeps, or KV that it holds for later requests; None: it keeps none.
    ranks
        Of requests that came here, if a higher priority preempts: then who waits to join again does so when told.
    """

    __slots__ = (
        "_growing_bytes",
        "_kv_bytes",
        "_overlap_loads",
        "_served_models",
        "_serving_run",
        "cache",
        "free_share",
        "id",
        "load_end_us",
        "loading",
        "memory",
        "ranks",
        "runs",
        "serves",
        "serving",
    )

    def __init__(self, gpu: GPU, weight_bytes: Sequence[int], overlap_loads: bool = True) -> None:
        self.id = gpu.id
        self.runs: dict[int, Run] = {}
        self.free_share = WHOLE
        self.loading = IDLE
        self.load_end_us = 0
        self.memory = Memory(gpu, weight_bytes)
        self._overlap_loads = overlap_loads
        self.serving: StreamRun | None = None
        self.serves = NONE
        self._serving_run = IDLE
        self._kv_bytes: dict[int, int] = {}
        self._growing_bytes = 0
        self.cache: PrefixCache | HeldKV | None = None
        self.ranks: Mapping[int, Rank] | None = None
        # By request, for those of a class may need adapters of their own.
        self._served_models: dict[int, Sequence[int]] = {}

    # -- runs -----------------------------------------------------------------------------------------------------

    def refuse_run(self, run: Run) -> str | None:
        """Return which rule keeps a batch from starting at its start, now; None if none does."""
        if run.share > self.free_share:
            running = ", ".join(str(task) for task in self.runs)
            return f"T3 {self.id}: runs tasks {running}, {self.free_share} of {WHOLE} are free and {run.share} needed"
        if not self._overlap_loads and self.loading != IDLE:
            return f"R5 {self.id}: is loading, and loads block compute"
        if not self.memory.ready.issuperset(run.models):
            model = next(model for model in run.models if model not in self.memory.ready)
            return f"R3 {self.id}: model {model} is not ready"
        # Two batches of one class at one instant could not be told from one larger batch.
        if self.runs and self.begins(run.batch, run.start_us):
            return f"T3b {self.id}: a batch of the same class starts at this instant; start all its tasks at once"
        return self.memory.refuse_bytes(run.memory_bytes) if run.memory_bytes else None

    def begins(self, batch: int, now: int) -> bool:
        """Say whether a batch of a class has started at this instant: another one has to start 1 us later."""
        return any(run.batch == batch != NONE and run.start_us == now for run in self.runs.values())

    def begin_run(self, run: Run) -> None:
        """Start a batch that nothing refuses."""
        self.runs[run.tasks[0]] = run
        self.free_share -= run.share
        if run.memory_bytes:
            self.memory.free_bytes -= run.memory_bytes
            self.note_room(run.start_us)

    def end_run(self, first_task: int) -> Run:
        """End the batch of this first task, and return it."""
        run = self.runs.pop(first_task)
        self.free_share += run.share
        if run.memory_bytes:
            self.memory.free_bytes += run.memory_bytes
        return run

    def uses(self, model: int) -> bool:
        """Say whether a running task needs a model."""
        served = self._served_models.values()
        return any(model in run.models for run in self.runs.values()) or any(model in models for models in served)

    def compute_free_us(self, share: int = WHOLE) -> int:
        """Return from when on this share of compute should be free, by what runs; 0 if it is free already."""
        free, when = self.free_share, 0
        # In the order in which they end, until enough is free.
        for run in sorted(self.runs.values(), key=lambda run: run.end_us):
            if free >= share:
                break
            free, when = free + run.share, run.end_us
        return when

    # -- requests of streams --------------------------------------------------------------------------------------

    def refuse_request(self, request: Request, limit: int = 0) -> str | None:
        """Return which rule keeps a request from joining now, were it a boundary; None if none does.

        Parameters
        ----------
        limit
            Most requests at once, below the seats that there are; 0: as many as these.
        """
        serving, most = self.serving, limit or request.speed.seats
        if serving is None:
            if self.runs:
                return f"S1 {self.id}: runs task {next(iter(self.runs))}, and requests take the whole GPU"
            if not self._overlap_loads and self.loading != IDLE:
                return f"R5 {self.id}: is loading, and loads block compute"
        elif self.serves != request.stream:
            return f"S1 {self.id}: serves stream {self.serves}, and not {request.stream} before it is empty"
        # A plan may allow fewer at once than there are seats, never more.
        elif serving.requests >= min(most, request.speed.seats):
            return f"S1 {self.id}: serves {serving.requests} requests, and no seat is free"
        elif serving.closed and serving.keeps_out(request.task):
            return f"S2 {self.id}: nobody joins before those that were preempted"
        if not self.memory.ready.issuperset(request.models):
            model = next(model for model in request.models if model not in self.memory.ready)
            return f"R3 {self.id}: model {model} is not ready"
        lacking = self.lacks_kv(request)
        return None if lacking <= 0 else f"R2 {self.id}: lacks {lacking} bytes of memory for KV"

    def lacks_kv(self, request: Request) -> int:
        """Return the bytes of memory that a request lacks to join; where KV grows, at the last boundary."""
        if not (request.kv_bytes or request.chain):
            return 0
        # Blocks that are held beyond the boundary are those of iterations to come: who joins before changes these.
        serving, ahead = self.serving, 0
        if serving is not None and request.speed.block:
            ahead = self._growing_bytes - serving.blocks() * block_bytes(request.speed)
        if self.cache is not None:
            return max(0, self.cache.lacks(request.chain, self.memory.free_bytes + ahead - request.kv_bytes))
        return max(0, request.kv_bytes - self.memory.free_bytes - ahead)

    def refuse_boundary(self, now: int) -> str | None:
        """Return why nobody joins now: no boundary, or no budget left; None if somebody may."""
        serving = self.serving
        if serving is None or (serving.boundary_us == now and serving.budget > 0):
            return None
        if serving.boundary_us != now:
            return f"S2 {self.id}: is inside an iteration; the last boundary was at {serving.boundary_us} us"
        return f"S2 {self.id}: the prompt budget of this iteration is spent"

    def begin_request(self, request: Request, now: int) -> int:
        """Let a request join that nothing refuses; return how many tokens of its prompt it finds in the cache."""
        if self.serving is None:
            growing = self.cache if isinstance(self.cache, GrowingCache) else None
            self.serving = StreamRun(request.speed, now, cache=growing, ranks=self.ranks)
            self.serves, self._serving_run = request.stream, request.task
            # To everybody else a GPU that serves is one run of the whole compute, whose end nobody knows.
            self.begin_run(Run((request.task,), now, now))
        self._served_models[request.task] = request.models
        tokens, cached = request.tokens, 0
        if self.cache is not None:
            tokens, cached, shared_bytes = self.cache.join(request.task, tokens, request.chain, now)
            self.memory.free_bytes -= shared_bytes
        self.serving.join(request.task, tokens)
        if request.speed.block:
            self.hold_blocks()
        elif request.kv_bytes:
            self._kv_bytes[request.task] = request.kv_bytes
            self.memory.free_bytes -= request.kv_bytes
        self.note_room(now)
        return cached

    def note_room(self, now: int) -> None:
        """Have the cache keep no more than what is free now, once this instant is over."""
        if self.cache is not None:
            self.cache.note(now, self.memory.free_bytes)

    def _keep_prefixes(self, cache: PrefixCache | HeldKV, first: Sequence[int], ended: Sequence[int]) -> None:
        """Have the blocks visible that iterations have computed, and free those that nobody holds any more."""
        if self.serving is None:
            raise ValueError(f"{self.id} serves nobody")
        for task, computed in (*self.serving.under_way, *((task, LARGEST) for task in first)):
            cache.compute(task, computed)
        for task in ended:
            self.memory.free_bytes += cache.leave(task, self.serving.boundary_us)

    def hold_blocks(self, ahead: int = 0) -> None:
        """Hold the blocks of KV that are needed until so many iterations from the boundary on, where KV grows."""
        if self.serving is not None and self.serving.speed.block:
            needed = self.serving.blocks(ahead) * block_bytes(self.serving.speed)
            self.memory.free_bytes += self._growing_bytes - needed
            self._growing_bytes = needed

    def next_stride(self) -> Stride:
        """Return the iterations from the boundary on that do alike, with the blocks of KV that there are."""
        serving = self._with_room()
        stride = serving.stride()
        self.hold_blocks(stride.iterations - 1)
        if serving.cache is not None:
            self.note_room(serving.boundary_us)
        return stride

    def shorten(self, stride: Stride, now: int) -> None:
        """Hold the blocks of a stride that ends sooner than it was to, whose last iteration is under way now."""
        self.hold_blocks(stride.iterations - 1)
        if self.serving is not None and self.serving.cache is not None:
            self.serving.cache.amend(self.memory.free_bytes, now)

    def advance(self, stride: Stride, limit: int = 0) -> Boundary:
        """Take iterations, and let who stays take its blocks of KV; free what others held."""
        if self.serving is None:
            raise ValueError(f"{self.id} serves nobody")
        growing = self.serving.cache
        if growing is not None:
            self.shorten(stride, self.serving.end_us(stride))
        first, ended = self.serving.advance(stride)
        if self.cache is not None and growing is None:
            self._keep_prefixes(self.cache, first, ended)
        for task in ended:
            self.memory.free_bytes += self._kv_bytes.pop(task, 0)
            self._served_models.pop(task, None)
        preempted = self._with_room().preempt() if self.serving.speed.block else ()
        back = self.rejoin(limit)
        if growing is not None:
            self.note_room(self.serving.boundary_us)
        if not (self.serving.requests or self.serving.preempted):
            self._end_serving()
        return Boundary(first, ended, preempted, back)

    def rejoin(self, limit: int = 0) -> Sequence[int]:
        """Let those join again at the boundary that were preempted, as far as there is room; return them."""
        if self.serving is None or not self.serving.speed.block:
            return ()
        # In most strides nobody has to.
        back: Sequence[Back] = ()
        if self.serving.preempted and self.ranks is None:
            back = self._with_room().rejoin(self._seats(limit))
        self.hold_blocks()
        return [request.task for request in back]

    def who_leaves(self, request: Request, limit: int = 0) -> Sequence[int]:
        """Return which requests of lower priority have to leave for another to join; none if that would not help."""
        serving = self.serving
        if serving is None or self.serves != request.stream or (serving.closed and serving.keeps_out(request.task)):
            return ()
        if not self.memory.ready.issuperset(request.models):
            return ()
        return (
            self._with_room().who_leaves(request.task, request.tokens.prompt, request.chain, self._seats(limit)) or ()
        )

    def leave(self, tasks: Sequence[int]) -> None:
        """Have requests leave at the boundary, which wait to join again."""
        for task in tasks:
            self._with_room().leave(task)
        self.hold_blocks()

    def who_leaves_for_first(self, limit: int = 0) -> Sequence[int] | None:
        """Return the same for the first that waits to join again, which may need nobody to; None: it cannot join."""
        serving = self._with_room()
        if not serving.preempted or serving.full or serving.budget <= 0:
            return None
        return serving.who_leaves_for_first(self._seats(limit))

    def bring_back(self) -> int:
        """Let the first that waits join again at the boundary; return which that is."""
        serving = self._with_room()
        task = serving.bring_back().task
        self.hold_blocks()
        return task

    def _seats(self, limit: int) -> int:
        """Return how many requests it serves at once at most; a limit of 0 is none."""
        seats = 0 if self.serving is None else self.serving.speed.seats
        return min(limit or seats, seats)

    def stop_serving(self) -> list[int]:
        """Serve nobody any more, for the GPU goes; return who was served or waited to join again."""
        if self.cache is not None:
            self.memory.free_bytes += self.cache.clear()
        if self.serving is None:
            return []
        left = self.serving.members
        self.memory.free_bytes += sum(self._kv_bytes.values()) + self._growing_bytes
        self._kv_bytes.clear()
        self._growing_bytes = 0
        self._end_serving()
        return left

    def _end_serving(self) -> None:
        """Note that nobody is served: now another class, batch or load may begin (S1)."""
        self.serving, self.serves = None, NONE
        self._served_models.clear()
        self.end_run(self._serving_run)

    def lacks_to_go_on(self) -> int:
        """Return the bytes of memory that are missing if all that it serves is preempted, and waits for room."""
        if self.serving is None or self.serving.requests or not self.serving.preempted:
            return 0
        missing = self._with_room().missing()
        return missing * block_bytes(self.serving.speed)

    def _with_room(self) -> StreamRun:
        """Return what it serves, which knows how many blocks of KV there are now."""
        serving = self.serving
        if serving is None:
            raise ValueError(f"{self.id} serves nobody")
        size = block_bytes(serving.speed)
        if size:
            serving.room = (self.memory.free_bytes + self._growing_bytes) // size
        return serving

    # -- loads ----------------------------------------------------------------------------------------------------

    def refuse_copying(self) -> str | None:
        """Return which rule keeps any load from beginning now; None if none does."""
        if self.loading != IDLE:
            return f"R1 {self.id}: is loading model {self.loading}"
        if not self._overlap_loads and self.runs:
            return f"R5 {self.id}: runs task {next(iter(self.runs))}, and loads block compute"
        return None

    def refuse_load(self, model: int, slot: int | None = None) -> str | None:
        """Return which rule keeps a model from being loaded now, into this slot or (None) any; None if none does."""
        return self.refuse_copying() or self.memory.refuse_model(model, slot)

    def begin_load(self, model: int, end_us: int, slot: int | None = None) -> int | None:
        """Start a load that nothing refuses; return the slot of the model, None by bytes."""
        self.loading, self.load_end_us = model, end_us
        return self.memory.hold_model(model, slot)

    def begin_part(self, model: int, end_us: int, place: int, part_bytes: int) -> None:
        """Start to load a part of a model that nothing refuses."""
        self.loading, self.load_end_us = model, end_us
        self.memory.hold_part(model, place, part_bytes)

    def end_load(self) -> int:
        """Make the model on the copy engine ready, and return it."""
        model, self.loading = self.loading, IDLE
        memory = self.memory
        (memory.ready_parts if model in memory.parts else memory.ready).add(model)
        return model

    def refuse_eviction(self, model: int) -> str | None:
        """Return which rule keeps a model from being evicted now; None if none does."""
        if self.uses(model):
            return f"R3 {self.id}: a running task uses model {model}"
        if model not in self.memory.ready and model not in self.memory.ready_parts:
            return f"R4 {self.id}: model {model} is not ready there, so it cannot be evicted"
        return None
