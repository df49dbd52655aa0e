"""The memory of one GPU: which models it holds, which of them are ready, what running tasks hold, and what is left."""

from __future__ import annotations

from collections.abc import Sequence

from truenorth.models.cluster import GPU


class Memory:
    """Weights on a GPU, shared by bytes or divided into slots, beside the memory of running tasks (rules R2 and R4).

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

    def refuse_model(self, model: int, slot: int | None) -> str | None:
        """Return which rule keeps a model from being loaded now, into this slot or (None) any; None if none does."""
        if model in self.residents:
            return f"R4 {self.id}: model {model} is there already"
        if not self._slots:
            if slot is not None:
                return f"R2 {self.id}: has no slots, so no slot {slot}"
            if self._weight_bytes[model] > self.free_bytes:
                return (
                    f"R2 {self.id}: model {model} needs {self._weight_bytes[model]} bytes, {self.free_bytes} are free"
                )
            return None
        if slot is None:
            slot = self.free_slot(model)
        if slot is None or not 0 <= slot < len(self._slots):
            return f"R2 {self.id}: no empty slot is large enough for model {model}"
        if self._holder[slot] is not None or self._slots[slot] < self._weight_bytes[model]:
            return f"R2 {self.id}: slot {slot} is taken or too small for model {model}"
        return None

    def hold_model(self, model: int, slot: int | None) -> int | None:
        """Give a model that nothing refuses its room and return its slot (None by bytes); it is not ready yet."""
        if slot is None:
            slot = self.free_slot(model)
        if slot is None:
            self.free_bytes -= self._weight_bytes[model]
        else:
            self._holder[slot] = model
            self.free_bytes -= self._slots[slot]
        self.residents[model] = slot
        return slot

    def drop_model(self, model: int) -> None:
        """Give up the room of a model that is ready."""
        self.ready.remove(model)
        slot = self.residents.pop(model)
        if slot is None:
            self.free_bytes += self._weight_bytes[model]
        else:
            self._holder[slot] = None
            self.free_bytes += self._slots[slot]

    def refuse_bytes(self, held_bytes: int) -> str | None:
        """Return which rule keeps a task from holding memory now; None if none does."""
        if held_bytes and self._slots:
            return f"R2 {self.id}: has slots, so no memory for tasks"
        if held_bytes > self.free_bytes:
            return f"R2 {self.id}: {held_bytes} bytes are needed beside the models, {self.free_bytes} are free"
        return None
