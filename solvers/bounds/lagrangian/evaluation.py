"""The value of the Lagrangian at given prices, and who then uses more than there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from truenorth.models import WHOLE
from truenorth.models.instance import Ints
from truenorth.solvers.bounds.lagrangian.batch_places import fit_parts, pay_alike
from truenorth.solvers.bounds.lagrangian.job_paths import PARTS, Choice, JobData, Numbers, Payments, cheapest_paths
from truenorth.solvers.bounds.lagrangian.model_paths import best_residencies, spread, trace_residencies
from truenorth.solvers.bounds.lagrangian.relaxation import SUM_BITS, LanePrices, ModelUse, Relaxation
from truenorth.solvers.bounds.lagrangian.shapes import Shapes
from truenorth.solvers.compiled import allocating_kernel


@dataclass(slots=True)
class Prices:
    """Prices, all at least 0, in units of the relaxation: per microsecond, slot by slot.

    Parameters
    ----------
    compute, copy
        Of a GPU's compute and copy engine. Shape [classes, slots].
    memory
        Of a part of memory. Shape [memory rows, slots].
    uses
        Paid by tasks to the model they use. Shape [model uses, slots].
    extra
        Of the precedences outside the trees: how much the price falls from each delay to the next, the last
        entry of every precedence 0. One entry per delay, precedence and job, see `JobData`.
    parts
        Of the price of a batch, paid by each task: in the ascent fractions, in a proof of `PARTS`. See `Payments`.
    """

    compute: Numbers
    copy: Numbers
    memory: Numbers
    uses: Numbers
    extra: Numbers
    parts: Numbers

    @classmethod
    def zero(cls, relaxation: Relaxation) -> Prices:
        """Return prices of 0, of which all members of a batch pay alike."""
        return cls.split(no_prices(relaxation), relaxation)

    @classmethod
    def size(cls, relaxation: Relaxation) -> int:
        """Return how many prices there are."""
        rows = 2 * len(relaxation.offered_us) + len(relaxation.memory) + len(relaxation.uses)
        return rows * relaxation.slots + int(relaxation.data.extra_first[-1]) + int(relaxation.places.first[-1])

    @classmethod
    def split(cls, flat: Numbers, relaxation: Relaxation) -> Prices:
        """Return views into one long array of all prices."""
        classes = len(relaxation.offered_us)
        counts = (classes, classes, len(relaxation.memory), len(relaxation.uses))
        ends = np.cumsum(counts) * relaxation.slots
        parts = [part.reshape(-1, relaxation.slots) for part in np.split(flat[: ends[-1]], ends[:-1])]
        extra = int(ends[-1]) + int(relaxation.data.extra_first[-1])
        return cls(parts[0], parts[1], parts[2], parts[3], flat[ends[-1] : extra], flat[extra:])


def no_prices(relaxation: Relaxation) -> Numbers:
    """Return prices of 0, one long array (see `Prices.split`), of which all members of a batch pay alike."""
    flat = np.zeros(Prices.size(relaxation))
    parts = Prices.split(flat, relaxation).parts
    pay_alike(relaxation.data, relaxation.trees.shapes, relaxation.places, relaxation.slot_us, parts)
    return flat


class Evaluation:
    """Evaluates prices of one relaxation; keeps its working memory.

    Parameters
    ----------
    exact
        In whole numbers.
    model_slots
        Copy engines, memory and models that tasks use have prices in so many slots only, and are not looked at behind.
    """

    def __init__(self, relaxation: Relaxation, exact: bool = False, model_slots: int | None = None) -> None:
        self.relaxation = relaxation
        self.model_slots = relaxation.slots if model_slots is None else min(model_slots, relaxation.slots)
        self._dtype = np.int64 if exact else np.float64
        data, shapes = relaxation.data, relaxation.trees.shapes
        largest = int(data.delays.max())
        options = np.diff(shapes.option_first[shapes.node_first]).max()
        self._cost = np.empty((options, largest), self._dtype)
        self._message = np.empty((np.diff(shapes.node_first).max(), largest), self._dtype)
        nodes = len(data.earliest_us)
        self.choice = Choice(
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
            np.zeros(nodes, np.int64),
            np.zeros(nodes),
            np.zeros(len(data.shape), self._dtype),
        )
        self._on_by = np.zeros((len(relaxation.uses), 2, self.model_slots + 1), np.int8)
        self._off_by = np.zeros((len(relaxation.uses), 2, self.model_slots + 1), np.bool_)
        self._slot_us = relaxation.slot_us
        self._paid = np.zeros(int(relaxation.places.first[-1]), self._dtype)
        self.rest: Numbers = np.zeros(0, self._dtype)

    def value(self, prices: Prices) -> float | int:
        """Return the value of the Lagrangian in units of the relaxation: exact in integers, if the prices are."""
        return self._jobs(prices) + self._residencies(prices) - self._capacity(prices)

    @property
    def job_value(self) -> Numbers:
        """What each job pays at the prices last evaluated."""
        return self.choice.value

    def _jobs(self, prices: Prices) -> float | int:
        """Return what all jobs pay on their cheapest paths."""
        lanes = self._lane_rates(prices, self.relaxation.lanes, self.relaxation.slots)
        cheapest_paths(
            self.relaxation.data,
            self.relaxation.trees.shapes,
            self._prefix(lanes),
            padded(lanes),
            self._slot_us,
            self._precedence_prices(prices),
            self._payments(prices),
            self._cost,
            self._message,
            self.choice,
        )
        return self._total(self.choice.value)

    def _payments(self, prices: Prices) -> Payments:
        exact = self._dtype is np.int64
        return Payments(self.relaxation.places.first, prices.parts, exact, self._paid, self.rest)

    def _precedence_prices(self, prices: Prices) -> Numbers:
        """Return the prices of the extra precedences, see `falling_prices`."""
        data = self.relaxation.data
        return falling_prices(data.delays, data.shape, self.relaxation.trees.shapes, prices.extra)

    def _lane_rates(self, prices: Prices, lanes: Sequence[LanePrices], slots: int) -> Numbers:
        """Return what running costs per microsecond by lane in the first slots."""
        rates = np.empty((len(lanes), slots), self._dtype)
        for rate, lane in zip(rates, lanes, strict=True):
            rate[:] = prices.compute[lane.gpu_class, :slots]
            for use in lane.uses:
                rate += prices.uses[use, :slots]
            if not lane.whole:
                rate[:] = self._part(rate, lane)
            for row, parts in lane.held:
                rate += parts * prices.memory[row, :slots]
        return rates

    def _part(self, rate: Numbers, lane: LanePrices) -> Numbers:
        """Return the part of prices that a lane pays, rounded down where they are whole: it may be less, never more."""
        size = lane.size[: len(rate)]
        if self._dtype is np.float64:
            return rate * (lane.share / WHOLE) / size
        whole, rest = np.divmod(rate, WHOLE * size)  # the product of price and share may outgrow 64 bits
        return np.asarray(whole * lane.share + rest * lane.share // (WHOLE * size), np.int64)

    def _prefix(self, rates: Numbers) -> Numbers:
        """Return the price from 0 to the edges of the slots. Shape [rows, slots + 1]."""
        prefix = np.zeros((len(rates), rates.shape[1] + 1), self._dtype)
        np.cumsum(rates, axis=1, out=prefix[:, 1:])
        prefix *= self._slot_us
        return prefix

    def _held(self, prices: Prices, use: int) -> Numbers:
        """Return what it costs per microsecond to hold a model's memory, while models have prices."""
        model, c = self.relaxation.uses[use].model, self.relaxation.uses[use].gpu_class
        held = np.zeros(self.model_slots, self._dtype)
        for row, limit in enumerate(self.relaxation.memory):
            if limit.gpu_class == c and limit.parts[model]:
                held += limit.parts[model] * prices.memory[row, : self.model_slots]
        return held

    def _residencies(self, prices: Prices) -> float | int:
        """Return the cost of the best residencies on all GPUs."""
        total: float | int = 0
        for index, use in enumerate(self.relaxation.uses):
            held = self._held(prices, index)
            loading = held + prices.copy[use.gpu_class, : self.model_slots]
            if not self.relaxation.overlap_loads:
                loading += prices.compute[use.gpu_class, : self.model_slots]
            prefix = self._prefix(loading[None])[0]
            for on, copies in ((0, use.copies - use.initial), (1, use.initial)):
                if copies:
                    cost = best_residencies(
                        held - prices.uses[index, : self.model_slots],
                        prefix,
                        padded(loading[None])[0],
                        use.load_us,
                        self._slot_us,
                        bool(on),
                        self._on_by[index, on],
                        self._off_by[index, on],
                    )
                    total += copies * cost
        return total

    def _capacity(self, prices: Prices) -> float | int:
        """Return the price of all capacity."""
        total: float | int = 0
        for c in range(len(self.relaxation.offered_us)):
            total += self._offered(c, prices.compute[c]) + self._offered(c, prices.copy[c, : self.model_slots])
        for row, limit in enumerate(self.relaxation.memory):
            total += limit.capacity * self._offered(limit.gpu_class, prices.memory[row, : self.model_slots])
        return total

    def _offered(self, gpu_class: int, price: Numbers) -> float | int:
        """Return the price of the time in which the GPUs of a class are there."""
        offered = self.relaxation.offered_us[gpu_class, : len(price)]
        if self._dtype is np.int64:  # the products may outgrow 64 bits
            return sum(us * each for us, each in zip(offered.tolist(), price.tolist(), strict=True))
        # Not their dot product: the library for that starts a thread per core, which spin beside a search.
        return float((offered * price).sum())

    def _total(self, values: Numbers) -> float | int:
        return sum(values.tolist()) if self._dtype is np.int64 else float(values.sum())

    def excess(self, out: Prices) -> None:
        """Write the gradient at the prices last evaluated: use less capacity, slot by slot, per microsecond."""
        relaxation = self.relaxation
        out.extra[:] = 0
        offered = relaxation.offered_us / self._slot_us
        out.compute[:] = -offered
        out.copy[:, : self.model_slots] = -offered[:, : self.model_slots]
        for row, limit in enumerate(relaxation.memory):
            out.memory[row, : self.model_slots] = -offered[limit.gpu_class, : self.model_slots] * limit.capacity
        out.uses[:, : self.model_slots] = 0
        for lane, running in self._time_run(out):
            running /= self._slot_us
            until = len(running)
            for row, parts in lane.held:
                out.memory[row, :until] += parts * running
            if not lane.whole:
                running *= lane.share / WHOLE / lane.size[:until]
            out.compute[lane.gpu_class, :until] += running
            for index in lane.uses:
                out.uses[index, :until] += running
        for index, use in enumerate(relaxation.uses):
            self._add_use_of_model(index, use, out)

    def _time_run(self, out: Prices) -> Iterable[tuple[LanePrices, Numbers]]:
        """Return the time run per slot on each lane; write the excess of priced precedences."""
        relaxation = self.relaxation
        lanes = np.zeros((len(relaxation.lanes), relaxation.slots))
        _use_of_jobs(relaxation.data, relaxation.trees.shapes, self.choice, self._slot_us, lanes, out.extra)
        return zip(relaxation.lanes, lanes, strict=True)

    def _add_use_of_model(self, index: int, use: ModelUse, out: Prices) -> None:
        """Add what the residencies of one model on one class take and give."""
        relaxation = self.relaxation
        on_time, load_time = np.zeros(self.model_slots), np.zeros(self.model_slots)
        for on, copies in ((0, use.copies - use.initial), (1, use.initial)):
            if copies:
                paths = self._on_by[index, on], self._off_by[index, on]
                trace_residencies(use.load_us, self._slot_us, *paths, copies, on_time, load_time)
        on_time /= self._slot_us
        load_time /= self._slot_us
        out.uses[index, : self.model_slots] -= on_time
        out.copy[use.gpu_class, : self.model_slots] += load_time
        if not relaxation.overlap_loads:
            out.compute[use.gpu_class, : self.model_slots] += load_time
        for row, limit in enumerate(relaxation.memory):
            if limit.gpu_class == use.gpu_class:
                out.memory[row, : self.model_slots] += limit.parts[use.model] * (on_time + load_time)


