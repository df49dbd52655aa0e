"""What supports what: every method with the features that it lists, for the page and for tests."""

from __future__ import annotations

from collections.abc import Mapping

from truenorth.models.features import PRESENT, Feature, Features


def supports() -> Mapping[str, Features]:
    """Return what every method of planning, bounding and verifying supports, by its name."""
    # Late: some of them are slow to import, and no answer needs them all.
    from truenorth.models.formulations import cp_sat, gangs, gangs_milp, milp
    from truenorth.solvers.bounds import closed_form, part_sums, refutation
    from truenorth.solvers.bounds.lagrangian import improve as lagrangian
    from truenorth.solvers.exact import arc_flow, consecutive, exhaustive, start_orders
    from truenorth.solvers.search import beam, decoder, gang_loads, queues
    from truenorth.solvers.search import gangs as orders

    return {
        "local search": decoder.SUPPORTS,
        "local search for requests": queues.SUPPORTS,
        "local search for several GPUs": orders.SUPPORTS,
        "local search for several GPUs with models": gang_loads.SUPPORTS,
        "beams": beam.SUPPORTS,
        "CP-SAT": cp_sat.SUPPORTS,
        "CP-SAT for several GPUs": gangs.SUPPORTS,
        "MILP": milp.SUPPORTS,
        "MILP for several GPUs": gangs_milp.SUPPORTS,
        "`start-orders`": start_orders.SUPPORTS,
        "`arc-flow`": arc_flow.SUPPORTS,
        "`consecutive batches`": consecutive.SUPPORTS,
        "exhaustive search": exhaustive.SUPPORTS,
        **{f"`{method}`": supported for method, supported in closed_form.SUPPORTS.items()},
        "`lagrangian`": lagrangian.SUPPORTS,
        "`refutation`": refutation.SUPPORTS,
        "`parts`": part_sums.SUPPORTS,
    }


def table() -> str:
    """Return the table of the page in Markdown: which methods support a feature, in the shorter way to say it."""
    methods = supports()

    def row(feature: Feature) -> str:
        lacking = [name for name, of in methods.items() if feature not in of]
        having = [name for name in methods if name not in lacking]
        all_but = f"all but {', '.join(lacking)}" if lacking else "all"
        return f"| {feature} | {all_but if len(lacking) < len(having) else ', '.join(having) or 'none'} |"

    return "\n".join(["| a window has | methods that support it |", "| --- | --- |", *map(row, PRESENT)])
