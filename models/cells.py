"""Text in CSV files that people open in spreadsheets, where what begins with = + - @ would be a formula."""

from __future__ import annotations

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GUARD = "'"


def guard(text: str) -> str:
    """Return a text as a cell that no spreadsheet computes; a number stays one, and `unguard` gives the text again.

    >>> guard("=1+2"), guard("-1.5"), guard("jit"), guard("'it")
    ("'=1+2", '-1.5', 'jit', "''it")
    """
    return _GUARD + text if text.startswith((_GUARD, *_FORMULA)) and not _is_number(text) else text


def unguard(cell: str) -> str:
    """Return the text that a cell stands for.

    >>> unguard("'=1+2"), unguard("-1.5"), unguard("''it")
    ('=1+2', '-1.5', "'it")
    """
    return cell[1:] if cell.startswith((_GUARD * 2, *(_GUARD + sign for sign in _FORMULA))) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.strip() == text
