"""The first line of an answer, for whoever pays: what to order, for how much, with how much room, above what floor."""

from __future__ import annotations

from typing import Any

from planner.show.knowledge import knowledge_in_words
from planner.show.servers import Found, answer_in_words, describe_mix, priced, say_less, say_servers, up_to_counts

HOURS_PER_MONTH = 730
"""A twelfth of a year."""


def order_in_words(found: Found) -> str:
    """Return what to order; where no policy met the level, what is known instead."""
    if not found["alternatives"]:
        return answer_in_words(found)
    best = found["alternatives"][0]
    untried = found["policies"][best["policy"]]["not_simulated"]
    at_most = " at most" if untried else ""
    who = f"{best['policy']}, {knowledge_in_words(best['knows'], found['noise'])}"
    parts = [
        _price(best) if priced(found) else "",
        _spare(found),
        _headroom(found),
        f"{say_less(found, untried)} untried" if untried else "",
        _floor(found),
    ]
    said = "; ".join(part for part in parts if part)
    return f"Order{at_most} {_size(found, best)} for {who}{': ' if said else ''}{said}."


def _size(found: Found, best: dict[str, Any]) -> str:
    return describe_mix(found, best["mix"]) if priced(found) else say_servers(best["servers"])


def _price(best: dict[str, Any]) -> str:
    price = best["price_per_hour"]
    return f"{price:,.2f} per hour, {_rounded(price * HOURS_PER_MONTH)} a month"


def _rounded(amount: float) -> str:
    """Return an amount to three digits.

    >>> _rounded(2336.0), _rounded(1.46)
    ('2,340', '1.46')
    """
    three = float(f"{amount:.3g}")
    return f"{three:,.0f}" if three >= 100 else f"{three:g}"


def _spare(found: Found) -> str:
    spare = found["spare"]
    return "" if not spare else "any one may be gone" if spare == 1 else f"any {spare} may be gone"


def _headroom(found: Found) -> str:
    """Return by how much traffic may grow; empty if there was no time to simulate that."""
    growth = found["growth"]
    if growth is None:
        return ""
    if growth["fails"] is None:
        return f"{growth['holds'] - 1:.0%} headroom or more"
    if growth["holds"] == 1:
        return f"less than {growth['fails'] - 1:.0%} headroom"
    return f"{growth['holds'] - 1:.0%} headroom"


def _floor(found: Found) -> str:
    """Return below what no plan lies, where anything is refuted."""
    if found["refutation"] is None or found["refutation"]["however_many"]:
        return ""
    if not priced(found):
        return f"floor {found['minimum']['lower_bound']}"
    least = found["minimum"]["lower_bound_price_per_hour"]
    return "" if least is None else f"floor {least:,.2f} per hour{up_to_counts(found, ' on at most {}')}"
