"""Text in CSV files: no formula for a spreadsheet, and the same text again when it is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from truenorth.models.record import guard, unguard


@given(st.text(alphabet="=+-@'\t\r1.e a", max_size=8))
def test_a_guarded_text_is_no_formula_and_can_be_read_again(text: str) -> None:
    cell = guard(text)
    assert unguard(cell) == text
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and cell:
        float(cell)
