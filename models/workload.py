"""The work: models, tasks that need them, classes of tasks that run in batches, workflows (DAGs of tasks) and jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from truenorth.models.streams import ANY_KIND as ANY_KIND
from truenorth.models.streams import StreamClass, Tokens, of_kind

WHOLE = 10_000
"""The compute of a whole GPU in the unit of shares: a share has up to four decimal places."""


@dataclass(frozen=True, slots=True)
class MLModel:
    """A machine-learning model: a name and the bytes of its weights."""

    name: str
    weight_bytes: int

    def __post_init__(self) -> None:
        if self.weight_bytes <= 0:
            raise ValueError(f"model {self.name}: weights must be positive")


@dataclass(frozen=True, slots=True)
class Edge:
    """An input of a task: the predecessor's name and the bytes that travel from it.

    Where `kv` says so the KV of the predecessor's prompt travels, a request of a stream, in place of given bytes.
    `delay_us` passes besides, outside of the cluster: a tool runs, or a person thinks (rule E5). Where `hold` says so
    the predecessor's KV stays on its GPU meanwhile, as long as there is room.
    """

    source: str
    size_bytes: int
    kv: bool = field(default=False, repr=False)
    delay_us: int = field(default=0, repr=False)
    hold: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or (self.kv and self.size_bytes):
            raise ValueError(f"edge from {self.source}: bytes must not be negative, and KV has none of its own")
        if self.delay_us < 0:
            raise ValueError(f"edge from {self.source}: its delay must not be negative")


@dataclass(frozen=True, slots=True)
class BatchClass:
    """Tasks that may run together on a GPU, in batches, whatever their workflow or job.

    Parameters
    ----------
    name
        Names the class in an instance.
    runtime_us
        Run time by batch size per GPU kind, size 1 among them; the key ``*`` holds for every kind. A size that is
        not listed takes the time of the next larger one that is; the largest is the most that run together.
    models
        Names of the models that must be ready while a batch runs.
    share
        Of the GPU's compute that a batch takes, whatever its size, in parts of `WHOLE`.
    memory_bytes
        Working memory that each task of a batch holds while it runs.
    """

    name: str
    runtime_us: Mapping[str, Mapping[int, int]]
    models: tuple[str, ...] = ()
    share: int = WHOLE
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.runtime_us:
            raise ValueError(f"batch class {self.name}: needs a table of run times")
        for times in self.runtime_us.values():
            sizes = sorted(times)
            if not sizes or sizes[0] != 1:
                raise ValueError(f"batch class {self.name}: every table lists size 1 and none below")
            if times[1] < 1 or any(times[small] > times[large] for small, large in pairwise(sizes)):
                raise ValueError(f"batch class {self.name}: run times are at least 1 us and do not fall with the size")
        _check_demand(f"batch class {self.name}", self.models, self.share, self.memory_bytes)

    def times_on(self, kind: str) -> Mapping[int, int]:
        """Return the table for a kind of GPU; empty where the class cannot run."""
        return self.runtime_us.get(kind, self.runtime_us.get(ANY_KIND, {}))

    def largest_on(self, kind: str) -> int:
        """Return the most tasks that run together on a kind of GPU; 0 where the class cannot run."""
        return max(self.times_on(kind), default=0)

    def runtime_on(self, kind: str, size: int) -> int | None:
        """Return the run time of a batch in microseconds; None where it is too large, or the class cannot run.

        >>> BatchClass("opt", {"T4": {1: 560, 4: 980}}).runtime_on("T4", 3)
        980
        """
        times = self.times_on(kind)
        enough = [listed for listed in times if listed >= size]
        return times[min(enough)] if enough else None

    @property
    def single_us(self) -> dict[str, int]:
        """Run time of a task alone, per GPU kind."""
        return {kind: times[1] for kind, times in self.runtime_us.items()}

    @property
    def content(self) -> object:
        """A key that equal classes share."""
        times = frozenset((kind, frozenset(table.items())) for kind, table in self.runtime_us.items())
        return self.name, times, self.models, self.share, self.memory_bytes


def _check_demand(owner: str, models: tuple[str, ...], share: int, memory_bytes: int) -> None:
    """Refuse a model named twice, a share outside (0, 1] and negative memory."""
    if len(set(models)) < len(models):
        raise ValueError(f"{owner}: a model is named twice")
    if not 0 < share <= WHOLE:
        raise ValueError(f"{owner}: its share is {share} of {WHOLE}, not above 0 and at most all")
    if memory_bytes < 0:
        raise ValueError(f"{owner}: memory must not be negative")


def _check_copies(copies: bool, gpus: int) -> None:
    """Refuse copies of models on the GPUs of a run that has but one."""
    if copies and gpus == 1:
        raise ValueError("copies its models to each of its GPUs and takes 1; allowed is that for several GPUs")


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to run a task: on how many GPUs, and how long that takes; parameters as of a task."""

    gpus: int
    runtime_us: Mapping[str, int]
    across: Fraction = Fraction(1)
    copies: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not self.runtime_us or min(self.runtime_us.values()) < 1:
            raise ValueError(f"a mode of {self.gpus} GPUs needs a run time, and every run time is at least 1 us")
        if self.gpus < 1 or self.across < 1 or (self.across != 1 and self.gpus == 1):
            problem = f"takes {self.gpus} GPUs, {self.across} times as long across servers"
            raise ValueError(f"{problem}; allowed are at least 1 and, for several GPUs, at least 1")
        _check_copies(self.copies, self.gpus)

    @property
    def content(self) -> object:
        """A key that equal modes share."""
        return self.gpus, frozenset(self.runtime_us.items()), self.across, self.copies

    @property
    def parts(self) -> int:
        """Into how many parts its models are split, one for each GPU; 1 if every GPU holds them whole (rule G2)."""
        return 1 if self.copies else self.gpus


