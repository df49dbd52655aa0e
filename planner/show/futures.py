"""What a person reads of changed futures."""

from __future__ import annotations

from executor.futures import Action
from models.cluster import MICROSECONDS_PER_SECOND
from planner.answers.change_future import FutureChanged


def futures_summary(made: FutureChanged) -> str:
    """Return whether a policy's past depends on the future, and where it first does."""
    who, found = f"policy {made.policy}", made.difference
    if found is None and made.compared:
        untried = made.draws - made.compared
        refused = f" ({untried} more it could not serve)" if untried else ""
        return f"{who}: with {made.compared} other futures its past stays the same{refused}"
    if found is None:
        return f"{who}: could serve none of {made.draws} other futures; nothing was compared"
    return (
        f"{who}: its past depends on the future. Draw {found.draw} has the same jobs before "
        f"{_seconds(found.before_us)}, and the first action that differs is\n"
        f"  as the window stands:  {_said(found.as_it_was)}\n"
        f"  with another future:   {_said(found.changed)}"
    )


def _said(action: Action | None) -> str:
    return "nothing" if action is None else f"at {_seconds(action[0])} {action[1]}"


def _seconds(time_us: int) -> str:
    return f"{time_us / MICROSECONDS_PER_SECOND:.6f} s"
