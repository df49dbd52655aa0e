"""Scenario files as they are written: YAML under comments, or JSON, as the name of the file says.

What is written keeps the look of files written by hand: small collections stand on one line, and what stood without
quotes stands without them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as Emitter
except ImportError:  # PyYAML was built without the C library
    from yaml import SafeDumper as Emitter  # type: ignore[assignment]

from truenorth.models.branches import branch_of
from truenorth.models.cluster import FOREVER, GPU, Link, engine_kind
from truenorth.models.instance import Instance
from truenorth.models.scenario.errors import Plain
from truenorth.models.scenario.files import write_atomically
from truenorth.models.scenario.work import workflow_graph, workflow_section
from truenorth.models.streams import BLOCK, Fitted, StreamClass, StreamSpeed
from truenorth.models.workload import WHOLE, BatchClass, Workflow

_WIDTH = 120
_ONE_LINE = _WIDTH - 20
"""Longest collection on one line: there is room for its key and the indentation."""
_FLAT = 2
"""Deepest nesting of a collection on one line."""


def write_scenario(path: Path, content: Mapping[str, Any], comments: Sequence[str] = ()) -> None:
    """Write a scenario file, whole or not at all; parameters as of `scenario_text`.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    write_atomically(path, scenario_text(path, content, comments))