@dataclass(frozen=True, slots=True)
class Task:
    """A step of a workflow.

    Parameters
    ----------
    name
        Unique in its workflow.
    runtime_us
        Run time per GPU kind, at least 1 us; the key ``*`` holds for every kind. A kind that is
        not listed cannot run the task.
    models
        Names of the models that must be ready on the GPU while the task runs.
    inputs
        One edge per predecessor.
    share
        Of the GPU's compute that it takes, in parts of `WHOLE`.
    memory_bytes
        Working memory that it holds while it runs, beside the models.
    batch
        The class with which it may run in batches; run times (alone), models, share and memory are then the
        class's (see `of_class`).
    input_bytes
        What a task without predecessors is given by its job; it lies at the job's ingress server, if it names one.
    stream
        The class of which it is a request; models, and run times (of the smallest request there can be), are then
        the class's (see `of_stream`).
    tokens
        Of such a request, unless its job says otherwise; None: every job says.
    tied_to
        Name of an earlier request of the workflow on whose GPU this one is served.
    first_token
        Whether the first token of its job is that of this request.
    gpus
        How many GPUs it takes, all of a place, from start to end (rule G1); with modes the most.
    across
        Factor on its run time at places that span servers.
    blocks
        Numbers of the leading blocks of a request's prompt, unless its job says otherwise: equal ones behind equal ones
        are the same tokens, which nodes cache if the class says so (rule E4).
    modes
        Of a task that runs on one of several numbers of GPUs, ascending by these; run times are then the fastest of
        all modes (see `of_modes`).
    copies
        Whether each of several GPUs holds its models whole, in place of a part of each (rule G2).
    """

    name: str
    runtime_us: Mapping[str, int]
    models: tuple[str, ...] = ()
    inputs: tuple[Edge, ...] = ()
    share: int = WHOLE
    memory_bytes: int = 0
    batch: BatchClass | None = None
    input_bytes: int = 0
    stream: StreamClass | None = field(default=None, repr=False)
    tokens: Tokens | None = field(default=None, repr=False)
    tied_to: str | None = field(default=None, repr=False)
    first_token: bool = field(default=False, repr=False)
    gpus: int = field(default=1, repr=False)
    across: Fraction = field(default=Fraction(1), repr=False)
    blocks: tuple[int, ...] = field(default=(), repr=False)
    modes: tuple[Mode, ...] = field(default=(), repr=False)
    copies: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not self.runtime_us or min(self.runtime_us.values()) < 1:
            raise ValueError(f"task {self.name}: needs a run time, and every run time is at least 1 us")
        _check_demand(f"task {self.name}", self.models, self.share, self.memory_bytes)
        if len({edge.source for edge in self.inputs}) < len(self.inputs):
            raise ValueError(f"task {self.name}: a predecessor is named twice")
        if self.input_bytes < 0 or (self.input_bytes and self.inputs):
            raise ValueError(f"task {self.name}: only a task without predecessors is given input bytes, 0 or more")
        if self.batch is not None and self != Task.of_class(self.name, self.batch, self.inputs, self.input_bytes):
            raise ValueError(f"task {self.name}: differs from its batch class {self.batch.name}")
        self._check_stream()
        self._check_gang()

    def _check_gang(self) -> None:
        """Refuse what a run on several GPUs cannot have, and a task that is no more like its modes."""
        if self.gpus < 1 or self.across < 1 or (self.across != 1 and self.gpus == 1):
            problem = f"takes {self.gpus} GPUs, {self.across} times as long across servers"
            raise ValueError(f"task {self.name}: {problem}; allowed are at least 1 and, for several GPUs, at least 1")
        for one, other in pairwise(self.modes):
            if one.gpus >= other.gpus:
                problem = f"two modes take {other.gpus} GPUs, or stand out of order"
                raise ValueError(f"task {self.name}: {problem}; allowed is one for each number, with a time per kind")
        own = self.gpus, self.across, self.runtime_us, self.copies
        if self.modes and own != (self.modes[-1].gpus, Fraction(1), _fastest_of(self.modes), False):
            raise ValueError(f"task {self.name}: differs from its modes")
        _check_copies(self.copies, self.gpus)
        if self.gpus > 1 and (self.share != WHOLE or self.batch is not None or self.stream is not None):
            raise ValueError(f"task {self.name}: takes {self.gpus} GPUs; allowed is a share, batch or stream on 1")

    def _check_stream(self) -> None:
        """Refuse what only requests of streams have, and a request that is no more like its class."""
        if self.stream is None:
            if self.tokens is not None or self.tied_to is not None or self.first_token or self.blocks:
                raise ValueError(f"task {self.name}: only a request of a stream has tokens, and may be tied to another")
            if any(edge.kv for edge in self.inputs):
                raise ValueError(f"task {self.name}: only a request of a stream takes KV in")
            return
        own = (self.runtime_us, self.models[: len(self.stream.models)], self.share, self.memory_bytes, self.batch)
        adapters = self.models[len(self.stream.models) :]
        alike = own == (self.stream.least_us, self.stream.models, WHOLE, 0, None)
        if not alike or len(adapters) > 1 or not {*adapters} <= {*self.stream.adapters}:
            raise ValueError(f"task {self.name}: differs from its stream class {self.stream.name}")
        if self.tokens is not None:
            self.check_tokens(self.tokens)

    def check_tokens(self, tokens: Tokens) -> None:
        """Refuse tokens that a request cannot have.

        Raises
        ------
        ValueError
            Saying which, and what is allowed.
        """
        tokens.check()
        if not tokens.uncached and not any(edge.kv for edge in self.inputs):
            raise ValueError("no uncached token, and no KV is moved to it; allowed is at least 1")

    @classmethod
    def of_class(cls, name: str, batch: BatchClass, inputs: tuple[Edge, ...] = (), input_bytes: int = 0) -> Task:
        """Return a task of a batch class."""
        task = cls(name, batch.single_us, batch.models, inputs, batch.share, batch.memory_bytes, None, input_bytes)
        object.__setattr__(task, "batch", batch)
        return task

    @classmethod
    def of_modes(cls, name: str, modes: Iterable[Mode], memory_bytes: int = 0, models: tuple[str, ...] = ()) -> Task:
        """Return a task that runs in one of some modes, each of another number of GPUs.

        >>> Task.of_modes("train", [Mode(4, {"V100": 12}), Mode(1, {"*": 40})]).runtime_us
        {'*': 40, 'V100': 12}
        """
        modes = tuple(sorted(modes, key=lambda mode: mode.gpus))
        if len(modes) > 1:
            times, most = _fastest_of(modes), modes[-1].gpus
            return cls(name, times, models, memory_bytes=memory_bytes, gpus=most, modes=modes)
        (mode,) = modes
        made = cls(name, mode.runtime_us, models, memory_bytes=memory_bytes)
        return replace(made, gpus=mode.gpus, across=mode.across, copies=mode.copies)

    @classmethod
    def of_stream(
        cls,
        name: str,
        stream: StreamClass,
        tokens: Tokens | None = None,
        inputs: tuple[Edge, ...] = (),
        input_bytes: int = 0,
        tied_to: str | None = None,
        first_token: bool = False,
        adapter: str | None = None,
        blocks: tuple[int, ...] = (),
    ) -> Task:
        """Return a request of a stream class, with one of its adapters if it names one."""
        models = stream.models if adapter is None else (*stream.models, adapter)
        plain = name, stream.least_us, models, inputs, WHOLE, 0, None, input_bytes
        return cls(*plain, stream, tokens, tied_to, first_token, blocks=blocks)

    def with_times(self, change: Callable[[int], int]) -> Task:
        """Return the task with every run time changed, in every mode."""
        modes = tuple(replace(mode, runtime_us=_changed(mode.runtime_us, change)) for mode in self.modes)
        times = _fastest_of(modes) if modes else _changed(self.runtime_us, change)
        return replace(self, runtime_us=times, modes=modes)

    def runtime_on(self, kind: str) -> int | None:
        """Return the run time on a kind of GPU in microseconds, or None where the task cannot run."""
        return of_kind(self.runtime_us, kind)

    @property
    def choices(self) -> tuple[Mode, ...]:
        """The ways to run it: its modes, or the one that it has."""
        return self.modes or (Mode(self.gpus, self.runtime_us, self.across, self.copies),)

    @property
    def fastest_us(self) -> int:
        """The shortest run time over all listed kinds, present in a cluster or not."""
        if self.stream is not None and self.tokens is not None:
            return self.stream.alone_us(self.tokens)
        return min(self.runtime_us.values())


