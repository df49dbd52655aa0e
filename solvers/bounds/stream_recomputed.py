"""Prices of GPU time for requests of streams, computed again for the verifier: whole numbers, no code of the prover.

Any prices hold, and whatever else a certificate says is read so that what is computed from it is proved. There are two
forms: with `levels`, where requests also pay for the prompts that their neighbours bring, and with `corners`, as
certificates were written before, where they do not. More: `docs/certificate.md`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import MISSING, fields
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from truenorth.models import NEVER, Instance
from truenorth.models.streams import StreamClass, StreamSpeed, Tokens
from truenorth.solvers.bounds.alone import LoneJobs
from truenorth.solvers.bounds.certified import LARGEST_PRICE, LATEST, RefusedError, as_list, get, table, whole

FINE, SHARES, WEIGHT_BITS = 1024, 1024, 60
"""Parts of a microsecond of GPU time; parts of a weight; binary digits of weights and prices."""
SCALE = 1 << WEIGHT_BITS
ROOT_BITS, SIZE_BITS = 20, 80
"""Binary digits of pulls b, and of sizes T, over those of weights."""
_MOST_WINDOWS = 1 << 12
_MOST_STEPS = 1 << 10

Due = Sequence[tuple[Fraction, int]]
"""Per job: what a microsecond of latency costs, and up to which latency none does."""


def stream_value(instance: Instance, due: Due, parameters: object) -> Fraction:
    """Return what all jobs pay at the least for GPU time and for coming late, less the worth of all GPUs.

    Prices are of windows and GPU classes; behind the last window nothing costs anything.
    """
    edges = [whole(at, 0, LATEST, "edges_us") for at in as_list(get(parameters, "edges_us"), None, "edges_us")]
    if not 2 <= len(edges) <= _MOST_WINDOWS or edges[0] != 0 or any(a >= b for a, b in pairwise(edges)):
        raise RefusedError("edges_us must rise from 0")
    prices = table(get(parameters, "prices"), len(instance.class_gpu), len(edges) - 1, "prices").tolist()
    with_corners = isinstance(parameters, dict) and "corners" in parameters
    read = _Cornered if with_corners else _Paired
    payer = read(instance, edges, [[*row, 0] for row in prices], parameters)
    total = sum(payer.least(job, int(weight * SCALE), slack) for job, (weight, slack) in enumerate(due))
    for c, row in enumerate(prices):
        gpus = int((instance.gpu_class == c).sum())
        total -= gpus * FINE * sum(price * (b - a) for price, (a, b) in zip(row, pairwise(edges), strict=True))
    return max(Fraction(0), Fraction(total, SCALE * FINE))


def counts_pairs(instance: Instance) -> list[bool]:
    """Return per stream class whether its requests owe each other their prompts: the precondition of shares.

    A request then is its job's only one, prompts are worked off in the order of their starts, decodes never pause, and
    no iteration is longer than tau[K] and a chunk. What has a key that this module does not know is left out.
    """
    streams = instance.streams
    if streams is None:
        return []
    alone = [True] * len(streams.classes)
    for first, workflow in zip(instance.template_first.tolist(), instance.workflows, strict=False):
        named = [int(streams.template[first + at]) for at in range(len(workflow.tasks))]
        requests = [stream for stream in named if stream >= 0]
        if len(requests) > 1:
            for stream in requests:
                alone[stream] = False
    return [
        single
        and _knows(of_class, _CLASS_KEYS)
        and all(speed is None or _knows(speed, _SPEED_KEYS) for speed in of_class.speeds.values())
        for single, of_class in zip(alone, streams.classes, strict=True)
    ]


_CLASS_KEYS = {"name", "speeds", "models"}
_SPEED_KEYS = {"prefill_rate", "chunk", "seats", "step_us", "kv_bytes"}


def _knows(data: StreamClass | StreamSpeed, keys: set[str]) -> bool:
    """Say whether all that is set beyond these keys is as if it were not there."""
    others = [field for field in fields(data) if field.init and field.name not in keys]
    return all(field.default is not MISSING and getattr(data, field.name) == field.default for field in others)


class _Asked(NamedTuple):
    """A job's requests: earliest start, tail and tokens of the one with the most decodes; the others.

    `runs` holds its shortest run time per GPU class, NEVER where it cannot run; `besides` tokens, stream class and run
    times of the others.
    """

    stream: int
    tokens: Tokens
    decodes: int
    start_us: int
    tail_us: int
    runs: list[int]
    besides: list[tuple[int, Tokens, int, list[int]]]


class _Jobs:
    """What every job asks for."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self.alone = instance, LoneJobs(instance)

    def latency_us(self, job: int) -> int:
        """Return the least latency of a job."""
        return max(self.alone.times(job)[1]) - self.instance.jobs[job].release_us

    def asked(self, job: int) -> _Asked | None:
        """Return the requests of a job; None without any."""
        instance, streams = self.instance, self.instance.streams
        tasks = instance.tasks_of(job)
        templates = instance.task_template[tasks.start : tasks.stop].tolist()
        if streams is None or all(streams.template[template] < 0 for template in templates):
            return None
        tokens = [streams.tokens(task) for task in tasks]
        decodes = [each.output - (1 if each.uncached else 0) for each in tokens]
        requests = [at for at, template in enumerate(templates) if streams.template[template] >= 0]
        runs = [self.alone.runs_of(*pair) for pair in zip(templates, tokens, strict=True)]
        chosen = max(requests, key=lambda at: decodes[at])
        return _Asked(
            int(streams.template[templates[chosen]]),
            tokens[chosen],
            decodes[chosen],
            self.alone.times(job)[0][chosen],
            _tails(instance, templates, runs)[chosen],
            runs[chosen],
            [
                (int(streams.template[templates[at]]), tokens[at], decodes[at], runs[at])
                for at in requests
                if at != chosen
            ],
        )


