"""Rule R7 for decoded residencies: one ends at the start of the load that takes its room, and otherwise never.

Where replicas are limited or slots are rearranged, the decoder lets a model go as soon as it was last used, which says
since when it may leave. Here the loads are walked through once more, in order of time: what may leave stays until a
load needs its memory, its slot, its replica, or loads the same model anew.
"""

from __future__ import annotations

from collections import defaultdict

from models.instance import Instance, Ints
from solvers.search.decoder_state import ABSENT, END, GPU, INITIAL, LOAD_START, MODEL, SLOT


def delay_ends(instance: Instance, rows: Ints) -> None:
    """Move the ends in a table of residencies to where R7 has them, in place."""
    ends = [(row[END], 0, 0, number) for number, row in enumerate(rows.tolist()) if row[END] != ABSENT]
    begins = [(row[LOAD_START], 1, -row[INITIAL], number) for number, row in enumerate(rows.tolist())]
    held = _Held(instance, rows)
    rows[:, END] = ABSENT
    for instant, begins_now, _, number in sorted(ends + begins):  # ends before starts, and initial ones before loads
        if begins_now:
            held.add(number, instant)
        else:
            held.may_leave.append(number)


class _Held:
    """Which residencies are held, and which of them may leave, the latest last."""

    def __init__(self, instance: Instance, rows: Ints) -> None:
        self.instance, self.rows = instance, rows
        self.may_leave: list[int] = []
        self._memory = [gpu.memory_bytes for gpu in instance.cluster.gpus]
        self._slotted = [bool(gpu.slots) for gpu in instance.cluster.gpus]
        self._weights = instance.weight_bytes.tolist()
        limits = instance.restrictions.max_replicas
        self._most = [limits.get(model.name, instance.n_gpus) for model in instance.models]
        self._bytes, self._copies = defaultdict[int, int](int), defaultdict[int, int](int)

    def add(self, number: int, instant: int) -> None:
        """Hold a residency from an instant on; whatever stands in its way leaves then."""
        for other in reversed(self.may_leave):
            if self._in_the_way(number, other):
                self.may_leave.remove(other)
                self.rows[other, END] = instant
                self._count(other, -1)
        self._count(number, 1)

    def _in_the_way(self, number: int, other: int) -> bool:
        """Say whether a residency that may leave must, for another to begin."""
        model, gpu, slot = (int(value) for value in self.rows[number, [MODEL, GPU, SLOT]])
        same_model = int(self.rows[other, MODEL]) == model
        if same_model and self._copies[model] >= self._most[model]:
            return True
        if int(self.rows[other, GPU]) != gpu:
            return False
        if self._slotted[gpu]:
            return same_model or int(self.rows[other, SLOT]) == slot
        return same_model or self._bytes[gpu] + self._weights[model] > self._memory[gpu]

    def _count(self, number: int, by: int) -> None:
        model, gpu = int(self.rows[number, MODEL]), int(self.rows[number, GPU])
        self._copies[model] += by
        self._bytes[gpu] += by * self._weights[model]