def _changed(runtime_us: Mapping[str, int], change: Callable[[int], int]) -> dict[str, int]:
    return {kind: change(time_us) for kind, time_us in runtime_us.items()}


def _fastest_of(modes: Sequence[Mode]) -> dict[str, int]:
    """Return the shortest run time over modes by kind of GPU, of the kinds that one of them lists."""
    times = [mode.runtime_us for mode in modes]
    kinds = dict.fromkeys(kind for each in times for kind in each)
    return {kind: min(us for each in times if (us := of_kind(each, kind)) is not None) for kind in kinds}


class WorkflowCycleError(ValueError):
    """Tasks of a workflow wait for each other.

    Attributes
    ----------
    cycle
        Names along the cycle, the first one again at the end.
    """

    def __init__(self, workflow: str, cycle: tuple[str, ...]) -> None:
        super().__init__(f"workflow {workflow}: tasks form a cycle: {' -> '.join(cycle)}")
        self.cycle = cycle


@dataclass(frozen=True, slots=True)
class Branch:
    """Tasks of a workflow that a job runs together or not at all, and how likely it does."""

    probability: Fraction
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A DAG of tasks.

    Parameters
    ----------
    branches
        A job runs the tasks of exactly one of them, and all tasks that are in none; () if every job runs all tasks.
    of
        The workflow with branches of which this is one path; None if it is none (see `models.branches`).
    ideal_us
        What slowdowns of its jobs divide by; None: their critical path. Nothing else depends on it.

    Attributes
    ----------
    position
        Index of each task by name.
    topological
        Task indices, every predecessor before its successors.
    critical_path_us
        Longest path of fastest run times and delays, transfers and loads left out (P_j); with branches its expectation.
    """

    name: str
    tasks: tuple[Task, ...]
    branches: tuple[Branch, ...] = ()
    of: Workflow | None = field(default=None, repr=False, compare=False)
    ideal_us: int | None = None
    position: Mapping[str, int] = field(init=False, repr=False, compare=False)
    topological: tuple[int, ...] = field(init=False, repr=False, compare=False)
    critical_path_us: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"workflow {self.name}: needs at least one task")
        position = {task.name: index for index, task in enumerate(self.tasks)}
        if len(position) < len(self.tasks):
            raise ValueError(f"workflow {self.name}: task names must differ")
        object.__setattr__(self, "position", position)
        if self.ideal_us is not None and self.ideal_us <= 0:
            raise ValueError(f"workflow {self.name}: its ideal time must be positive")
        object.__setattr__(self, "topological", self._topological_order())
        self._check_branches()
        self._check_requests()
        object.__setattr__(self, "critical_path_us", self._expected_path_us())

    def with_tasks(self, change: Callable[[Task], Task]) -> Workflow:
        """Return the workflow with every task changed, and so the workflow of which it is a path."""
        whole = None if self.of is None else self.of.with_tasks(change)
        return Workflow(self.name, tuple(map(change, self.tasks)), self.branches, whole, self.ideal_us)

    def with_delays(self, delays_us: Mapping[str, int]) -> Workflow:
        """Return the workflow with one delay on all edges into each of these tasks (rule E5)."""

        def delayed(task: Task) -> Task:
            delay_us = delays_us.get(task.name)
            if delay_us is None:
                return task
            return replace(task, inputs=tuple(replace(edge, delay_us=delay_us) for edge in task.inputs))

        return self.with_tasks(delayed)

    def _topological_order(self) -> tuple[int, ...]:
        graph: dict[int, list[int]] = {}
        for index, task in enumerate(self.tasks):
            for edge in task.inputs:
                if edge.source not in self.position:
                    raise ValueError(f"workflow {self.name}: task {task.name} comes after unknown task {edge.source}")
            graph[index] = [self.position[edge.source] for edge in task.inputs]
        try:
            return tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise WorkflowCycleError(self.name, tuple(self.tasks[index].name for index in error.args[1])) from None

    def _check_branches(self) -> None:
        """Refuse branches that share tasks, depend on each other, or whose probabilities are not those of all jobs."""
        branch_of: dict[str, int] = {}
        for index, branch in enumerate(self.branches):
            for name in branch.tasks:
                if name not in self.position:
                    raise ValueError(f"workflow {self.name}: branch {index} has an unknown task {name}")
                if branch_of.setdefault(name, index) != index or branch.tasks.count(name) > 1:
                    raise ValueError(f"workflow {self.name}: task {name} is in two branches")
            if branch.probability <= 0 or len(branch.tasks) == len(self.tasks):
                raise ValueError(f"workflow {self.name}: branch {index} is never taken, or holds every task")
        if self.branches and sum(branch.probability for branch in self.branches) != 1:
            raise ValueError(f"workflow {self.name}: the probabilities of its branches do not add up to 1")
        for task in self.tasks:
            for edge in task.inputs:
                here, before = branch_of.get(task.name), branch_of.get(edge.source)
                if here is not None and before not in (None, here):
                    both = f"{task.name} comes after {edge.source}"
                    raise ValueError(f"workflow {self.name}: task {both}, which is in another branch")

    def _check_requests(self) -> None:
        """Refuse ties to what is no earlier request, KV of what is none, and a job with two first tokens."""
        self._check_holds()
        if all(task.stream is None for task in self.tasks):
            return
        before: dict[str, set[str]] = {}
        for index in self.topological:
            task = self.tasks[index]
            sources = [edge.source for edge in task.inputs]
            before[task.name] = set(sources).union(*(before[source] for source in sources))
            if task.tied_to is not None and task.tied_to not in before[task.name]:
                raise ValueError(f"workflow {self.name}: task {task.name} is tied to {task.tied_to}, not before it")
            for source in (task.tied_to, *(edge.source for edge in task.inputs if edge.kv)):
                if source is not None and self.tasks[self.position[source]].stream is None:
                    problem = f"task {task.name} needs {source} to be a request of a stream"
                    raise ValueError(f"workflow {self.name}: {problem}")
        branch_of = {name: index for index, branch in enumerate(self.branches) for name in branch.tasks}
        first = [task.name for task in self.tasks if task.first_token]
        places = [branch_of.get(name) for name in first]
        if len(first) > 1 and (None in places or len(set(places)) < len(places)):
            raise ValueError(f"workflow {self.name}: {' and '.join(first)} both give the first token of a job")
        for task in self.tasks:
            if task.tied_to in branch_of and branch_of[task.tied_to] != branch_of.get(task.name):
                raise ValueError(f"workflow {self.name}: task {task.name} is tied to {task.tied_to} of another branch")

    def _check_holds(self) -> None:
        """Refuse KV that is held for what cannot find it, or for several."""
        held: dict[str, str] = {}
        holding = [(task, edge) for task in self.tasks for edge in task.inputs if edge.hold]
        for task, edge in holding:
            before, kv = self.tasks[self.position[edge.source]], f"KV of {edge.source} is held for"
            alike = task.stream is not None and (before.stream, before.models) == (task.stream, task.models)
            if not alike or task.tied_to != edge.source:
                asked = f"which has to be a request of the same stream and adapter, with: {edge.source}"
                raise ValueError(f"workflow {self.name}: {kv} {task.name}, {asked}")
            other = held.setdefault(edge.source, task.name)
            if other != task.name:
                raise ValueError(f"workflow {self.name}: {kv} {other} and {task.name}, and one of them can take it")

    @property
    def first_token_task(self) -> int | None:
        """Position of the request whose first token is the job's: the marked one, else the last; None without any."""
        requests = [index for index, task in enumerate(self.tasks) if task.stream is not None]
        marked = [index for index in requests if self.tasks[index].first_token]
        return (marked or requests)[-1] if requests else None

    def path_us(self, tokens: Mapping[str, Tokens]) -> int:
        """Return P_j of a job that gives the tokens of these requests; of the others the task's own count."""
        given = {
            task.name: task.stream.alone_us(tokens[task.name])
            for task in self.tasks
            if task.stream is not None and task.name in tokens
        }
        return self._critical_path_us(frozenset(), given)

    def _expected_path_us(self) -> int:
        """Return the critical path, of branches the expectation to the nearest microsecond."""
        if not self.branches:
            return self._critical_path_us(frozenset())
        whole = {name for branch in self.branches for name in branch.tasks}
        expected = sum(
            branch.probability * self._critical_path_us(frozenset(whole.difference(branch.tasks)))
            for branch in self.branches
        )
        return int(expected + Fraction(1, 2))

    def _critical_path_us(self, left_out: frozenset[str], given_us: Mapping[str, int] | None = None) -> int:
        finish = [0] * len(self.tasks)
        for index in self.topological:
            task = self.tasks[index]
            if task.name not in left_out:
                ready = max((finish[self.position[edge.source]] + edge.delay_us for edge in task.inputs), default=0)
                own_us = None if given_us is None else given_us.get(task.name)
                finish[index] = ready + (task.fastest_us if own_us is None else own_us)
        return max(finish)


