"""What every question is: a frozen record, which can be sent to another process and says itself as a command.

A field stands with its question once, with its default and its help. From it follow the keyword of the Python call, the
option of the command, the setting of a sweep, the key of a cell, and the command that repeats an answer. A question
knows nothing of who answers it: that is `planner.answers.ask`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

from truenorth.planner.questions.options import name_of, options_of, say, typed_as


@dataclass(frozen=True)
class Question:
    """What is asked of a scenario: plain, and small enough to be sent to another process."""

    verb: ClassVar[str]

    def alone(self) -> Self:
        """Return the question that nobody watches or stops, as it is sent to other processes."""
        return replace(self, **{each.name: None for each in fields(self) if each.name in ("watch", "stop")})

    def typed(self) -> list[str]:
        """Return the options of the command that repeat the question."""
        words: list[str] = []
        for each, found in options_of(self):
            value = getattr(self, each.name)
            if value is None or value is False or (not found.repeated and value == each.default):
                continue
            name = typed_as(each)
            words += [name] if value is True else (word for said in say(value, found.kind) for word in (name, said))
        return words

    def key(self) -> list[object]:
        """Return what the answer depends on besides the scenario, as JSON data."""
        differing = ((each, found) for each, found in options_of(self) if found.in_sweeps)
        told = {name_of(each): (getattr(self, each.name), found.kind) for each, found in differing}
        return [self.verb, {name: value if value is None else say(value, kind) for name, (value, kind) in told.items()}]
