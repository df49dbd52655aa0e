"""Names of models that are made of two columns."""

from __future__ import annotations

import numpy as np

from planner.inputs.importers.rows import LONGEST_NAME, Rows
from planner.inputs.importers.tables import Texts


def join_names(rows: Rows, first: str, second: str) -> Texts:
    """Return ``first/second`` for each row, and refuse rows whose name would be longer than `LONGEST_NAME`."""
    joined: Texts = rows.names(first) + "/" + rows.names(second)
    lengths = np.fromiter(map(len, joined), np.int64, len(joined))
    problem = f"makes a name of more than {LONGEST_NAME} characters together with {first}"
    rows.refuse(lengths > LONGEST_NAME, second, problem, "a shorter one")
    return joined