def carry_slots(old: Prices, new: Prices, coarse: Relaxation, fine: Relaxation) -> None:
    """Write the prices by slot for other slots: every instant keeps its price."""
    rescale = fine.scale / coarse.scale
    slot = np.arange(fine.slots) * fine.slot_us // coarse.slot_us
    known = slot < coarse.slots
    for before, after in (
        (old.compute, new.compute),
        (old.copy, new.copy),
        (old.memory, new.memory),
        (old.uses, new.uses),
    ):
        after[:, known] = before[:, slot[known]] * rescale


def round_prices(prices: Prices, relaxation: Relaxation) -> Prices:
    """Return the nearest whole prices, of which no batch is paid more than its own."""
    rates = [prices.compute, prices.copy, prices.memory, prices.uses, prices.extra]
    most = 2.0**SUM_BITS  # what is larger proves nothing (`exact_bound`), but must not turn into a negative number
    rounded = [np.rint(np.clip(np.nan_to_num(rate), 0, most)).astype(np.int64) for rate in rates]
    rounded.append((np.clip(np.nan_to_num(prices.parts), 0, 1) * PARTS).astype(np.int64))
    fit_parts(relaxation.data, relaxation.trees.shapes, relaxation.places, relaxation.slot_us, rounded[-1])
    return Prices(*rounded)


