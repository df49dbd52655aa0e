"""What every question is: a frozen record, which can be sent to another process and says itself as a command.

A field stands with its question once, with its default and its help. From it follow the keyword of the Python call, the
option of the command, the setting of a sweep, the key of a cell, and the command that repeats an answer. A question
knows nothing of who answers it: that is `planner.answers.ask`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Self

from truenorth.planner.questions.options import name_of, options_of, say, typed_as


@dataclass(frozen=True)
class Question:
    """What is asked of a scenario: plain, and small enough to be sent to another process."""

    verb: ClassVar[str]

    def alone(self) -> Self:
        """Return the question that nobody watches or stops, as it is sent to other processes."""
        return replace(self, **{each.name: None for each in fields(self) if each.name in ("watch", "stop")})

    def said(self) -> Iterator[tuple[str, str]]:
        """Yield the options of the command that repeat the question, each with its value; a flag's is empty."""
        for each, found in options_of(self):
            value = getattr(self, each.name)
            if value is None or value is False or (not found.repeated and value == each.default):
                continue
            yield from ((typed_as(each), text) for text in ([""] if value is True else say(value, found.kind)))

    def typed(self) -> list[str]:
        """Return what is typed behind the scenario to repeat the question."""
        return [word for option in self.said() for word in option if word]

    def command(self, file: str) -> str:
        """Return the command that asks the question of a scenario's file again."""
        return shlex.join(["truenorth", self.verb, file, *self.typed()])

    def key(self) -> list[object]:
        """Return what the answer depends on besides the scenario, as JSON data."""
        differing = ((each, found) for each, found in options_of(self) if found.in_sweeps)
        told = {name_of(each): (getattr(self, each.name), found.kind) for each, found in differing}
        return [self.verb, {name: value if value is None else say(value, kind) for name, (value, kind) in told.items()}]


class WithEstimates:
    """A question whose option ``--estimates FILE`` is short for ``--noise told=FILE``, and gone once it is read."""

    noise: str | None
    estimates: Path | None

    def __post_init__(self) -> None:
        if self.estimates is not None:
            # What has neither a point nor a folder in it would be taken for a kind of error.
            name = str(self.estimates)
            self._add("estimates", f"told={name if '.' in name or '/' in name else f'./{name}'}")

    def _add(self, option: str, meant: str) -> None:
        """Write what an option is short for into the noise.

        Raises
        ------
        QuestionError
            If it names a file or folder with a comma: these keep the parts of a noise apart.
        """
        if "," in meant:
            from truenorth.models.errors import QuestionError  # with NumPy, which help does without

            raise QuestionError(
                f"{meant.partition('=')[2]!r} has a comma, which no file or folder here may have", option
            )
        object.__setattr__(self, "noise", meant if self.noise is None else f"{self.noise},{meant}")
        object.__setattr__(self, option, None)


class WithProgress(WithEstimates):
    """The same of ``--progress SHARE`` or ``LOGS``, which is short for ``--noise progress=SHARE``."""

    progress: Fraction | Path | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.progress, Path):
            # A folder whose name is a number would be taken for a share.
            self._add("progress", f"progress={self.progress if self.progress.is_absolute() else f'./{self.progress}'}")
        elif self.progress is not None:
            self._add("progress", f"progress={float(self.progress):g}")