def scenario_text(path: Path, content: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """Return the text of a scenario file.

    Parameters
    ----------
    path
        JSON if its name says so, else YAML.
    content
        With the keys of a scenario file; quantities are text with units.
    comments
        Lines above the content; JSON has none.
    """
    if path.suffix.lower() == ".json":
        return json.dumps(_json_values(content), ensure_ascii=False, indent=1) + "\n"
    text = yaml.dump(
        content, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
    )
    return comment_lines(comments) + str(text)


def comment_lines(lines: Sequence[str]) -> str:
    """Return lines as comments of YAML."""
    return "".join(f"# {_printable(line)}\n" for line in lines)


def document_of(instance: Instance) -> dict[str, Any]:
    """Return an instance as a scenario file says it: every job, and nothing that the instance does not hold.

    What is read from it has the same hash. Prices, names of traces, objective and service levels are the scenario's.
    """
    needed = {job.workflow.name: job.workflow.of or job.workflow for job in instance.jobs}
    needed |= {each.name: each for each in instance.catalogue if each.name in instance.restrictions.workflow_gpus}
    workflows = needed.values()
    batches = {task.batch.name: task.batch for each in workflows for task in each.tasks if task.batch is not None}
    streams = () if instance.streams is None else instance.streams.classes
    adapters = {name for stream in streams for name in stream.adapters}
    sizes = {model.name: model.weight_bytes for model in instance.models}
    options, restrictions = _options(instance), _restrictions(instance)
    return {
        "cluster": {"groups": list(_groups(instance)), **_network(instance), **_places(instance)},
        "models": {
            model.name: {"weights": f"{model.weight_bytes} B"}
            for model in instance.models
            if model.name not in adapters
        },
        **({"batches": {each.name: _batch(each) for each in batches.values()}} if batches else {}),
        **({"streams": {each.name: stream_section(each, sizes) for each in streams}} if streams else {}),
        "workflows": {workflow.name: _workflow(workflow) for workflow in workflows},
        "workload": {"jobs": job_sections(instance)},
        **({"options": options} if options else {}),
        **({"restrictions": restrictions} if restrictions else {}),
    }


def _groups(instance: Instance) -> Iterator[dict[str, Any]]:
    """Yield groups of equal servers, in the order of the cluster."""
    servers = [list(gpus) for _, gpus in groupby(instance.cluster.gpus, key=lambda gpu: gpu.server)]
    sorts = [([gpu.gpus for gpu in gpus], *_gpu(gpus[0])) for gpus in servers]
    streams = () if instance.streams is None else instance.streams.classes
    chosen = any(max(sizes) > 1 for sizes, *_ in sorts) or any(stream.modes for stream in streams)
    for (sizes, section, there), alike in groupby(sorts):
        engines = {"engines": sizes} if chosen else {}
        yield {"count": len(list(alike)), "gpus_per_server": sum(sizes), **engines, "gpu": section, **there}


def _gpu(gpu: GPU) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the section of a GPU, or of one of an engine, and when it is there if it is not always."""
    each = gpu.memory_bytes // gpu.gpus
    memory = {"slots": [f"{slot} B" for slot in gpu.slots]} if gpu.slots else {"memory": f"{each} B"}
    section = {
        "kind": gpu.kind if gpu.gpus == 1 else gpu.kind.removeprefix(engine_kind(gpu.gpus, "")),
        **memory,
        "load_bandwidth": f"{_decimal(gpu.load_bandwidth / gpu.gpus)} B/s",
        "load_overhead": f"{gpu.load_overhead_us} us",
    }
    if gpu.available.always:
        return section, {}
    intervals = [[f"{begin} us", "end" if end == FOREVER else f"{end} us"] for begin, end in gpu.available.intervals]
    return section, {"available": intervals, **({"drain": f"{gpu.drain_us} us"} if gpu.drain_us else {})}


def _network(instance: Instance) -> dict[str, Any]:
    network = instance.cluster.network
    if network.between.bandwidth is None:  # one GPU: there is nothing to transfer
        return {}
    links = {**_link(network.between), "staged": network.staged, "within_server": _link(network.within)}
    return {"network": links}


def _places(instance: Instance) -> dict[str, Any]:
    """Return which sets of GPUs runs on several take, where it is not the default or no run is on several."""
    rule, gpus = instance.cluster.places, instance.cluster.gpus
    if rule == "aligned" or not instance.gangs:
        return {}
    return {"places": rule if isinstance(rule, str) else [[gpus[gpu].id for gpu in place] for place in rule]}


def _link(link: Link) -> dict[str, Any]:
    bandwidth = {} if link.bandwidth is None else {"bandwidth": f"{_decimal(link.bandwidth)} B/s"}
    return {"latency": f"{link.latency_us} us", **bandwidth}


def _batch(batch: BatchClass) -> dict[str, Any]:
    return {
        "models": list(batch.models),
        "runtime": {kind: _by_size(table) for kind, table in batch.runtime_us.items()},
        "share": batch.share / WHOLE,
        "memory": f"{batch.memory_bytes} B",
    }


def stream_section(stream: StreamClass, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return a stream class as a scenario file says it, its adapters of these sizes."""
    adapters = {name.removeprefix(f"{stream.name}/"): {"weights": f"{sizes[name]} B"} for name in stream.adapters}
    cache = {"prefix_cache": "node", "prefix_block": stream.prefix_block} if stream.prefix_block else {}
    beside = {"adapters": adapters} if adapters else {}
    return {"models": list(stream.models), **_laws(stream), **cache, **beside}


def _laws(stream: StreamClass) -> dict[str, Any]:
    if not stream.modes:
        return _law(stream.speeds, stream.fitted)
    return {"modes": [{"gpus": gpus, **_laws(each)} for gpus, each in stream.by_degree.items()]}


def _law(by_kind: Mapping[str, StreamSpeed], fitted: Sequence[Fitted]) -> dict[str, Any]:
    speeds = by_kind.items()
    amended = {
        "context": {kind: f"{Decimal(speed.context_ps).scaleb(-6):f} us" for kind, speed in speeds},
        "mixed": {kind: f"{speed.mixed_us} us" for kind, speed in speeds},
        "budget": {kind: "shared" if speed.shared else "separate" for kind, speed in speeds},
        "kv": {kind: "grows" if speed.block else "reserved" for kind, speed in speeds},
        "block": {kind: speed.block or BLOCK for kind, speed in speeds},
    }
    return {
        "prefill": {kind: _rate(speed.prefill_rate) for kind, speed in speeds},
        "chunk": {kind: speed.chunk for kind, speed in speeds},
        "concurrency": {kind: speed.seats for kind, speed in speeds},
        "step": {kind: _by_size(speed.step_us) for kind, speed in speeds},
        "kv_per_token": {kind: f"{speed.kv_bytes} B" for kind, speed in speeds},
        **(amended if any(speed.amended for speed in by_kind.values()) else {}),
        **({"fitted": {law.kind: _fitted(law) for law in fitted}} if fitted else {}),
    }


def _rate(rate: Fraction) -> str:
    """Return a rate by the second, or, as a third of one has no decimals that end, by the minute or hour.

    >>> _rate(Fraction(3, 2)), _rate(Fraction(1, 60))
    ('1.5 /s', '1 /min')
    """
    said = [(_decimal(rate * seconds), rate * seconds, unit) for unit, seconds in (("s", 1), ("min", 60), ("h", 3600))]
    return next((f"{text} /{unit}" for text, exact, unit in said if Fraction(text) == exact), f"{said[0][0]} /s")


def _decimal(value: Fraction) -> str:
    """Return a number in decimals, exactly if that takes no more than 60 of them.

    >>> _decimal(Fraction(10_170_000_000)), _decimal(Fraction(125, 8))
    ('10170000000', '15.625')
    """
    with localcontext(prec=60):
        return f"{Decimal(value.numerator) / Decimal(value.denominator):f}"


def _fitted(law: Fitted) -> dict[str, Any]:
    names = ("log", "requests", "mean_error", "p95_error")
    return {name: getattr(law, name) for name in names}


def _by_size(table: Mapping[int, int]) -> dict[str, str]:
    return {str(size): f"{time_us} us" for size, time_us in table.items()}


def _workflow(workflow: Workflow) -> dict[str, Any]:
    branches = [{"probability": float(each.probability), "tasks": list(each.tasks)} for each in workflow.branches]
    ideal = {} if workflow.ideal_us is None else {"ideal": f"{workflow.ideal_us} us"}
    return {**workflow_section(workflow_graph(workflow)), **({"branches": branches} if branches else {}), **ideal}


def _options(instance: Instance) -> dict[str, Any]:
    initial = [
        {"gpu": instance.cluster.gpus[each.gpu].id, "model": instance.models[each.model].name}
        | ({} if each.slot is None else {"slot": each.slot})
        for each in instance.initial
    ]
    return ({} if instance.overlap_loads else {"overlap_loads": False}) | (
        {"initial_residency": initial} if initial else {}
    )


def _restrictions(instance: Instance) -> dict[str, Any]:
    """Return where models and workflows may be; where one may be nowhere, it is forbidden everywhere."""
    limits, gpus = instance.restrictions, instance.cluster.gpus
    sections: dict[str, Any] = {"pin": [], "forbid": []}
    for key, places in (("model", limits.model_gpus), ("workflow", limits.workflow_gpus)):
        for name, there in places.items():
            entry = {key: name, "on": [gpus[gpu].id for gpu in (sorted(there) or range(len(gpus)))]}
            sections["pin" if there else "forbid"].append(entry)
    sections |= {"max_replicas": dict(limits.max_replicas), "no_swaps": limits.no_swaps}
    return {key: value for key, value in sections.items() if value}


def job_sections(instance: Instance) -> list[dict[str, Any]]:
    """Return the jobs of an instance one by one, as a scenario's section ``workload.jobs`` has them."""
    sections = []
    for job in instance.jobs:
        section: dict[str, Any] = {"release": f"{job.release_us} us", "workflow": job.workflow.name}
        if job.deadline_us is not None:
            section["deadline"] = f"{job.deadline_us} us"
        if job.weight != 1:
            section["weight"] = float(job.weight)
        if job.ingress is not None:
            section["ingress"] = f"s{job.ingress}"
        if job.workflow.of is not None:
            section["path"] = branch_of(job.workflow)
        if job.priority:
            section["priority"] = job.priority
        if job.tokens:
            section["tokens"] = {name: list(tokens) for name, tokens in job.tokens.items()}
        if job.delays_us:
            section["delay"] = {name: f"{delay_us} us" for name, delay_us in job.delays_us.items()}
        if job.blocks:
            section["blocks"] = {name: list(blocks) for name, blocks in job.blocks.items()}
        if job.own_ideal_us is not None:
            section["ideal"] = f"{job.own_ideal_us} us"
        sections.append(section)
    return sections


def _printable(text: str) -> str:
    """Return a comment that stays one: a file's name may hold a line break."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _json_values(value: object) -> object:
    """Return values as JSON says them: what stood there without quotes may be a number or a truth value."""
    if isinstance(value, Mapping):
        return {key: _json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_values(item) for item in value]
    if isinstance(value, Plain):
        try:
            return json.loads(value)
        except ValueError:
            return str(value)
    return value


class _Dumper(Emitter):
    """Writes small collections on one line, and unquoted what stood unquoted."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything out."""
        return True

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        """Put a mapping on one line if it fits there and is not nested deeply."""
        node = super().represent_mapping(tag, mapping, flow_style)
        depth = 1 + max(map(_depth, _children(node)), default=0)
        node.flow_style = depth <= _FLAT and _length(node) < _ONE_LINE
        return node


def _children(node: yaml.Node) -> list[yaml.Node]:
    """Return keys and values, or items."""
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _depth(node: yaml.Node) -> int:
    """Return how deeply collections are nested, at most one more than fits on a line; 0 for a scalar."""
    if isinstance(node, yaml.ScalarNode):
        return 0
    if isinstance(node, yaml.MappingNode) and node.flow_style is False:
        return _FLAT + 1  # it stands on several lines already, and so do those around it
    return 1 + max(map(_depth, _children(node)), default=0)


def _length(node: yaml.Node) -> int:
    """Return how many characters a node takes on one line; a separator of two follows each part of it."""
    if isinstance(node, yaml.ScalarNode):
        return len(node.value)
    return 2 + sum(_length(child) + 2 for child in _children(node))


def _plain(dumper: Any, value: Plain) -> yaml.ScalarNode:
    text = str(value)
    node: yaml.ScalarNode = dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), text)
    return node


_Dumper.add_representer(Plain, _plain)
