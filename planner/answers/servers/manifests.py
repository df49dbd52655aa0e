"""What starts a fleet: a Kubernetes manifest with a Deployment for each sort of engine, or a Ray Serve config.

Names are those of the scenario, made legal; every text is data, whatever it holds. Images, paths and labels of nodes
are the reader's to fill in: the comments above say which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

from truenorth.models.scenario.writing import comment_lines
from truenorth.planner.answers.servers.engines import BLOCKS, Engine

IMAGE, MODEL_PATH, ADAPTER_PATH = "vllm/vllm-openai:VERSION", "/models/MODEL", "/adapters/ADAPTER"
ADAPTERS_URI = "s3://BUCKET/ADAPTERS"
"""What is to be filled in; Ray loads adapters from a store in the cloud, all from one folder, and from nowhere else."""
KIND_LABEL = "nvidia.com/gpu.product"
"""Of nodes, by NVIDIA's GPU feature discovery."""
_CLASS_LABEL, _POOL_LABEL = "truenorth/class", "truenorth/pool"
_OTHERS = "others"
_LONGEST_NAME = 63
_PORT = 8000
_WORD = re.compile(r"[A-Za-z/][\w./:@-]+|--[a-z][a-z-]*(=\w+)?")
"""Text that no reader of YAML takes for something else, but for the words that PyYAML knows."""


