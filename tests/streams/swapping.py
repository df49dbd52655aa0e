"""Windows in which a GPU has no room for the models of all requests, and the best plan of the tiniest by trying all."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

from tests.streams.draws import random_speed
from tests.streams.one_by_one import Request, Speed
from tests.streams.worlds import cluster
from truenorth.models import Instance, Job, MLModel, StreamClass, Task, Tokens, Workflow
from truenorth.models.restrictions import InitialResidency


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