def sizes_of(workflows: Iterable[Workflow]) -> set[int]:
    """Return the numbers of GPUs that runs of some workflows may take."""
    return {mode.gpus for workflow in workflows for task in workflow.tasks for mode in task.choices}


@dataclass(frozen=True, slots=True)
class Job:
    """A workflow released at a time.

    Parameters
    ----------
    release_us
        No task of the job starts earlier.
    weight
        Counts in the weighted objectives.
    deadline_us
        Relative to the release; soft. None: the job is never late.
    ingress
        Index of the server that plans the job online, and where its input bytes lie; None: drawn at random by the
        policy's seed, and its input costs nothing.
    tokens
        Of its requests of streams by task, as far as they are not those of the task itself; None: none are.
    priority
        Who has a higher one goes first in the queues of online policies (rule E8); no rule for plans.
    delays_us
        By task: what passes between the end of every predecessor and its input (rule E5), where that is not what the
        workflow says; None: it is. Policies meet the workflow's, and learn of the job's own when it has passed.
    blocks
        Numbers of the leading blocks of its requests' prompts, by task, as far as they are not those of the task.
    own_ideal_us
        What its slowdown divides by, where that is not what the workflow says; None: it is.
    line, label
        Where the log that it was imported from has the job, and what that says of it before it runs (model or user);
        no part of what the job is. None: not known.
    """

    workflow: Workflow
    release_us: int
    weight: Fraction = Fraction(1)
    deadline_us: int | None = None
    ingress: int | None = None
    tokens: Mapping[str, Tokens] | None = None
    priority: int = 0
    delays_us: Mapping[str, int] | None = None
    blocks: Mapping[str, tuple[int, ...]] | None = None
    own_ideal_us: int | None = None
    line: int | None = field(default=None, compare=False)
    label: str | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"<Job of {self.workflow.name!r}, released at {self.release_us / 1e6:g} s>"

    def __post_init__(self) -> None:
        for name, tokens in (self.tokens or {}).items():
            self._request(name).check_tokens(tokens)
        for name in self.blocks or ():
            self._request(name)
        for name, delay_us in (self.delays_us or {}).items():
            whole = self.workflow.of or self.workflow
            if name not in whole.position or not whole.tasks[whole.position[name]].inputs:
                raise ValueError(f"task {name}: comes after no other task of workflow {whole.name}, and has a delay")
            if delay_us < 0:
                raise ValueError(f"task {name}: its delay must not be negative")
        if self.own_ideal_us is not None and self.own_ideal_us <= 0:
            raise ValueError("the ideal time of a job must be positive")
        if self.release_us < 0 or self.weight < 0 or (self.deadline_us is not None and self.deadline_us < 0):
            raise ValueError("release, weight and deadline of a job must not be negative")

    def _request(self, name: str) -> Task:
        whole = self.workflow.of or self.workflow
        at = whole.position.get(name)
        if at is None or whole.tasks[at].stream is None:
            raise ValueError(f"task {name}: is no request of a stream of workflow {whole.name}")
        return whole.tasks[at]

    def blocks_of(self, task: Task) -> tuple[int, ...]:
        """Return the numbers of the leading blocks of the prompt of a request of this job."""
        return task.blocks if self.blocks is None else self.blocks.get(task.name, task.blocks)

    @property
    def as_run(self) -> Workflow:
        """The workflow with the delays of this job."""
        return self.workflow.with_delays(self.delays_us) if self.delays_us else self.workflow

    @property
    def critical_path_us(self) -> int:
        """P_j in microseconds: that of the workflow, with the job's own tokens and delays; nodes cache nothing."""
        return self.as_run.path_us(self.tokens) if self.tokens else self.as_run.critical_path_us

    @property
    def given_ideal_us(self) -> int | None:
        """What the job or its workflow says that slowdowns divide by; None: neither does."""
        return self.workflow.ideal_us if self.own_ideal_us is None else self.own_ideal_us

    @property
    def ideal_us(self) -> int:
        """What the job's slowdown divides by, in microseconds: P_j, unless the job or its workflow says otherwise."""
        return self.critical_path_us if self.given_ideal_us is None else self.given_ideal_us

    def tokens_of(self, task: Task) -> Tokens:
        """Return the tokens of a request of this job.

        Raises
        ------
        ValueError
            If neither the job nor the task says.
        """
        tokens = task.tokens if self.tokens is None else self.tokens.get(task.name, task.tokens)
        if tokens is None:
            raise ValueError(f"task {task.name}: nobody says how many tokens it has")
        return tokens