class _Dumper(yaml.SafeDumper):
    """Writes out what is written twice, and quotes what some reader of YAML may take for a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _quote(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if _WORD.fullmatch(text) else '"')


_Dumper.add_representer(str, _quote)


def kubernetes_text(engines: Sequence[Engine], origin: Sequence[str]) -> str:
    """Return a manifest: a Service for each class, or each of its pools, and a Deployment for each sort of engine.

    Parameters
    ----------
    origin
        Lines that say of which answer it is.
    """
    fill_in = [
        *_fill_in(engines),
        f"  image: {IMAGE}, and how it reaches the model (a volume, or a name that vLLM downloads)",
        f"  {KIND_LABEL}: the kind as your nodes are labelled, such as NVIDIA-H100-80GB-HBM3",
        "A Service spreads requests at random: put the gateway of the answer's policy before the engines.",
    ]
    classes, served = list(dict.fromkeys(map(_class, engines))), _served(engines)
    class_names = dict(zip(classes, _names(classes), strict=True))
    names = dict(zip(dict.fromkeys(served), _names([" ".join(each) for each in dict.fromkeys(served)]), strict=True))
    labels = {
        each: {_CLASS_LABEL: class_names[each[0]], **({_POOL_LABEL: name} if each[1:] else {})}
        for each, name in names.items()
    }
    deployments = [
        _deployment(engine, name, labels[each])
        for engine, name, each in zip(engines, _engine_names(engines), served, strict=True)
    ]
    documents = [*(_service(name, labels[each]) for each, name in names.items()), *deployments]
    return _head(origin, fill_in) + "".join(f"---\n{_dump(each)}" for each in documents)


def ray_serve_text(engines: Sequence[Engine], origin: Sequence[str]) -> str:
    """Return a config for ``serve deploy``: one application with a model for each sort of engine."""
    classes, names = [each.stream for each in engines], _engine_names(engines)
    # Where several sorts of engines serve a class they are models of their own to Ray.
    models = [name if classes.count(own) > 1 else own for own, name in zip(classes, names, strict=True)]
    shared = len(set(classes)) < len(classes)
    fill_in = [
        *_fill_in(engines, ray=True),
        "  accelerator_type: the kind as Ray names it, such as H100, A100-80G or L40S",
        *(["A class on several sorts of engines has a model for each: route its requests to them."] if shared else []),
        "Requests go as Ray's router sends them: the answer holds with the gateway of its policy.",
    ]
    application = {
        "name": "truenorth",
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [_llm_config(each, model) for each, model in zip(engines, models, strict=True)]},
    }
    return _head(origin, fill_in) + _dump({"applications": [application]})


def origin_lines(
    command: str, levels: str, jobs: int, length_s: float, digest: str, size: str, policy: str
) -> list[str]:
    """Return which answer a file comes from, a line each."""
    return [
        f"Made by {command}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.",
        f"Levels: {levels}.",
        f"Window: {jobs:,} jobs released within {length_s:,.4g} s; scenario hash {digest}.",
        f"Fleet: {size}, with the policy {policy}.",
    ]


def fleet_in_words(engines: Sequence[Engine]) -> str:
    """Return how many engines of which sort there are."""
    return " + ".join(f"{each.replicas} {sort}" for each, sort in zip(engines, _sorts(engines), strict=True))


def _sorts(engines: Sequence[Engine]) -> list[str]:
    """Return what each engine serves, on what, and for whom alone, in words."""
    found = [f"{_class(each)} on {_gpus(each)}" for each in engines]
    whom = [f" for {each.workflow or 'all other workflows'}" for each in engines]
    return [sort + (own if pool else "") for sort, own, (_, *pool) in zip(found, whom, _served(engines), strict=True)]


def _served(engines: Sequence[Engine]) -> list[tuple[str, ...]]:
    """Return what each engine serves: its class, and behind it, where nodes of that are apart, the workflow."""
    divided = {_class(each) for each in engines if each.workflow is not None}
    return [
        (_class(each), each.workflow or _OTHERS) if _class(each) in divided else (_class(each),) for each in engines
    ]


def _head(origin: Sequence[str], fill_in: Sequence[str]) -> str:
    return comment_lines([*origin, *fill_in])


def _fill_in(engines: Sequence[Engine], ray: bool = False) -> Iterator[str]:
    """Yield what is to be filled in, a line each, and what engines have to take; Ray has its own word for some."""
    names = ("max_model_len", "max_lora_rank", "block_size")
    longest, rank, size = names if ray else (f"--{name.replace('_', '-')}" for name in names)
    where = " in engine_kwargs" if ray else ""
    yield "Fill in:"
    yield f"  {MODEL_PATH}: the path or name of the model"
    adapters = list(dict.fromkeys(name for each in engines for name in each.adapters))
    if adapters and ray:
        own = ", ".join(adapters)
        yield f"  {ADAPTERS_URI}: where a folder for each adapter lies, called by its name ({own}), at s3:// or gs://"
        yield "  model of a request for an adapter: the name of the model, a colon, the name of the adapter"
    elif adapters:
        yield f"  {ADAPTER_PATH}: the path of each adapter"
    if adapters:
        yield f"  {rank}{where} if the rank of an adapter is above 16"
    if numbers := next((each.priorities for each in engines if each.priorities), ()):
        said = ", ".join(f"{name}: {number}" for name, number in numbers)
        yield f"  priority of each request: {said} (vLLM serves the lowest number first; not sent, it is 0)"
    if any(each.role is not None for each in engines):
        yield "  a proxy that sends each request to an engine of prefill and then to one of decode (NixlConnector)"
        yield "  an image with nixl, whose transport suits your network (UCX_TLS, UCX_NET_DEVICES)"
    rooms = [
        f"{sort} {each.longest:,} and {each.kv_tokens:,}"
        for each, sort in zip(engines, _sorts(engines), strict=True)
        if each.kv_tokens is not None
    ]
    if rooms:
        yield f"  {longest}{where} between the longest request and the KV tokens: {'; '.join(rooms)}"
        yield "  KV memory is the scenario's memory less the weights: it must leave room for activations"
    if odd := sorted({each.block for each in engines if each.block and each.block not in BLOCKS}):
        *some, last = BLOCKS
        takes = f"vLLM takes {', '.join(map(str, some))} or {last}"
        said = ", ".join(map(str, odd))
        yield f"  {size}{where} is left out: the scenario's blocks of KV are of {said} tokens, and {takes}"


def _dump(content: Mapping[str, Any]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=False)


def _names(texts: Sequence[str]) -> list[str]:
    """Return a legal name for each text, none twice: lower case, digits and dashes.

    >>> _names(["Chat (8B)", "chat 8b", "模型", "8b"])
    ['chat-8b', 'chat-8b-2', 'engine', 'engine-8b']
    """
    found: list[str] = []
    for text in texts:
        plain = re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_NAME].strip("-")
        # A Service's name begins with a letter.
        base = plain if plain[:1].isalpha() else f"engine-{plain}".rstrip("-")
        numbers = ("", *(f"-{number}" for number in range(2, len(texts) + 1)))
        names = (base[: _LONGEST_NAME - len(number)].rstrip("-") + number for number in numbers)
        found.append(next(name for name in names if name not in found))
    return found


def _class(engine: Engine) -> str:
    """Return what an engine serves: a class, or what it does of its requests where prefill is apart from decode."""
    return " ".join(filter(None, (engine.stream, engine.role)))


def _engine_names(engines: Sequence[Engine]) -> list[str]:
    """Return names by which sorts of engines are told apart."""
    return _names(
        [" ".join((own, _gpus(each), *pool)) for each, (own, *pool) in zip(engines, _served(engines), strict=True)]
    )


def _gpus(engine: Engine) -> str:
    """Return on what an engine is: a kind, behind how many of it if several."""
    return engine.gpu if engine.gpus == 1 else f"{engine.gpus}x{engine.gpu}"


def _label_value(text: str) -> str:
    """Return a text as the value of a label may be: letters, digits, dashes, dots."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:_LONGEST_NAME].strip("-_.") or "KIND"


