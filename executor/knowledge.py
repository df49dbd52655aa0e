"""What a policy may know beforehand and of the jobs released so far: cluster, models, catalogue, tables.

The tables of workflows, tasks and jobs grow with the releases; what is not released yet is nowhere in them, so that
whoever holds them cannot look ahead. Beforehand there is the catalogue, as a deployment knows what it serves: which
workflows may come, and neither which will nor how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truenorth.models import (
    NEVER,
    NONE,
    WHOLE,
    Cluster,
    Instance,
    Job,
    MLModel,
    Restrictions,
    StreamClass,
    StreamSpeed,
    Tokens,
    Workflow,
)
from truenorth.models.branches import likelihoods
from truenorth.models.places import ways_between
from truenorth.models.tables import part_bytes

_Row = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class WorkflowTables:
    """The rows of an instance's tables that belong to one workflow; its edges are numbered from `first_edge` on."""

    workflow: Workflow
    run_us: list[list[int]]
    needs: tuple[tuple[int, ...], ...]
    split: list[frozenset[int]]
    inputs: tuple[_Row, ...]
    outputs: tuple[_Row, ...]
    first_edge: int
    transfer_us: list[list[list[list[int]]]]
    delay_us: list[int]
    input_us: list[int]
    likelihood: list[float]
    share: list[int]
    memory_bytes: list[int]
    batches: list[tuple[str, list[list[int]]] | None]
    streams: list[tuple[StreamClass, tuple[StreamSpeed | None, ...], list[int]] | None]
    together: list[tuple[int, ...]]
    kv_edges: frozenset[int]

    @classmethod
    def of(cls, instance: Instance, index: int) -> WorkflowTables:
        """Return the rows of the workflow with this index."""
        rows = slice(int(instance.template_first[index]), int(instance.template_first[index + 1]))
        edges = [edge for row in instance.inputs[rows] for _, edge in row]
        # The edges of a workflow stand together, from the least number on.
        first = min(edges, default=0)
        return cls(
            instance.workflows[index],
            instance.run_us[rows].tolist(),
            instance.needs[rows],
            [frozenset(np.flatnonzero(row).tolist()) for row in instance.split[rows]],
            instance.inputs[rows],
            instance.outputs[rows],
            first,
            instance.transfer_us[first : first + len(edges)].tolist(),
            instance.delay_us[first : first + len(edges)].tolist(),
            instance.input_us[rows].tolist(),
            [float(share) for share in likelihoods(instance.workflows[index])],
            instance.template_share[rows].tolist(),
            instance.template_memory[rows].tolist(),
            [
                None if batch == NONE else (instance.batches[batch].name, instance.batch_us[batch].tolist())
                for batch in instance.template_batch[rows].tolist()
            ],
            *_stream_rows(instance, rows, edges),
        )


def _stream_rows(
    instance: Instance, rows: slice, edges: Sequence[int]
) -> tuple[
    list[tuple[StreamClass, tuple[StreamSpeed | None, ...], list[int]] | None], list[tuple[int, ...]], frozenset[int]
]:
    """Return the last rows of `WorkflowTables`: classes of requests, who is tied to whom, edges along which KV goes."""
    streams, count = instance.streams, rows.stop - rows.start
    if streams is None:
        return [None] * count, [(0,)] * count, frozenset()
    of_template = [
        None if stream == NONE else (streams.classes[stream], streams.speeds[stream], streams.longest[stream].tolist())
        for stream in streams.template[rows].tolist()
    ]
    return of_template, list(streams.together[rows]), frozenset(edge for edge in edges if streams.kv_edge[edge])