def exact_bound(relaxation: Relaxation, prices: Prices) -> Fraction | None:
    """Return the bound that whole prices prove, in units of the objective; None if they are too large to add up."""
    if _largest_sum(relaxation, prices).bit_length() > SUM_BITS:
        return None
    return Fraction(int(Evaluation(relaxation, exact=True).value(prices)), relaxation.scale)


def _largest_sum(relaxation: Relaxation, prices: Prices) -> int:
    """Return a number that no sum inside an evaluation exceeds."""
    data, shapes, horizon = relaxation.data, relaxation.trees.shapes, relaxation.slots * relaxation.slot_us
    rate = sum(int(part.max(initial=0)) for part in (prices.compute, prices.copy))
    rate += sum(int(row.max(initial=0)) for row in prices.uses)
    for index, (limit, row) in enumerate(zip(relaxation.memory, prices.memory, strict=True)):
        held = (parts for lane in relaxation.lanes for held_in, parts in lane.held if held_in == index)
        rate += max((*limit.parts, *held), default=0) * int(row.max(initial=0))
    rate *= max([1, *(-(-lane.share // WHOLE) for lane in relaxation.lanes)])
    tasks = int(np.diff(shapes.node_first).max())
    completion = int(data.weight.max()) * (1 if data.steps else horizon)
    falls = np.add.reduceat(np.append(prices.extra, 0.0), data.extra_first[:-1]) if len(prices.extra) else np.zeros(1)
    return rate * max(horizon, tasks * int(shapes.run_us.max())) + completion + 2 * tasks * int(falls.max())


def padded(rates: Numbers) -> Numbers:
    """Return rates with one more slot in which nothing has a price."""
    return np.concatenate((rates, np.zeros((len(rates), 1), rates.dtype)), axis=1)


@allocating_kernel
def falling_prices(delays: Ints, shape: Ints, shapes: Shapes, falls: Numbers) -> Numbers:
    """Return the prices of the extra precedences from their falls: the sum of all falls from a delay on."""
    prices = np.empty_like(falls)
    first = 0
    for job in range(len(shape)):
        for _ in range(shapes.extra_first[shape[job]], shapes.extra_first[shape[job] + 1]):
            last = first + delays[job] - 1
            prices[last] = 0
            for k in range(last - 1, first - 1, -1):
                prices[k] = prices[k + 1] + falls[k]
            first = last + 1
    return prices


@allocating_kernel
def _use_of_jobs(
    data: JobData,
    shapes: Shapes,
    choice: Choice,
    slot_us: int,
    lanes: Numbers,
    extra: Numbers,
) -> None:
    """Add the time run on each lane per slot; write the excess of precedences outside the trees.

    Of the time of a batch each member answers for the part that it pays, but for its own memory.

    Such a precedence is violated at delay k if its target has started by k and its source has not ended by then.
    """
    for job in range(len(data.shape)):
        shape, base, count = data.shape[job], data.node_first[job], data.delays[job]
        for node in range(base, base + shapes.node_first[shape + 1] - shapes.node_first[shape]):
            begin, option = choice.start_us[node], choice.option[node]
            if begin >= 0:
                spread(lanes[shapes.lane[option]], begin, begin + shapes.run_us[option], slot_us, choice.part[node])
                if shapes.held[option] >= 0:
                    spread(lanes[shapes.held[option]], begin, begin + shapes.run_us[option], slot_us, 1.0)
        for arc in range(shapes.extra_first[shape], shapes.extra_first[shape + 1]):
            priced = data.extra_first[job] + (arc - shapes.extra_first[shape]) * count
            source, target = base + shapes.extra_source[arc], base + shapes.extra_target[arc]
            ends = data.earliest_us[source] + shapes.run_us[choice.option[source]] - data.earliest_us[target]
            ready = min(count - 1, max(0, choice.delay[source] + ends // slot_us))
            begun = choice.delay[target]
            extra[priced + begun : priced + ready] = 1
            extra[priced + ready : priced + begun] = -1
