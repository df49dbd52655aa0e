"""What became of the rows of a log: read, left out, refused, and what the reader has to say about them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from models.scenario import InputError


@dataclass(slots=True)
class Tally:
    """Counts over all files of an import.

    Parameters
    ----------
    skip_malformed
        Whether malformed rows are counted by reason; otherwise the first of them is an error.

    Attributes
    ----------
    read
        Rows, without headers and blank lines.
    left_out
        Well-formed rows that are no part of the workload, by reason.
    refused
        Malformed rows, by reason.
    notes
        What a reader found out and a person should know, such as a median it measured.
    zoned
        Whether the first date read has a zone; None before there is one.
    """

    skip_malformed: bool = False
    read: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    zoned: bool | None = None

    def refuse(self, error: InputError, reason: str, rows: int = 1) -> None:
        """Count malformed rows of which `error` describes the first.

        Raises
        ------
        InputError
            That error, unless malformed rows are skipped.
        """
        if not self.skip_malformed:
            raise error
        self.refused[reason] += rows
