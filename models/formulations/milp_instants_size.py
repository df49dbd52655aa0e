"""How many variables and terms the MILP of instants will have, before any of them is made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from truenorth.models.formulations.choices import Choices
from truenorth.models.formulations.orders import batch_times, memory_of

if TYPE_CHECKING:
    from truenorth.models.formulations.milp_instants import InstantGrid


@dataclass(frozen=True, slots=True)
class Starts:
    """The starts of a task on a GPU in batches of one size: so many instants from the first on, for so many."""

    task: int
    gpu: int
    size: int
    first: int
    count: int
    span: int


def starts_of(choices: Choices, grid: InstantGrid) -> list[Starts]:
    """Return the starts that lie inside the windows."""
    windows, found = choices.windows, list[Starts]()
    # A batch may have lower tasks as well, so all of the class count.
    company = Counter(chain.from_iterable(choices.joins))
    for t, gpus in enumerate(choices.gpus):
        for g in gpus:
            for n, lasts in enumerate(batch_times(choices.instance, t, g, company[t] + 1), 1):
                first = -(-int(windows.earliest_start_us[t, g]) // grid.step_us)
                last = (int(windows.latest_end_us[t, g]) - lasts) // grid.step_us
                found.append(Starts(t, g, n, first, max(0, last + 1 - first), grid.span(lasts)))
    return found


def count_terms(choices: Choices, grid: InstantGrid, starts: list[Starts], places: list[tuple[int, int, int]]) -> int:
    """Return about how many terms the rows will have, variables included.

    Parameters
    ----------
    places
        Triples (model, GPU, slot) in which models may sit.
    """
    instance = choices.instance
    loading = {(m, g): grid.span(instance.load_time(m, g)) for m, g, _ in places}
    # Each residency has a variable and some rows at every instant, and one of them lists the loads under way.
    terms = sum(grid.count * (12 + 2 * loading[m, g]) for m, g, _ in places)
    slots = Counter((m, g) for m, g, _ in places)
    of_task = Counter[int]()
    ready = dict[tuple[int, int], int]()
    for s in starts:
        of_task[s.task] += s.count
        ready[s.task, s.gpu] = max(ready.get((s.task, s.gpu), 0), s.first + s.count + s.span) - s.first
        rows = 1 + len(instance.task_needs(s.task)) + bool(memory_of(instance, s.task))
        terms += s.count * (4 + rows * s.span)
    for (t, g), instants in ready.items():
        terms += sum(instants * slots[m, g] * (1 + loading.get((m, g), 0)) for m in instance.task_needs(t))
    for t, targets in enumerate(choices.gpus):
        for before, _ in instance.task_inputs(t):
            terms += len(choices.gpus[before]) * len(targets) * (2 * of_task[before] + 2 * of_task[t])
    return terms