def _tails(instance: Instance, templates: list[int], runs: list[list[int]]) -> list[int]:
    """Return how long what follows each task of a job takes at the least."""
    tails = [0] * len(templates)
    workflow = instance.workflows[int((instance.template_first <= templates[0]).sum()) - 1]
    for at in reversed(workflow.topological):
        after = [(at + offset, int(instance.delay_us[edge])) for offset, edge in instance.outputs[templates[at]]]
        chains = (delay + min(run for run in runs[t] if run != NEVER) + tails[t] for t, delay in after)
        tails[at] = max(chains, default=0)
    return tails


# With levels


class _Level(NamedTuple):
    """Decodes in an iteration, what it lasts at the least, and what each pays of that, in 1 / FINE microseconds."""

    decodes: int
    step_us: int
    each: int


class _Debt:
    """What a decode owes its neighbours: their pull y over sizes, a step function per window, and its integrals."""

    def __init__(self, at: list[int], heights: list[list[int]]) -> None:
        self._at, self._heights = [0, *at], heights
        widths = [b - a for a, b in pairwise(self._at)]
        areas = [[y * width for y, width in zip(row, widths, strict=True)] for row in heights]
        self._below = [[0, *accumulate(row)] for row in areas]
        self.square = [
            sum(y * area for y, area in zip(*rows, strict=True)) for rows in zip(heights, areas, strict=True)
        ]

    def pulls(self, size: int) -> list[int]:
        """Return the integral of y from 0 to a size, by window."""
        at = bisect_right(self._at, size) - 1
        if at == len(self._at) - 1:
            return [row[-1] for row in self._below]
        beyond = size - self._at[at]
        return [below[at] + row[at] * beyond for below, row in zip(self._below, self._heights, strict=True)]


