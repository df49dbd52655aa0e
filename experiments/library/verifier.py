"""A stranger's check of plans and certificates: Python and numpy, and no line of the project.

    python verifier.py INSTANCE FILE...

Written from two pages alone: README.md beside it (instances, rules of a plan, the hash, what is printed) and
docs/certificate.md (lower bounds; its words and letters are used here). No number in a file is believed: what a plan
costs and what a certificate proves is computed anew, in whole numbers and fractions, and then compared with the claim.
"""

import hashlib
import json
import math
import re
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, namedtuple
from fractions import Fraction
from functools import cached_property
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

LARGEST_FILE = 1 << 26  # bytes, once unpacked
TOP, LATEST, FOREVER = 1 << 200, 1 << 62, 1 << 300  # the largest number and instant of the pages, and one behind all
NEVER = np.array([1 << 900], dtype=object)  # a cost above all others
TIMED = {"mean_latency", "weighted_latency", "makespan", "weighted_tardiness"}  # here in us, in files in seconds
LATENCIES, MAXIMA = {"mean_latency", "weighted_latency", "mean_slowdown"}, {"makespan", "max_slowdown"}
Gpu = namedtuple("Gpu", "name server kind memory slots speed overhead spans")
Task = namedtuple("Task", "table models share memory batch before")  # one without a class is a class of size 1 alone
Job = namedtuple(
    "Job", "flow release weight deadline w d"
)  # pays w per us after d (late_jobs: once; maxima: the largest)
Way = namedtuple("Way", "c fewest most r")  # to run for r us on class c of GPUs, in a batch of fewest to most
Piece = namedtuple("Piece", "job name task ways start end run head tail")  # a task of a job, its earliest start and end
Run = namedtuple("Run", "task gpu start end")
Stay = namedtuple("Stay", "model slot start ready end initial")  # a residency


class Refused(Exception):  # noqa: N818
    """A file is not what it must be, or claims what does not follow; the text says why."""


MALFORMED = (Refused, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, MemoryError)


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
    content = zlib.decompressobj(31).decompress(content, LARGEST_FILE + 1) if path.endswith(".gz") else content
    demand(len(content) <= LARGEST_FILE, f"more than {LARGEST_FILE} bytes")
    text = re.sub('"([0-9]+) (?:us|B|B/s)"(?![ \n]*:)', r"\1", content.decode())
    decimal = lambda digits: Fraction(repr(float(digits)))  # noqa: E731
    return json.loads(text, object_pairs_hook=once, parse_float=decimal, parse_constant=Fraction)


