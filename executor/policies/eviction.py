"""Which models leave a GPU when another has to come in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from truenorth.executor.site import Site
from truenorth.models import GPU


def oldest_first(site: Site, gpu: int) -> list[int]:
    """Return the ready models of a GPU, oldest load first."""
    memory = site.memory[gpu]
    return [model for model in memory.residents if model in memory.ready]


def least_recent_first(site: Site, gpu: int, last_use_us: Mapping[int, int]) -> list[int]:
    """Return the ready models of a GPU by the end of their last run, those never used first; equals oldest first."""
    return sorted(oldest_first(site, gpu), key=lambda model: last_use_us.get(model, -1))


def furthest_use_first(site: Site, queue: Sequence[int], models: Sequence[int]) -> list[int]:
    """Return models in the order of look-ahead eviction; equals keep their order.

    Models that no queued task needs come first, then those whose first use in the queue is furthest away.
    """
    wanted = set(models)
    first_use: dict[int, int] = {}
    for position, task in enumerate(queue):
        for model in site.needs[site.template[task]]:
            if model in wanted:
                first_use.setdefault(model, position)
        if len(first_use) == len(wanted):
            break
    return sorted(models, key=lambda model: -first_use.get(model, len(queue)))


def room_for(
    site: Site, gpu: int, model: int, needs: Collection[int], order: Sequence[int], spare: bool = True
) -> tuple[list[int], int | None]:
    """Return what to evict, and the slot to use, to load a model for a task.

    Parameters
    ----------
    needs
        The models of the task; they stay if they can.
    order
        The ready models, in the order in which they are to leave.
    spare
        Whether a model stays after all if those behind it in the order make room enough.
    """
    if site.cluster.gpus[gpu].slots:
        return _slot_for(site, gpu, model, set(needs), order)
    victims: list[int] = []
    free = site.memory[gpu].free_bytes
    for other in order:
        if free >= site.weight_bytes[model]:
            break
        if other not in needs:
            victims.append(other)
            free += site.weight_bytes[other]
    if spare:
        _spare(victims, free - site.weight_bytes[model], site.weight_bytes.__getitem__)
    return victims, None


def makes_room(site: Site, gpu: int, model: int, evict: Sequence[int]) -> bool:
    """Say whether a model can be loaded once these have left; what runs may hold too much, or use one of them."""
    state, size = site.state[gpu], site.weight_bytes
    if any(state.uses(victim) for victim in evict):
        return False
    return bool(state.memory.slots) or state.memory.free_bytes + sum(size[other] for other in evict) >= size[model]


def _spare(victims: list[int], surplus: int, size: Callable[[int], int]) -> None:
    """Take those out again that a later, larger one made superfluous, the last chosen first."""
    for other in reversed(victims[:-1]):  # without the last one there was no room
        if size(other) <= surplus:
            surplus -= size(other)
            victims.remove(other)


def _slot_for(site: Site, gpu: int, model: int, needs: set[int], order: Sequence[int]) -> tuple[list[int], int]:
    """Choose the first possible slot: empty, smallest first, then by who leaves first.

    A slot is possible if the models of the task that are still to come fit the slots that remain to them. Where none
    is, models of the task block each other: all of them leave and come in again, largest first.
    """
    memory, sizes = site.memory[gpu], site.weight_bytes
    slots = memory.slots
    holders = [memory.holder(slot) for slot in range(len(slots))]
    to_come = [sizes[other] for other in needs if other != model and other not in memory.residents]
    available = [
        slot for slot, holder in enumerate(holders) if holder is None or (holder in order and holder not in needs)
    ]
    rank = {other: position for position, other in enumerate(order)}

    def preference(slot: int) -> tuple[int, int]:
        holder = holders[slot]
        return (-1, slots[slot]) if holder is None else (rank[holder], slots[slot])

    for slot in sorted(available, key=preference):
        rest = [slots[other] for other in available if other != slot]
        if slots[slot] >= sizes[model] and fit_slots(to_come, rest):
            holder = holders[slot]
            return ([] if holder is None else [holder]), slot
    return _start_over(site.cluster.gpus[gpu], holders, sizes, model, needs)


def _start_over(
    gpu: GPU, holders: Sequence[int | None], sizes: Sequence[int], model: int, needs: set[int]
) -> tuple[list[int], int]:
    """Evict every model of the task and put this one, the largest of them, into the largest slot."""
    largest = max(range(len(gpu.slots)), key=lambda slot: gpu.slots[slot])
    leaving = {holder for holder in holders if holder is not None and holder in needs}
    occupant = holders[largest]
    if occupant is not None:
        leaving.add(occupant)
    return sorted(leaving), largest


def fit_slots(sizes: Sequence[int], slots: Sequence[int]) -> bool:
    """Say whether models of these sizes fit these slots, one each."""
    largest = sorted(slots, reverse=True)
    return len(sizes) <= len(largest) and all(
        size <= slot for size, slot in zip(sorted(sizes, reverse=True), largest, strict=False)
    )
