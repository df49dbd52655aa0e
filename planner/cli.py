"""The command ``truenorth``: every verb mirrors one Python call; heavy imports wait until a verb needs them."""

from __future__ import annotations

import sys

import typer

from planner import command
from planner.verbs.bound import bound
from planner.verbs.check import check
from planner.verbs.compare import compare
from planner.verbs.estimate import estimate
from planner.verbs.import_ import import_
from planner.verbs.plan import plan
from planner.verbs.profile import profile
from planner.verbs.progress import progress
from planner.verbs.replay import replay
from planner.verbs.report import report
from planner.verbs.schema import schema
from planner.verbs.servers import servers
from planner.verbs.simulate import simulate
from planner.verbs.sweep import sweep
from planner.verbs.verify import verify

app = typer.Typer(
    name="truenorth",
    help="Plan GPU inference clusters: task placement and model residency, with bounds, beside online policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    profile,
    estimate,
    progress,
    schema,
):
    app.command()(_verb)
app.command("import")(import_)


def main() -> None:
    """Run the command."""
    sys.exit(command.run(app))
