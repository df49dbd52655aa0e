"""The command ``truenorth``: every verb mirrors one Python call; heavy imports wait until a verb needs them."""

from __future__ import annotations

from typing import Annotated

import typer

from truenorth.planner.command.verbs.devices import profile, replay, trial
from truenorth.planner.command.verbs.logs import estimate, fit, import_, progress
from truenorth.planner.command.verbs.plans import bound, check, plan, servers, verify
from truenorth.planner.command.verbs.policies import compare, report, schema, simulate, sweep

app = typer.Typer(
    name="truenorth",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # it imports half of what `email` is made of

        print(f"truenorth {version('truenorth')}")
        raise typer.Exit


for _verb in (
    plan,
    check,
    simulate,
    compare,
    bound,
    verify,
    servers,
    sweep,
    report,
    replay,
    trial,
    profile,
    fit,
    estimate,
    progress,
    schema,
):
    app.command()(_verb)
app.command("import")(import_)


@app.callback()
def every_verb(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Plan GPU inference clusters: task placement and model residency, with bounds, beside online policies."""
    if context.invoked_subcommand is None:
        print(context.get_help())
