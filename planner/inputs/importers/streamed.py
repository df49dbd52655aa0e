"""Requests with tokens as jobs of streams: a workflow per model, tokens job by job, prefixes cached by block hashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pandas as pd

from truenorth.models.cluster import GPU, engine_kind
from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import quote
from truenorth.models.scenario.requests import stream_class
from truenorth.models.stream_tables import longest_on
from truenorth.models.streams import StreamClass, StreamSpeed, split_kind
from truenorth.models.workload import Edge, Task, Workflow
from truenorth.planner.inputs.importers.catalogue import CatalogueDocument
from truenorth.planner.inputs.importers.rows import Tally
from truenorth.planner.inputs.importers.sessions import Calls, chain
from truenorth.planner.inputs.importers.tables import Texts, TokenRequests
from truenorth.planner.inputs.importers.workload import CALL, REQUEST, Served, Workload

Cache = Literal["none", "ideal", "node"]
_LEFT_OUT = (
    "KV is taken to be reserved from start to end unless the catalogue says that it grows, prefill to be linear in "
    "tokens, and steps to depend on the length of contexts only as it says (docs/language_models.md)"
)


def model_of_each(document: CatalogueDocument, requests: TokenRequests, known: dict[str, str], tally: Tally) -> Texts:
    """Return the catalogue's model of each request; empty where it has none, or none with a stream, which is counted.

    Parameters
    ----------
    known
        The catalogue's model of each name of the log that it has.

    Raises
    ------
    QuestionError
        If no request has one.
    """
    streams = [name for name, model in document.models.items() if model.stream is not None]
    if not streams:
        raise QuestionError("has no model with a stream; allowed is one (docs/language_models.md)", "catalogue")
    codes, names = pd.factorize(requests.model)
    if "" in names:
        if len(streams) > 1:
            problem = f"has {len(streams)} models with streams, and the log names none; allowed is model=COLUMN, or one"
            raise QuestionError(problem, "catalogue")
        known = known | {"": streams[0]}
        tally.notes.append(f"the log names no model: every request is one of {streams[0]}, the catalogue's only stream")
    of = np.array([known.get(name, "") if known.get(name, "") in streams else "" for name in names], np.object_)
    if not any(of):
        listed = ", ".join(map(quote, names[:5]))
        problem = f"has no stream for the log's models, such as {listed}; allowed is a catalogue with their streams"
        raise QuestionError(problem, "catalogue")
    for name, model, count in zip(names, of, np.bincount(codes).tolist(), strict=True):
        if not model:
            lacks = "for which the catalogue has no stream" if name in known else "which the catalogue does not have"
            tally.left_out[f"of {name[:60]}, {lacks}"] += count
    return np.asarray(of[codes], np.object_)


def streamed_workload(
    document: CatalogueDocument, requests: TokenRequests, model: Texts, release_us: Ints, cache: Cache, tally: Tally
) -> Workload:
    """Return requests, or sessions of them, as jobs, in release order.

    Parameters
    ----------
    model
        The catalogue's model of each request. Shape [requests].
    release_us
        From time zero. Shape [requests].

    Raises
    ------
    InputError
        For the first request whose KV fits on no kind, unless malformed rows are skipped.
    QuestionError
        If a cache is asked for, and the log has no hashes, nodes are to cache parts of blocks of KV, or to hold it.
    """
    used = [name for name in document.models if name in set(model)]
    classes = {name: _class_of(name, document, requests.block_tokens if cache == "node" else None) for name in used}
    fits = np.ones(len(model), np.bool_)
    for name, stream in classes.items():
        fits &= _fitting(requests, model == name, stream, document, tally)
    requests, model, release_us = requests.at(fits), model[fits], release_us[fits]
    if not len(model):
        raise QuestionError("no row is left; allowed are files with at least one request that fits")
    labels = model if requests.workflow is None else model + " " + requests.workflow
    calls, hold = _calls(requests, labels), requests.cached is not None
    if calls is not None and hold:
        _refuse_holds(classes, cache)
        uncached = _uncalled(requests, calls, tally)
    else:
        uncached = _uncached(requests, model, cache, tally)
    blocks = _numbered(requests, model, release_us, tally) if cache == "node" else None
    if calls is not None:  # job by job, which are in the order of their first calls
        order = np.lexsort((calls.place, calls.job))
        calls, requests, model, uncached = calls.at(order), requests.at(order), model[order], uncached[order]
        blocks = None if blocks is None else tuple(blocks[at] for at in order.tolist())
        first_calls = np.flatnonzero(calls.place == 0)
        length = np.diff(first_calls, append=len(order))
        labels = labels[order][first_calls] + np.array([f" x {count}" for count in length.tolist()], np.object_)
        release_us, tasks = release_us[order][first_calls], dict(zip(labels, length.tolist(), strict=True))
        tally.notes.append(_sessions(requests, calls))
    workflow, names = pd.factorize(labels, sort=True)
    of_job = model if calls is None else model[calls.place == 0]
    first = {name: int(np.argmax(workflow == index)) for index, name in enumerate(names)}
    workflows = tuple(
        Workflow(name, (Task.of_stream(REQUEST, classes[of_job[first[name]]]),))
        if calls is None
        else _session(name, classes[of_job[first[name]]], tasks[name], hold)
        for name in names
    )
    alone_us, least_us = np.zeros((2, len(model)), np.int64)
    for name, stream in classes.items():
        of = model == name
        engines = _engines(stream, document)
        times = [_times(gpu.gpus, speed, uncached[of], requests.output[of]) for gpu, speed in engines]
        alone_us[of], least_us[of] = np.min(times, axis=0)
    tally.notes.append(_LEFT_OUT)
    served = Served(np.column_stack((requests.prompt, uncached, requests.output)), alone_us, least_us, blocks, calls)
    mapping = f"requests of streams, tokens as in the log; {len(used)} model{'s' * (len(used) > 1)} of the catalogue"
    return Workload(workflows, workflow.astype(np.int64), release_us, None, mapping, served=served)


def _calls(requests: TokenRequests, labels: Texts) -> Calls | None:
    """Return how requests of a model, and workflow, make jobs, given in release order; None where each is one."""
    if requests.session is None or requests.end_us is None:
        return None
    sessions = [f"{label} {name}" if name else "" for label, name in zip(labels, requests.session, strict=True)]
    return chain(sessions, requests.release_us.tolist(), requests.end_us.tolist())


def _session(name: str, stream: StreamClass, count: int, hold: bool) -> Workflow:
    """Return the workflow of so many calls, each after the one before it, perhaps where that has left its KV."""
    tasks = [Task.of_stream(CALL.format(1), stream)]
    for number in range(2, count + 1):
        before = CALL.format(number - 1)
        edge = Edge(before, 0, hold=hold)
        tasks.append(Task.of_stream(CALL.format(number), stream, None, (edge,), tied_to=before if hold else None))
    return Workflow(name, tuple(tasks))


def _sessions(requests: TokenRequests, calls: Calls) -> str:
    """Return in words how requests made jobs."""
    later = calls.place > 0
    said = f"calls of one session and model make a job: {len(later):,} requests in {int((~later).sum()):,} jobs"
    if not later.any():
        return said
    middle = float(np.quantile(calls.delay_us[later], 0.5, method="inverted_cdf")) / 1e6
    alone = 0 if requests.session is None else requests.session.tolist().count("")
    apart = f"; {alone:,} without a session are jobs by themselves" if alone else ""
    return f"{said}, each after the one before it and what passed between them, {middle:.4g} s in the median{apart}"


def _refuse_holds(classes: dict[str, StreamClass], cache: Cache) -> None:
    """Refuse KV that is held between calls where nodes cache, or KV grows."""
    if cache != "none":
        problem = f"{cache} beside cached=COLUMN, by which KV is held between calls"
        raise QuestionError(f"{problem}; allowed is one of them", "cache")
    for name, stream in classes.items():
        if stream.prefix_block or any(speed.block for speed in stream.speeds.values()):
            problem = f"{name} has prefix_cache or kv: grows, and cached=COLUMN holds KV between calls"
            raise QuestionError(f"{problem}; allowed is kv: reserved without caches, or without cached=", "catalogue")


def _uncalled(requests: TokenRequests, calls: Calls, tally: Tally) -> Ints:
    """Return the prompt tokens that the call before has not left, at least 1 of each request. Shape [requests]."""
    later, before = calls.place > 0, calls.before
    left = np.where(later, requests.prompt[before] + requests.output[before], 0)
    said = np.zeros(len(left), np.int64) if requests.cached is None else requests.cached
    found = np.minimum(np.minimum(said, left), requests.prompt - 1)
    share = float(found.sum()) / float(requests.prompt.sum())
    lost = int((np.minimum(said, requests.prompt - 1) - found).sum())
    others = f"; {lost:,} more that were cached there are of no call before, and count as uncached" if lost else ""
    tally.notes.append(
        f"the KV of a call is held for the next one: {share:.1%} of the prompt tokens, by the log{others}"
    )
    return np.asarray(requests.prompt - found, np.int64)


def _class_of(name: str, document: CatalogueDocument, prefix_block: int | None) -> StreamClass:
    section = document.models[name].stream
    if section is None:
        raise ValueError(f"{name} has no stream")
    made = stream_class(name, section)
    for speed in made.speeds.values() if prefix_block else ():
        if speed.block and prefix_block is not None and prefix_block % speed.block:
            problem = (
                f"the log's blocks of {prefix_block} tokens are no multiple of {name}'s blocks of KV of {speed.block}"
            )
            raise QuestionError(f"{problem}; allowed is a block that divides them", "cache")
    block = made.prefix_block if prefix_block is None else prefix_block
    models = tuple(dict.fromkeys((name, *made.models)))
    return StreamClass(name, made.speeds, models, made.fitted, modes=made.modes, prefix_block=block)


def _engines(stream: StreamClass, document: CatalogueDocument) -> Iterator[tuple[GPU, StreamSpeed]]:
    """Yield the engines on kinds of the catalogue that a class runs on, and how."""
    sizes = sorted({1, *(split_kind(kind)[0] for kind in stream.speeds)})
    for kind, known in document.kinds.items():
        for size in (size for size in sizes if size <= known.gpus_per_server):
            engine = engine_kind(size, kind)
            speed = stream.speed_on(engine)
            if speed is not None:
                yield GPU("s0/g0", 0, engine, known.memory * size, known.load_bandwidth * size, gpus=size), speed


def _times(gpus: int, speed: StreamSpeed, uncached: Ints, output: Ints) -> tuple[Ints, Ints]:
    """Return how long requests take alone on a kind, and the least time of GPUs that each costs, prefill and decodes.

    Shape [requests] each; rounded to microseconds.
    """
    prefill = uncached / float(speed.prefill_rate) * 1e6
    rho = min(speed.tau[k] / k for k in range(1, speed.seats + 1))
    alone, least = prefill + (output - 1) * speed.tau[1], gpus * (prefill + (output - 1) * rho)
    return np.maximum(np.rint(alone), 1).astype(np.int64), np.maximum(np.rint(least), 1).astype(np.int64)


def _fitting(
    requests: TokenRequests, ours: np.ndarray, stream: StreamClass, document: CatalogueDocument, tally: Tally
) -> np.ndarray:
    """Return which requests are not of a class, or fit on some kind; the others are refused. Shape [requests]."""
    weights = {name: model.weights for name, model in document.models.items()}
    longest = {gpu.kind: longest_on(stream, speed, gpu, weights) for gpu, speed in _engines(stream, document)}
    if not longest:
        problem = f"no mode of {stream.name} suits a server; write gpus_per_server, at least that of a mode"
        raise QuestionError(problem, "catalogue")
    kind = max(longest, key=lambda name: longest[name])
    held = requests.prompt + requests.output
    wrong = ours & (held > longest[kind])
    if wrong.any():
        at = np.flatnonzero(wrong)
        at = at[np.lexsort((requests.line[at], requests.file[at]))][0]
        said = (
            f"{requests.prompt[at]} prompt and {requests.output[at]} output tokens of {stream.name} fit the KV memory"
        )
        most = f"allowed are at most {longest[kind]} together, the longest that fits ({kind})"
        error = InputError(
            str(requests.file[at]), int(requests.line[at]), requests.prompt_column, f"{said} of no kind; {most}"
        )
        tally.refuse(error, f"{requests.prompt_column}: fits the KV memory of no kind", int(wrong.sum()))
    return np.asarray(~wrong)


def _uncached(requests: TokenRequests, model: Texts, cache: Cache, tally: Tally) -> Ints:
    """Return the prompt tokens that no cache has, at least 1 of each request. Shape [requests]."""
    if cache != "none" and requests.blocks is None:
        problem = f"{cache} takes the hashes of blocks, which are not read; allowed is tokens:hashes=COLUMN, or none"
        raise QuestionError(problem, "cache")
    if cache == "node":
        return requests.prompt
    if cache == "none" or requests.blocks is None:
        tally.notes.append("no prefix cache: prompts count in full (cache none)")
        return requests.prompt
    known: dict[str, set[str]] = {}
    cached = np.zeros(len(model), np.int64)
    for at, (name, text) in enumerate(zip(model, requests.blocks, strict=True)):
        seen, blocks = known.setdefault(name, set()), text.replace(",", " ").split()
        # A prefix ends with the first block that nobody had.
        cached[at] = next((place for place, block in enumerate(blocks) if block not in seen), len(blocks))
        seen.update(blocks)
    # The last token of a prompt is always worked off: the first token of the answer comes of it.
    uncached = np.maximum(requests.prompt - cached * requests.block_tokens, 1)
    share = 1 - float(uncached.sum()) / float(requests.prompt.sum())
    empty = sum(not text.strip() for text in requests.blocks)
    tally.notes.append(
        f"ideal prefix cache: {share:.1%} of the prompt tokens are of blocks that an earlier request of the "
        "window had; a bound, not a forecast: nodes forget, and hit only what was routed to them; "
        f"{empty:,} requests without hashes"
    )
    return np.asarray(uncached, np.int64)


def _numbered(requests: TokenRequests, model: Texts, release_us: Ints, tally: Tally) -> tuple[tuple[int, ...], ...]:
    """Return the full blocks of each prompt, hashes as small numbers; say how many recur, and within what time."""
    number: dict[str, int] = {}
    found: list[tuple[int, ...]] = []
    place: dict[tuple[str | int, int], int] = {}  # of a block by what comes before it, first the model
    last_us: list[int] = []
    after_us: list[int] = []
    size, texts = requests.block_tokens, requests.blocks if requests.blocks is not None else ()
    for name, text, prompt, now in zip(model, texts, requests.prompt.tolist(), release_us.tolist(), strict=True):
        words = text.replace(",", " ").split()[: prompt // size]
        found.append(tuple(number.setdefault(word, len(number)) for word in words))
        before: str | int = name
        for block in found[-1]:
            before = place.setdefault((before, block), len(place))
            if before == len(last_us):
                last_us.append(now)
            else:
                after_us.append(now - last_us[before])
                last_us[before] = now
    total = sum(map(len, found))
    recurs = f"{len(after_us):,} of {total:,} full blocks of {size} tokens are of a prefix that came before"
    if after_us:
        middle, most = (np.quantile(after_us, share, method="inverted_cdf") / 1e6 for share in (0.5, 0.9))
        recurs += f", half of them within {middle:.4g} s of the last time, 90 % within {most:.4g} s"
    tally.notes.append(f"each node keeps prefixes (cache node): {recurs}")
    return tuple(found)
