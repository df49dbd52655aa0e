"""Windows in which a GPU has no room for the models of all requests, and the best plan of the tiniest by trying all."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from tests.streams.draws import random_speed
from tests.streams.worlds import cluster
from truenorth.models import Instance, Job, MLModel, Objective, StreamClass, Task, Tokens, Workflow
from truenorth.models.objective import objective_value
from truenorth.models.restrictions import InitialResidency
from truenorth.models.streams import StreamSpeed
from truenorth.solvers.search.serving import FAR, Decisions, Window, serve


def random_swapping(rng: random.Random, count: int, most_gpus: int = 2, **more: object) -> Instance:
    """Return requests of two to four classes, some of whose models fit a GPU together, beside little KV or much."""
    classes, models = [], []
    kv = rng.choice((0, 1))
    shared = rng.random() < 0.3
    for name in rng.choice(("ab", "abc", "abcd")):
        models.append(MLModel(name, rng.choice((30, 40, 70))))
        speeds = {kind: random_speed(rng, kv) for kind in ("A", "B")}
        needs = (name, "base") if shared and rng.random() < 0.5 else (name,)
        classes.append(StreamClass(name, speeds, needs))
    if shared:
        models.append(MLModel("base", 10))
    on = cluster(rng.randint(1, most_gpus), rng.choice((180, 220, 260)), rng.choice((("A",), ("A", "B"))))
    release, jobs = 0, []
    flows = [Workflow(each.name, (Task.of_stream("answer", each),)) for each in classes]
    for _ in range(count):
        release += rng.choice((0, 0, rng.randint(0, 60)))
        prompt = rng.randint(1, 40)
        tokens = Tokens(prompt, rng.randint(1, prompt), rng.choice((1, rng.randint(1, 9), rng.randint(1, 40))))
        jobs.append(Job(rng.choice(flows), release, tokens={"answer": tokens}))
    used = {name for job in jobs for task in job.workflow.tasks for name in task.models}
    there = tuple(model for model in models if model.name in used or rng.random() < 0.5)
    initial = tuple(InitialResidency(0, at) for at, _ in enumerate(there[:1]) if rng.random() < 0.4)
    return Instance(on, there, tuple(jobs), initial=initial, **more)  # type: ignore[arg-type]


def tiny_swapping(rng: random.Random) -> Instance:
    """Return four or five requests of two models, of which a GPU holds one, on one or two GPUs."""
    speed = StreamSpeed(Fraction(1_000_000), rng.randint(4, 20), rng.randint(1, 3), {1: 3, 3: rng.randint(3, 6)})
    classes = [StreamClass(name, {"A": speed}, (name,)) for name in "ab"]
    flows = [Workflow(each.name, (Task.of_stream("answer", each),)) for each in classes]
    release, jobs = 0, []
    for _ in range(rng.randint(4, 5)):
        release += rng.choice((0, rng.randint(0, 40)))
        prompt = rng.randint(1, 20)
        jobs.append(Job(rng.choice(flows), release, tokens={"answer": Tokens(prompt, prompt, rng.randint(1, 9))}))
    return Instance(cluster(rng.randint(1, 2), 50), (MLModel("a", 40), MLModel("b", 40)), tuple(jobs))


def best_order(instance: Instance, objective: Objective) -> Fraction:
    """Return the least value of all orders on all GPUs, each request joining as early as it may."""
    assert instance.streams is not None
    window, found = Window(instance, instance.streams), []
    for order in permutations(range(instance.n_tasks)):
        for place in product(range(instance.n_gpus), repeat=instance.n_tasks):
            queue = [[task for task in order if place[task] == gpu] for gpu in range(instance.n_gpus)]
            for eager in (False, True):
                decided = Decisions(queue, [0] * instance.n_tasks, [0] * instance.n_gpus, [eager] * instance.n_gpus)
                ends = [FAR] * instance.n_tasks
                if serve(window, decided, range(instance.n_gpus), place, ends) is not None:
                    found.append(objective_value(objective, instance, np.array(ends)))
    return min(found)
