"""What a person sees of a fitted law: its figures beside the measured ones, and what the log cannot tell."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from truenorth.planner.answers.fit import Compared, Fit
from truenorth.planner.answers.fit_table import ComparedPoint, FittedTable
from truenorth.planner.show.table import Column, Table, terminal


def fit_view(found: Fit) -> Group:
    """Return the law, the table of figures, and notes."""
    law, limits = found.whole.numbers, found.limits
    head = f"{found.log.name}: {found.requests} requests, {found.engines} engines of {limits.seats} seats"
    said = (
        f"an iteration lasts {law.first_us / 1000:.4g} ms, {law.each_us:.4g} us more with each further decode, "
        f"{law.context_us * 1000:.4g} ns with each token of context, {law.prompt_us:.4g} us with each prompt token, "
        f"and {law.mixed_us / 1000:.4g} ms with any"
    )
    columns: list[Column[Compared]] = [
        Column("figure", lambda row: row.figure, words=True),
        Column("measured", lambda row: row.measured, ".4g"),
        Column("earlier half", lambda row: row.half, ".4g"),
        Column("error", lambda row: row.half_error, "+.1%"),
        Column("all", lambda row: row.whole, ".4g"),
        Column("error of all", lambda row: row.whole_error, "+.1%"),
    ]
    lines = [*found.notes, *(f"warning: {each}" for each in found.warnings)]
    if found.preemptions:
        lines.insert(0, f"{found.preemptions} preemptions")
    table = terminal(Table("", columns, list(found.figures)), None)
    return Group(Text(head, style="bold"), Text(said), table, Text("\n".join(lines)))


def table_view(found: FittedTable) -> Group:
    """Return the law that is made from a table, its means beside the simulated ones, and notes."""
    speed = found.speed
    steps = ", ".join(f"{us / 1000:.4g} ms of {count}" for count, us in speed.step_us.items())
    said = f"{float(speed.prefill_rate):,.4g} prompt tokens per second; a step takes {steps}"
    columns: list[Column[ComparedPoint]] = [
        Column("requests at once", lambda row: row.point.at_once, "d"),
        Column("ms per token", lambda row: row.point.token_us / 1000, ".4g"),
        Column("simulated", lambda row: row.simulated.token_us / 1000, ".4g"),
        Column("error", lambda row: row.token_error, "+.1%"),
        Column("first token in ms", lambda row: row.point.first_us / 1000, ".4g"),
        Column("simulated", lambda row: row.simulated.first_us / 1000, ".4g"),
        Column("error", lambda row: row.first_error, "+.1%"),
    ]
    lines = [*found.notes, *(f"warning: {each}" for each in found.warnings)]
    table = [terminal(Table("", columns, list(found.compared)), None)] if found.compared else []
    return Group(Text(found.name, style="bold"), Text(said), *table, Text("\n".join(lines)))
