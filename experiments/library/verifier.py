"""A stranger's check of plans and certificates: Python and numpy, and no line of the project.

    python verifier.py INSTANCE FILE...

Written from two pages alone: README.md beside it (instances, rules of a plan, the hash, what is printed) and
docs/certificate.md (lower bounds; its words and letters are used here). No number in a file is believed: what a plan costs
and what a certificate proves is computed anew, in whole numbers and fractions, and only then compared with the claim.
"""

import hashlib
import json
import math
import re
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, namedtuple
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

LARGEST_FILE = 1 << 27  # bytes, once unpacked
TOP, FOREVER = 1 << 200, 1 << 300  # the largest number of the pages, and an instant behind all of them
TIMED = {"mean_latency", "weighted_latency", "makespan", "weighted_tardiness"}  # here in us, in files in seconds
LATENCIES, MAXIMA = {"mean_latency", "weighted_latency", "mean_slowdown"}, {"makespan", "max_slowdown"}
Gpu = namedtuple("Gpu", "name server kind memory slots speed overhead spans")
Task = namedtuple("Task", "table models share memory batch before")  # one without a class is a class of size 1 alone
Job = namedtuple(
    "Job", "flow release weight deadline w d"
)  # pays w per us after d (late_jobs: once; maxima: the largest)
Way = namedtuple("Way", "c fewest most r")  # to run for r us on class c of GPUs, in a batch of fewest to most
Piece = namedtuple(
    "Piece", "j job t task ways start end run head tail"
)  # a task of a job with its earliest start and end
Run = namedtuple("Run", "task gpu start end")
Stay = namedtuple("Stay", "model slot start ready end initial")  # a residency


class Refused(Exception):
    """A file is not what it must be, or claims what does not follow; the text says why."""


MALFORMED = (Refused, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, MemoryError)
UNREADABLE = (*MALFORMED, OSError, zlib.error)


def demand(holds: bool, reason: str) -> None:
    """Refuse for this reason unless it holds."""
    if not holds:
        raise Refused(reason)


def whole(value: Any, least: int = 0, most: int = TOP) -> int:
    """Return the value, a whole number in its range; neither true nor 1.0 is one."""
    demand(type(value) is int and least <= value <= most, f"{str(value)[:40]} is no whole number in its range")
    return int(value)


def listed(value: Any, length: int | None = None) -> list[Any]:
    """Return the value, a list (of this length)."""
    demand(type(value) is list and length in (None, len(value)), f"{str(value)[:40]} is no list of its length")
    return list(value)


def read(path: str) -> Any:
    """Return what a plain file holds: JSON of bounded size, no key twice, ``"12 us"`` (B, B/s) as a whole number."""

    def once(pairs: Any) -> Any:
        demand(len(dict(pairs)) == len(pairs), "a key stands twice")
        return dict(pairs)

    demand(Path(path).is_file(), "there is no such plain file")
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if path.endswith(".gz"):
        content = zlib.decompressobj(31).decompress(content, LARGEST_FILE + 1)
    demand(len(content) <= LARGEST_FILE, f"more than {LARGEST_FILE} bytes")
    text = re.sub('"([0-9]+) (us|B|B/s)"(?![ \n]*:)', r"\1", content.decode())
    decimal = lambda digits: Fraction(repr(float(digits)))  # noqa: E731
    return json.loads(text, parse_float=decimal, parse_constant=Fraction, object_pairs_hook=once)