class Window:
    """An instance in numbers. Its hash is made of these numbers, so an instance that is misread has another hash."""

    def __init__(self, scenario: Any) -> None:
        network, options, rows = (
            scenario["cluster"]["network"],
            scenario.get("options", {}),
            scenario["workload"]["jobs"],
        )
        self.scenario, self.objective = scenario, scenario["objective"]
        self.gpus = list(self._gpus(scenario["cluster"]["groups"]))
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
        befores = [{name: dict(task.before) for name, task in flow.items()} for flow in self.flows]
        self.order = [list(TopologicalSorter(before).static_order()) for before in befores]
        self.jobs = list(self._jobs(rows, numbers))
        self.uses = Counter(task.batch for job in self.jobs for task in self.flows[job.flow].values())
        self.named = [name for name in dict.fromkeys(t.batch for flow in self.flows for t in flow.values()) if name]
        classes = defaultdict(list)
        for gpu in self.gpus:
            classes[str(gpu[2:])].append(gpu)
        self.classes = list(classes.values())
        self.hash = self._hash([name for name, _ in paths])

    def _gpus(self, groups: Any) -> Any:
        server = -1
        for group in groups:
            gpu, there = (
                group["gpu"],
                [(a, FOREVER if b == "end" else b) for a, b in group.get("available", [(0, "end")])],
            )
            demand(all(a < b for a, b in pairwise(chain(*there))), "intervals do not ascend")
            copy = whole(gpu["load_bandwidth"], 1), whole(gpu.get("load_overhead", 0))
            slots, places = gpu.get("slots", []), range(whole(group["gpus_per_server"], 1, 10_000))
            for _ in range(whole(group["count"], 1, 10_000)):
                server += 1
                for i in places:
                    yield Gpu(f"s{server}/g{i}", server, gpu["kind"], sum(slots) or gpu["memory"], slots, *copy, there)

    def _task(self, body: Any) -> Task:
        times = body["runtime"] if isinstance(body["runtime"], dict) else {"*": body["runtime"]}
        sizes = {kind: p if isinstance(p, dict) else {"1": p} for kind, p in times.items()}
        table = {kind: sorted((int(b), whole(p, 1)) for b, p in by_size.items()) for kind, by_size in sizes.items()}
        rise = all(row[0][0] == 1 and all(p <= q for (_, p), (_, q) in pairwise(row)) for row in table.values())
        share = Fraction(body.get("share", 1)) * 10_000
        demand(rise and share.denominator == 1 and 0 < share <= 10_000, "a table that falls, or no share")
        return Task(table, body.get("models", []), int(share), whole(body.get("memory", 0)), None, [])

    def _tasks(self, flow: Any, path: Any) -> Any:
        branches = [branch["tasks"] for branch in flow.get("branches", [])]
        demand(path is None if not branches else whole(path) < len(branches), "a job names no branch")
        away = {name for place, names in enumerate(branches) if place != path for name in names}
        for name, body in ((name, body) for name, body in flow["tasks"].items() if name not in away):
            before = [(p, whole(size)) for p, size in body.get("after", {}).items() if p not in away]
            task = self.batches[body["batch"]] if "batch" in body else self._task(body)
            yield name, task._replace(batch=body.get("batch"), before=before)

    def _jobs(self, rows: Any, numbers: list[int]) -> Any:
        demand(all(a["release"] <= b["release"] for a, b in pairwise(rows)), "jobs are not in the order of releases")
        n, total = len(rows), sum(Fraction(row.get("weight", 1)) for row in rows) or 1
        fastest = [
            {t: min(row[0][1] for row in task.table.values()) for t, task in flow.items()} for flow in self.flows
        ]
        ideals = [max(self.longest(f, p)[t] + p[t] for t in p) for f, p in enumerate(fastest)]
        for row, f in zip(rows, numbers, strict=True):
            r, weight, deadline = whole(row["release"]), Fraction(row.get("weight", 1)), row.get("deadline")
            due, counts = r + whole(deadline or 0), int(deadline is not None)  # nothing is late without a deadline
            pays: Any = {"mean_latency": (Fraction(1, n), r), "mean_slowdown": (Fraction(1, n * ideals[f]), r)}
            pays |= {"weighted_latency": (weight / total, r), "weighted_tardiness": (weight * counts, due)}
            pays |= {"late_jobs": (counts, due), "makespan": (1, 0), "max_slowdown": (Fraction(1, ideals[f]), r)}
            demand(weight >= 0, "a weight is negative")
            yield Job(f, r, weight, deadline, *pays[self.objective])

    def _hash(self, names: list[str]) -> str:
        def row(name: str, task: Task) -> list[Any]:
            kinds = {kind: table[0][1] for kind, table in task.table.items()}
            special = {"batch": task.batch} if task.batch else {"share": task.share, "memory": task.memory}
            return [name, kinds, task.models, task.before] + [special] * (special != {"share": 10_000, "memory": 0})

        gpu, model = [gpu.name for gpu in self.gpus].index, list(self.models).index
        spans = [[(a, None if b == FOREVER else b) for a, b in gpu.spans] for gpu in self.gpus]
        weights = [int(job.weight) if job.weight.denominator == 1 else str(job.weight) for job in self.jobs]
        form = {
            "gpus": [[*g[:7]] + [s] * (s != [(0, None)]) for g, s in zip(self.gpus, spans, strict=True)],
            "network": [*self.links, self.staged],
            "models": list(self.models.items()),
            "workflows": [[n, [row(*t) for t in flow.items()]] for n, flow in zip(names, self.flows, strict=True)],
            "jobs": [[j.flow, j.release, w, j.deadline, None] for j, w in zip(self.jobs, weights, strict=True)],
            "options": {
                "overlap_loads": self.overlap,
                "initial": sorted([gpu(g), model(m), s] for g, m, s in self.initial),
            },
            "restrictions": {"model_gpus": {}, "workflow_gpus": {}, "max_replicas": {}, "no_swaps": False},
        }
        form |= {"batches": [[name, *self.batches[name][:4]] for name in self.named]} if self.named else {}
        return hashlib.sha256(json.dumps(form, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def longest(self, f: int, lengths: dict[str, int], behind: bool = False) -> dict[str, int]:
        """Return the longest chain of lengths before (behind) each task of a workflow, without itself."""
        chains = dict.fromkeys(self.flows[f], 0)
        for t in reversed(self.order[f]) if behind else self.order[f]:
            for p, _ in self.flows[f][t].before:
                near, far = (t, p) if behind else (p, t)
                chains[far] = max(chains[far], chains[near] + lengths[near])
        return chains

    def load(self, model: str, gpu: Gpu) -> Any:
        """Return the microseconds that a load takes."""
        return -(-self.models[model] * 10**6 // gpu.speed) + gpu.overhead

    def transfer(self, size: int, a: Gpu, b: Gpu, within: bool) -> int:
        """Return the microseconds that bytes take from one GPU to another, within a server or not."""
        (latency, speed), staged = self.links[within], [a.speed, b.speed] * self.staged
        return latency + math.ceil(sum(Fraction(size * 10**6, each) for each in (speed, *staged)))

    def cost(self, job: Job, end: int) -> Any:
        """Return what a job pays if it completes then."""
        return job.w * ((end > job.d) if self.objective == "late_jobs" else max(0, end - job.d))

    def worth(self, ends: list[int]) -> Fraction:
        """Return the objective if the jobs complete then, in the unit of the computation."""
        return Fraction((max if self.objective in MAXIMA else sum)(map(self.cost, self.jobs, ends)))

    def there(self, classes: Any, begin: int, end: int) -> int:
        """Return the GPU-microseconds of classes between two instants."""
        gpus = [gpu for c in classes for gpu in self.classes[c]]
        return sum(max(0, min(end, b) - max(begin, a)) for gpu in gpus for a, b in gpu.spans)

    def ways(self, task: Task, c: int) -> list[Way]:
        """Return a task's ways to run on a class; sizes of a batch that run equally long are one."""
        gpu, ways = self.classes[c][0], list[Way]()
        weights, slots = (sorted(sizes, reverse=True) for sizes in ([self.models[m] for m in task.models], gpu.slots))
        fit = not slots or (not task.memory and len(weights) <= len(slots) and all(map(int.__le__, weights, slots)))
        room, most = gpu.memory - sum(weights), self.uses[task.batch] if fit else 0
        most = min(most, room // task.memory) if task.memory else most * (room >= 0)
        for size, r in task.table.get(gpu.kind, task.table.get("*", [])):
            fewest = ways[-1].most + 1 if ways else 1
            if fewest <= min(size, most):
                fewest = ways.pop().fewest if ways and ways[-1].r == r else fewest
                ways.append(Way(c, fewest, min(size, most), r))
        return ways

    @cached_property
    def pieces(self) -> list[list[Piece]]:
        """Return the tasks of every job with the earliest starts and ends that any plan gives them."""
        classes, initial, result = range(len(self.classes)), {place[:2] for place in self.initial}, []
        ways = [{t: [way for c in classes for way in self.ways(task, c)] for t, task in f.items()} for f in self.flows]
        runs = [{t: min((w.r for w in ways if w.fewest == 1), default=0) for t, ways in f.items()} for f in ways]
        heads, tails = ([self.longest(f, r, behind) for f, r in enumerate(runs)] for behind in (False, True))
        for job in self.jobs:
            f, found, ends = job.flow, dict[str, Piece](), dict[str, dict[int, int]]()
            for t in self.order[f]:
                task, begins = self.flows[f][t], dict[int, int]()
                for c in {way.c for way in ways[f][t]}:
                    cold = [
                        sum(self.load(m, g) for m in task.models if (g.name, m) not in initial) for g in self.classes[c]
                    ]
                    inputs = [min(end + self.hop(size, a, c) for a, end in ends[p].items()) for p, size in task.before]
                    begins[c] = max(job.release, min(cold), *inputs)
                ends[t] = {c: begins[c] + min(way.r for way in ways[f][t] if way.c == c) for c in begins}
                first, last = min(begins.values()), min(ends[t].values())
                found[t] = Piece(job, t, task, ways[f][t], first, last, runs[f][t], heads[f][t], tails[f][t])
            result.append([found[t] for t in self.flows[f]])
        return result

    def hop(self, size: int, a: int, b: int) -> int:
        """Return the least that bytes take from a GPU of one class to one of another."""
        one, two = ({gpu.server for gpu in self.classes[c]} for c in (a, b))
        links = [True] * bool(one & two) + [False] * (len(one | two) > 1)
        return 0 if a == b else min(self.transfer(size, self.classes[a][0], self.classes[b][0], link) for link in links)


def fits(what: str, spans: Any, room: int) -> None:
    """Demand that amounts held over half-open spans add up to no more than the room at every instant."""
    changes = sorted(change for a, b, x in spans if a < b for change in ((a, x), (b, -x)))  # ends come first
    demand(max(accumulate(x for _, x in changes), default=0) <= room, f"{what}: more than {room} at once")


def value_of(window: Window, plan: Any) -> Fraction:
    """Check a plan by the rules of README.md, whose numbers stand here, and return its value."""
    gpus, runs, ends = {gpu.name: gpu for gpu in window.gpus}, dict[tuple[int, str], Run](), [0] * len(window.jobs)
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
    """Read a residency and check rule 9, and what rules 5, 8 and 10 say of it alone."""
    model, slot, initial = row["model"], row.get("slot"), row.get("initial", False)
    start, ready = whole(row["load_start_us"]), whole(row["ready_us"])
    end = FOREVER if row.get("end_us") is None else whole(row["end_us"])
    what, took = f"the residency of {model} on {gpu.name} from {start}", ready - start
    listed = start == 0 and (gpu.name, model, slot) in window.initial
    demand(type(initial) is bool and (listed or not initial), f"{what} is not there initially")
    demand(took == (0 if initial else window.load(model, gpu)), f"{what} takes {took} us to load")
    fine = gpu.slots[whole(slot, 0, len(gpu.slots) - 1)] >= window.models[model] if gpu.slots else slot is None
    demand(fine and ready <= end, f"{what} ends too soon, or has no slot that is large enough")
    return Stay(model, slot, start, ready, end, initial)


def check_gpu(window: Window, gpu: Gpu, batches: list[list[Run]], stays: list[Stay]) -> None:
    """Check rules 3 to 8 and 10 on one GPU."""
    name, runs = gpu.name, list(chain(*batches))
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
    for at in chain[Any](runs, stays):  # 10
        demand(any(a <= at.start and at.end <= b for a, b in gpu.spans), f"{name} goes away after {at.start}")


def critical_path(window: Window, *_: Any) -> Fraction:
    """Return the objective if every job completed at the largest of its earliest ends."""
    return window.worth([max(x.end for x in pieces) for pieces in window.pieces])


def machine(pieces: Any, first: Any) -> Any:
    """Run pieces (from, length, job) preemptively, least first(job, rest) first; yield who runs from when to when."""
    queue, now = list[Any](), 0
    for arrival, length, job in [*sorted(pieces), (math.inf, 0, 0)]:
        while queue and now < arrival:
            _, rest, j = heappop(queue)
            begin, now = now, min(arrival, now + rest)
            yield j, begin, now
            if rest > now - begin:
                heappush(queue, (first(j, rest - now + begin), rest - now + begin, j))
        now = max(now, arrival)
        heappush(queue, (first(job, length), length, job))


def mean_busy_time(window: Window, *_: Any) -> Any:
    """Do all work on one machine as fast as all GPUs, the job of highest w / W first."""
    demand(window.objective in LATENCIES, "mean_busy_time proves latencies alone")
    n, jobs, all_pieces = len(window.gpus), window.jobs, list(enumerate(window.pieces))
    work = [
        (j, x, min(Fraction(x.task.share * w.r, 10_000 * w.most) for w in x.ways)) for j, xs in all_pieces for x in xs
    ]
    unit = math.lcm(*((a / n).denominator for _, _, a in work))  # of time, so that everything is whole
    total, moment = defaultdict[int, Fraction](Fraction), defaultdict[int, Fraction](Fraction)
    for j, x, a in work:
        total[j] += a
        moment[j] += a * (x.tail + Fraction(x.run, 2))
    rank = {j: i for i, j in enumerate(sorted(total, key=lambda j: -jobs[j].w / total[j]))}
    for j, begin, end in machine([(x.start * unit, int(a * unit / n), j) for j, x, a in work], lambda j, _: rank[j]):
        moment[j] += n * Fraction(end * end - begin * begin, 2 * unit * unit)  # a M: the machine runs a in a / n
    value = sum(jobs[j].w / total[j] * moment[j] for j in total)
    if len({job.w for job in jobs}) == 1:  # the shortest remaining work first
        by_release = [(job.release * unit, int(total[j] * unit / n), j) for j, job in enumerate(jobs)]
        ends = {j: end for j, _, end in machine(by_release, lambda _, rest: rest)}
        value = max(value, jobs[0].w * Fraction(sum(ends.values()), unit))
    return value - sum(job.w * job.release for job in jobs)


def energetic(window: Window, p: Any, _: Any) -> Fraction:
    """Captive work keeps its GPUs busy until some instant, or beyond so many due dates."""
    demand(window.objective not in LATENCIES, "energetic proves no latencies")
    bound, pieces = critical_path(window), list(chain(*window.pieces))
    if not p:
        return bound
    chosen = {whole(c, 0, len(window.classes) - 1) for c in listed(p["gpu_classes"])}
    demand(bool(chosen), "no GPUs")
    parts, captive = whole(p.get("parts", 1), 1), [x for x in pieces if {way.c for way in x.ways} <= chosen]
    work = {id(x): min(parts * x.task.share // (10_000 * w.most) * w.r for w in x.ways) for x in captive}
    if window.objective == "late_jobs":
        spans = [[whole(edge, 0, LATEST) for edge in listed(span, 2)] for span in listed(p["intervals"])]
        demand(all(a <= b for a, b in pairwise(chain(*spans))), "intervals overlap")
        speed = parts * sum(len(window.classes[c]) for c in chosen)
        return bound + sum(missed(window, work, speed, *span) for span in spans)
    begin, until = whole(p["from_us"], 0, LATEST), whole(p["due_us"], -LATEST, LATEST)
    level = Fraction(*map(whole, listed(p["level"], 2))) if window.objective == "max_slowdown" else 0
    due = [x for x in captive if x.job.deadline is not None or window.objective in MAXIMA]
    early = [x for x in due if x.job.d + math.floor(level / (x.job.w or 1)) - x.tail <= until]
    inside = [x for x in early if x.start >= begin]
    need = -(-sum(work[id(x)] for x in inside) // parts)
    starts = [a for c in chosen for a, _ in window.classes[c][0].spans]
    reach = range(begin, max(begin, *starts) + need)
    end = begin + bisect_left(reach, need, key=lambda end: window.there(chosen, begin, end))
    return max(bound, min((window.cost(x.job, end + x.tail) for x in inside), default=bound))


def missed(window: Window, work: dict[int, int], speed: int, begin: int, end: int) -> int:
    """Count the due dates within a span, not missed anyway, that captive work misses, as Moore and Hodgson do."""
    taken, busy, late, inside = list[int](), 0, 0, []
    for j, (job, pieces) in enumerate(zip(window.jobs, window.pieces, strict=True)):
        a = sum(work.get(id(x), 0) for x in pieces)
        if a and job.w and begin <= job.release and job.d <= end and max(x.end for x in pieces) <= job.d:
            inside.append((job.d, job.release, j, a))
    for due, _, _, a in sorted(inside):
        heappush(taken, -a)
        busy += a
        if busy > speed * (due - begin):
            busy += heappop(taken)
            late += 1
    return late


def fluid(window: Window, p: Any, _: Any) -> Fraction:
    """Count the jobs that are late since a span has too little of a resource for all that are due in it."""
    demand(window.objective == "late_jobs", "fluid proves late_jobs alone")
    if not p:
        return Fraction()
    begin, end, resource = whole(p["begin_us"], 0, LATEST), whole(p["end_us"], 0, LATEST), p["resource"]
    demand(begin < end, "an empty span")
    room = Fraction(window.there(range(len(window.classes)), begin, end))
    due = [xs for xs in window.pieces if xs[0].job.w]
    if resource == "compute":
        parts, energies = whole(p.get("parts", 1), 1), []
        for pieces in due:
            energies.append(0)
            for x in pieces:
                after, before = x.job.release + x.head - begin, end - x.job.d + x.tail
                rates = [(parts * x.task.share // (10_000 * way.most), way.r) for way in x.ways]
                energies[-1] += min(a * max(0, min(r, end - begin, after + r, before + r)) for a, r in rates)
        return Fraction(sum(total > parts * room for total in accumulate(sorted(energies))))
    demand(resource == "memory" or (resource == "copy engine" and begin == 0), "no such resource")
    inside = [{m for x in xs for m in x.task.models} for xs in due if xs[0].job.release >= begin and xs[0].job.d <= end]
    users, there = Counter(chain(*inside)), {model for _, model, _ in window.initial}
    sizes = {m: Fraction(window.models[m]) for m in users}
    if resource == "memory":
        speed = Fraction(max(gpu.speed for gpu in window.gpus) * (end - begin), 10**6)
        room = len(window.gpus) * (max(gpu.memory for gpu in window.gpus) + speed)
    else:
        fit = {m: [g for g in window.gpus if window.models[m] <= max(g.slots or [g.memory])] for m in users}
        sizes = {m: Fraction(0 if m in there else min(window.load(m, gpu) for gpu in fit[m])) for m in users}
    late, excess = Fraction(), Fraction(sum(sizes.values())) - room
    for m in sorted(users, key=lambda m: sizes[m] / users[m], reverse=True):
        late += users[m] * min(Fraction(1), max(Fraction(0), excess) / (sizes[m] or 1))
        excess -= sizes[m]
    return Fraction(math.ceil(late / (max(map(len, inside), default=0) or 1)))


class Lagrangian:
    """A window, and prices of its capacity per slot of s us: whole numbers of any size, so that nothing overflows."""

    def __init__(self, window: Window, p: Any, prices: Any) -> None:
        self.window, self.s, self.scale = window, whole(p["slot_us"], 1), whole(p["scale"], 1)
        self.counted, n = [j for j, job in enumerate(window.jobs) if job.w], len(window.classes)
        demand(bool(self.counted) and window.objective not in MAXIMA, "prices prove sums alone, and of nothing nothing")
        self.slots = len(listed(listed(prices["compute"])[0]))
        demand((self.slots + 2) * self.s <= LATEST, "slots reach too far")
        keys = {"compute": n, "copy": n, "memory": len(p["memory_rows"]), "model_uses": len(p["model_uses"])}
        tables = ([self._whole(row) for row in listed(prices[key], size)] for key, size in keys.items())
        self.compute, self.copy, memory, uses = tables
        self.rows, self.use, self.place = [list[Any]() for _ in range(n)], dict[Any, Any](), dict[Any, int]()
        for row, price in zip(listed(p["memory_rows"]), memory, strict=True):
            c, parts = whole(row["gpu_class"], 0, n - 1), listed(row["parts"], len(window.models))
            self._check_row(window.classes[c][0], parts, whole(row["capacity"]))
            self.rows[c].append((dict(zip(window.models, parts, strict=True)), row["capacity"], price))
        for row, price in zip(listed(p["model_uses"]), uses, strict=True):
            m, c = list(window.models)[whole(row["model"])], whole(row["gpu_class"], 0, n - 1)
            can = window.models[m] <= max(window.classes[c][0].slots or [window.classes[c][0].memory])
            demand((m, c) not in self.use and can, f"a second use of {m}, or one where it may never be")
            self.use[m, c] = price
        pieces = [x for j in self.counted for x in window.pieces[j] if x.task.batch]
        all_ways = {(x.task.batch, way.c, way.fewest) for x in pieces for way in x.ways}
        for row in listed(p.get("places", [])):
            key = window.named[whole(row["batch"])], whole(row["gpu_class"]), whole(row["fewest"])
            demand(key in all_ways and key not in self.place, "places of a batch that cannot be, or twice")
            self.place[key] = len(self.place)
        self.delays = [whole(delays, 1, self.slots) for delays in listed(p["delays"], len(self.counted))]
        self.falls = listed(prices["precedences"], len(self.counted))
        self.parts = listed(prices["places"], len(self.counted)) if "places" in p else [[]] * len(self.counted)
        flows = zip(window.flows, listed(p["priced_precedences"], len(window.flows)), strict=True)
        self.trees = [self._tree(list(flow.items()), listed(pairs)) for flow, pairs in flows]
        self.starts = {b: sorted(x.start for x in chain(*window.pieces) if x.task.batch == b) for b in window.named}
        self.sold, self.sums = defaultdict[Any, list[int]](list), dict[Any, Any]()
        size = sum(self.delays) + self.slots * (len(self.use) + sum(map(len, window.flows)))
        demand(size <= 1 << 27, "more slots and delays than can be computed")

    def _whole(self, values: Any) -> Any:
        return np.array([whole(value) for value in listed(values, self.slots)], dtype=object)

    def _check_row(self, gpu: Gpu, parts: list[int], size: int) -> None:
        weights = [(weight, whole(part)) for weight, part in zip(self.window.models.values(), parts, strict=True)]
        least = min((weight for weight, part in weights if part), default=TOP)
        slotted = max(parts, default=0) <= 1 and size >= sum(slot >= least for slot in gpu.slots)
        shared = all(part * gpu.memory <= size * weight for weight, part in weights)
        demand(slotted if gpu.slots else shared, "a memory row is not sound")

    def _tree(self, flow: Any, pairs: Any) -> Any:
        """Return the nodes from the root on, the arc from or to the parent of each, and the priced arcs."""
        n, at = len(flow), {t: u for u, (t, _) in enumerate(flow)}
        arcs = {(at[p], at[t]) for t, task in flow for p, _ in task.before}
        sinks = set(range(n)) - {u for u, _ in arcs}
        arcs |= {(u, n) for u in sinks if len(sinks) > 1}
        priced = [tuple(whole(u) for u in listed(pair, 2)) for pair in pairs]
        rest, nodes, parent = arcs - set(priced), [n if len(sinks) > 1 else min(sinks)], dict[int, Any]()
        for u in nodes:
            for arc in (arc for arc in rest if u in arc and arc != parent.get(u)):
                parent[sum(arc) - u] = arc
                nodes.append(sum(arc) - u)
                demand(len(nodes) <= n + 1, "the precedences that are not priced make no tree")
        spans = len(set(nodes)) == len(nodes) == max(nodes[0] + 1, n) == len(rest) + 1
        demand(spans and len(rest) + len(priced) == len(arcs), "the precedences that are not priced make no tree")
        return nodes, parent, priced

    def capacity(self) -> Any:
        """Return the price of all capacity that is there."""
        total = 0
        for c, rows in enumerate(self.rows):
            spans = pairwise(range(0, (self.slots + 1) * self.s, self.s))
            there = np.array([self.window.there([c], *span) for span in spans], dtype=object)
            total += np.dot(self.compute[c] + self.copy[c] + sum(size * price for _, size, price in rows), there)
        return total

    def _sum(self, rate: Any) -> Any:
        """Return a function that gives the integrals of a rate from 0 to y, y + s, ..., n of them."""
        before, rate = np.append([0], np.cumsum(rate * self.s)), np.append(rate, [0])

        def paid(y: int, n: int) -> Any:
            at = slice(y // self.s, y // self.s + n)
            return before[at] + rate[at] * (y % self.s)

        return paid

    def copies(self, m: str, c: int) -> int:
        """Return the least that the copies of a model on a class pay."""
        gpus, zero = self.window.classes[c], np.zeros(self.slots, dtype=object)
        hold = sum((parts[m] * price for parts, _, price in self.rows[c]), zero)
        paid = self._sum(hold + self.copy[c] + (zero if self.window.overlap else self.compute[c]))
        warm = len({gpu.name for gpu in gpus} & {gpu for gpu, model, _ in self.window.initial if model == m})
        on, load = (hold - self.use[m, c]).tolist(), self.window.load(m, gpus[0])
        return warm * self._path(0, load, paid, on) + (len(gpus) - warm) * self._path(math.inf, load, paid, on)

    def _path(self, held: Any, load: int, paid: Any, on: list[int]) -> int:
        """Return the cheapest path through the edges of the slots for a copy that is held at a cost at first."""
        s, off, begun = self.s, [0], defaultdict[int, Any](lambda: math.inf)
        for e in range(self.slots + 1):
            if e:
                held = min(held + on[e - 1] * s, begun[e])
                off.append(min(off[-1], held))
            if e * s >= load:  # loaded so as to be ready at this edge
                held = min(held, off[(e * s - load) // s] + paid(e * s, 1)[0] - paid(e * s - load, 1)[0])
                off[e] = min(off[e], held)
            ready, r = e * s + load, (e * s + load) // s
            if r < self.slots:  # load begun at this edge: ready within slot r, on from the next edge
                cost = off[e] + paid(ready, 1)[0] - paid(e * s, 1)[0] + on[r] * ((r + 1) * s - ready)
                begun[r + 1] = min(begun[r + 1], cost)
        return int(off[-1])

    def job(self, i: int) -> int:
        """Return the least that a job pays: a programme from the leaves to the root."""
        n, s, job, pieces = (
            self.delays[i],
            self.s,
            self.window.jobs[self.counted[i]],
            self.window.pieces[self.counted[i]],
        )
        (nodes, parent, priced), weight = self.trees[job.flow], math.floor(job.w * self.scale)
        starts, root, k = [*(x.start for x in pieces), max(x.end for x in pieces)], nodes[0], np.arange(n)
        reach = max(starts[u] for u in nodes) + n * s + max(way.r for x in pieces for way in x.ways)
        demand(reach // s + 2 <= self.slots, f"the window of job {self.counted[i]} is too long")
        falls = [whole(fall) for fall in listed(self.falls[i], len(priced) * n)]
        parts, arms = self._parts(i, len(pieces)), dict[int, list[Any]]()
        arms[len(pieces)] = [(0, np.zeros(n, dtype=object))]
        for u, x in enumerate(pieces):
            arms[u] = [(way.r, self._running(i, x, way, parts[u], u == root)) for way in x.ways]
        for r, cost in arms[root]:
            late = (starts[root] + r + s * k).astype(object) - job.d
            cost += weight * (late > 0 if self.window.objective == "late_jobs" else np.maximum(0, late)).astype(object)

        def later(u: int, r: int, v: int) -> Any:
            return np.clip(k + (starts[u] + r - starts[v]) // s, 0, n - 1)

        for place, (u, v) in enumerate(priced):
            fence = np.array([*accumulate([0, *falls[place * n : place * n + n - 1][::-1]])][::-1], dtype=object)
            arms[v] = [(r, cost + fence) for r, cost in arms[v]]
            arms[u] = [(r, cost - fence[later(u, r, v)]) for r, cost in arms[u]]
        for v in reversed(nodes[1:]):
            u = sum(parent[v]) - v
            if parent[v] == (v, u):  # a child that comes before its parent starts no later than the parent allows
                least = [np.append(NEVER, np.minimum.accumulate(cost)) for _, cost in arms[v]]
                until = [np.searchsorted(later(v, r, u), k, "right") for r, _ in arms[v]]
                allowed = np.min([cost[last] for cost, last in zip(least, until, strict=True)], axis=0)
                arms[u] = [(r, cost + allowed) for r, cost in arms[u]]
            else:
                behind = np.minimum.accumulate(np.min([cost for _, cost in arms[v]], axis=0)[::-1])[::-1]
                arms[u] = [(r, cost + behind[later(u, r, v)]) for r, cost in arms[u]]
        return int(min(min(cost) for _, cost in arms[root]))

    def _parts(self, i: int, tasks: int) -> Any:
        """Return, per task of a job and row of places, which part of a batch it pays by delay."""
        parts = [defaultdict[int, Any](lambda: np.zeros(self.delays[i] - 1, dtype=np.int64)) for _ in range(tasks)]
        for entry in listed(self.parts[i]):
            u, row, first, part = listed(entry, 4)
            span = slice(whole(first), first + len(listed(part)))
            here = parts[whole(u, 0, tasks - 1)][whole(row, 0, len(self.place) - 1)]
            demand(span.stop < self.delays[i] and not here[span].any(), "parts beyond the delays, or twice")
            here[span] = [whole(q, 0, 65_536) for q in part]
        return parts

    def _running(self, i: int, x: Piece, way: Way, parts: Any, root: bool) -> Any:
        """Return what running costs by delay: the least over four starts, between which prices are linear."""
        n, s, r, row = self.delays[i] - 1, self.s, way.r, self.place.get((x.task.batch, way.c, way.fewest))
        part: Any
        unit, part = (1, 1) if row is None else (65_536, 65_536 if way.most == 1 else parts[row])
        if row is not None and way.most > 1:
            touched = np.maximum(np.append(part, 0), np.append(0, part)) if x.start % s else part
            for slot in np.flatnonzero(touched).tolist():
                self.sold[row, way.most, x.start // s + slot].append(int(touched[slot]))
        shared, own = self._prices(x, way, row)
        wait = np.zeros(n, dtype=object)
        if root and self.window.objective != "late_jobs":
            wait += [math.floor(x.job.w * self.scale) * (x.start + k * s + r >= x.job.d) for k in range(n)]
        begins = [x.start + o for o in {0, s - 1, -x.start % s, -(x.start + r) % s}]
        costs = [(shared(y + r, n) - shared(y, n)) // unit * part + wait * (y - x.start) for y in begins]
        cost = np.min(costs, axis=0) + np.min([own(y + r, n) - own(y, n) for y in begins], axis=0)
        if way.fewest > 1:  # no batch of so many before the last of its members can be there
            cost[: max(0, (self.starts[x.task.batch][way.fewest - 1] - x.start) // s)] = NEVER[0]
        return np.append(cost, [0])

    def _prices(self, x: Piece, way: Way, row: int | None) -> Any:
        """Return the sums of what a task pays for what a batch shares (without places: for all), and for its own."""
        key, c, batch, zero = (x.job.flow, x.name, way), way.c, x.task.batch, np.zeros(self.slots, dtype=object)
        if key not in self.sums:
            gpu, ends = self.window.classes[c][0], range(self.s, self.s * (self.slots + 1), self.s)
            rate = sum((self.use[m, c] for m in x.task.models if (m, c) in self.use), self.compute[c])
            own = [x.task.memory * size // gpu.memory * price for _, size, price in self.rows[c] if not gpu.slots]
            alone = batch is None or row is not None
            members = [1 if alone else bisect_left(self.starts[batch], end, 1, way.most) for end in ends]
            shared = rate * x.task.share // (10_000 * np.array(members, dtype=object))
            rates = [shared, sum(own, zero)] if row is not None else [sum(own, shared), zero]
            self.sums[key] = [self._sum(rate) for rate in rates]
        return self.sums[key]


def lagrangian(window: Window, p: Any, prices: Any) -> Fraction:
    """Return what prices prove: what jobs and models pay at least, less the price of all capacity."""
    priced = Lagrangian(window, p, prices)
    value = sum(map(priced.job, range(len(priced.counted)))) + sum(priced.copies(m, c) for m, c in priced.use)
    for (_, most, _), parts in priced.sold.items():
        demand(sum(sorted(parts)[-most:]) <= 65_536, "a place in a batch is sold twice")
    return Fraction(value - priced.capacity(), priced.scale)


def parts(window: Window, p: Any, _: Any) -> Fraction:
    """Add up what is proved of parts, each some consecutive jobs; start orders are beyond this, and count otherwise."""
    demand(window.objective not in MAXIMA and not window.named, "parts prove sums without batches")
    rows, value = window.scenario["workload"]["jobs"], Fraction()
    firsts = [whole(part["first_job"], 0, len(rows) - 1) for part in listed(p["parts"])] + [len(rows)]
    demand(firsts[0] == 0 and all(a < b for a, b in pairwise(firsts)), "parts are not in order, or leave jobs out")
    for part, (a, b) in zip(p["parts"], pairwise(firsts), strict=True):
        small = Window({**window.scenario, "workload": {"jobs": rows[a:b]}})
        given, proof = part.get("otherwise") if part["method"] == "start_orders" else part, Fraction()
        try:
            demand(given is None or given["method"] != "parts", "a part has no parts")
            proof = proof if given is None else raised(small, given)
        except MALFORMED:  # what stands beside start orders may prove nothing; the file may still be true
            demand(given is not part, f"the part from job {a} on proves nothing")
        share = next((whole.w / part.w for whole, part in zip(window.jobs[a:b], small.jobs, strict=True) if part.w), 1)
        value += share * proof
    return value


METHODS = {each.__name__: each for each in (critical_path, mean_busy_time, energetic, fluid, lagrangian, parts)}


def raised(window: Window, proof: Any) -> Any:
    """Return what is proved, raised to the least value that whole completion times can give."""
    demand(type(proof["parameters"]) is dict, "parameters are no object")
    value = METHODS[proof["method"]](window, proof["parameters"], proof.get("prices"))
    steps = {"late_jobs": 1, "makespan": 1, "mean_latency": len(window.jobs)}.get(window.objective)
    return Fraction(math.ceil(value * steps), steps) if steps else value


def proved(window: Window, file: Any) -> tuple[float | None, bool | None]:
    """Return the bound that a certificate proves, rounded down, and whether the claim holds (none: beyond this)."""
    claim, method = file["lower_bound"], file["method"]
    demand(type(claim) in (int, Fraction), "the claim is no number")
    if method == "stream_prices":
        return None, None
    known = file.get("otherwise") if method == "refutation" else file  # a refutation is beyond this
    value = Fraction() if known is None else raised(window, known) / (10**6 if window.objective in TIMED else 1)
    bound = float(value) if Fraction(float(value)) <= value else math.nextafter(float(value), -math.inf)
    if (claim if type(claim) is int else float(claim)) <= bound:
        return bound, True
    beyond = known is not file or (
        method == "parts" and any(part["method"] == "start_orders" for part in file["parameters"]["parts"])
    )
    return bound, None if beyond else False


def judge(window: Window, file: Any) -> dict[str, Any]:
    """Return whether a plan or a certificate is what it claims, and what it is worth."""
    plan = "tasks" in file
    sort, number = ("plan", "value") if plan else ("certificate", "lower_bound")
    found = {"sort": sort, "holds": False, "objective": window.objective, number: None, "reason": None}
    try:
        name = file["objective"]["name"] if plan else file["objective"]
        demand(whole(file["schema_version"]) == 1 and file["scenario_hash"] == window.hash, "it is of another window")
        demand(name == window.objective, f"it is for {name}")
        if plan:
            demand(file.get("realised", False) is False, "it is what happened, and no plan")
            value, claim = (
                value_of(window, file) / (10**6 if window.objective in TIMED else 1),
                file["objective"]["value"],
            )
            demand(type(claim) in (int, Fraction), "the claim is no number")
            found |= {number: float(value), "holds": 10**9 * abs(claim - value) <= value}
        else:
            found[number], found["holds"] = proved(window, file)
        found["reason"] = f"it is {found[number]} that it is worth" if found["holds"] is False else None
    except MALFORMED as error:
        found["reason"] = str(error) if isinstance(error, Refused) else f"it has another form: {error!r}"[:200]
    return found


def main(instance: str, *paths: str) -> int:
    """Print a line of JSON per file and return the exit code."""
    codes, window = [0], None
    for path in (instance, *paths):
        try:
            content = read(path)
            if window is None:
                window = Window(content)
                continue
            demand("tasks" in content or "method" in content, "it is neither a plan nor a certificate")
            found = judge(window, content)
        except (*MALFORMED, OSError, zlib.error) as error:
            found = {"sort": None, "holds": False, "objective": None, "reason": f"{error!r}"[:200]}
        print(json.dumps({"file": path, **found}))
        codes.append(2 if found["sort"] is None else int(found["holds"] is False))
        if window is None:
            break
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
