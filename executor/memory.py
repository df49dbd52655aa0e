"""The memory of one GPU: which models it holds, which of them are ready, and what room is left."""

from __future__ import annotations

from collections.abc import Sequence

from executor.errors import IllegalActionError
from models import GPU


class Memory:
    """Weights on a GPU, shared by bytes or divided into slots (rules R2 and R4).

    Parameters
    ----------
    gpu
        The GPU.
    weight_bytes
        Size of every model.

    Attributes
    ----------
    residents
        Slot of every model that is here or being loaded (None by bytes), oldest load first.
    ready
        The models that tasks may use.
    free_bytes
        Memory that nothing holds; with slots, the sum of the empty ones.
    """

    __slots__ = ("_holder", "_slots", "_weight_bytes", "free_bytes", "id", "ready", "residents")

    def __init__(self, gpu: GPU, weight_bytes: Sequence[int]) -> None:
        self.id = gpu.id
        self.residents: dict[int, int | None] = {}
        self.ready: set[int] = set()
        self.free_bytes = gpu.memory_bytes
        self._slots = gpu.slots
        self._holder: list[int | None] = [None] * len(gpu.slots)
        self._weight_bytes = weight_bytes

    @property
    def slots(self) -> tuple[int, ...]:
        """Sizes of the slots; empty if memory is shared by bytes."""
        return self._slots

    def free_slot(self, model: int) -> int | None:
        """Return the smallest empty slot that is large enough, or None."""
        size = self._weight_bytes[model]
        empty = [
            (capacity, slot)
            for slot, capacity in enumerate(self._slots)
            if self._holder[slot] is None and capacity >= size
        ]
        return min(empty)[1] if empty else None

    def has_room(self, model: int) -> bool:
        """Say whether a model fits beside everything that is here."""
        if self._slots:
            return self.free_slot(model) is not None
        return self._weight_bytes[model] <= self.free_bytes

    @property
    def empty_slots(self) -> list[int]:
        """Sizes of the slots that hold nothing."""
        return [size for size, holder in zip(self._slots, self._holder, strict=True) if holder is None]

    def holder(self, slot: int) -> int | None:
        """Return the model in a slot, or None."""
        return self._holder[slot]

    def take(self, model: int, slot: int | None) -> int | None:
        """Give a model room and return its slot (None by bytes); it is not ready yet.

        Raises
        ------
        IllegalActionError
            If it is here already, or there is no room, or the slot is not one for it.
        """
        if model in self.residents:
            raise IllegalActionError(f"R4 {self.id}: model {model} is there already")
        if not self._slots:
            if slot is not None:
                raise IllegalActionError(f"R2 {self.id}: has no slots, so no slot {slot}")
            if self._weight_bytes[model] > self.free_bytes:
                needed = self._weight_bytes[model]
                raise IllegalActionError(
                    f"R2 {self.id}: model {model} needs {needed} bytes, {self.free_bytes} are free"
                )
            self.free_bytes -= self._weight_bytes[model]
        else:
            slot = self.free_slot(model) if slot is None else slot
            self._occupy(model, slot)
        self.residents[model] = slot
        return slot

    def _occupy(self, model: int, slot: int | None) -> None:
        if slot is None or not 0 <= slot < len(self._slots):
            raise IllegalActionError(f"R2 {self.id}: no empty slot is large enough for model {model}")
        if self._holder[slot] is not None or self._slots[slot] < self._weight_bytes[model]:
            raise IllegalActionError(f"R2 {self.id}: slot {slot} is taken or too small for model {model}")
        self._holder[slot] = model
        self.free_bytes -= self._slots[slot]

    def drop(self, model: int) -> None:
        """Evict a model.

        Raises
        ------
        IllegalActionError
            If it is not here, or still being loaded.
        """
        if model not in self.ready:
            raise IllegalActionError(f"R4 {self.id}: model {model} is not ready there, so it cannot be evicted")
        self.ready.remove(model)
        slot = self.residents.pop(model)
        if slot is None:
            self.free_bytes += self._weight_bytes[model]
        else:
            self._holder[slot] = None
            self.free_bytes += self._slots[slot]