class _Paired:
    """Jobs that pay for GPU time, for coming late, and for the prompts that delay those whom they decode beside."""

    def __init__(self, instance: Instance, edges: list[int], prices: list[list[int]], parameters: object) -> None:
        self._instance, self._edges, self._prices = instance, edges, prices
        self._jobs, streams = _Jobs(instance), instance.streams
        speeds = () if streams is None else streams.speeds
        shares = as_list(get(parameters, "shares"), len(instance.jobs), "shares")
        self._shares = [whole(share, 0, SHARES, "shares") for share in shares]
        rows = zip(speeds, as_list(get(parameters, "levels"), len(speeds), "levels"), strict=True)
        self._levels = [_read_levels(row, given) for row, given in rows]
        listed = as_list(get(parameters, "debts"), len(speeds), "debts")
        self._debts: list[list[_Debt] | None] = []
        for counted, given in zip(counts_pairs(instance), listed, strict=True):
            if given is not None and not counted:
                raise RefusedError("debts of a stream class whose requests owe each other nothing")
            self._debts.append(None if given is None else _read_debts(given, len(prices), len(edges)))

    def least(self, job: int, weight: int, slack: int) -> int:
        """Return the least that a job pays."""
        asked, lone_us = self._jobs.asked(job), self._jobs.latency_us(job)
        if asked is None:
            return weight * FINE * (max(lone_us, slack) - slack)
        release = self._instance.jobs[job].release_us
        owing = weight * self._shares[job] // SHARES if self._debts[asked.stream] is not None else 0
        # Of several requests any may be the first.
        come = bisect_right(self._edges, release if asked.besides else asked.start_us) - 1
        low = [[0] * come + list(accumulate(row[come:], min)) for row in self._prices]
        tail_us = 0 if asked.besides else asked.tail_us
        until = [max(edge + tail_us - release, lone_us, slack) - slack for edge in self._edges]
        plain = [(weight - owing) * FINE * late for late in until]
        besides = self._besides(asked, low, come)
        return min(
            self._least_on(c, asked, job, slack, come, (weight - owing, owing), low[c], plain, besides)
            for c, run in enumerate(asked.runs)
            if run != NEVER
        )

    def _besides(self, asked: _Asked, low: list[list[int]], come: int) -> list[int]:
        """Return the least that the other requests pay, by the window in which their job ends."""
        total = [0] * len(self._edges)
        for stream, tokens, decodes, runs in asked.besides:
            energy: list[tuple[int, int]] = []
            for c, run in enumerate(runs):
                levels, speed = self._levels[stream][c], self._speed(stream, c)
                if run != NEVER and levels is not None and speed is not None:
                    _, parts = _prompt(speed, tokens)
                    energy.append((c, parts + decodes * min(level.each for level in levels)))
            for window in range(come, len(total)):
                total[window] += min(low[c][window] * used for c, used in energy)
        return total

    def _speed(self, stream: int, c: int) -> StreamSpeed | None:
        streams = self._instance.streams
        return None if streams is None else streams.speeds[stream][c]

    def _least_on(
        self,
        c: int,
        asked: _Asked,
        job: int,
        slack: int,
        come: int,
        weights: tuple[int, int],
        low: list[int],
        plain: list[int],
        besides: list[int],
    ) -> int:
        """Return the least that a job pays whose request runs on a GPU class.

        Its prompt is worked off by the end of window a, its decodes in windows from a on, the last of them in b.
        """
        speed, levels = self._speed(asked.stream, c), self._levels[asked.stream][c]
        if speed is None or levels is None:
            raise RefusedError("levels are missing where a request can run")
        (free, owing), edges, decodes = weights, self._edges, asked.decodes
        prompt_us, parts = _prompt(speed, asked.tokens)
        chunk_us, ahead_us = speed.prefill_us(speed.chunk), asked.start_us - self._instance.jobs[job].release_us
        own = free * FINE * (ahead_us + prompt_us + asked.tail_us - slack)
        fixed, slopes = self._owed(c, asked, speed, owing)
        fixed += owing * FINE * (ahead_us + asked.tail_us - slack)
        # What decodes pay in a window, if the job's end is that of the window, and if it is as late as they make it.
        in_window, in_step = [0] * len(edges), [0] * len(edges)
        for window in range(come, len(edges)):
            slope, price = slopes[window], self._prices[c][window] * decodes
            paid = [(slope * k + price * each, FINE * decodes * step) for k, step, each in levels]
            in_window[window] = min(cost + owing * step for cost, step in paid)
            in_step[window] = min(cost + (owing + free) * step for cost, step in paid) + own
        if asked.besides:
            lasts = zip(accumulate(in_window[come:], min), accumulate(in_step[come:], min), strict=True)
            return fixed + min(
                low[b] * parts + besides[b] + max(plain[b] + window, step)
                for b, (window, step) in enumerate(lasts, come)
            )
        longest_us, found = decodes * (speed.tau[-1] + chunk_us), []
        for a in range(max(come, bisect_right(edges, asked.start_us + prompt_us) - 1), len(edges)):
            begun = owing * FINE * max(prompt_us, edges[a] - asked.start_us - chunk_us) + low[a] * parts
            window, step = in_window[a], in_step[a]
            for b in range(a, len(edges)):
                if b > a and edges[b] - edges[a + 1] >= longest_us:
                    break
                window, step = min(window, in_window[b]), min(step, in_step[b])
                found.append(begun + max(plain[b] + window, step))
        return fixed + min(found)

    def _owed(self, c: int, asked: _Asked, speed: StreamSpeed, owing: int) -> tuple[int, list[int]]:
        """Return what decodes owe for prompts: less than nothing by themselves, and by window for each beside them."""
        debts, decodes = self._debts[asked.stream], asked.decodes
        if debts is None or decodes == 0:
            return 0, [0] * len(self._edges)
        root = math.isqrt((decodes << ROOT_BITS) - 1) + 1  # sqrt(decodes), in 2^-10, rounded up
        pull = (owing << ROOT_BITS + ROOT_BITS // 2) // root
        size = (asked.tokens.uncached << SIZE_BITS) // owing if owing else 0
        rate = speed.prefill_rate
        by = FINE * 10**6 * decodes * rate.denominator
        over = rate.numerator << 2 * ROOT_BITS + SIZE_BITS + 1
        slopes = [
            by * (2 * pull * below - square) // over
            for below, square in zip(debts[c].pulls(size), debts[c].square, strict=True)
        ]
        return -by * pull * pull * size // over, slopes


def _prompt(speed: StreamSpeed, tokens: Tokens) -> tuple[int, int]:
    """Return how long a prompt takes at the least, and what GPU time it takes, in 1 / FINE microseconds."""
    prompt = Fraction(tokens.uncached * 10**6) / speed.prefill_rate
    return math.ceil(prompt), math.floor(prompt * FINE)


def _read_levels(row: Sequence[StreamSpeed | None], given: object) -> list[list[_Level] | None]:
    """Return the levels of a stream class on every GPU class; refuse one that an iteration lies below."""
    found: list[list[_Level] | None] = []
    for speed, listed in zip(row, as_list(given, len(row), "levels"), strict=True):
        if speed is None:
            found.append(None)
            continue
        triples = [as_list(level, 3, "levels") for level in as_list(listed, None, "levels")]
        levels = [_Level(*(whole(value, 0, LATEST, "levels") for value in level)) for level in triples]
        counts = [level.decodes for level in levels]
        if not counts or counts[0] != 1 or counts[-1] != speed.seats or any(a >= b for a, b in pairwise(counts)):
            raise RefusedError("levels must rise from 1 decode to all seats")
        if any(_lies_below(speed, *pair) for pair in pairwise(levels)) or _lies_below(speed, levels[-1], levels[-1]):
            raise RefusedError("levels lie above an iteration")
        found.append(levels)
    return found


def _lies_below(speed: StreamSpeed, low: _Level, high: _Level) -> bool:
    """Say whether an iteration lies below the lines from one level to the next."""
    span = max(1, high.decodes - low.decodes)
    for k in range(low.decodes, high.decodes + 1):
        step = low.step_us * span + (high.step_us - low.step_us) * (k - low.decodes)
        each = low.each * span + (high.each - low.each) * (k - low.decodes)
        if step > speed.tau[k] * span or each * k > speed.tau[k] * FINE * span:
            return True
    return False


def _read_debts(given: object, classes: int, windows: int) -> list[_Debt]:
    at = [whole(size, 1, LARGEST_PRICE, "debts") for size in as_list(get(given, "at"), None, "debts")]
    if not 1 <= len(at) <= _MOST_STEPS or any(a >= b for a, b in pairwise(at)):
        raise RefusedError("debts must stand at rising sizes")
    rows = as_list(get(given, "heights"), classes, "debts")
    return [_Debt(at, table(row, windows, len(at), "debts").tolist()) for row in rows]


# With corners

_Curve = list[tuple[int, int]]
"""What a decode pays at the least of its steps, by their mean: corners (us, parts of a us)."""
_Trade = list[tuple[int, int]]
"""Latency of a job, and GPU time of a request, at each corner."""


class _Cornered:
    """Jobs that pay for GPU time and for coming late: slower steps are cheaper, along any curve below all steps."""

    def __init__(self, instance: Instance, edges: list[int], prices: list[list[int]], parameters: object) -> None:
        self._instance, self._edges, self._prices = instance, edges, prices
        self._jobs, self._curves = _Jobs(instance), _read_curves(instance, get(parameters, "corners"))

    def least(self, job: int, weight: int, slack: int) -> int:
        """Return the least that a job pays, over the windows in which it may end."""
        release, edges = self._instance.jobs[job].release_us, self._edges
        least_us, asked = self._jobs.latency_us(job), self._jobs.asked(job)
        trades = [] if asked is None else self._trades(asked.stream, asked.tokens, asked.decodes, asked.runs)
        around = 0 if asked is None else asked.start_us - release + asked.tail_us
        others = [] if asked is None else [self._trades(*request) for request in asked.besides]
        come = bisect_right(edges, release) - 1
        cheapest = [row[come] for row in self._prices]
        found = []
        for window in range(come, len(edges)):
            cheapest = [min(low, row[window]) for low, row in zip(cheapest, self._prices, strict=True)]
            until = max(edges[window] - release, least_us, slack)
            ways = [
                weight * FINE * (latency - slack) + price * energy
                for trade, price in zip(trades, cheapest, strict=bool(trades))
                for latency, energy in ([] if trade is None else _choices(trade, around, until))
            ] or [weight * FINE * (until - slack)]
            besides = (
                min(p * trade[-1][1] for p, trade in zip(cheapest, row, strict=True) if trade is not None)
                for row in others
            )
            found.append(min(ways) + sum(besides))
        return min(found)

    def _trades(self, stream: int, tokens: Tokens, decodes: int, runs: list[int]) -> list[_Trade | None]:
        """Return per GPU class how a request trades its time for GPU time."""
        streams, row = self._instance.streams, list[_Trade | None]()
        for c, run in enumerate(runs):
            speed = None if streams is None else streams.speeds[stream][c]
            curve = self._curves[stream][c]
            if speed is None or curve is None or run == NEVER:
                row.append(None)
                continue
            prompt_us, parts = _prompt(speed, tokens)
            row.append([(prompt_us + decodes * step, parts + decodes * each) for step, each in curve])
        return row


def _choices(trade: _Trade, around: int, until: int) -> list[tuple[int, int]]:
    """Return where a cost can be least: at corners, and where a later end begins to cost more."""
    placed = [(around + own, energy) for own, energy in trade]
    found = [(max(latency, until), energy) for latency, energy in placed]
    for (early, dear), (late, cheap) in pairwise(placed):
        if early <= until < late:
            found.append((until, dear + (cheap - dear) * (until - early) // (late - early)))
    return found


def _read_curves(instance: Instance, listed: object) -> list[list[_Curve | None]]:
    """Return the curves of every stream class on every GPU class; refuse one that a step time lies below."""
    streams = instance.streams
    speeds = () if streams is None else streams.speeds
    found = []
    for row, given in zip(speeds, as_list(listed, len(speeds), "corners"), strict=True):
        curves: list[_Curve | None] = []
        for speed, corners in zip(row, as_list(given, len(row), "corners"), strict=True):
            if speed is None:
                curves.append(None)
                continue
            pairs = [as_list(pair, 2, "corners") for pair in as_list(corners, None, "corners")]
            curve = [(whole(s, 0, LATEST, "corners"), whole(e, 0, LATEST, "corners")) for s, e in pairs]
            steps = enumerate(speed.tau[1:], 1)
            if not _is_convex(curve) or any(_height(curve, tau) * k > tau * FINE for k, tau in steps):
                raise RefusedError("corners lie above a step time, or make no falling convex curve")
            curves.append(curve)
        found.append(curves)
    return found


def _is_convex(curve: _Curve) -> bool:
    """Say whether corners go right and down, ever less steeply."""
    edges = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(curve)]
    falls = all(right > 0 and down <= 0 for right, down in edges)
    return bool(curve) and falls and all(a[1] * b[0] <= b[1] * a[0] for a, b in pairwise(edges))


def _height(curve: _Curve, step: int) -> Fraction | float:
    """Return what a curve says at a step: nothing is as cheap before its first corner, all is alike behind its last."""
    if step < curve[0][0]:
        return math.inf
    for a, b in pairwise(curve):
        if step < b[0]:
            return a[1] + Fraction((b[1] - a[1]) * (step - a[0]), b[0] - a[0])
    return Fraction(curve[-1][1])
