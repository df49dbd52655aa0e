"""Decisions to timelines and back where tasks run in batches, take shares of a GPU and hold memory."""

from __future__ import annotations

import numpy as np

from models.instance import Instance, Ints, UnsupportedInstanceError
from models.objective import Objective
from models.timeline import Timeline, batch_leaders
from solvers.search.decoder import Decisions, Decoder
from solvers.search.decoder_kernel import INFEASIBLE, cost_so_far
from solvers.search.decoder_state import State, Work
from solvers.search.serving_kernel import decode_serving, look_ahead_serving
from solvers.search.serving_tables import Runs, new_runs, tabulate_service


class ServingDecoder(Decoder):
    """A decoder that takes `Decisions.joins` into account: the general case, at the price of some speed."""

    serves = True

    def __init__(self, instance: Instance, objective: Objective) -> None:
        if any(len(gpu.available.intervals) > 1 for gpu in instance.cluster.gpus):
            raise UnsupportedInstanceError(
                "the list decoder knows no GPU that comes twice; allowed is one interval each"
            )
        super().__init__(instance, objective)
        self.service = tabulate_service(instance)
        comes_us = [gpu.available.intervals[0][0] for gpu in instance.cluster.gpus]
        self.origin.compute_free[:] = self.origin.copy_free[:] = comes_us

    def runs(self, decisions: Decisions) -> Runs:
        """Return fresh working arrays for the batches of some decisions."""
        return new_runs(self.instance, _no_joins(decisions) if decisions.joins is None else decisions.joins)

    def encode(self, timeline: Timeline) -> Decisions:
        """Return the decisions behind a complete feasible timeline: its tasks by start, those of a batch together."""
        leaders = batch_leaders(self.instance, timeline)
        order = np.lexsort((np.arange(len(leaders)), leaders, timeline.start_us)).astype(np.int64)
        return Decisions(order, timeline.gpu.copy(), (leaders != np.arange(len(leaders))).astype(np.int64))

    def _decode(self, decisions: Decisions, work: Work, state: State) -> float:
        last, runs = len(decisions.order), self.runs(decisions)
        self._forget()
        total, worst = cost_so_far(self.tables, work.completed)
        look_ahead_serving(self.tables, state, work, runs, 0, last)
        total, worst = decode_serving(
            self.tables,
            self.service,
            state,
            work,
            spans_of(work),
            runs,
            self.residencies,
            0,
            last,
            total,
            worst,
            INFEASIBLE,
        )
        return total + worst


def spans_of(work: Work) -> Work:
    """Return working arrays that differ in their ends only: those of all that runs on a GPU until then."""
    return work._replace(end=np.zeros_like(work.end))


def _no_joins(decisions: Decisions) -> Ints:
    return np.zeros(len(decisions.order), np.int64)
