"""What to keep in mind of a scenario whose run times were rounded up when its log was imported."""

from __future__ import annotations


def rounded_in_words(share: float | None) -> str | None:
    """Return by how much run times are rounded up, and what proofs are then about; None if they are not.

    >>> rounded_in_words(0.125)
    'Run times are rounded up by up to 12.5 %: bounds and refutations are about the rounded log'
    """
    if share is None:
        return None
    return f"Run times are rounded up by up to {100 * share:.4g} %: bounds and refutations are about the rounded log"
