"""Prefill apart from decode: every request is computed on one node and decoded on another.

A request of n prompt and m output tokens becomes a workflow of two. The prefill yields the first token; the KV of its
prompt is sent to the decode, which yields the others. A group of servers becomes two, a stream class becomes two, each
of a kind of its own: so nodes serve one of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

from truenorth.models.instance import Instance
from truenorth.models.scenario.build import Scenario, build
from truenorth.models.scenario.document import ScenarioDocument
from truenorth.models.scenario.errors import Plain, Source
from truenorth.models.scenario.section import validate
from truenorth.models.scenario.writing import job_sections, stream_section
from truenorth.models.streams import StreamClass, Tokens
from truenorth.models.workload import Task, Workflow

PREFILL, DECODE = "prefill", "decode"
"""Names of both tasks, and behind a space what the names of kinds and classes end in."""
_KEPT = ("deadline", "ideal", "priority")
_DIGITS = 6


def disaggregate(scenario: Scenario) -> Scenario:
    """Return a scenario with prefill apart from decode; each group of servers is there once for either.

    Slowdowns of both divide by the same: the time that a request takes alone on one node.

    Raises
    ------
    InputError
        If a job is not one request of a language model that computes its prompt.
    """
    jobs, several = job_sections(scenario.instance), dict[str, list[bool]]()
    for job, section in zip(scenario.instance.jobs, jobs, strict=True):
        task = _request_alone(scenario, job.workflow)
        tokens = parts(job.tokens_of(task))
        several.setdefault(job.workflow.name, []).append(DECODE in tokens)
        section["tokens"] = {name: list(each) for name, each in tokens.items()}
        if "blocks" in section:
            section["blocks"] = {PREFILL: section["blocks"][task.name]}
        if "ingress" in section:
            section["ingress"] = _both(scenario, section["ingress"])[0]
    shares = {name: Fraction(sum(each), len(each)) for name, each in several.items()}
    for section in jobs:
        if 0 < shares[section["workflow"]] < 1:
            section["path"] = int(DECODE not in section["tokens"])
    content = disaggregated_sections(scenario, shares) | {"workload": {"jobs": jobs}}
    source = Source(scenario.source.file, scenario.source.folder, content=content)
    made = build(validate(ScenarioDocument, content, source), source)
    own_us, its_us = scenario.instance.job_ideal_us.tolist(), made.instance.job_ideal_us.tolist()
    if own_us != its_us:  # apart either part is counted on the kind that is fastest for it
        for section, own, its in zip(jobs, own_us, its_us, strict=True):
            section |= {} if own == its else {"ideal": f"{own} us"}
        made = build(validate(ScenarioDocument, content, source), source)
    return replace(made, name=scenario.name, objective=scenario.objective, slo=scenario.slo)


def parts(tokens: Tokens) -> dict[str, Tokens]:
    """Return the tokens of prefill and decode; the first token is of the prompt from which a decode goes on.

    >>> parts(Tokens(900, 100, 30))
    {'prefill': Tokens(prompt=900, uncached=100, output=1), 'decode': Tokens(prompt=901, uncached=0, output=29)}
    >>> list(parts(Tokens(900, 900, 1)))
    ['prefill']
    """
    rest = {DECODE: Tokens(tokens.prompt + 1, 0, tokens.output - 1)} if tokens.output > 1 else {}
    return {PREFILL: tokens._replace(output=1), **rest}


def disaggregated_sections(scenario: Scenario, shares: Mapping[str, Fraction]) -> dict[str, Any]:
    """Return the sections of a scenario with prefill apart from decode, but for its workload.

    Parameters
    ----------
    shares
        Of the jobs of each workflow, those with more than one output token; workflows without jobs are left out.

    Raises
    ------
    InputError
        If a workflow is not one request of a language model that computes its prompt.
    """
    data, instance = scenario.source.data(), scenario.instance
    taken = {job.workflow.name: _request_alone(scenario, job.workflow) for job in instance.jobs}
    streams = {task.stream.name: task.stream for task in taken.values() if task.stream is not None}
    sizes = {model.name: model.weight_bytes for model in instance.models}
    data["cluster"] = _cluster(scenario, data["cluster"])
    data["streams"] = {
        f"{name} {role}": stream_section(_of_role(stream, role, instance), sizes)
        for name, stream in streams.items()
        for role in (PREFILL, DECODE)
    }
    data["workflows"] = {
        name: _workflow(taken[name], shares[name]) | {key: own[key] for key in _KEPT if key in own}
        for name, own in data["workflows"].items()
        if name in taken
    }
    restrictions = data.get("restrictions") or {}
    for entry in (*(restrictions.get("pin") or ()), *(restrictions.get("forbid") or ())):
        entry["on"] = [place for each in entry["on"] for place in _both(scenario, each)]
    options = data.get("options") or {}
    if options.get("initial_residency"):
        options["initial_residency"] = [
            {**entry, "gpu": gpu} for entry in options["initial_residency"] for gpu in _both(scenario, entry["gpu"])
        ]
    return {key: value for key, value in data.items() if key not in ("workload", "batches")}


def _request_alone(scenario: Scenario, workflow: Workflow) -> Task:
    """Return the one task of a workflow, a request that computes its prompt."""
    where = ("workflows", workflow.name)
    if len(workflow.tasks) > 1 or workflow.of is not None or workflow.tasks[0].stream is None:
        problem = "is no single request of a stream; prefill apart from decode is for jobs that are one request"
        raise scenario.source.error(where, problem)
    return workflow.tasks[0]


def _of_role(stream: StreamClass, role: str, instance: Instance) -> StreamClass:
    """Return a class on the nodes of one role; those that decode keep no prefixes, as KV is sent to them."""
    kinds = {gpu.kind: stream.speed_on(gpu.kind) for gpu in instance.cluster.gpus}
    speeds = {f"{kind} {role}": speed for kind, speed in kinds.items() if speed is not None}
    fitted = tuple(replace(law, kind=f"{law.kind} {role}") if law.kind in kinds else law for law in stream.fitted)
    return replace(stream, speeds=speeds, fitted=fitted, prefix_block=stream.prefix_block if role == PREFILL else 0)


def _workflow(task: Task, several: Fraction) -> dict[str, Any]:
    """Return the section of a workflow, of whose jobs such a share has more than one output token."""
    stream = "" if task.stream is None else task.stream.name
    adapter = {}
    if task.stream is not None and task.models != task.stream.models:
        adapter = {"adapter": task.models[-1].removeprefix(f"{stream}/")}
    given = {"input": f"{task.input_bytes} B"} if task.input_bytes else {}
    blocks = {"blocks": list(task.blocks)} if task.blocks else {}
    asked = {"output_tokens": 1, "first_token": True, **adapter, **given, **blocks}
    prefill: dict[str, Any] = {"stream": f"{stream} {PREFILL}", **asked}
    decode = {"stream": f"{stream} {DECODE}", "uncached": 0, **adapter, "after": {PREFILL: "kv"}}
    if not several:
        return {"tasks": {PREFILL: prefill}}
    both = {"tasks": {PREFILL: prefill, DECODE: decode}}
    if several == 1:
        return both
    least = Fraction(1, 10**_DIGITS)
    share = min(max(round(several, _DIGITS), least), 1 - least)
    chances = [(share, [DECODE]), (1 - share, [])]
    branches = [{"probability": Plain(f"{float(chance):.{_DIGITS}f}"), "tasks": tasks} for chance, tasks in chances]
    return both | {"branches": branches}


def _cluster(scenario: Scenario, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cluster with two groups for each, one of prefill and one of decode."""
    own = ("servers", "gpus_per_server", "engines", "gpu", "groups")
    alike = {("count" if key == "servers" else key): cluster[key] for key in own if key in cluster}
    groups = [
        {**group, "gpu": {**group["gpu"], "kind": f"{group['gpu']['kind']} {role}"}}
        for group in cluster.get("groups") or [alike]
        for role in (PREFILL, DECODE)
    ]
    made = {**{key: value for key, value in cluster.items() if key not in own}, "groups": groups}
    if cluster.get("away"):
        made["away"] = {there: times for server, times in cluster["away"].items() for there in _both(scenario, server)}
    return made


def _both(scenario: Scenario, place: str) -> list[str]:
    """Return the places of prefill and of decode that stand for a server, a GPU of it, or a group."""
    if place.startswith("group"):
        number = int(place.removeprefix("group"))
        return [f"group {2 * number - 1}", f"group {2 * number}"]
    counts: Sequence[int] = [group.count for group in scenario.document.cluster.server_groups]
    server, _, gpu = place.removeprefix("s").partition("/")
    first, count = next(
        (end - count, count) for end, count in zip(accumulate(counts), counts, strict=True) if int(server) < end
    )
    # Both groups of one follow each other.
    return [f"s{first + int(server) + shift}{gpu and f'/{gpu}'}" for shift in (0, count)]
