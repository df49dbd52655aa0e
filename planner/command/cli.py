"""The command ``truenorth``: most commands mirror one Python call; heavy imports wait until one needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


_GROUPS: Mapping[str, Mapping[Callable[..., int], str]] = {
    "From a log to a scenario": {
        import_: "import table requests.csv -o service.yaml",
        fit: "fit requests.jsonl --seats 128 --budget 2048 -o engine.yaml",
        estimate: "estimate past.csv service.yaml -o estimates.csv",
        schema: "schema > scenario.schema.json",
    },
    "Size a fleet": {
        servers: "servers service.yaml --slo 'p95 latency <= 2 s' -o answer",
        sweep: "sweep memory_sweep.yaml -o grid",
        report: "report answer grid --by-line 'Capacity team' -o report.html",
    },
    "Study policies": {
        simulate: "simulate service.yaml --policy srpt",
        compare: "compare service.yaml --policies compass,srpt --time-limit '30 s' -o compared",
        plan: "plan service.yaml --time-limit '2 min' -o plan.json",
        bound: "bound service.yaml -o certificate.json",
        check: "check service.yaml plan.json",
        verify: "verify service.yaml certificate.json",
    },
    "Run on hardware": {
        profile: "profile service.yaml --device cuda -o measured.yaml",
        replay: "replay measured.yaml plan.json --device cuda",
        trial: "trial measured.yaml --policies plan,srpt --repeats 5 --device cuda",
        progress: "progress training.log",
    },
}
"""The commands in the order of use, by what they are for, each with an example."""

for _group, _verbs in _GROUPS.items():
    for _verb, _example in _verbs.items():
        _name = _example.split()[0]
        app.command(_name, rich_help_panel=_group, epilog=f"Example: truenorth {_example}")(_verb)


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
