"""A stranger's check of plans and certificates: Python and numpy, and no line of the project.

    python verifier.py INSTANCE FILE...

Written from README.md beside it (instances, rules of a plan, the hash) and docs/certificate.md (bounds; its letters are
used here). No number in a file is believed: all is computed anew, in whole numbers and fractions, and then compared.
"""

import hashlib
import json
import math
import re
import sys
import zlib
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict, namedtuple
from contextlib import suppress
from fractions import Fraction
from functools import cache, cached_property
from graphlib import TopologicalSorter
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

LARGEST, TOP, LATEST = 1 << 26, 1 << 200, 1 << 62  # bytes of a file, once unpacked; number and instant of the pages
FOREVER, NEVER = 1 << 300, 1 << 900  # an instant behind all others, and a cost above all others
TIMED = ("mean_latency", "weighted_latency", "makespan", "weighted_tardiness")  # here in us, in files in seconds
MAXIMA = ("makespan", "max_slowdown")
BEYOND = ("start_orders", "refutation", "stream_prices", "mean_busy_time", "fluid")
UNFIT = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, MemoryError, OSError)
Gpu = namedtuple("Gpu", "name server kind memory slots speed overhead spans")
Task = namedtuple("Task", "table models share memory batch before row")  # table: (size, us) by kind; row: as hashed
Job = namedtuple("Job", "flow release weight deadline w d")  # pays w per us after d, or once (late_jobs)
Way = namedtuple("Way", "batch c fewest most r")  # to run for r us on GPUs of class c, as a batch of fewest to most
Piece = namedtuple("Piece", "job task ways start end tail")  # a task of a job, its earliest start and earliest end
Run = namedtuple("Run", "task gpu start end")


def demand(holds: bool, reason: str) -> None:
    """Refuse a file that is not what it must be, or claims what does not follow."""
    if not holds:
        raise ValueError(reason)


def listed(value: Any, length: int | None = None) -> Any:
    """Return a list (of this length)."""
    demand(type(value) is list and length in (None, len(value)), f"{str(value)[:40]} is no list of its length")
    return value


def whole(value: Any, least: int = 0, most: int = TOP) -> int:
    """Return a whole number in its range; neither true nor 1.0 is one."""
    demand(type(value) is int and least <= value <= most, f"{str(value)[:40]} is no whole number in its range")
    return int(value)


def wholes(values: Any, length: int | None = None, most: int = TOP) -> Any:
    """Return a list (of this length) of whole numbers as an array; any may have hundreds of bits."""
    return np.array([whole(value, 0, most) for value in listed(values, length)], dtype=object)


def read(path: str) -> Any:
    """Return what a plain file of bounded size holds: JSON, in which ``"12 us"`` (B, B/s) is a whole number."""

    def once(pairs: Any) -> Any:
        demand(len(dict(pairs)) == len(pairs), "a key stands twice")
        return dict(pairs)

    demand(Path(path).is_file(), "there is no such plain file")
    with open(path, "rb") as file:
        content = file.read(LARGEST + 1)
    content = zlib.decompressobj(31).decompress(content, LARGEST + 1) if path.endswith(".gz") else content
    demand(len(content) <= LARGEST, f"more than {LARGEST} bytes")
    text = re.sub('"([0-9]+) (?:us|B|B/s)"(?![ \n]*:)', r"\1", content.decode())
    decimal = lambda digits: Fraction(repr(float(digits)))  # noqa: E731
    return json.loads(text, object_pairs_hook=once, parse_float=decimal, parse_constant=Fraction)