class Window:
    """An instance in numbers. Its hash is made of these numbers, so an instance that is misread has another hash."""

    def __init__(self, scenario: Any) -> None:
        network, options, rows = (
            scenario["cluster"]["network"],
            scenario.get("options", {}),
            scenario["workload"]["jobs"],
        )
        self.objective, self.gpus = scenario["objective"], list(self._gpus(scenario["cluster"]["groups"]))
        self.links = [
            (whole(link["latency"]), whole(link["bandwidth"], 1)) for link in (network, network["within_server"])
        ]
        self.models = {name: whole(model["weights"]) for name, model in scenario.get("models", {}).items()}
        self.batches = {name: self._task(body) for name, body in scenario.get("batches", {}).items()}
        self.initial = {(row["gpu"], row["model"], row.get("slot")) for row in options.get("initial_residency", [])}
        self.overlap, self.staged = options.get("overlap_loads", True) is True, network["staged"] is True
        paths: dict[Any, int] = {}  # each path that jobs take is a workflow by itself
        numbers = [paths.setdefault((row["workflow"], row.get("path")), len(paths)) for row in rows]
        self.flows = [dict(self._tasks(scenario["workflows"][name], path)) for name, path in paths]
        befores = [{name: [p for p, _ in task.before] for name, task in flow.items()} for flow in self.flows]
        self.order = [list(TopologicalSorter(before).static_order()) for before in befores]
        self.named = list(dict.fromkeys(task.batch for flow in self.flows for task in flow.values() if task.batch))
        self.jobs = list(self._jobs(rows, numbers))
        self.uses = Counter(task.batch for job in self.jobs for task in self.flows[job.flow].values())
        classes = defaultdict(list)
        for gpu in self.gpus:
            classes[str(gpu[2:])].append(gpu)
        self.classes = list(classes.values())
        self.hash = self._hash([name for name, _ in paths])

    def _gpus(self, groups: Any) -> Iterator[Gpu]:
        server = 0
        for group in groups:
            gpu, there = (
                group["gpu"],
                [(a, FOREVER if b == "end" else b) for a, b in group.get("available", [(0, "end")])],
            )
            demand(all(a < b for a, b in pairwise(sum(there, ()))), "intervals do not ascend")
            slots, speed, overhead = (
                gpu.get("slots", []),
                whole(gpu["load_bandwidth"], 1),
                whole(gpu.get("load_overhead", 0)),
            )
            memory = whole(sum(slots) if slots else gpu["memory"])
            for server in range(server, server + whole(group["count"], 1, 10_000)):  # noqa: B020
                for i in range(whole(group["gpus_per_server"], 1, 10_000)):
                    yield Gpu(f"s{server}/g{i}", server, gpu["kind"], memory, slots, speed, overhead, there)
            server += 1

    def _task(self, body: Any) -> Task:
        times = body["runtime"] if isinstance(body["runtime"], dict) else {"*": body["runtime"]}
        sizes = {kind: p if isinstance(p, dict) else {"1": p} for kind, p in times.items()}
        table = {kind: sorted((int(b), whole(p, 1)) for b, p in by_size.items()) for kind, by_size in sizes.items()}
        rises = all(row[0][0] == 1 and all(p <= q for (_, p), (_, q) in pairwise(row)) for row in table.values())
        share = Fraction(body.get("share", 1)) * 10_000
        demand(rises and share.denominator == 1 and 0 < share <= 10_000, "a table that falls, or no share")
        return Task(table, body.get("models", []), int(share), whole(body.get("memory", 0)), None, [])

    def _tasks(self, flow: Any, path: int | None) -> Iterator[tuple[str, Task]]:
        branches = [branch["tasks"] for branch in flow.get("branches", [])]
        demand(path is None if not branches else whole(path) < len(branches), "a job names no branch")
        away = {name for place, names in enumerate(branches) if place != path for name in names}
        for name, body in ((name, body) for name, body in flow["tasks"].items() if name not in away):
            before = [(p, whole(size)) for p, size in body.get("after", {}).items() if p not in away]
            task = self.batches[body["batch"]] if "batch" in body else self._task(body)
            yield name, task._replace(batch=body.get("batch"), before=before)

    def _jobs(self, rows: Any, numbers: list[int]) -> Iterator[Job]:
        n, total = len(rows), sum(Fraction(row.get("weight", 1)) for row in rows) or 1
        fastest = [
            {t: min(row[0][1] for row in task.table.values()) for t, task in flow.items()} for flow in self.flows
        ]
        ideals = [max(self.longest(f, p)[t] + p[t] for t in p) for f, p in enumerate(fastest)]
        demand(all(a["release"] <= b["release"] for a, b in pairwise(rows)), "jobs are not in the order of releases")
        for row, f in zip(rows, numbers, strict=True):
            r, weight, deadline = whole(row["release"]), Fraction(row.get("weight", 1)), row.get("deadline")
            due, counts = r + whole(deadline or 0), int(deadline is not None)  # nothing is ever late without a deadline
            pays = {"mean_latency": (Fraction(1, n), r), "mean_slowdown": (Fraction(1, n * ideals[f]), r)}
            pays |= {"weighted_latency": (weight / total, r), "weighted_tardiness": (weight * counts, due)}
            pays |= {"late_jobs": (counts, due), "makespan": (1, 0), "max_slowdown": (Fraction(1, ideals[f]), r)}
            demand(weight >= 0, "a weight is negative")
            yield Job(f, r, weight, deadline, *pays[self.objective])

    def _hash(self, names: list[str]) -> str:
        def row(name: str, task: Task) -> list[Any]:
            kinds = {kind: table[0][1] for kind, table in task.table.items()}
            special = {"batch": task.batch} if task.batch else {"share": task.share, "memory": task.memory}
            return [name, kinds, task.models, task.before] + [special] * (special != {"share": 10_000, "memory": 0})

        places = [gpu.name for gpu in self.gpus].index, list(self.models).index
        spans = [[(a, None if b == FOREVER else b) for a, b in gpu.spans] for gpu in self.gpus]
        weights = [int(job.weight) if job.weight.denominator == 1 else str(job.weight) for job in self.jobs]
        form = {
            "gpus": [[*gpu[:7]] + [s] * (s != [(0, None)]) for gpu, s in zip(self.gpus, spans, strict=True)],
            "network": [*self.links, self.staged],
            "models": list(self.models.items()),
            "workflows": [[n, [row(*t) for t in flow.items()]] for n, flow in zip(names, self.flows, strict=True)],
            "jobs": [[job.flow, job.release, w, job.deadline, None] for job, w in zip(self.jobs, weights, strict=True)],
            "options": {
                "overlap_loads": self.overlap,
                "initial": sorted([places[0](g), places[1](m), s] for g, m, s in self.initial),
            },
            "restrictions": {"model_gpus": {}, "workflow_gpus": {}, "max_replicas": {}, "no_swaps": False},
        }
        if self.named:
            form["batches"] = [[name, *self.batches[name][:4]] for name in self.named]
        return hashlib.sha256(json.dumps(form, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def longest(self, f: int, lengths: dict[str, int], behind: bool = False) -> dict[str, int]:
        """Return the longest chain of lengths before (behind) each task of a workflow, without itself."""
        chains = dict.fromkeys(self.flows[f], 0)
        for t in reversed(self.order[f]) if behind else self.order[f]:
            for p, _ in self.flows[f][t].before:
                near, far = (t, p) if behind else (p, t)
                chains[far] = max(chains[far], chains[near] + lengths[near])
        return chains

    def load(self, model: str, gpu: Gpu) -> int:
        """Return the microseconds that a load takes."""
        return -(-self.models[model] * 10**6 // gpu.speed) + gpu.overhead

    def transfer(self, size: int, a: Gpu, b: Gpu, within: bool) -> int:
        """Return the microseconds that bytes take from one GPU to another, within a server or not."""
        (latency, speed), staged = self.links[within], [a.speed, b.speed] * self.staged
        return latency + math.ceil(sum(Fraction(size * 10**6, each) for each in (speed, *staged)))

    def cost(self, job: Job, end: int) -> Fraction:
        """Return what a job pays if it completes then."""
        return job.w * ((end > job.d) if self.objective == "late_jobs" else max(0, end - job.d))

    def worth(self, ends: dict[int, int]) -> Fraction:
        """Return the objective if the jobs complete then, in the unit of the computation."""
        costs = [self.cost(self.jobs[j], end) for j, end in ends.items()]
        return Fraction(max(costs) if self.objective in MAXIMA else sum(costs))

    def there(self, classes: Iterable[int], begin: int, end: int) -> int:
        """Return the GPU-microseconds of classes between two instants."""
        gpus = [gpu for c in classes for gpu in self.classes[c]]
        return sum(max(0, min(end, b) - max(begin, a)) for gpu in gpus for a, b in gpu.spans)

    def sizes(self, task: Task, c: int) -> list[Way]:
        """Return a task's ways on a class; sizes of a batch that run equally long are one."""
        gpu, ways = self.classes[c][0], list[Way]()
        weights, slots = (sorted(sizes, reverse=True) for sizes in ([self.models[m] for m in task.models], gpu.slots))
        fit = not slots or (not task.memory and len(weights) <= len(slots) and all(map(int.__le__, weights, slots)))
        room, most = gpu.memory - sum(weights), self.uses[task.batch] if fit else 0
        most = min(most, room // task.memory) if task.memory else most * (room >= 0)
        for size, r in task.table.get(gpu.kind, task.table.get("*", [])):
            fewest = ways[-1].most + 1 if ways else 1
            if fewest <= min(size, most):
                first = ways.pop().fewest if ways and ways[-1].r == r else fewest
                ways.append(Way(c, first, min(size, most), r))
        return ways

    @cached_property
    def pieces(self) -> list[Piece]:
        """Return every task of every job, with the earliest start and end that any plan gives it."""
        ways = [
            {t: [w for c in range(len(self.classes)) for w in self.sizes(task, c)] for t, task in f.items()}
            for f in self.flows
        ]
        runs = [{t: min((w.r for w in ways if w.fewest == 1), default=0) for t, ways in flow.items()} for flow in ways]
        heads, tails = ([self.longest(f, r, behind) for f, r in enumerate(runs)] for behind in (False, True))
        initial, result = {place[:2] for place in self.initial}, []
        for j, job in enumerate(self.jobs):
            f, ends = job.flow, dict[str, dict[int, int]]()
            for t in self.order[f]:
                task, begin = self.flows[f][t], {}
                for c in {way.c for way in ways[f][t]}:
                    cold = [
                        sum(self.load(m, g) for m in task.models if (g.name, m) not in initial) for g in self.classes[c]
                    ]
                    inputs = [min(end + self.hop(size, a, c) for a, end in ends[p].items()) for p, size in task.before]
                    begin[c] = max(job.release, min(cold), *inputs)
                ends[t] = {c: begin[c] + min(way.r for way in ways[f][t] if way.c == c) for c in begin}
                first, last = min(begin.values()), min(ends[t].values())
                result.append(Piece(j, job, t, task, ways[f][t], first, last, runs[f][t], heads[f][t], tails[f][t]))
        return result

    def hop(self, size: int, a: int, b: int) -> int:
        """Return the least that bytes take from a GPU of one class to one of another."""
        one, two = ({gpu.server for gpu in self.classes[c]} for c in (a, b))
        links = [True] * bool(one & two) + [False] * (len(one | two) > 1)
        return 0 if a == b else min(self.transfer(size, self.classes[a][0], self.classes[b][0], link) for link in links)


def fits(what: str, spans: Iterable[tuple[int, int, int]], room: int) -> None:
    """Demand that amounts held over half-open spans add up to no more than the room at every instant."""
    changes = sorted(change for a, b, x in spans if a < b for change in ((a, x), (b, -x)))  # ends come first
    demand(max(accumulate(x for _, x in changes), default=0) <= room, f"{what}: more than {room} at once")


def value_of(window: Window, plan: Any) -> Fraction:
    """Check the rules of a plan, by their numbers in README.md, and return its value in the unit of the computation."""
    gpus, runs, ends = {gpu.name: gpu for gpu in window.gpus}, dict[tuple[int, str], Run](), Counter[int]()
    batches, stays = defaultdict[str, Any](lambda: defaultdict(list)), defaultdict[str, list[Stay]](list)
    for row in listed(plan["tasks"]):  # 1
        j, t, gpu = whole(row["job"], 0, len(window.jobs) - 1), row["task"], gpus[row["gpu"]]
        demand((j, t) not in runs, f"task {t} of job {j} runs twice")
        start, end = whole(row["start_us"], window.jobs[j].release), whole(row["end_us"])
        run = runs[j, t] = Run(window.flows[window.jobs[j].flow][t], gpu, start, end)
        batches[gpu.name][start, run.task.batch or (j, t)].append(run)
        ends[j] = max(ends[j], end)
    demand(len(runs) == sum(len(window.flows[job.flow]) for job in window.jobs), "a task is missing")
    for (j, t), run in runs.items():  # 2
        for p, size in run.task.before:
            a, b = runs[j, p].gpu, run.gpu
            hop = 0 if a is b else window.transfer(size, a, b, a.server == b.server)
            demand(run.start >= runs[j, p].end + hop, f"task {t} of job {j} starts before the output of {p} is there")
    for row in listed(plan["residencies"]):
        stays[row["gpu"]].append(stay_of(window, gpus[row["gpu"]], row))
    for gpu in window.gpus:
        check_gpu(window, gpu, list(batches[gpu.name].values()), stays[gpu.name])
    return window.worth(ends)


def stay_of(window: Window, gpu: Gpu, row: Any) -> Stay:
    """Read a residency and check rule 9, and of rules 5, 8 and 10 what concerns it alone."""
    model, slot, initial = row["model"], row.get("slot"), row.get("initial", False)
    start, ready = whole(row["load_start_us"]), whole(row["ready_us"])
    end = next((b for a, b in gpu.spans if a <= start < b), 0) if row["end_us"] is None else whole(row["end_us"])
    what = f"the residency of {model} on {gpu.name} from {start}"
    if initial is True:
        demand(start == ready == 0 and (gpu.name, model, slot) in window.initial, f"{what} is not there initially")
    else:
        demand(initial is False and ready - start == window.load(model, gpu), f"{what} loads in another time")
    fine = gpu.slots[whole(slot, 0, len(gpu.slots) - 1)] >= window.models[model] if gpu.slots else slot is None
    demand(fine and ready <= end, f"{what} ends too soon, or has no slot that is large enough")
    return Stay(model, slot, start, ready, end, initial)


def check_gpu(window: Window, gpu: Gpu, batches: list[list[Run]], stays: list[Stay]) -> None:
    """Check rules 3 to 8 and 10 on one GPU."""
    name, runs = gpu.name, [run for batch in batches for run in batch]
    for batch in batches:  # 3
        table = batch[0].task.table.get(gpu.kind, batch[0].task.table.get("*", []))
        r = next((r for size, r in table if size >= len(batch)), None)
        demand(
            all(run.end - run.start == r for run in batch), f"a run on {name} from {batch[0].start} takes not {r} us"
        )
    loads = [(stay.start, stay.ready, 10_000) for stay in stays if not stay.initial]
    fits(f"loads on {name}", loads, 10_000)  # 5
    shares = [(batch[0].start, batch[0].end, batch[0].task.share) for batch in batches]
    fits(f"shares of {name}", shares if window.overlap else shares + loads, 10_000)  # 4
    weights = [(stay.start, stay.end, window.models[stay.model]) for stay in stays]
    fits(f"memory of {name}", weights + [(run.start, run.end, run.task.memory) for run in runs], gpu.memory)  # 8
    alone, ready = defaultdict(list), defaultdict(list)
    for stay in sorted(stays, key=lambda stay: (stay.ready, stay.end)):
        ready[stay.model].append((stay.ready, stay.end))
        for one in (f"model {stay.model}", f"slot {stay.slot}")[: 1 + bool(gpu.slots)]:
            alone[one].append((stay.start, stay.end, 1))
    for one, spans in alone.items():
        fits(f"{one} on {name}", spans, 1)  # 7 and 8
    for run in runs:
        demand(not (gpu.slots and run.task.memory), f"{name} has slots, and no memory for runs")
        for model in run.task.models:  # 6: of disjoint residencies, the last that is ready ends last
            i = bisect_right(ready[model], (run.start, FOREVER + 1)) - 1
            demand(i >= 0 and ready[model][i][1] >= run.end, f"{model} is not on {name} from {run.start} to {run.end}")
    for at in [*runs, *stays]:  # 10
        demand(any(a <= at.start and at.end <= b for a, b in gpu.spans), f"{name} goes away after {at.start}")


def critical_path(window: Window, *_: Any) -> Fraction:
    """Return the objective if every job completed at the largest of its earliest ends."""
    ends = Counter[int]()
    for x in window.pieces:
        ends[x.j] = max(ends[x.j], x.end)
    return window.worth(ends)


def machine(pieces: Any, first: Callable[[int, Any], Any]) -> Iterator[tuple[int, int, int]]:
    """Run pieces (from, length, job), least first(job, rest) first, preemptively; yield which job runs from when to when."""
    queue, now = list[Any](), 0
    for arrival, length, job in [*sorted(pieces), (math.inf, 0, 0)]:
        while queue and now < arrival:
            _, rest, j = heappop(queue)
            end = min(arrival, now + rest)
            yield j, now, end
            if rest := rest - (end - now):
                heappush(queue, (first(j, rest), rest, j))
            now = end
        now = max(now, arrival)
        heappush(queue, (first(job, length), length, job))


def mean_busy_time(window: Window, *_: Any) -> Fraction:
    """Do all work on one machine as fast as all GPUs, the job of highest w / W first."""
    demand(window.objective in LATENCIES, "mean_busy_time proves latencies alone")
    n, jobs, total, moment = len(window.gpus), window.jobs, Counter[int](), Counter[int]()
    work = [min(Fraction(x.task.share * way.r, 10_000 * way.most) for way in x.ways) for x in window.pieces]
    unit = math.lcm(*((a / n).denominator for a in work))  # of time, so that everything is whole
    for x, a in zip(window.pieces, work, strict=True):
        total[x.j] += a
        moment[x.j] += a * (x.tail + Fraction(x.run, 2))
    order = sorted(total, key=lambda j: -jobs[j].w / total[j])
    rank = {j: i for i, j in enumerate(order)}
    pieces = [(x.start * unit, int(a * unit / n), x.j) for x, a in zip(window.pieces, work, strict=True)]
    for j, begin, end in machine(pieces, lambda j, _: rank[j]):
        moment[j] += n * Fraction(end * end - begin * begin, 2 * unit * unit)  # a M, as the machine runs a in a / n
    value = sum(jobs[j].w / total[j] * moment[j] for j in total)
    if len({job.w for job in jobs}) == 1:  # shortest remaining work first
        pieces = [(job.release * unit, int(total[j] * unit / n), j) for j, job in enumerate(jobs)]
        ends = {j: end for j, _, end in machine(pieces, lambda _, rest: rest)}
        value = max(value, jobs[0].w * Fraction(sum(ends.values()), unit))
    return value - sum(job.w * job.release for job in jobs)


def energetic(window: Window, p: Any, _: Any) -> Fraction:
    """Find until when captive work keeps its GPUs busy, or how many due dates it misses."""
    demand(window.objective not in LATENCIES, "energetic proves no latencies")
    bound, jobs = critical_path(window), window.jobs
    if not p:
        return bound
    chosen, parts = (
        [whole(c, 0, len(window.classes) - 1) for c in listed(p["gpu_classes"])],
        whole(p.get("parts", 1), 1),
    )
    demand(len(set(chosen)) == len(chosen) > 0, "no GPUs, or some twice")
    captive = [x for x in window.pieces if all(way.c in chosen for way in x.ways)]
    work = [min(parts * x.task.share // (10_000 * way.most) * way.r for way in x.ways) for x in captive]
    if window.objective == "late_jobs":
        spans = [(whole(begin), whole(end)) for begin, end in map(listed, listed(p["intervals"]))]
        demand(all(a <= b for a, b in pairwise(sum(spans, ()))), "intervals overlap")
        return bound + missed(
            window, zip(captive, work, strict=True), parts * sum(len(window.classes[c]) for c in chosen), spans
        )
    begin, until, inside = whole(p["from_us"]), whole(p["due_us"], -TOP), []
    for x, a in zip(captive, work, strict=True):
        due, job = jobs[x.j].d, jobs[x.j]
        if window.objective == "max_slowdown":
            above, below = map(whole, listed(p["level"], 2))
            due += math.floor(Fraction(above, below) / job.w)
        counts = job.deadline is not None or window.objective in MAXIMA
        if counts and x.start >= begin and due - x.tail <= until:
            inside.append((a, x))
    need = -(-sum(a for a, _ in inside) // parts)
    low, high = begin, max(begin, *(a for c in chosen for a, _ in window.classes[c][0].spans)) + need
    while low < high:  # the first instant by which the GPUs were there for so long
        middle = (low + high) // 2
        low, high = (low, middle) if window.there(chosen, begin, middle) >= need else (middle + 1, high)
    return max(bound, min((window.cost(jobs[x.j], low + x.tail) for _, x in inside), default=bound))


def missed(window: Window, captive: Any, speed: int, spans: Any) -> int:
    """Count the due dates, not missed anyway, that captive work of this speed must miss, as Moore and Hodgson do."""
    work, ends, late = Counter[int](), Counter[int](), 0
    for x in window.pieces:
        ends[x.j] = max(ends[x.j], x.end)
    for x, a in captive:
        work[x.j] += a
    by_due = sorted((window.jobs[j].d, window.jobs[j].release, j) for j in work if window.jobs[j].w)
    for begin, end in spans:
        taken, busy = list[int](), 0
        for due, release, j in by_due:
            if begin <= release and due <= end and ends[j] <= due:
                heappush(taken, -work[j])
                busy += work[j]
                if busy > speed * (due - begin):
                    busy += heappop(taken)
                    late += 1
    return late


def fluid(window: Window, p: Any, _: Any) -> Fraction:
    """Count the jobs that are late since a span has too little of a resource for all that are due in it."""
    demand(window.objective == "late_jobs", "fluid proves late_jobs alone")
    if not p:
        return Fraction()
    begin, end, jobs = whole(p["begin_us"]), whole(p["end_us"]), window.jobs
    demand(begin < end, "an empty span")
    room = Fraction(window.there(range(len(window.classes)), begin, end))
    if p["resource"] == "compute":
        parts, energy = whole(p.get("parts", 1), 1), Counter({j: 0 for j, job in enumerate(jobs) if job.w})
        for x in (x for x in window.pieces if x.job.w):
            after, before = x.job.release + x.head - begin, end - x.job.d + x.tail
            rates = [(parts * x.task.share // (10_000 * way.most), way.r) for way in x.ways]
            energy[x.j] += min(a * max(0, min(r, end - begin, after + r, before + r)) for a, r in rates)
        rest = accumulate(sorted(energy.values()))
        return Fraction(sum(total > parts * room for total in rest))
    demand(p["resource"] in ("copy engine", "memory") and begin == 0, "no such resource")
    used = defaultdict(set)
    for x in window.pieces:
        if x.job.w and x.job.release >= begin and x.job.d <= end:
            used[x.j].update(x.task.models)
    users, sizes = Counter(model for models in used.values() for model in models), dict[str, Any]()
    there = {model for _, model, _ in window.initial}
    for m in users:
        fitting = [gpus[0] for gpus in window.classes if window.models[m] <= max(gpus[0].slots or [gpus[0].memory])]
        sizes[m] = 0 if m in there else min(window.load(m, gpu) for gpu in fitting)
    if p["resource"] == "memory":
        sizes = {m: window.models[m] for m in users}
        speed = Fraction(max(gpu.speed for gpu in window.gpus) * (end - begin), 10**6)
        room = len(window.gpus) * (max(gpu.memory for gpu in window.gpus) + speed)
    late, excess = Fraction(), sum(sizes.values()) - room
    for m in sorted(users, key=lambda m: Fraction(sizes[m], users[m]), reverse=True):
        if excess > 0:
            late += users[m] * min(Fraction(1), excess / sizes[m])
            excess -= sizes[m]
    return Fraction(math.ceil(late / max(map(len, used.values()), default=1)))


class Lagrangian:
    """A window, and prices of its capacity per slot of s us."""

    def __init__(self, window: Window, p: Any, prices: Any) -> None:
        demand(window.objective not in MAXIMA, "prices prove sums alone")
        n, names, self.window = len(window.classes), list(window.models), window
        self.s, self.scale = whole(p["slot_us"], 1, 1 << 62), whole(p["scale"], 1)
        self.slots = len(listed(listed(prices["compute"], n)[0]))
        demand((self.slots + 2) * self.s <= 1 << 62, "slots reach too far")
        self.compute, self.copy = self._table(prices["compute"], n), self._table(prices["copy"], n)
        self.rows, self.use, self.place = list[Any](), dict[Any, Any](), dict[Any, int]()
        for row, price in zip(
            listed(p["memory_rows"]), self._table(prices["memory"], len(p["memory_rows"])), strict=True
        ):
            parts = dict(zip(names, map(whole, listed(row["parts"], len(names))), strict=True))
            self.rows.append((whole(row["gpu_class"], 0, n - 1), parts, whole(row["capacity"]), price))
            self._sound(*self.rows[-1][:3])
        for row, price in zip(
            listed(p["model_uses"]), self._table(prices["model_uses"], len(p["model_uses"])), strict=True
        ):
            m, c = names[whole(row["model"], 0, len(names) - 1)], whole(row["gpu_class"], 0, n - 1)
            gpu = window.classes[c][0]
            demand(
                (m, c) not in self.use and window.models[m] <= max(gpu.slots or [gpu.memory]),
                "a model use twice, or of none",
            )
            self.use[m, c] = price
        for i, row in enumerate(listed(p.get("places", []))):
            batch = window.named[whole(row["batch"], 0, len(window.named) - 1)]
            key = batch, whole(row["gpu_class"], 0, n - 1), whole(row["fewest"], 1)
            demand(self.place.setdefault(key, i) == i, "a row of places twice")
        self.counted = [j for j, job in enumerate(window.jobs) if job.w]
        self.delays = [whole(delays, 1, self.slots) for delays in listed(p["delays"], len(self.counted))]
        self.falls = [[whole(x) for x in listed(row)] for row in listed(prices["precedences"], len(self.counted))]
        self.parts = listed(prices["places"], len(self.counted)) if self.place else [[]] * len(self.counted)
        flows = listed(p["priced_precedences"], len(window.flows))
        self.trees = [self._tree(list(flow.items()), pairs) for flow, pairs in zip(window.flows, flows, strict=True)]
        self.pieces, self.sold, self.costs = (
            defaultdict[int, dict[str, Piece]](dict),
            defaultdict[Any, list[Any]](list),
            dict[Any, Any](),
        )
        for x in window.pieces:
            self.pieces[x.j][x.t] = x
        self.starts = {b: sorted(x.start for x in window.pieces if x.task.batch == b) for b in window.named}
        self._choose_numbers()

    def _table(self, rows: Any, count: int) -> list[Any]:
        return [np.array([whole(x) for x in listed(row, self.slots)], dtype=object) for row in listed(rows, count)]

    def _sound(self, c: int, parts: dict[str, int], capacity: int) -> None:
        gpu, weights = self.window.classes[c][0], self.window.models
        if gpu.slots:
            least = min((weights[m] for m in parts if parts[m]), default=math.inf)
            fine = set(parts.values()) <= {0, 1} and capacity >= sum(size >= least for size in gpu.slots)
        else:
            fine = all(parts[m] * gpu.memory <= capacity * weights[m] for m in parts)
        demand(fine, "a memory row is not sound")

    def _tree(self, flow: Any, pairs: Any) -> Any:
        """Return the nodes from the root on, with the arc to the parent of each, and the priced arcs."""
        n, at = len(flow), {t: u for u, (t, _) in enumerate(flow)}
        arcs = {(at[p], at[t]) for t, task in flow for p, _ in task.before}
        sinks = set(range(n)) - {u for u, _ in arcs}
        root = n if len(sinks) > 1 else min(sinks)
        arcs |= {(u, n) for u in sinks if u != root}
        priced = [tuple(whole(u, 0, n) for u in listed(pair, 2)) for pair in listed(pairs)]
        rest = arcs - set(priced)
        demand(len(set(priced)) == len(priced) == len(arcs) - len(rest) and len(rest) == max(root, n - 1), "not a tree")
        nodes, parent = [root], dict[int, tuple[int, int]]()
        for u in nodes:
            for arc in sorted(arc for arc in rest if u in arc and arc != parent.get(u)):
                v = arc[arc[0] == u]
                demand(v != root and v not in parent, "not a tree")
                parent[v] = arc
                nodes.append(v)
        return nodes, parent, priced

    def _choose_numbers(self) -> None:
        """Choose 64-bit numbers if nothing that a job's programme holds can leave them, else whole numbers of any size."""
        window, s = self.window, self.s
        self.weight = [math.floor(window.jobs[j].w * self.scale) for j in self.counted]
        most = s * (
            sum(map(np.sum, [*self.compute, *self.use.values()])) + sum(row[2] * np.sum(row[3]) for row in self.rows)
        )
        nodes, fall = 1 + max(map(len, window.flows)), max(map(sum, self.falls), default=0)
        largest = nodes * (2 * most + fall) + max(self.weight, default=0) * (self.slots + 2 + nodes) * s
        self.never = 4 * largest + 1  # beyond every cost, and still after any fall is subtracted from it
        self.dtype = np.int64 if 4 * self.never < 1 << 63 else object

    def value(self) -> Fraction:
        """Return what the prices prove."""
        there = [
            np.array([self.window.there([c], e * self.s, (e + 1) * self.s) for e in range(self.slots)], object)
            for c in range(len(self.compute))
        ]
        capacity = sum(np.dot(a + b, us) for a, b, us in zip(self.compute, self.copy, there, strict=True))
        capacity += sum(size * np.dot(price, there[c]) for c, _, size, price in self.rows)
        jobs = sum(self._job(i) for i in range(len(self.counted)))
        models = sum(self._copies(m, c) for m, c in self.use)
        self._sold_once()
        return Fraction(jobs + models - capacity, self.scale)

    def _copies(self, m: str, c: int) -> int:
        gpus, zero = self.window.classes[c], np.zeros(self.slots, dtype=object)
        hold = sum((parts[m] * price for row, parts, _, price in self.rows if row == c), zero)
        loading = hold + self.copy[c] + (zero if self.window.overlap else self.compute[c])
        on, load = (hold - self.use[m, c]).tolist(), self.window.load(m, gpus[0])
        warm = sum((gpu.name, m) in {place[:2] for place in self.window.initial} for gpu in gpus)
        paths = [self._path(first, load, loading, on) for first in (0, math.inf)]
        return warm * paths[0] + (len(gpus) - warm) * paths[1]

    def _path(self, first: Any, load: int, loading: Any, on: list[int]) -> int:
        """Return the cheapest path of a copy through the edges of the slots; it is on at edge 0 at the first cost."""
        s, before, rate = self.s, [0, *(np.cumsum(loading) * self.s).tolist()], [*loading.tolist(), 0]
        off, held, later = [0], first, dict[int, Any]()

        def paid(y: int) -> int:
            return before[y // s] + rate[y // s] * (y % s)

        for e in range(self.slots + 1):
            if e:
                held = min(held + on[e - 1] * s, later.get(e, math.inf))
                off.append(min(off[-1], held))
            if e * s >= load:
                held = min(held, off[(e * s - load) // s] + paid(e * s) - paid(e * s - load))
                off[e] = min(off[e], held)
            ready = e * s + load
            if ready < self.slots * s:
                r = ready // s
                cost = off[e] + paid(ready) - paid(e * s) + on[r] * ((r + 1) * s - ready)
                later[r + 1] = min(later.get(r + 1, math.inf), cost)
        return int(off[-1])

    def _job(self, i: int) -> int:
        """Return the least that a job pays: a programme from the leaves to the root."""
        j, delays, s, never = self.counted[i], self.delays[i], self.s, self.never
        job, pieces = self.window.jobs[j], [self.pieces[j][t] for t in self.window.flows[self.window.jobs[j].flow]]
        nodes, parent, priced = self.trees[job.flow]
        starts = [x.start for x in pieces] + [max(x.end for x in pieces)]
        longest = max(way.r for x in pieces for way in x.ways)
        demand(
            (max(starts[u] for u in nodes) + delays * s + longest) // s + 2 <= self.slots, "a job's window is too long"
        )
        demand(len(self.falls[i]) == len(priced) * delays, "falls of another shape")
        parts = self._parts(self.parts[i], len(pieces), delays)
        k = np.arange(delays)

        def later(u: int, r: int, v: int) -> Any:
            return np.clip(k + max(-delays, min(delays, (starts[u] + r - starts[v]) // s)), 0, delays - 1)

        arms = {
            u: [(way.r, self._running(x, way, i, parts.get((u, self._place(x, way))), u == nodes[0])) for way in x.ways]
            for u, x in enumerate(pieces)
        }
        arms[len(pieces)] = [(0, np.zeros(delays, self.dtype))]
        for r, cost in arms[nodes[0]]:
            end = starts[nodes[0]] + s * k + r
            late = np.maximum(0, end - min(job.d, 1 << 62)).astype(self.dtype)
            cost += self.scale * (late > 0) if self.window.objective == "late_jobs" else self.weight[i] * late
        for place, (u, v) in enumerate(priced):
            falls = np.array(self.falls[i][place * delays : (place + 1) * delays - 1][::-1], self.dtype)
            fence = np.append(np.cumsum(falls)[::-1], np.zeros(1, self.dtype))
            for _, cost in arms[v]:
                cost += fence
            for r, cost in arms[u]:
                cost -= fence[later(u, r, v)]
        for v in reversed(nodes[1:]):
            a, b = parent[v]
            u = a + b - v
            if v == a:  # the child comes before its parent
                allowed = np.full(delays, never, self.dtype)
                for r, cost in arms[v]:
                    last = np.searchsorted(later(v, r, u), k, "right") - 1
                    least = np.minimum.accumulate(cost)[last]
                    allowed = np.minimum(allowed, np.where(last < 0, never, least))
                arms[u] = [(r, np.minimum(cost + allowed, never)) for r, cost in arms[u]]
            else:
                behind = np.minimum.accumulate(np.minimum.reduce([cost for _, cost in arms[v]])[::-1])[::-1]
                arms[u] = [(r, np.minimum(cost + behind[later(u, r, v)], never)) for r, cost in arms[u]]
        return int(min(cost.min() for _, cost in arms[nodes[0]]))

    def _place(self, x: Piece, way: Way) -> int | None:
        return self.place.get((x.task.batch, way.c, way.fewest))

    def _parts(self, entries: Any, n: int, delays: int) -> dict[tuple[int, int], Any]:
        table = dict[tuple[int, int], Any]()
        for entry in listed(entries):
            u, row, first, parts = listed(entry, 4)
            here = table.setdefault(
                (whole(u, 0, n - 1), whole(row, 0, len(self.place) - 1)), np.zeros(delays - 1, np.int64)
            )
            span = slice(whole(first), first + len(listed(parts)))
            demand(span.stop < delays and not here[span].any(), "parts twice, or beyond the delays")
            here[span] = [whole(part, 0, 65_536) for part in parts]
        return table

    def _running(self, x: Piece, way: Way, i: int, parts: Any, last: bool) -> Any:
        """Return what running costs by delay: the least over four starts, for a price is linear in between."""
        s, k, r, delays, job = self.s, np.arange(self.delays[i] - 1), way.r, self.delays[i], x.job
        row = self._place(x, way)
        shared, own = self._prices(x, way, row)
        wait = np.zeros(delays - 1, self.dtype)
        if last and self.window.objective != "late_jobs":
            wait += self.weight[i] * (x.start + k * s + r >= min(job.d, 1 << 62))

        def least(before: Any, rate: Any, part: Any, wait: Any) -> Any:
            def paid(y: int) -> Any:
                at = slice(y // s, y // s + delays - 1)
                return before[at] + rate[at] * (y % s)

            costs = []
            for o in {0, s - 1, -x.start % s, -(x.start + r) % s}:
                cost = paid(x.start + o + r) - paid(x.start + o)
                costs.append((cost if part is None else cost // 65_536 * part) + wait * o)
            return np.minimum.reduce(costs)

        if row is None:
            cost = least(*shared, None, wait)
        else:
            if way.most == 1:
                parts = 65_536
            elif parts is None:
                parts = 0
            else:
                touched = np.maximum(np.append(parts, 0), np.append(0, parts)) if x.start % s else parts
                slots = np.flatnonzero(touched)
                self.sold[row, way.most].append((slots + x.start // s, touched[slots]))
            cost = least(*shared, parts, wait) + least(*own, None, 0)
        if way.fewest > 1:
            cost[: max(0, (self.starts[x.task.batch][way.fewest - 1] - x.start) // s)] = self.never
        return np.append(cost, np.zeros(1, self.dtype))

    def _prices(self, x: Piece, way: Way, row: int | None) -> Any:
        """Return what a task pays for sharing and for its own memory per us, as sums before each slot and rates in it."""
        key = x.job.flow, x.t, way
        if key not in self.costs:
            c, gpu, zero = way.c, self.window.classes[way.c][0], np.zeros(self.slots, dtype=object)
            rate = sum((self.use[m, c] for m in x.task.models if (m, c) in self.use), self.compute[c])
            taken = [
                (x.task.memory * size // gpu.memory) * price
                for d, _, size, price in self.rows
                if d == c and not gpu.slots
            ]
            own, members = sum(taken, zero), zero + 1
            if x.task.batch and row is None:
                ends = range(self.s, (self.slots + 1) * self.s, self.s)
                members = np.array([bisect_left(self.starts[x.task.batch], end, 1, way.most) for end in ends], object)
            shared = rate * x.task.share // (10_000 * members)
            rates = [shared + own] if row is None else [shared, own]
            sums = [np.append(np.zeros(1, object), np.cumsum(rate * self.s)).astype(self.dtype) for rate in rates]
            self.costs[key] = [
                (before, np.append(rate, zero[:1]).astype(self.dtype)) for before, rate in zip(sums, rates, strict=True)
            ]
        return [*self.costs[key], None][:2]

    def _sold_once(self) -> None:
        for (_, most), entries in self.sold.items():
            slot, part = (np.concatenate(column) for column in zip(*entries, strict=True))
            order = np.lexsort((-part, slot))
            slot, part = slot[order], part[order]
            dear = np.arange(len(slot)) - np.searchsorted(slot, slot) < most
            total = np.zeros(self.slots + 1, np.int64)
            np.add.at(total, slot[dear], part[dear])
            demand(total.max() <= 65_536, "a place in a batch is sold twice")


METHODS = {
    "critical_path": critical_path,
    "mean_busy_time": mean_busy_time,
    "energetic": energetic,
    "fluid": fluid,
    "lagrangian": lambda window, p, prices: Lagrangian(window, p, prices).value(),
    "stream_prices": lambda *_: None,  # of requests, which no instance of the library has
}


def proved(window: Window, certificate: Any) -> float | None:
    """Return the bound that a certificate proves, in the unit of files and rounded down; none if its method is beyond this."""
    for key in ("parameters", "prices", "versions"):
        demand(type(certificate[key]) is dict, f"{key} is no object")
    value = METHODS[certificate["method"]](window, certificate["parameters"], certificate["prices"])
    if value is None:
        return None
    steps = {"late_jobs": 1, "makespan": 1, "mean_latency": len(window.jobs)}.get(window.objective)
    value = Fraction(math.ceil(value * steps), steps) if steps else value
    value /= 10**6 if window.objective in TIMED else 1
    return float(value) if Fraction(float(value)) <= value else math.nextafter(float(value), -math.inf)


def judge(window: Window, file: Any) -> dict[str, Any]:
    """Return what a plan or a certificate is worth, and whether it is what it claims."""
    plan = "tasks" in file
    result = {"sort": "plan" if plan else "certificate", "holds": False, "objective": window.objective}
    result |= {"value" if plan else "lower_bound": None, "reason": None}
    try:
        objective = file["objective"]["name"] if plan else file["objective"]
        demand(whole(file["schema_version"]) == 1 and file["scenario_hash"] == window.hash, "it is of another window")
        demand(
            objective == window.objective and file.get("realised", False) is False,
            "it is of another objective, or happened",
        )
        claim = file["objective"]["value"] if plan else file["lower_bound"]
        demand(type(claim) in (int, Fraction), "the claim is no number")
        if plan:
            value = value_of(window, file) / (10**6 if window.objective in TIMED else 1)
            result["value"] = float(value)
            demand(float(claim) == float(value), f"it is worth {float(value)}")
        else:
            result["lower_bound"] = bound = proved(window, file)
            demand(bound is None or float(claim) <= bound, f"only {bound} is proved")
        result["holds"] = None if not plan and result["lower_bound"] is None else True
    except MALFORMED as error:
        result["reason"] = f"{error}" if isinstance(error, Refused) else f"it has another form: {error!r}"[:200]
    return result


def main(instance: str, *paths: str) -> int:
    """Print a line of JSON per file and return the exit code."""
    code, window = 0, None
    for path in (instance, *paths):
        try:
            content = read(path)
            if window is None:
                window = Window(content)
                continue
            demand("tasks" in content or "method" in content, "it is neither a plan nor a certificate")
            found = judge(window, content)
        except UNREADABLE as error:
            found = {"sort": None, "holds": False, "objective": None, "reason": f"{error!r}"[:200]}
        print(json.dumps({"file": path, **found}))
        code = max(code, 2 if found["sort"] is None else int(found["holds"] is False))
        if window is None:
            break
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
