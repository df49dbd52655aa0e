"""The table of an answer: optimum and policies side by side, and what forces the last server."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from planner.answers.servers.answer import Answer
from planner.answers.servers.replicate import Replications, Spread
from planner.answers.servers.sizes import Mix

NOT_MONOTONE = (
    "Policies are not monotone in the number of servers: each was simulated at every size from the lower bound up to "
    "the first that meets the level. The plan knows the future, the online policies do not."
)


def rows(answer: Answer) -> list[dict[str, Any]]:
    """Return one row for the plan and one per policy: who, servers, how that is known."""
    listed = [{"who": "plan (offline optimum)", "servers": _size(answer, answer.mix), "known": _proof(answer)}]
    for row in answer.policies:
        known = "simulated" if row.mix is not None else f"not simulated: {_nothing_left(answer)}"
        if row.mix is None and row.upto is not None:
            known = f"misses the level up to {_size(answer, row.upto)}"
        listed.append({"who": row.policy, "servers": _size(answer, row.mix), "known": known})
    return listed


def _nothing_left(answer: Answer) -> str:
    return "every size is refuted" if answer.mix is None and not answer.undecided else "no time left"


def view(answer: Answer) -> Group:
    """Return the table with the sentences that belong to it."""
    name = answer.sizes.scenario.name
    table = Table(title=f"{name}: servers for {answer.level}", title_justify="left")
    table.add_column("")
    table.add_column("servers", justify="right")
    table.add_column("how it is known")
    for row in rows(answer):
        table.add_row(str(row["who"]), str(row["servers"]), str(row["known"]))
    parts: list[Table | Text] = [table]
    done = answer.refutation
    if done is not None:
        again = "can be computed again (truenorth verify)" if done.certificate is not None else "not re-computable"
        parts.append(Text(f"Why not {_size(answer, done.mix)} ({done.method}, {again}): {done.forces}"))
    if answer.policies:
        parts.append(Text(NOT_MONOTONE, style="italic"))
    return Group(*parts)


def replications_view(made: Replications) -> Group:
    """Return the first answer in full and the spread over all of them."""
    table = Table(title=f"Spread over {len(made.answers)} {made.what}", title_justify="left")
    for name in ("", "least", "median", "most", "found in"):
        table.add_column(name, justify="left" if not name else "right")
    for who, spread in made.spread.items():
        table.add_row(who, *_spread(spread, len(made.answers)))
    return Group(view(made.answers[0]), Text(), table)


def _spread(spread: Spread, total: int) -> list[str]:
    figures = [spread.least, spread.median, spread.most]
    return [*("-" if figure is None else f"{figure:g}" for figure in figures), f"{spread.found} of {total}"]


def _proof(answer: Answer) -> str:
    if answer.mix is None and not answer.undecided:
        return f"no plan up to {_size(answer, answer.largest)}: refuted"
    if answer.proved:
        return "proved: a plan at this size, every cheaper one refuted" if answer.refutation else "a plan; the smallest"
    if answer.mix is None:
        return f"at least {answer.lower_bound}; no plan found"
    return f"a plan; the least lies between {_size(answer, answer.least)} and this"


def _size(answer: Answer, mix: Mix | None) -> str:
    if mix is None:
        return "-"
    if answer.sizes.prices is None:
        return str(sum(mix))
    return f"{' + '.join(map(str, mix))} at {float(answer.cost(mix)):g} per hour"
