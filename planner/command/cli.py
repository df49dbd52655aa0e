"""The command ``truenorth``: every verb mirrors one Python call; heavy imports wait until a verb needs them."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.command.verbs.bound import bound
from planner.command.verbs.check import check
from planner.command.verbs.compare import compare
from planner.command.verbs.estimate import estimate
from planner.command.verbs.import_ import import_
from planner.command.verbs.plan import plan
from planner.command.verbs.profile import profile
from planner.command.verbs.progress import progress
from planner.command.verbs.replay import replay
from planner.command.verbs.report import report
from planner.command.verbs.schema import schema
from planner.command.verbs.servers import servers
from planner.command.verbs.simulate import simulate
from planner.command.verbs.sweep import sweep
from planner.command.verbs.trial import trial
from planner.command.verbs.verify import verify

app = typer.Typer(
    name="truenorth",
    no_args_is_help=True,
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
    estimate,
    progress,
    schema,
):
    app.command()(_verb)
app.command("import")(import_)


@app.callback()
def every_verb(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Plan GPU inference clusters: task placement and model residency, with bounds, beside online policies."""
