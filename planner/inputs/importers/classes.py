"""How run times become workflows: as they are, or as classes of each model with the same total work."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from models.errors import QuestionError

MOST_EXACT = 5_000
"""Up to so many distinct pairs of model and run time, run times stay as they are unless classes are asked for."""
DEFAULT_CLASSES = 16
"""Classes per model where there are more."""
MOST_WORKFLOWS = 50_000
"""More would make a scenario file that nobody loads."""


@dataclass(frozen=True, slots=True)
class Classes:
    """How many run times a model may have.

    Parameters
    ----------
    most
        Classes per model; 0: every run time as it is; None: as it is, or where that would make more than `MOST_EXACT`
        workflows, `DEFAULT_CLASSES`, or for very many models as many as `MOST_WORKFLOWS` allows.
    """

    most: int | None = None

    @classmethod
    def parse(cls, text: str) -> Classes:
        """Read ``auto``, ``exact`` or a number of classes.

        Raises
        ------
        QuestionError
            If the text is none of these.

        >>> Classes.parse("exact"), Classes.parse("8")
        (Classes(most=0), Classes(most=8))
        """
        if text in ("auto", "exact"):
            return cls(None if text == "auto" else 0)
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_WORKFLOWS and len(text) < 9):
            allowed = f"auto, exact, or a number from 1 to {MOST_WORKFLOWS}"
            raise QuestionError(f"{text[:40]!r} is no number of classes; allowed is {allowed}", "runtime_classes")
        return cls(int(text))

    def representatives(self, table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
        """Return the figures that stand for each request, and the rule in words.

        The requests of a model (and number of GPUs, and share) are ordered by run time and cut into classes of equally
        many; equal run times share a class. A class is represented by the mean of every further column, rounded to a
        whole number, so the work of every model stays what it was to within half a microsecond per request.

        Parameters
        ----------
        table
            Columns ``model``, ``gpus``, ``runtime_us``, perhaps ``share``, and any that are averaged.

        Raises
        ------
        QuestionError
            If that would make more than `MOST_WORKFLOWS` workflows.
        """
        exact = len(table.drop_duplicates())
        if self.most == 0 or (self.most is None and exact <= MOST_EXACT):
            _refuse_more(exact)
            return table, "run times as they are"
        kinds = [column for column in ("model", "gpus", "share") if column in table]
        by_model = table.groupby(kinds)["runtime_us"]
        classes = self.most or max(1, min(DEFAULT_CLASSES, MOST_WORKFLOWS // by_model.ngroups))
        below = by_model.rank(method="min").astype("int64") - 1
        klass = below * classes // by_model.transform("size")
        by_class = table.groupby([*(table[column] for column in kinds), klass])
        _refuse_more(by_class.ngroups)
        made, size = table.copy(), by_class["runtime_us"].transform("size")
        for column in table.columns.difference(kinds):
            made[column] = (2 * by_class[column].transform("sum") + size) // (2 * size)
        cut = "1 class of run time per model," if classes == 1 else f"{classes} classes of run time per model, each"
        mapping = f"{cut} represented by its mean ({exact:,} distinct before)"
        return made, mapping


def _refuse_more(workflows: int) -> None:
    if workflows > MOST_WORKFLOWS:
        raise QuestionError(
            f"run times make {workflows:,} workflows; allowed are {MOST_WORKFLOWS:,}: ask for fewer runtime classes, "
            "a window, or models that more requests share"
        )
