"""Plans of cases, for tests."""

from __future__ import annotations

import pytest

from experiments.suites.case import KNOWN_OPTIMA, Case, planned

PATIENCE_S = 120.0
"""A plan ends when it is proved; this long only where kernels are compiled first, or the machine is busy."""

needs_data = pytest.mark.skipif(not KNOWN_OPTIMA.exists(), reason="shared/ is not beside this clone")


def proved(case: Case) -> int:
    """Return the value of a case, which must be proved."""
    row = planned(case, PATIENCE_S)
    assert row.value is not None
    assert (row.status, row.bound) == ("OPTIMAL", row.value)
    return row.value