class Window:
    """An instance in numbers. Its hash is made of these numbers, so an instance that is misread has another hash."""

    def __init__(self, scenario: Any) -> None:
        cluster, options, rows = scenario["cluster"], scenario.get("options", {}), scenario["workload"]["jobs"]
        links, groups = (cluster["network"], cluster["network"]["within_server"]), cluster["groups"]
        self.links = [(whole(link["latency"]), whole(link["bandwidth"], 1)) for link in links]
        self.scenario, self.objective, self.staged = scenario, scenario["objective"], links[0]["staged"] is True
        self.models = {name: whole(model["weights"]) for name, model in scenario.get("models", {}).items()}
        self.overlap = options.get("overlap_loads", True) is True
        self.initial = [(row["gpu"], row["model"], row.get("slot")) for row in options.get("initial_residency", [])]
        servers = [group for group in groups for _ in range(whole(group["count"], 1, 10_000))]
        self.gpus = [gpu for server, group in enumerate(servers) for gpu in self._gpus(server, group)]
        kinds = dict.fromkeys(gpu[2:] for gpu in self.gpus)
        self.classes = [[gpu for gpu in self.gpus if gpu[2:] == kind] for kind in kinds]
        paths = list(dict.fromkeys((row["workflow"], row.get("path")) for row in rows))  # each a workflow by itself
        self.flows = [dict(self._tasks(*path)) for path in paths]
        before = [{t: dict(task.before) for t, task in flow.items()} for flow in self.flows]
        self.order = [list(TopologicalSorter(each).static_order()) for each in before]
        self.named = {task.batch: task[:4] for flow in self.flows for task in flow.values() if task.batch}
        self.jobs = list(self._jobs(rows, paths))
        self.uses = Counter(task.batch for job in self.jobs for task in self.flows[job.flow].values())
        self.hash, self.cold, self.hop = self._hash(paths), cache(self._cold), cache(self._hop)

    def _gpus(self, server: int, group: Any) -> Any:
        """Yield the GPUs of a server."""
        gpu, slots = group["gpu"], tuple(group["gpu"].get("slots", []))
        spans = tuple((whole(a), FOREVER if b == "end" else whole(b)) for a, b in group.get("available", [(0, "end")]))
        demand(all(a < b for a, b in pairwise(chain(*spans))), "intervals do not ascend")
        copy = whole(gpu["load_bandwidth"], 1), whole(gpu.get("load_overhead", 0))
        for i in range(whole(group["gpus_per_server"], 1, 10_000)):
            yield Gpu(f"s{server}/g{i}", server, gpu["kind"], sum(slots) or gpu["memory"], slots, *copy, spans)

    def _tasks(self, name: str, path: Any) -> Any:
        """Yield the tasks that jobs run on a path through a workflow: those of its branch, and those of none."""
        flow = self.scenario["workflows"][name]
        branches = [branch["tasks"] for branch in flow.get("branches", [])]
        demand(bool(branches) or path is None, "a job names no branch")
        away = set(chain(*branches)) - set(branches[whole(path)] if branches else [])
        for t, body in ((t, body) for t, body in flow["tasks"].items() if t not in away):
            batch = body.get("batch")
            what = self.scenario["batches"][batch] if batch else body
            times = what["runtime"] if isinstance(what["runtime"], dict) else {"*": what["runtime"]}
            sizes = {kind: r if isinstance(r, dict) else {"1": r} for kind, r in times.items()}
            table = {kind: sorted((int(b), whole(r, 1)) for b, r in rs.items()) for kind, rs in sizes.items()}
            rise = all(rs[0][0] == 1 and all(p <= q for (_, p), (_, q) in pairwise(rs)) for rs in table.values())
            share, memory = Fraction(what.get("share", 1)) * 10_000, whole(what.get("memory", 0))
            demand(rise and share.denominator == 1 and 0 < share <= 10_000, "a table that falls, or no share")
            before = [(p, whole(size)) for p, size in body.get("after", {}).items() if p not in away]
            row = [t, {kind: rs[0][1] for kind, rs in table.items()}, what.get("models", []), before]
            more = {"batch": batch} if batch else {"share": int(share), "memory": memory}
            row += [more] * (more != {"share": 10_000, "memory": 0})
            yield t, Task(table, row[2], int(share), memory, batch, before, row)

    def _jobs(self, rows: Any, paths: Any) -> Any:
        """Yield the jobs; what each pays, and from when on, is as the objective says."""
        demand(all(a["release"] <= b["release"] for a, b in pairwise(rows)), "jobs are not in the order of releases")
        n, total = len(rows), sum(Fraction(row.get("weight", 1)) for row in rows) or 1
        alone = [{t: min(task.row[1].values()) for t, task in flow.items()} for flow in self.flows]
        ideals = [max(self.tails(f, p)[t] + p[t] for t in p) for f, p in enumerate(alone)]
        for row in rows:
            f, r, deadline = paths.index((row["workflow"], row.get("path"))), whole(row["release"]), row.get("deadline")
            due, weight, counts = r + whole(deadline or 0), Fraction(row.get("weight", 1)), int(deadline is not None)
            pays: Any = {"mean_latency": (Fraction(1, n), r), "mean_slowdown": (Fraction(1, n * ideals[f]), r)}
            pays |= {"weighted_latency": (weight / total, r), "weighted_tardiness": (weight * counts, due)}
            pays |= {
                "late_jobs": (weight * counts, due),
                "makespan": (1, 0),
                "max_slowdown": (Fraction(1, ideals[f]), r),
            }
            demand(weight >= 0, "a weight is negative")
            yield Job(f, r, weight, deadline, *pays[self.objective])

    def _hash(self, paths: Any) -> str:
        """Return the hash of README.md."""
        gpu, model = [gpu.name for gpu in self.gpus].index, list(self.models).index
        spans = [[(a, None if b == FOREVER else b) for a, b in gpu.spans] for gpu in self.gpus]
        flows = zip(paths, self.flows, strict=True)
        initial = sorted([gpu(g), model(m), slot] for g, m, slot in self.initial)
        form: Any = {
            "gpus": [(*g[:7], *[s] * (s != [(0, None)])) for g, s in zip(self.gpus, spans, strict=True)],
            "network": [*self.links, self.staged],
            "models": list(self.models.items()),
            "workflows": [(name, [task.row for task in flow.values()]) for (name, _), flow in flows],
            "jobs": [(*job[:4], None) for job in self.jobs],
            "options": {"overlap_loads": self.overlap, "initial": initial},
            "restrictions": {"model_gpus": {}, "workflow_gpus": {}, "max_replicas": {}, "no_swaps": False},
        } | ({"batches": [(name, *row) for name, row in self.named.items()]} if self.named else {})
        number = lambda weight: int(weight) if weight.denominator == 1 else str(weight)  # noqa: E731
        text = json.dumps(form, sort_keys=True, separators=(",", ":"), default=number)
        return hashlib.sha256(text.encode()).hexdigest()

    def tails(self, f: int, lengths: dict[str, int]) -> dict[str, int]:
        """Return the longest chain of lengths behind each task of a workflow, without itself."""
        tail = dict.fromkeys(self.flows[f], 0)
        for t in reversed(self.order[f]):
            for p, _ in self.flows[f][t].before:
                tail[p] = max(tail[p], tail[t] + lengths[t])
        return tail

    def load(self, model: str, gpu: Gpu) -> Any:
        """Return the microseconds that a load takes."""
        return -(-self.models[model] * 10**6 // gpu.speed) + gpu.overhead

    def _cold(self, models: tuple[str, ...], c: int) -> Any:
        """Return the least microseconds of loads before these models are on a GPU of a class."""
        there = [place[:2] for place in self.initial]
        return min(sum(self.load(m, gpu) for m in models if (gpu.name, m) not in there) for gpu in self.classes[c])

    def transfer(self, size: int, a: Gpu, b: Gpu) -> int:
        """Return the microseconds that bytes take from one GPU to another."""
        (latency, speed), staged = self.links[a.server == b.server], [a.speed, b.speed] * self.staged
        return 0 if a is b else latency + math.ceil(sum(Fraction(size * 10**6, each) for each in (speed, *staged)))

    def _hop(self, size: int, a: int, b: int) -> int:
        """Return the least microseconds that bytes take from a GPU of one class to one of another."""
        pairs = {x.server == y.server: (x, y) for x in self.classes[a] for y in self.classes[b]}
        return 0 if a == b else min(self.transfer(size, *pair) for pair in pairs.values())

    def worth(self, ends: list[int]) -> Fraction:
        """Return the objective if the jobs complete then, in the unit of the computation."""
        late = [max(0, end - job.d) for job, end in zip(self.jobs, ends, strict=True)]
        late = [min(x, 1) for x in late] if self.objective == "late_jobs" else late
        pays = [job.w * x for job, x in zip(self.jobs, late, strict=True)]
        return Fraction(max(pays) if self.objective in MAXIMA else sum(pays))

    def there(self, classes: Any, begin: Any, end: Any) -> Any:
        """Return the GPU-microseconds of classes between instants."""
        begin, end = (np.array(at, dtype=object) for at in (begin, end))
        spans = [span for c in classes for gpu in self.classes[c] for span in gpu.spans]
        return sum(np.maximum(0, np.minimum(end, b) - np.maximum(begin, a)) for a, b in spans)

    def ways(self, task: Task) -> Any:
        """Yield a task's ways to run, by class of GPUs; sizes of a batch that run equally long are one."""
        weights = sorted((self.models[m] for m in task.models), reverse=True)
        for c, (gpu, *_) in enumerate(self.classes):
            slots, room, last = sorted(gpu.slots, reverse=True), gpu.memory - sum(weights), 0
            fit = len(weights) <= len(slots) and not task.memory and all(map(int.__le__, weights, slots))
            most = self.uses[task.batch] if (fit if slots else room >= 0) else 0
            most = min(most, room // task.memory) if task.memory else most
            for r, sizes in groupby(task.table.get(gpu.kind, task.table.get("*", [])), key=lambda row: row[1]):
                first, last = last + 1, min(most, max(b for b, _ in sizes))
                if first <= last:
                    yield Way(task.batch, c, first, last, r)

    @cached_property
    def pieces(self) -> list[list[Piece]]:
        """Return the tasks of every job with the earliest starts and ends that any plan gives them."""
        ways = [{t: list(self.ways(task)) for t, task in flow.items()} for flow in self.flows]
        runs = [{t: {way.c: way.r for way in row if way.fewest == 1} for t, row in rows.items()} for rows in ways]
        tails = [self.tails(f, {t: min(r.values(), default=0) for t, r in rows.items()}) for f, rows in enumerate(runs)]
        result = []
        for job in self.jobs:
            f, found, ends = job.flow, dict[str, Piece](), dict[str, dict[int, int]]()
            for t in self.order[f]:
                task, begins = self.flows[f][t], dict[int, int]()
                for c in runs[f][t]:
                    inputs = (min(end + self.hop(size, a, c) for a, end in ends[p].items()) for p, size in task.before)
                    begins[c] = max(job.release, self.cold(tuple(task.models), c), *inputs)
                ends[t] = {c: begin + runs[f][t][c] for c, begin in begins.items()}
                first, last = min(begins.values()), min(ends[t].values())
                found[t] = Piece(job, task, ways[f][t], first, last, tails[f][t])
            result.append([found[t] for t in self.flows[f]])
        return result


class Plan:
    """What a plan does, held against the rules of README.md, whose numbers stand here."""

    def __init__(self, window: Window, plan: Any) -> None:
        self.window, self.gpus, self.runs = window, {gpu.name: gpu for gpu in window.gpus}, dict[Any, Run]()
        self.held, self.stays = (defaultdict[Any, list[Any]](list) for _ in range(2))
        for row in listed(plan["tasks"]):  # 1
            j, t, gpu = whole(row["job"], 0, len(window.jobs) - 1), row["task"], self.gpus[row["gpu"]]
            start, end = whole(row["start_us"], window.jobs[j].release), whole(row["end_us"])
            demand((j, t) not in self.runs, f"task {t} of job {j} runs twice")
            self.runs[j, t] = Run(window.flows[window.jobs[j].flow][t], gpu, start, end)
        demand(len(self.runs) == sum(len(window.flows[job.flow]) for job in window.jobs), "a task is missing")
        for row in listed(plan["residencies"]):
            self._stay(row)

    def hold(self, gpu: Gpu, start: int, end: int, room: int, **amounts: int) -> None:
        """Take amounts of what a GPU has so much of, while it is there."""
        demand(any(a <= start and end <= b for a, b in gpu.spans), f"{gpu.name} goes away after {start}")  # 10
        for what, amount in amounts.items():
            self.held[f"{what} on {gpu.name}", room].append((start, end, amount))

    def _stay(self, row: Any) -> None:
        """Check a residency."""
        gpu, m, slot, initial = self.gpus[row["gpu"]], row["model"], row.get("slot"), row.get("initial", False)
        start, ready, end = whole(row["load_start_us"]), whole(row["ready_us"]), row.get("end_us")
        size, end = self.window.models[m], FOREVER if end is None else whole(end, ready)
        there = initial is False or (initial is True and start == 0 and (gpu.name, m, slot) in self.window.initial)
        demand(there, f"{m} is not there initially on {gpu.name}")  # 9
        took = 0 if initial else self.window.load(m, gpu)
        demand(ready - start == took, f"{m} takes {took} us to load on {gpu.name}")  # 5
        fits = gpu.slots[whole(slot, 0, len(gpu.slots) - 1)] >= size if gpu.slots else slot is None
        demand(fits, f"{m} has no slot on {gpu.name} that is large enough")  # 8
        self.hold(gpu, start, ready, 1, loads=1)  # 5; an initial one takes no time
        self.hold(gpu, start, end, gpu.memory, memory=size)  # 8
        self.hold(gpu, start, end, 1, **{f"model {m}": 1}, **({f"slot {slot}": 1} if gpu.slots else {}))  # 7 and 8
        self.hold(gpu, start, ready, 10_000, shares=0 if self.window.overlap else 10_000)
        insort(self.stays[gpu.name, m], (ready, end))

    def value(self) -> Fraction:
        """Return what the plan is worth."""
        batches, ends = defaultdict[Any, list[Run]](list), [0] * len(self.window.jobs)
        for (j, t), run in self.runs.items():
            batches[run.gpu.name, run.start, run.task.batch or (j, t)].append(run)
            ends[j] = max(ends[j], run.end)
            for p, size in run.task.before:  # 2
                there = self.runs[j, p].end + self.window.transfer(size, self.runs[j, p].gpu, run.gpu)
                demand(run.start >= there, f"task {t} of job {j} starts before the output of {p} is there")
            for m in run.task.models:  # 6; residencies of a model are disjoint, so the last that is ready ends last
                i = bisect_right(self.stays[run.gpu.name, m], (run.start, FOREVER + 1)) - 1
                there = i >= 0 and self.stays[run.gpu.name, m][i][1] >= run.end
                demand(there, f"{m} is not on {run.gpu.name} from {run.start} to {run.end}")
        for (task, gpu, start, end), *others in batches.values():
            table, size = task.table.get(gpu.kind, task.table.get("*", [])), 1 + len(others)
            r = next((r for b, r in table if b >= size), None)
            fits = end - start == r and all(run.end == end for run in others) and not (gpu.slots and task.memory)
            demand(fits, f"a run on {gpu.name} from {start} takes not {r} us")  # 3
            self.hold(gpu, start, end, 10_000, shares=task.share)  # 4
            self.hold(gpu, start, end, gpu.memory, memory=size * task.memory)  # 8
        for (what, room), spans in self.held.items():
            changes = sorted(change for a, b, x in spans if a < b for change in ((a, x), (b, -x)))  # ends come first
            demand(max(accumulate(x for _, x in changes), default=0) <= room, f"{what}: more than {room} at once")
        return self.window.worth(ends)


def critical_path(window: Window, *_: Any) -> Any:
    """Return the objective if every job completed at the largest of its earliest ends."""
    return window.worth([max(x.end for x in pieces) for pieces in window.pieces]), True


def energetic(window: Window, p: Any, _: Any) -> Any:
    """Captive work keeps its GPUs busy until some instant, and behind it lie tails; of makespans alone, here."""
    bound, _ = critical_path(window)
    if not p or window.objective != "makespan":
        return bound, not p
    parts, begin = whole(p.get("parts", 1), 1, LATEST), whole(p["from_us"], 0, LATEST)
    due = whole(p["due_us"], -LATEST, LATEST)
    chosen = set(wholes(p["gpu_classes"], most=len(window.classes) - 1))
    captive = [x for x in chain(*window.pieces) if {way.c for way in x.ways} <= chosen]
    inside = [x for x in captive if x.start >= begin and -x.tail <= due]
    work = sum(min(parts * x.task.share // (10_000 * w.most) * w.r for w in x.ways) for x in inside)
    reach = range(begin, max(begin, *(window.classes[c][0].spans[-1][0] for c in chosen)) + work // parts + 2)
    end = begin + bisect_left(reach, -(-work // parts), key=lambda end: window.there(chosen, begin, end))
    return max(bound, min((Fraction(end + x.tail) for x in inside), default=bound)), True


class Prices:
    """Prices of capacity per slot of s us, in 1/scale of the objective; whole numbers of any size."""

    def __init__(self, window: Window, p: Any, prices: Any) -> None:
        self.window, self.s, self.scale = window, whole(p["slot_us"], 1), whole(p["scale"], 1)
        self.pieces, self.slots = [xs for xs in window.pieces if xs[0].job.w], len(prices["compute"][0])
        demand(bool(self.pieces) and window.objective not in MAXIMA, "prices prove sums alone, and of nothing nothing")
        demand((self.slots + 2) * self.s <= LATEST, "slots reach too far")
        self.edges = self.s * np.arange(self.slots + 1)
        jobs, classes, models, batches = len(self.pieces), window.classes, list(window.models), list(window.named)
        sizes = {"compute": len(classes), "copy": len(classes), "memory": None, "model_uses": None}
        tables = ([wholes(row, self.slots) for row in listed(prices[key], size)] for key, size in sizes.items())
        self.compute, self.copy, memory, uses = tables
        self.rows, self.use = [list[Any]() for _ in classes], dict[Any, Any]()
        for row, price in zip(listed(p["memory_rows"]), memory, strict=True):
            c, size = whole(row["gpu_class"]), whole(row["capacity"], 0, 1 << 40)
            parts = wholes(row["parts"], len(models), 1 << 40)
            demand(self._sound(classes[c][0], parts, size), "a memory row is not sound")
            self.rows[c].append((dict(zip(models, parts, strict=True)), size, price))
        for row, price in zip(listed(p["model_uses"]), uses, strict=True):
            m, c = models[whole(row["model"])], whole(row["gpu_class"])
            can = window.models[m] <= max(classes[c][0].slots or [classes[c][0].memory])
            demand((m, c) not in self.use and can, f"a second use of {m}, or one where it may never be")
            self.use[m, c] = price
        rows = [[whole(row[key]) for key in ("batch", "gpu_class", "fewest")] for row in listed(p.get("places", []))]
        self.places = [(batches[b], *key) for b, *key in rows]
        ways = {way[:3] for x in chain(*window.pieces) for way in x.ways}
        demand(set(self.places) <= ways and len(set(self.places)) == len(rows), "no such places")
        self.parts = listed(prices["places"], jobs) if "places" in p else [[]] * jobs
        self.delays, self.falls = wholes(p["delays"], jobs, self.slots).tolist(), listed(prices["precedences"], jobs)
        flows = zip(window.flows, listed(p["priced_precedences"]), strict=True)
        self.trees = [self._tree(flow, listed(pairs)) for flow, pairs in flows]
        starts = sorted((x.start, x.task.batch) for xs in window.pieces for x in xs if x.task.batch)
        self.starts = {b: [start for start, batch in starts if batch == b] for b in batches}
        self.sold, self.paid = defaultdict[Any, list[int]](list), cache(self._paid)
        size = sum(self.delays) + self.slots * (len(uses) + sum(map(len, window.flows)))
        demand(min(self.delays) > 0 and size <= 1 << 27, "no delays, or more slots and delays than can be computed")

    def _sound(self, gpu: Gpu, parts: Any, size: int) -> bool:
        weights = [(weight, part) for weight, part in zip(self.window.models.values(), parts, strict=True) if part]
        least = min(weights, default=(TOP, 0))[0]
        slotted = max(parts, default=0) <= 1 and size >= sum(slot >= least for slot in gpu.slots)
        return slotted if gpu.slots else all(part * gpu.memory <= size * weight for weight, part in weights)

    def _tree(self, flow: Any, pairs: Any) -> Any:
        """Return the nodes from the root on, with the arc from or to the parent of each, and the priced arcs."""
        at, priced = {t: u for u, t in enumerate(flow)}, [(whole(u), whole(v)) for u, v in pairs]
        arcs = {(at[p], at[t]) for t, task in flow.items() for p, _ in task.before}
        sinks = set(at.values()) - {u for u, _ in arcs}
        arcs |= {(u, len(at)) for u in sinks if len(sinks) > 1}
        rest, tree = arcs - set(priced), {len(at) if len(sinks) > 1 else min(sinks): (0, 0)}
        for u, v in list(rest) * len(rest):
            if (u in tree) != (v in tree):
                tree[v if u in tree else u] = u, v
        spans = len(tree) == len(rest) + 1 == len(at) + (len(sinks) > 1) and len(rest) + len(priced) == len(arcs)
        demand(spans, "the precedences that are not priced make no tree")
        return list(tree.items()), priced

    def value(self) -> Fraction:
        """Return what is proved: what jobs and models pay at least, less the price of all capacity."""
        value = sum(map(self.job, range(len(self.pieces)))) + sum(self.copies(m, c) for m, c in self.use)
        for c, rows in enumerate(self.rows):
            price = self.compute[c] + self.copy[c] + sum(size * price for _, size, price in rows)
            value -= np.dot(price, self.window.there([c], self.edges[:-1], self.edges[1:]))
        for (_, most, _), parts in self.sold.items():
            demand(sum(sorted(parts)[-most:]) <= 65_536, "a place in a batch is sold twice")
        return Fraction(value, self.scale)

    def integral(self, rate: Any) -> Any:
        """Return the function that gives the integrals of a rate from 0 to instants."""
        before, rate = np.append([0], np.cumsum(rate * self.s)), np.append(rate, [0])
        return lambda y: before[y // self.s] + rate[y // self.s] * (y % self.s)

    def copies(self, m: str, c: int) -> Any:
        """Return the least that copies of a model on a class pay: cheapest paths through the edges of the slots."""
        s, gpus = self.s, self.window.classes[c]
        load = min(self.window.load(m, gpus[0]), s * (self.slots + 1))
        hold = sum((parts[m] * price for parts, _, price in self.rows[c]), 0 * self.copy[c])
        paid = self.integral(hold + self.copy[c] + (0 if self.window.overlap else self.compute[c]))
        on, a = np.append([0], hold - self.use[m, c]), -(-load // s)  # what the slot before an edge costs
        last, first = self.edges[a:], self.edges[: max(0, len(self.edges) - a)]  # off until the first, on from the last
        early = paid(first + load) - paid(first) + (a * s - load) * on[a:]
        loads, paths = np.minimum(early, paid(last) - paid(last - load)).tolist(), []
        warm = sum((gpu.name, m) in {place[:2] for place in self.window.initial} for gpu in gpus)
        for held, copies in ((0, warm), (NEVER, len(gpus) - warm)):
            off = [0]
            for e, price in enumerate(on.tolist() if copies else []):
                held += price * s
                off.append(min(off[-1], held))
                if e >= a:
                    held = min(held, off[e - a + 1] + loads[e - a])
                    off[-1] = min(off[-1], held)
            paths.append(copies * off[-1])
        return sum(paths)

    def job(self, i: int) -> Any:
        """Return the least that a job pays: a programme from the leaves of its tree to the root."""
        d, s, pieces, k = self.delays[i], self.s, self.pieces[i], np.arange(self.delays[i])
        job, (((root, _), *tree), priced) = pieces[0].job, self.trees[pieces[0].job.flow]
        starts = [*(x.start for x in pieces), max(x.end for x in pieces)]
        runs = [*(np.array([[way.r] for way in x.ways]) for x in pieces), np.array([[0]])]
        reach = max(starts[: max(root + 1, len(pieces))]) + d * s + max(way.r for x in pieces for way in x.ways)
        demand(reach // s + 2 <= self.slots, f"the window of a job is too long: {reach} us")
        falls = wholes(self.falls[i], len(priced) * d).reshape(-1, d)
        falls[:, -1] = 0
        fences = np.cumsum(falls[:, ::-1], axis=1)[:, ::-1]
        parts, weight = self._parts(i), math.floor(job.w * self.scale)
        costs = [np.array([self._running(i, u, way, parts, u == root) for way in x.ways]) for u, x in enumerate(pieces)]
        costs.append(np.zeros((1, d), dtype=object))
        late = np.maximum(0, (starts[root] + runs[root] + s * k).astype(object) - job.d)
        costs[root] += weight * (np.minimum(late, 1) if self.window.objective == "late_jobs" else late)
        later: Any = lambda u, v: np.clip(k + (starts[u] + runs[u] - starts[v]) // s, 0, d - 1)  # noqa: E731
        for (u, v), fence in zip(priced, fences, strict=True):
            costs[v] += fence
            costs[u] -= fence[later(u, v)]
        for node, (u, v) in reversed(tree):
            if node == v:  # starts behind its parent, so at the least that its delays from some on pay
                costs[u] += np.minimum.accumulate(costs[v].min(axis=0)[::-1])[::-1][later(u, v)]
            else:
                least = np.full(d, NEVER, dtype=object)
                np.minimum.at(least, later(u, v), costs[u])
                costs[v] += np.minimum.accumulate(least)
        return costs[root].min()

    def _parts(self, i: int) -> Any:
        """Return, per task of a job and row of places, which part of a batch it pays by delay; note what is sold."""
        n, s, pieces = self.delays[i] - 1, self.s, self.pieces[i]
        parts = defaultdict[Any, Any](lambda: np.zeros(n, dtype=object))
        for u, row, first, part in listed(self.parts[i]):
            key, end = self.places[whole(row)], whole(first) + len(listed(part))
            fits = end <= n and key in [way[:3] for way in pieces[whole(u)].ways]
            demand(fits, "a task pays for another batch, or beyond its delays")
            parts[u, key][first:end] = wholes(part, most=65_536)
        for (u, key), part in parts.items():
            start, most = pieces[u].start, next(way.most for way in pieces[u].ways if way[:3] == key)
            touched = np.maximum(np.append(part, 0), np.append(0, part)) if start % s else part
            for slot in np.flatnonzero(touched).tolist():
                self.sold[key, most, start // s + slot].append(touched[slot])
        return parts

    def _running(self, i: int, u: int, way: Way, parts: Any, root: bool) -> Any:
        """Return what running costs by delay: the least over four starts, between which prices are linear."""
        x, s, late = self.pieces[i][u], self.s, np.zeros(self.delays[i] - 1, dtype=object)
        begin, placed = x.start + s * np.arange(len(late)), way[:3] in self.places
        unit, part = (65_536, parts[u, way[:3]] if way.most > 1 else 65_536) if placed else (1, 1)
        if root and self.window.objective != "late_jobs":
            late += math.floor(x.job.w * self.scale) * (begin + way.r >= x.job.d).astype(object)
        shared, own = self.paid(x.job.flow, u, way, placed)
        waits = {0, s - 1, -x.start % s, -(x.start + way.r) % s}
        costs = [(shared(begin + o + way.r) - shared(begin + o)) // unit * part + late * o for o in waits]
        cost = np.min(costs, axis=0) + np.min([own(begin + o + way.r) - own(begin + o) for o in waits], axis=0)
        if way.fewest > 1:  # no batch of so many before the last of its members can be there
            cost[: max(0, (self.starts[way.batch][way.fewest - 1] - x.start) // s)] = NEVER
        return np.append(cost, [0])

    def _paid(self, f: int, u: int, way: Way, placed: bool) -> Any:
        """Return the sums of what a task pays for what a batch shares (without places: for all), and for its own."""
        task, memory = list(self.window.flows[f].values())[u], self.window.classes[way.c][0].memory
        rate = sum((self.use[m, way.c] for m in task.models if (m, way.c) in self.use), self.compute[way.c])
        own = sum((task.memory * size // memory * price for _, size, price in self.rows[way.c]), 0 * rate)
        before = [] if placed else self.starts.get(way.batch, [])[1 : way.most]
        shared = rate * task.share // (10_000 * (1 + np.searchsorted(before, self.edges[1:]).astype(object)))
        return [self.integral(each) for each in ((shared, own) if placed else (shared + own, 0 * rate))]


def add_parts(window: Window, p: Any, _: Any) -> Any:
    """Add up what is proved of parts, each some consecutive jobs, in the unit of the whole."""
    rows, value, sure = window.scenario["workload"]["jobs"], Fraction(), True
    demand(window.objective not in MAXIMA and not window.named, "parts prove sums without batches")
    firsts = [whole(part["first_job"], 0, len(rows) - 1) for part in listed(p["parts"])] + [len(rows)]
    demand(firsts[0] == 0 and all(a < b for a, b in pairwise(firsts)), "parts are not in order, or leave jobs out")
    for part, (a, b) in zip(p["parts"], pairwise(firsts), strict=True):
        small = Window({**window.scenario, "workload": {"jobs": rows[a:b]}, "part": True})
        found, known = proved(small, part)
        share = next((x.w / y.w for x, y in zip(window.jobs[a:b], small.jobs, strict=True) if y.w), 1)
        value, sure = value + share * found, sure and known
    return value, sure


def proved(window: Window, proof: Any) -> Any:
    """Return what is proved, raised to what whole completion times can give, and whether all of it could be checked."""
    p, method = proof["parameters"], proof["method"]
    demand(type(p) is dict and (method != "parts" or "part" not in window.scenario), "no parameters, or parts of parts")
    value, sure = METHODS[method](window, p, proof.get("prices"))
    with suppress(*UNFIT):  # what stands beside what is not known may prove nothing
        value = value if sure or method == "parts" else proved(window, proof["otherwise"])[0]
    weights = [job.w for job in window.jobs if job.w]
    unit = Fraction(math.gcd(*(w.numerator for w in weights)), math.lcm(*(w.denominator for w in weights)))
    step = {"late_jobs": unit, "makespan": Fraction(1), "mean_latency": Fraction(1, len(window.jobs))}.get(
        window.objective
    )
    return math.ceil(value / step) * step if step else value, sure


METHODS: dict[str, Any] = dict.fromkeys(BEYOND, lambda *_: (Fraction(), False))  # nothing of these is believed
METHODS |= {"critical_path": critical_path, "energetic": energetic, "parts": add_parts}
METHODS["lagrangian"] = lambda *asked: (Prices(*asked).value(), True)


def judge(window: Window, path: str) -> dict[str, Any]:
    """Return what a file is, whether it is what it claims (None: it could not all be checked), and its worth."""
    found: dict[str, Any] = {"file": path, "sort": None, "holds": False, "objective": None}
    try:
        file = read(path)
        plan = "tasks" in file
        demand(plan or "method" in file, "it is neither a plan nor a certificate")
        sort, number = ("plan", "value") if plan else ("certificate", "lower_bound")
        found |= {"sort": sort, "objective": window.objective, number: None, "reason": None}
        name, claim = (file["objective"][x] for x in ("name", number)) if plan else (file["objective"], file[number])
        demand(whole(file["schema_version"]) == 1 and file["scenario_hash"] == window.hash, "it is of another window")
        demand(name == window.objective, f"it is for {name}")
        demand(type(claim) in (int, Fraction), "the claim is no number")
        demand(not plan or file.get("realised", False) is False, "it is what happened, and no plan")
        value, sure = (Plan(window, file).value(), True) if plan else proved(window, file)
        value /= 10**6 if window.objective in TIMED else 1
        worth, claim = float(value), claim if type(claim) is int else Fraction(float(claim))
        worth = math.nextafter(worth, -math.inf) if Fraction(worth) > value and not plan else worth
        holds = 10**9 * abs(claim - value) <= value if plan else claim <= worth
        found |= {number: worth, "holds": True if holds else False if sure else None}
        found["reason"] = f"it is {worth} that it is worth" if found["holds"] is False else None
    except (*UNFIT, zlib.error) as error:
        found["reason"] = f"{error!r}"[:200]
    return found


def main(instance: str, *paths: str) -> int:
    """Print a line of JSON per file and return the exit code."""
    found = []
    try:
        window = Window(read(instance))
    except (*UNFIT, zlib.error) as error:
        found = [{"file": instance, "sort": None, "holds": False, "objective": None, "reason": f"{error!r}"[:200]}]
    codes = [0]
    for each in found or (judge(window, path) for path in paths):
        print(json.dumps(each))
        codes.append(2 if each["sort"] is None else int(each["holds"] is False))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else __doc__)