class Knowledge:
    """Cluster, models and catalogue, and the workflows and jobs so far.

    Parameters
    ----------
    instance
        Taken apart for what is known beforehand; its jobs, and the workflows that they ask for, stay with the engine.

    Attributes
    ----------
    cluster, models, catalogue, restrictions, overlap_loads
        As in the instance.
    gpu_class, gpu_server
        Per GPU.
    places, place_class
        The GPUs of each place, first every GPU alone, and its class, by which run times are laid out.
    lost
        GPUs that were set aside; nothing can be assigned to them.
    stays
        Whether every GPU is there all the time, unless it is lost.
    load_us, weight_bytes
        The instance's tables as plain lists: load time by model and class of places, bytes by model.
    workflows
        Those that some job released so far asks for, by their first jobs; all numbers of workflows, templates and
        edges count these alone.
    split
        Per template: the classes of places over whose GPUs its models are split (rule G2).
    run_us, needs, inputs, outputs, transfer_us, delay_us, input_us, template_first
        Of these workflows, laid out as the instance's tables. Jobs of a trace may have other delays, which show when
        they have passed.
    share, work_us, task_bytes, batch
        Per template: the share of a GPU's compute that it takes, in parts of WHOLE, its run times multiplied by that
        share, the memory that each task holds while it runs, and its batch class by number, NONE without one.
    shown_end_us
        By task whose progress has shown that it ends at another time than what is told of its run time says: when.
    alone
        Per template: whether its tasks run one at a time on a whole GPU and hold nothing there but their models.
    batch_us
        Per batch class so far: run times by GPU class and size, NEVER for sizes that cannot run there.
    stream, together
        Per template: its stream class by number, NONE without one, and the offsets of the tasks that are served on the
        same GPU, itself (0) among them.
    streams, speeds, longest
        Per stream class so far: the class, how it runs by GPU class (None: not), and the most tokens of KV of a request
        there.
    tokens
        Per task released so far: its tokens, all 0 for what is no request; how long the answer will be stays 0 until
        it has ended, unless the policy knows lengths.
    kv_edges
        Edges along which the KV of the source's prompt travels.
    likelihood
        Per template: how likely a job runs it; below 1 for tasks of branches.
    template, job
        Per task released so far.
    dropped
        Tasks that will not run, since their job takes another branch, as far as that has shown.
    jobs, job_workflow, job_ingress, job_tasks
        Per job released so far: the job, its workflow's index, the server that plans it, its tasks.
    """

    __slots__ = (
        "_able", "_able_at", "_able_set", "_batch_number", "_held", "_number", "_stream_number", "alone", "batch",
        "batch_us", "catalogue", "cluster", "delay_us", "dropped", "gpu_class", "gpu_server", "input_us", "inputs",
        "job", "job_ingress", "job_tasks", "job_workflow", "jobs", "kv_edges", "likelihood", "load_us", "longest",
        "lost", "models", "n_gpus", "needs", "outputs", "overlap_loads", "place_class", "places", "restrictions",
        "run_us", "share", "shown_end_us", "speeds", "split", "stays", "stream", "streams", "task_bytes", "template",
        "template_first", "together", "tokens", "transfer_us", "weight_bytes", "work_us", "workflows",
    )  # fmt: skip

    def __init__(self, instance: Instance) -> None:
        self.cluster: Cluster = instance.cluster
        self.models: tuple[MLModel, ...] = instance.models
        self.catalogue: tuple[Workflow, ...] = instance.catalogue
        self.restrictions: Restrictions = instance.restrictions
        self.overlap_loads = instance.overlap_loads
        self.n_gpus = instance.n_gpus
        self.gpu_class: list[int] = instance.gpu_class.tolist()
        self.gpu_server: list[int] = instance.gpu_server.tolist()
        self.places = instance.places.gpus
        self.place_class: list[int] = instance.place_class.tolist()
        self.lost: set[int] = set()
        self.stays = True
        self.load_us: list[list[int]] = instance.load_us.tolist()
        self.weight_bytes: list[int] = instance.weight_bytes.tolist()
        self.workflows: list[Workflow] = []
        self.run_us: list[list[int]] = []
        self.needs: list[tuple[int, ...]] = []
        self.split: list[frozenset[int]] = []
        self.inputs: list[_Row] = []
        self.outputs: list[_Row] = []
        self.transfer_us: list[list[list[list[int]]]] = []
        self.delay_us: list[int] = []
        self.input_us: list[int] = []
        self.likelihood: list[float] = []
        self.share: list[int] = []
        self.work_us: list[list[int]] = []
        self.task_bytes: list[int] = []
        self.batch: list[int] = []
        self.alone: list[bool] = []
        self.batch_us: list[list[list[int]]] = []
        self.stream: list[int] = []
        self.together: list[tuple[int, ...]] = []
        self.streams: list[StreamClass] = []
        self.speeds: list[tuple[StreamSpeed | None, ...]] = []
        self.longest: list[list[int]] = []
        self.tokens: list[Tokens] = []
        self.kv_edges: set[int] = set()
        self.template_first: list[int] = [0]
        self.template: list[int] = []
        self.job: list[int] = []
        self.jobs: list[Job] = []
        self.job_workflow: list[int] = []
        self.job_ingress: list[int] = []
        self.job_tasks: list[range] = []
        self.dropped: set[int] = set()
        self.shown_end_us: dict[int, int] = {}
        self._number: dict[WorkflowTables, int] = {}
        self._batch_number: dict[str, int] = {}
        self._stream_number: dict[str, int] = {}
        self._held: list[int] = []
        self._able: list[tuple[int, ...]] = []
        self._able_set: list[frozenset[int]] = []
        self._able_at: dict[tuple[int, ...], tuple[tuple[int, ...], frozenset[int]]] = {}

    def run_time(self, task: int, place: int) -> int:
        """Return the given run time of a task at a place, NEVER if it cannot run there."""
        return self.run_us[self.template[task]][self.place_class[place]]

    def batch_time(self, batch: int, gpu: int, size: int) -> int:
        """Return the given run time of a batch of a class on a GPU, NEVER if it cannot run there."""
        times = self.batch_us[batch][self.gpu_class[gpu]]
        return times[size] if size < len(times) else NEVER

    def load_time(self, model: int, place: int) -> int:
        """Return the given load time of a model at a place, NEVER if it may not be there."""
        return self.load_us[model][self.place_class[place]]

    def model_places(self, task: int, place: int) -> tuple[int, ...]:
        """Return where a run of a task at a place needs its models: right there, or on each of its GPUs (rule G2)."""
        if place < self.n_gpus or self.place_class[place] in self.split[self.template[task]]:
            return (place,)
        return self.places[place]

    def part_bytes(self, model: int, place: int) -> int:
        """Return what each GPU of a place holds of a model that is resident there."""
        return part_bytes(self.weight_bytes[model], len(self.places[place]))

    def transfer_time(self, edge: int, source: int, target: int) -> int:
        """Return the transfer time along an edge between two places; zero on the same one (rules T2 and G4)."""
        if source == target:
            return 0
        if source >= self.n_gpus or target >= self.n_gpus:
            ways = ways_between(self.places[source], self.places[target], self.gpu_class, self.gpu_server)
            return min((self.transfer_us[edge][a][b][same_server] for a, b, same_server in ways), default=0)
        row = self.transfer_us[edge][self.gpu_class[source]][self.gpu_class[target]]
        return row[self.gpu_server[source] == self.gpu_server[target]]

    def input_time(self, task: int, place: int) -> int:
        """Return how long the input bytes of a task take to a place: 0 at its job's ingress, and if it names none."""
        travels = self.input_us[self.template[task]]
        if not travels:
            return 0
        # Who names no ingress has its input wherever it runs.
        servers = (self.gpu_server[gpu] for gpu in self.places[place])
        return travels if self.jobs[self.job[task]].ingress not in (None, *servers) else 0

    def needed_inputs(self, task: int) -> _Row:
        """Return the pairs (offset of the predecessor, edge) of a task, without predecessors that will not run."""
        row = self.inputs[self.template[task]]
        return tuple(arc for arc in row if task + arc[0] not in self.dropped) if self.dropped else row

    def able_gpus(self, task: int) -> tuple[int, ...]:
        """Return the GPUs that can run a task, in order, whether or not they are there now."""
        template = self.template[task]
        # By template: how many tokens a request holds differs task by task, and is asked each time.
        able = self._able[template]
        if self.stream[template] != NONE:
            holds = [self._holds(task, here) for here in range(len(self.longest[0]))]
            able = able if all(holds) else tuple(gpu for gpu in able if holds[self.gpu_class[gpu]])
        return tuple(gpu for gpu in able if gpu not in self.lost) if self.lost else able

    def _holds(self, task: int, here: int) -> bool:
        """Say whether the memory of GPUs of a class has room for a request, and for those that are tied to it."""
        template = self.template[task]
        return all(
            self._held[task + offset] <= self.longest[self.stream[template + offset]][here]
            for offset in self.together[template]
        )

    def speed(self, task: int, gpu: int) -> StreamSpeed:
        """Return how the class of a request runs on a GPU that can serve it."""
        speed = self.speeds[self.stream[self.template[task]]][self.gpu_class[gpu]]
        if speed is None:
            raise ValueError(f"task {task} is no request that GPU {gpu} serves")
        return speed

    def cold_time(self, template: int, gpu: int) -> int:
        """Return how long a task of a template takes on a GPU that can run it and has none of its models."""
        here = self.gpu_class[gpu]
        return self.run_us[template][here] + sum(self.load_us[model][here] for model in self.needs[template])

    def learn(self, job: Job, tables: WorkflowTables, ingress: int, held: Sequence[int] = ()) -> range:
        """Make a job known, and its workflow if it is the first job of it; return its tasks.

        Parameters
        ----------
        held
            Per task of a job with requests: the tokens of KV that it holds. Nobody is told them.
        """
        if tables not in self._number:
            self._learn_workflow(tables)
        workflow = self._number[tables]
        templates = range(self.template_first[workflow], self.template_first[workflow + 1])
        tasks = range(len(self.template), len(self.template) + len(templates))
        self.template.extend(templates)
        self.job.extend([len(self.jobs)] * len(templates))
        self.jobs.append(job)
        self.job_workflow.append(workflow)
        self.job_ingress.append(ingress)
        self.job_tasks.append(tasks)
        self._held.extend(held)
        return tasks

    def _places_of(self, classes: tuple[int, ...]) -> tuple[tuple[int, ...], frozenset[int]]:
        """Return the places of some classes, in order and as a set, kept once for all templates that run there."""
        if classes not in self._able_at:
            wanted = frozenset(classes)
            able = tuple(place for place, c in enumerate(self.place_class) if c in wanted)
            self._able_at[classes] = able, frozenset(able)
        return self._able_at[classes]

    def _learn_workflow(self, tables: WorkflowTables) -> None:
        # Edges are numbered by when their workflow became known: numbers of the window would tell of others.
        shift = len(self.transfer_us) - tables.first_edge
        self._number[tables] = len(self.workflows)
        self.workflows.append(tables.workflow)
        self.run_us.extend(tables.run_us)
        self.needs.extend(tables.needs)
        self.split.extend(tables.split)
        for known, arcs in ((self.inputs, tables.inputs), (self.outputs, tables.outputs)):
            known.extend(tuple((offset, edge + shift) for offset, edge in row) for row in arcs)
        self.transfer_us.extend(tables.transfer_us)
        self.delay_us.extend(tables.delay_us)
        for row in tables.run_us:
            able, able_set = self._places_of(tuple(c for c, run_us in enumerate(row) if run_us != NEVER))
            self._able.append(able)
            self._able_set.append(able_set)
        self.input_us.extend(tables.input_us)
        self.likelihood.extend(tables.likelihood)
        self.share.extend(tables.share)
        self.work_us.extend(
            row if share == WHOLE else [run_us if run_us == NEVER else run_us * share // WHOLE for run_us in row]
            for row, share in zip(tables.run_us, tables.share, strict=True)
        )
        self.task_bytes.extend(tables.memory_bytes)
        for batch in tables.batches:
            if batch is not None and batch[0] not in self._batch_number:
                self._batch_number[batch[0]] = len(self.batch_us)
                self.batch_us.append(batch[1])
            self.batch.append(NONE if batch is None else self._batch_number[batch[0]])
        self.kv_edges.update(edge + shift for edge in tables.kv_edges)
        self.together.extend(tables.together)
        for stream in tables.streams:
            if stream is not None and stream[0].name not in self._stream_number:
                self._stream_number[stream[0].name] = len(self.streams)
                self.streams.append(stream[0])
                self.speeds.append(stream[1])
                self.longest.append(stream[2])
            self.stream.append(NONE if stream is None else self._stream_number[stream[0].name])
        self.template_first.append(len(self.needs))
        self.alone.extend(
            share == WHOLE and not held_bytes and batch is None and stream is None
            for share, held_bytes, batch, stream in zip(
                tables.share, tables.memory_bytes, tables.batches, tables.streams, strict=True
            )
        )
