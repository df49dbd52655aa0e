"""Instances with requests of streams, and the same for the simulator that takes one iteration after the other."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from itertools import islice
from pathlib import Path

from tests.random_instances import delay_between
from tests.streams.draws import plainly, random_speed
from tests.streams.one_by_one import Node, Request, Served
from truenorth.models import (
    GPU,
    Cluster,
    Edge,
    Instance,
    Job,
    Link,
    MLModel,
    Network,
    StreamClass,
    Task,
    Timeline,
    Tokens,
    Workflow,
)
from truenorth.models.cluster import FOREVER
from truenorth.models.instance import Ints
from truenorth.models.streams import StreamSpeed
from truenorth.models.timeline import file_order

LATENCY_US = 3

POLICIES = (
    "round_robin",
    "least_requests",
    "least_tokens",
    "least_tokens:known=yes",
    "least_work",
    "least_delay",
    "prefix_affinity",
)
"""All policies of gateways."""


def cluster(count: int, memory_bytes: int = 1_000, kinds: Sequence[str] = ("A",)) -> Cluster:
    """Return servers of one GPU each, of these kinds in turn; transfers take `LATENCY_US`."""
    gpus = tuple(
        GPU(f"s{index}/g0", index, kinds[index % len(kinds)], memory_bytes, Fraction(1_000_000))
        for index in range(count)
    )
    return Cluster(gpus, Network(Link(LATENCY_US), Link(LATENCY_US)))


def single(speeds: Mapping[str, StreamSpeed], models: tuple[str, ...] = ()) -> Workflow:
    """Return a workflow of one request."""
    return Workflow("chat", (Task.of_stream("answer", StreamClass("chat", speeds, models)),))


def chats(
    on: Cluster,
    speeds: Mapping[str, StreamSpeed],
    requests: Sequence[tuple[int, Tokens]],
    models: Sequence[MLModel] = (),
    **more: object,
) -> Instance:
    """Return an instance of single requests: releases, in order, and tokens."""
    workflow = single(speeds, tuple(model.name for model in models))
    jobs = tuple(Job(workflow, release, tokens={"answer": tokens}) for release, tokens in requests)
    return Instance(on, tuple(models), jobs, **more)  # type: ignore[arg-type]


def random_chats(rng: random.Random, count: int, most_gpus: int = 3, measured: bool = False) -> Instance:
    """Return single requests on GPUs of one or two kinds, now and then with little memory for KV."""
    kv = rng.choice((0, 1, 2))
    speeds = {kind: random_speed(rng, kv, measured) for kind in ("A", "B")}
    # Where KV may grow there is little more room than for the longest request.
    memory = rng.choice((120, 160, 10_000)) * max(1, kv) if measured else rng.choice((10_000, 250, 400))
    on = cluster(rng.randint(1, most_gpus), memory, rng.choice((("A",), ("A", "B"))))
    release, requests = 0, []
    for _ in range(count):
        release += rng.choice((0, 0, rng.randint(0, 60)))
        prompt = rng.choice((rng.randint(1, 8), rng.randint(1, 60)))
        uncached = rng.choice((prompt, rng.randint(1, prompt)))
        requests.append((release, Tokens(prompt, uncached, rng.choice((1, rng.randint(1, 9), rng.randint(1, 40))))))
    return chats(on, speeds, requests)


def random_cached_chats(rng: random.Random, count: int) -> Instance:
    """Return requests of one or two classes on nodes that cache, whose prompts go on with those of others."""
    kv = rng.choice((0, 1, 2))
    on = cluster(rng.randint(1, 3), rng.choice((150, 200, 300, 10_000)) * max(1, kv), rng.choice((("A",), ("A", "B"))))
    classes = []
    for name in rng.choice((("a",), ("a", "b"))):
        speeds = {kind: replace(random_speed(rng, kv, rng.random() < 0.5), block=0) for kind in ("A", "B")}
        classes.append(StreamClass(name, speeds, prefix_block=rng.choice((1, 2, 4, 7))))
    workflows = [Workflow(each.name, (Task.of_stream("answer", each),)) for each in classes]
    known: list[list[tuple[int, ...]]] = [[()] for _ in classes]
    release, jobs = 0, []
    for _ in range(count):
        release += rng.choice((0, 0, rng.randint(0, 60)))
        at = rng.randrange(len(classes))
        before = rng.choice(known[at][-5:])
        # It goes on with all of what came before, or with the head of it.
        blocks = (*before[: rng.randint(0, len(before))], *(rng.randint(0, 3) for _ in range(rng.randint(0, 3))))
        known[at].append(blocks)
        size = classes[at].prefix_block
        prompt = max(1, min(60, size * max(0, len(blocks) - rng.randint(0, 1)) + rng.randint(0, size)))
        blocks = blocks[: -(-prompt // size)]
        tokens = Tokens(prompt, prompt, rng.choice((1, rng.randint(1, 9), rng.randint(1, 40))))
        jobs.append(Job(workflows[at], release, tokens={"answer": tokens}, blocks={"answer": blocks}))
    return Instance(on, (), tuple(jobs))


def random_growing_chats(rng: random.Random, count: int) -> Instance:
    """Return requests as above on nodes whose KV grows, often with little more room than for the longest of them."""
    instance = random_cached_chats(rng, count)
    kv = max(speed.kv_bytes for flow in instance.workflows for speed in _speeds(flow).values())
    grown: dict[str, Workflow] = {}
    for flow in instance.workflows:
        task = flow.tasks[0]
        assert task.stream is not None
        size = rng.choice((0, *[task.stream.prefix_block] * 4))
        block = rng.choice([each for each in (1, 2, 4, 7) if size % each == 0])
        speeds = {kind: _crowded(speed, block) for kind, speed in _speeds(flow).items()}
        stream = replace(task.stream, speeds=speeds, prefix_block=size)
        grown[flow.name] = Workflow(flow.name, (Task.of_stream("answer", stream),))
    on = cluster(min(2, instance.n_gpus), rng.choice((108, 108, 120, 140, 180, 10_000)) * max(1, kv), ("A",))
    sooner = rng.choice((2, 5, 20))
    jobs = []
    for job in instance.jobs:
        tokens = job.tokens["answer"] if job.tokens else Tokens(1, 1, 1)
        tokens = tokens._replace(output=rng.choice((tokens.output, rng.randint(20, 101 - tokens.prompt))))
        release = job.release_us // sooner
        jobs.append(replace(job, workflow=grown[job.workflow.name], release_us=release, tokens={"answer": tokens}))
    return Instance(on, (), tuple(jobs))


def _crowded(speed: StreamSpeed, block: int) -> StreamSpeed:
    """Return a speed of at least five seats, with blocks of so many tokens."""
    seats = max(5, speed.seats)
    steps = {**speed.step_us, seats: max(speed.step_us.values())}
    return replace(speed, seats=seats, step_us=steps, chunk=speed.chunk + speed.shared * seats, block=block)


def _speeds(flow: Workflow) -> Mapping[str, StreamSpeed]:
    assert flow.tasks[0].stream is not None
    return flow.tasks[0].stream.speeds


def cached_beside_loads(rng: random.Random, count: int) -> Instance:
    """Return requests whose prompts go on with others', of two classes with models, one with adapters, beside loads.

    A node can hold both models with less room for KV, and tasks of no class take memory between them.
    """
    adapters = ("a/one", "a/two")
    weights = {"model a": rng.randint(20, 50), "model b": rng.randint(20, 50), "a/one": 5, "a/two": 8}
    classes = []
    for name in "ab":
        speed = replace(random_speed(rng, 1, True), block=0, seats=4, step_us={1: 2, 4: 9}, chunk=rng.choice((9, 30)))
        size = rng.choice((1, 3)) if name == "a" else rng.choice((0, 2))
        own = adapters if name == "a" else ()
        classes.append(StreamClass(name, {"*": speed}, (f"model {name}",), adapters=own, prefix_block=size))
    asked = [Task.of_stream("t", of, adapter=name) for of in classes for name in (None, *of.adapters)]
    plain = Task("t", {"*": 7}, memory_bytes=20)
    flows = [Workflow(f"flow {at}", (task,)) for at, task in enumerate((*asked, *asked, plain))]
    release, jobs = 0, []
    for _ in range(count):
        release += rng.choice((0, rng.randint(0, 60)))
        flow, prompt = rng.choice(flows), rng.randint(1, 20)
        stream = flow.tasks[0].stream
        if stream is None:
            jobs.append(Job(flow, release))
            continue
        blocks = tuple(rng.randint(0, 1) for _ in range(-(-prompt // max(1, stream.prefix_block))))
        tokens = Tokens(prompt, prompt, rng.randint(1, 20))
        jobs.append(Job(flow, release, tokens={"t": tokens}, blocks={"t": blocks}))
    models = tuple(MLModel(name, size) for name, size in weights.items())
    return Instance(cluster(rng.randint(1, 2), rng.choice((110, 140, 200))), models, tuple(jobs))


def growing_beside_loads(rng: random.Random, count: int) -> Instance:
    """Return the same on nodes whose KV grows, with longer answers."""
    instance = cached_beside_loads(rng, count)
    block = {"a": rng.choice((1, 3)), "b": rng.choice((1, 2))}
    classes: dict[str, StreamClass] = {}
    flows: dict[str, Workflow] = {}
    for flow in instance.workflows:
        task = flow.tasks[0]
        flows[flow.name] = flow
        if task.stream is not None:
            name, size = task.stream.name, task.stream.prefix_block
            own = block[name] if size % block[name] == 0 else 1
            speeds = {kind: replace(speed, block=own) for kind, speed in task.stream.speeds.items()}
            of = classes.setdefault(name, replace(task.stream, speeds=speeds))
            flows[flow.name] = Workflow(flow.name, (replace(task, stream=of),))
    jobs = []
    for job in instance.jobs:
        tokens = {} if job.tokens is None else {"t": job.tokens["t"]._replace(output=rng.randint(1, 30))}
        jobs.append(replace(job, workflow=flows[job.workflow.name], tokens=tokens or None))
    return Instance(instance.cluster, instance.models, tuple(jobs))


def recorded_chats(servers: int, count: int) -> Instance:
    """Return the first requests of a recorded conversation service on GPUs of moderate speed, with 24 GB for KV."""
    path = Path(__file__).parents[2] / "experiments" / "scenarios" / "AzureLLMInferenceTrace_conv.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(islice(csv.DictReader(file), count))
    at = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    releases = [round((moment - at[0]).total_seconds() * 1_000_000) for moment in at]
    tokens = [Tokens(int(row["ContextTokens"]), int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in rows]
    speed = StreamSpeed(Fraction(3_000), 2_048, 64, {1: 25_000, 64: 80_000}, 131_072)
    return chats(cluster(servers, 24_000_000_000), {"A": speed}, list(zip(releases, tokens, strict=True)))


def random_steps(rng: random.Random, count: int, measured: bool = False) -> Instance:
    """Return jobs of several steps: agents that call, use a tool and call again, and prefill apart from decode.

    Two classes, of which only one is served on a GPU at a time; a tool is a request of one token of a class of its own.
    """
    classes = {
        name: StreamClass(name, {"*": random_speed(rng, rng.choice((0, 1)), measured)}) for name in ("a", "b", "tool")
    }
    on = cluster(rng.randint(1, 3), 10_000)
    workflows = [
        Workflow(
            "agent",
            (
                Task.of_stream("call", classes["a"]),
                Task.of_stream("tool", classes["tool"], None, (Edge("call", 0),)),
                Task.of_stream("again", classes["a"], None, (Edge("tool", 0),), tied_to=rng.choice((None, "call"))),
            ),
        ),
        Workflow(
            "split",
            (
                Task.of_stream("prefill", classes["b"]),
                Task.of_stream("decode", classes["b"], None, (Edge("prefill", 0, kv=True),), first_token=True),
            ),
        ),
    ]
    jobs, release = [], 0
    for _ in range(count):
        release += rng.choice((0, rng.randint(0, 80)))
        workflow = rng.choice(workflows)
        tokens = {}
        for task in workflow.tasks:
            prompt = rng.randint(1, 30)
            uncached = 0 if task.name == "decode" else rng.randint(1, prompt)
            tokens[task.name] = Tokens(prompt, uncached, 1 if task.name in ("tool", "prefill") else rng.randint(1, 20))
        jobs.append(Job(workflow, release, tokens=tokens))
    return Instance(on, (), tuple(jobs))


def random_splits(rng: random.Random, count: int, measured: bool = False) -> Instance:
    """Return requests with prefill apart from decode, on nodes of either role; some have one token, and no decode."""
    kv = rng.choice((0, 1, 2))
    roles = {
        name: StreamClass(name, {kind: random_speed(rng, kv, measured)})
        for name, kind in (("prefill", "A"), ("decode", "B"))
    }
    first = Task.of_stream("prefill", roles["prefill"], first_token=True)
    rest = Task.of_stream("decode", roles["decode"], None, (Edge("prefill", 0, kv=True),))
    both, alone = Workflow("both", (first, rest)), Workflow("alone", (first,))
    memory = rng.choice((120, 160, 10_000)) * max(1, kv) if measured else rng.choice((10_000, 250, 400))
    jobs, release = [], 0
    for _ in range(count):
        release += rng.choice((0, 0, rng.randint(0, 60)))
        prompt = rng.choice((rng.randint(1, 8), rng.randint(1, 60)))
        tokens = {"prefill": Tokens(prompt, rng.choice((prompt, rng.randint(1, prompt))), 1)}
        flow = rng.choice((alone, both, both, both))
        if flow is both:
            tokens["decode"] = Tokens(prompt + 1, 0, rng.choice((1, rng.randint(1, 9), rng.randint(1, 39))))
        jobs.append(Job(flow, release, tokens=tokens))
    return Instance(cluster(rng.randint(2, 4), memory, ("A", "B")), (), tuple(jobs))


def random_holds(rng: random.Random, count: int) -> Instance:
    """Return jobs of up to three calls with tools between them, whose KV is held or not, on nodes with little room."""
    kv = rng.choice((0, 1, 1, 2, 2))
    on = cluster(rng.randint(1, 2), rng.choice((82, 95, 120, 10_000)) * max(1, kv), rng.choice((("A",), ("A", "B"))))
    classes = []
    for name in rng.choice((("a",), ("a", "b"))):
        speeds = {kind: replace(random_speed(rng, kv, rng.random() < 0.5), block=0) for kind in ("A", "B")}
        classes.append(StreamClass(name, speeds))
    flows = []
    for stream in classes:
        for holds in ((True, True), (True, False), (False, True), (False, False)):
            edges = [
                Edge(f"call {at}", 0, delay_us=rng.choice((0, 7, 40, 150)), hold=hold) for at, hold in enumerate(holds)
            ]
            later = [
                Task.of_stream(f"call {at}", stream, None, (edge,), tied_to=edge.source)
                for at, edge in enumerate(edges[: rng.randint(0, 2)], 1)
            ]
            flows.append(Workflow(f"{stream.name} {holds}", (Task.of_stream("call 0", stream), *later)))
    jobs, release = [], 0
    for _ in range(count):
        release += rng.choice((0, rng.randint(0, 60)))
        flow, tokens, context = rng.choice(flows), dict[str, Tokens](), 0
        for task in flow.tasks:
            new, output = rng.randint(1, 15), rng.randint(1, 12)
            cached = rng.randint(0, context)
            tokens[task.name] = Tokens(context + new, context + new - cached, output)
            context += new + output
        jobs.append(Job(flow, release, tokens=tokens))
    return Instance(on, (), tuple(jobs))


def holds_beside_loads(rng: random.Random, count: int) -> Instance:
    """Return jobs whose KV is held, of two classes with models that do not both fit with much KV, and plain tasks."""
    models = (MLModel("model a", rng.randint(20, 50)), MLModel("model b", rng.randint(20, 50)))
    flows = [Workflow("plain", (Task("t", {"*": 7}, memory_bytes=20),))]
    for name in "ab":
        speed = replace(random_speed(rng, 1, True), block=0, seats=4, step_us={1: 2, 4: 9}, chunk=rng.choice((9, 30)))
        stream = StreamClass(name, {"*": speed}, (f"model {name}",))
        edge = Edge("call", 0, delay_us=rng.choice((0, 30, 90)), hold=True)
        again = Task.of_stream("again", stream, None, (edge,), tied_to="call")
        flows.append(Workflow(f"agent {name}", (Task.of_stream("call", stream), again)))
    jobs, release = [], 0
    for _ in range(count):
        release += rng.choice((0, rng.randint(0, 60)))
        flow, prompt, output = rng.choice(flows), rng.randint(1, 12), rng.randint(1, 8)
        second = Tokens(prompt + output + 3, rng.randint(3, prompt + 3), rng.randint(1, 8))
        tokens = {"call": Tokens(prompt, prompt, output), "again": second}
        jobs.append(Job(flow, release, tokens=None if flow.name == "plain" else tokens))
    return Instance(cluster(rng.randint(1, 2), rng.choice((100, 110, 140))), models, tuple(jobs))


def plain_requests(
    instance: Instance, place: Sequence[int] | Ints, not_before: Sequence[int] | None = None
) -> list[Request]:
    """Return the requests of an instance for the simulator, with the transfers between the GPUs that serve them."""
    streams = instance.streams
    assert streams is not None
    found = []
    for task in range(instance.n_tasks):
        stream = streams.classes[streams.template[instance.task_template[task]]]
        after = []
        for before, edge in instance.task_inputs(task):
            here, there = int(place[before]), int(place[task])
            moved = instance.kv_transfer_time(before, here, there) if streams.kv_edge[edge] else None
            travels = instance.transfer_time(edge, here, there) if moved is None else moved
            after.append((before, delay_between(instance, before, task) + travels))
        release = int(instance.job_release_us[instance.task_job[task]])
        wait = 0 if not_before is None else not_before[task]
        job = instance.jobs[int(instance.task_job[task])]
        asked = job.workflow.tasks[task - int(instance.job_first_task[int(instance.task_job[task])])]
        held = {asked.tied_to for edge in asked.inputs if edge.hold}
        finds = next((b for b, _ in instance.task_inputs(task) if _name(instance, b) in held), None)
        found.append(Request(stream.name, *streams.tokens(task), release, wait, after, job.blocks_of(asked), finds))
    return found


def _name(instance: Instance, task: int) -> str:
    job = int(instance.task_job[task])
    return instance.jobs[job].workflow.tasks[task - int(instance.job_first_task[job])].name


def plain_nodes(instance: Instance, limits: Mapping[int, int] | None = None) -> list[Node]:
    """Return the GPUs of an instance for the simulator."""
    streams = instance.streams
    assert streams is not None
    nodes = []
    for index, gpu in enumerate(instance.cluster.gpus):
        kinds = {stream.name: stream.speed_on(gpu.kind) for stream in streams.classes}
        cached = {stream.name: stream.prefix_block for stream in streams.classes}
        speeds = {name: plainly(speed, cached[name]) for name, speed in kinds.items() if speed is not None}
        weights = sum(model.weight_bytes for model in instance.models)
        there = [(come, float("inf") if go == FOREVER else go) for come, go in gpu.available.intervals]
        room, limit = gpu.memory_bytes - weights, (limits or {}).get(index, 10**9)
        nodes.append(Node(speeds, room, limit, there, gpu.drain_us))
    return nodes


def queues(instance: Instance, timeline: Timeline) -> list[list[int]]:
    """Return, per GPU, its requests in the order in which they joined."""
    found: list[list[int]] = [[] for _ in instance.cluster.gpus]
    for task in file_order(instance, timeline).tolist():
        found[timeline.place[task]].append(task)
    return found


def as_served(timeline: Timeline) -> list[Served]:
    """Return what a timeline says of its requests, as the simulator does."""
    assert timeline.served is not None
    rows = (timeline.start_us.tolist(), timeline.served.first_us.tolist(), timeline.end_us.tolist())
    found = [Served(*row) for row in zip(*rows, strict=True)]
    for run in timeline.served.cut:
        found[run.task].cut.append((run.gpu, run.start_us, run.cut_us))
    return found