def _service(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": dict(labels), "ports": [{"port": _PORT}]},
    }


def _deployment(engine: Engine, name: str, served: Mapping[str, str]) -> dict[str, Any]:
    labels = {"app": name, **served}
    alone = {} if engine.workflow is None else {"annotations": {"truenorth/workflow": engine.workflow}}
    grace = {"terminationGracePeriodSeconds": engine.drain_s} if engine.drain_s else {}
    modules = [json.dumps({"name": each, "path": ADAPTER_PATH}) for each in engine.adapters]
    args = [
        f"--served-model-name={engine.stream}",
        f"--port={_PORT}",
        *engine.flags,
        *(["--lora-modules", *modules] if modules else []),
    ]
    container: dict[str, Any] = {
        "name": "engine",
        "image": IMAGE,
        "command": ["vllm", "serve", MODEL_PATH],
        # $(NAME) would be taken for a variable of the container.
        "args": [each.replace("$(", "$$(") for each in args],
        "ports": [{"containerPort": _PORT}],
        "resources": {"limits": {"nvidia.com/gpu": engine.gpus}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": _PORT}},
    }
    if engine.role is not None:  # other engines find it at the address of its pod
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        container["env"] = [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": address}]
    shared: dict[str, Any] = {}
    if engine.gpus > 1:  # the processes of an engine talk by shared memory, of which containers have little
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
        shared = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    pod = {"nodeSelector": {KIND_LABEL: _label_value(engine.gpu)}, **grace, "containers": [container], **shared}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels, **alone},
        "spec": {
            "replicas": engine.replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _llm_config(engine: Engine, name: str) -> dict[str, Any]:
    lora = {"dynamic_lora_loading_path": ADAPTERS_URI, "max_num_adapters_per_replica": len(engine.adapters)}
    return {
        "model_loading_config": {"model_id": name, "model_source": MODEL_PATH},
        "accelerator_type": engine.gpu,
        "deployment_config": {"num_replicas": engine.replicas},
        "engine_kwargs": dict(engine.settings),
        **({"lora_config": lora} if engine.adapters else {}),
    }
