"""What every job takes alone on the cluster, for the verifier: plain whole numbers, and no code of the provers.

With the ways to run its tasks, by GPU class and size of batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from truenorth.models import NEVER, NONE, WHOLE, Instance
from truenorth.models.streams import Tokens
from truenorth.models.tables import Arcs


class LoneJobs:
    """Earliest starts and ends of jobs, and the chains of fastest runs around their tasks.

    Attributes
    ----------
    fastest, head, tail
        Per template: its shortest run time, and the longest chains of those and of delays before and after it, in
        microseconds.
    share
        Per template: of a GPU's compute that it takes, its whole batch together, in parts of `WHOLE`.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        classes = range(len(instance.class_gpu))
        resident: dict[int, set[int]] = {}
        for there in instance.initial:
            resident.setdefault(there.gpu, set()).add(there.model)
        gpu_class = instance.gpu_class.tolist()
        self._class = [kind.classes[0] for kind in instance.place_kinds]
        self._resident: list[set[frozenset[int]]] = [set() for _ in classes]
        self._servers: list[set[int]] = [set() for _ in classes]
        for gpu, server in enumerate(instance.gpu_server.tolist()):
            # Only what sets differ in can make a first load shorter: GPUs that begin alike are one.
            self._resident[gpu_class[gpu]].add(frozenset(resident.get(gpu, ())))
            self._servers[gpu_class[gpu]].add(server)
        self._run, self._load = instance.run_us.tolist(), instance.load_us.tolist()
        self._delay: list[int] = instance.delay_us.tolist()
        self.fastest = [min(run for run in row if run != NEVER) for row in self._run]
        self.head, self.tail = [0] * len(self.fastest), [0] * len(self.fastest)
        # As a list: numbers of numpy are slow one by one, and overflow.
        self._first: list[int] = instance.template_first.tolist()
        for first, workflow in zip(self._first, instance.workflows, strict=False):
            self._chain(first, workflow.topological, instance.inputs, self.head)
            self._chain(first, workflow.topological[::-1], instance.outputs, self.tail)
        self.share = instance.template_share.tolist()
        self._members = Counter(instance.template_batch[instance.task_template].tolist())
        self._known: dict[tuple[int, int, tuple[Tokens, ...]], tuple[list[int], list[int]]] = {}
        self._cold: dict[tuple[tuple[int, ...], int], int] = {}
        self._settled: dict[int, int] = {}

    def _chain(self, first: int, order: tuple[int, ...], arcs: Arcs, out: list[int]) -> None:
        for position in order:
            beside = [(first + position + offset, self._delay[edge]) for offset, edge in arcs[first + position]]
            # In topological order all that comes before has its value.
            out[first + position] = max((between + self.fastest[t] + out[t] for t, between in beside), default=0)

    def runs(self, template: int, c: int) -> list[int]:
        """Return the run times of a template on a class in batches of 1, 2, 3, ... tasks; [] where it cannot run.

        No batch is larger than there are tasks of its class.
        """
        if self._run[template][c] == NEVER:
            return []
        batch = int(self.instance.template_batch[template])
        if batch == NONE:
            return [self._run[template][c]]
        return [run for run in self.instance.batch_us[batch, c, 1 : self._members[batch] + 1].tolist() if run != NEVER]

    def fastest_runs(self, template: int) -> list[int]:
        """Return the shortest run times of a template in batches of 1, 2, 3, ... tasks."""
        tables = [self.runs(template, c) for c in range(len(self.instance.class_gpu))]
        longest = max(map(len, tables))
        return [min(table[at] for table in tables if at < len(table)) for at in range(longest)]

    def rates(self, template: int, parts: int) -> list[tuple[int, int]]:
        """Return what a task takes of a GPU for how long, by batch size: in `parts` of a microsecond, rounded down."""
        runs = enumerate(self.fastest_runs(template), 1)
        return [(parts * self.share[template] // (WHOLE * size), run) for size, run in runs]

    def templates(self, workflow: int) -> range:
        """Return the templates of a workflow."""
        return range(self._first[workflow], self._first[workflow + 1])

    def times(self, job: int) -> tuple[list[int], list[int]]:
        """Return the earliest start and end of each task of a job.

        Once every first load could be over, a later release moves all times alike: one computation serves such jobs.
        """
        workflow, release = int(self.instance.job_workflow[job]), self.instance.jobs[job].release_us
        streams = self.instance.streams
        if workflow not in self._settled:
            self._settled[workflow] = max(
                self._loaded(t, c)
                for t in self.templates(workflow)
                for c, run in enumerate(self._run[t])
                if run != NEVER
            )
        # Later releases find every copy engine idle, however they lie.
        begin = min(release, self._settled[workflow])
        tokens = () if streams is None else tuple(map(streams.tokens, self.instance.tasks_of(job)))
        if (workflow, begin, tokens) not in self._known:
            self._known[workflow, begin, tokens] = self._longest_path(workflow, begin, tokens)
        start, end = self._known[workflow, begin, tokens]
        later = release - begin
        return [at + later for at in start], [at + later for at in end]

    def runs_of(self, template: int, tokens: Tokens | None) -> list[int]:
        """Return the shortest run times of a task of a template per class, NEVER where it cannot run.

        A request's are those of its own tokens: nobody takes its prompt, or a step, in less time than alone.
        """
        streams = self.instance.streams
        runs: list[int] = self._run[template]
        if streams is None or tokens is None or streams.template[template] == NONE:
            return runs
        stream = streams.template[template]
        decodes = tokens.output - (1 if tokens.uncached else 0)
        found = [NEVER] * len(runs)
        for c, speed in enumerate(streams.speeds[stream]):
            if speed is not None and runs[c] != NEVER and tokens.prompt + tokens.output <= streams.longest[stream, c]:
                found[c] = ceil(tokens.uncached * 10**6 / speed.prefill_rate) + decodes * speed.tau[1]
        return found

    def _longest_path(self, workflow: int, release: int, tokens: tuple[Tokens, ...]) -> tuple[list[int], list[int]]:
        first, size = self._first[workflow], len(self.templates(workflow))
        start, end = [0] * size, [0] * size
        ends: dict[int, dict[int, int]] = {}
        for position in self.instance.workflows[workflow].topological:
            template = first + position
            begin: dict[int, int] = {}
            runs = self.runs_of(template, tokens[position] if tokens else None)
            for c, run in enumerate(runs):
                if run != NEVER:
                    begin[c] = max(release, self._loaded(template, c))
                    for offset, edge in self.instance.inputs[template]:
                        # The predecessor may run on any class, so only its best one binds.
                        arrivals = (at + self._hop(edge, a, c) for a, at in ends[position + offset].items())
                        begin[c] = max(begin[c], min(arrivals))
            ends[position] = {c: at + runs[c] for c, at in begin.items()}
            start[position], end[position] = min(begin.values()), min(ends[position].values())
        return start, end

    def _loaded(self, template: int, kind: int) -> int:
        """Return when a GPU of a class can first hold a template's models, loading one after the other from 0 on."""
        needs, c = self.instance.needs[template], self._class[kind]
        if (needs, c) not in self._cold:
            self._cold[needs, c] = min(
                sum(self._load[model][c] for model in needs if model not in there) for there in self._resident[c]
            )
        return self._cold[needs, c]

    def _hop(self, edge: int, a: int, b: int) -> int:
        """Return what passes at least between two classes: the delay, and a transfer unless they are one."""
        if a == b:
            return self._delay[edge]
        # Two classes may share a server, lie on several, or both: the faster way counts.
        links = [1] if self._servers[a] & self._servers[b] else []
        links += [0] if len(self._servers[a] | self._servers[b]) > 1 else []
        return self._delay[edge] + min(int(self.instance.transfer_us[edge, a, b, link]) for link in links)


class CheckedLane(NamedTuple):
    """What decides which prices a task pays: where it runs, with which models, and as one of how many in a batch.

    Parameters
    ----------
    joined_us
        A batch may have 2, 3, ... members from these instants on.
    """

    gpu_class: int
    needs: tuple[int, ...]
    share: int
    memory_bytes: int
    joined_us: tuple[int, ...]

    def members(self, before_us: int) -> int:
        """Return the most members of a batch that starts before an instant."""
        return 1 + bisect_left(self.joined_us, before_us)

    def of_batch(self) -> CheckedLane:
        """Return what a batch pays as a whole."""
        return self._replace(memory_bytes=0, joined_us=())

    def of_member(self) -> CheckedLane:
        """Return what each of its members pays besides."""
        return self._replace(needs=(), share=0, joined_us=())


class Way(NamedTuple):
    """A way to run a task: in batches that run so long, start no earlier than this and have so many members."""

    lane: CheckedLane
    run_us: int
    from_us: int
    batch: int
    fewest: int
    most: int


class Ways:
    """The ways to run the tasks of an instance: sizes of batches that run equally long are one way.

    Attributes
    ----------
    instance
        Whose they are.
    starts_us
        When the tasks of each batch class can start at the earliest, ascending.
    """

    def __init__(self, instance: Instance, alone: LoneJobs) -> None:
        self.instance, self._alone = instance, alone
        self.starts_us: dict[int, list[int]] = {}
        batch = instance.template_batch.tolist()
        if instance.batches:
            for job in range(len(instance.jobs)):
                templates = alone.templates(int(instance.job_workflow[job]))
                for template, start in zip(templates, alone.times(job)[0], strict=True):
                    self.starts_us.setdefault(batch[template], []).append(start)
        for starts in self.starts_us.values():
            starts.sort()
        self._known: dict[int, list[Way]] = {}

    def of(self, template: int) -> list[Way]:
        """Return the ways to run a template."""
        if template not in self._known:
            kinds = range(len(self.instance.place_kinds))
            self._known[template] = [way for kind in kinds for way in self._on(template, kind)]
        return self._known[template]

    def _on(self, template: int, kind: int) -> Iterator[Way]:
        instance, runs = self.instance, self._alone.runs(template, kind)
        (c, *_), gpus, _ = instance.place_kinds[kind]
        share, memory = gpus * int(instance.template_share[template]), int(instance.template_memory[template])
        for run in sorted(set(runs)):
            fewest, most = runs.index(run) + 1, len(runs) - runs[::-1].index(run)
            # A batch of b starts when b tasks of its class can have been started, at the earliest.
            batch = int(instance.template_batch[template])
            joined = self.starts_us[batch][1:most] if most > 1 else []
            begin = joined[fewest - 2] if fewest > 1 else 0
            yield Way(
                CheckedLane(c, instance.needs[template], share, memory, tuple(joined)), run, begin, batch, fewest, most
            )
