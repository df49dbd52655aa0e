"""What supports what: every method with the features that it lists, for the page and for tests."""

from __future__ import annotations

from collections.abc import Mapping

from truenorth.models.features import PRESENT, Features


def supports() -> Mapping[str, Features]:
    """Return what every method of planning, bounding and verifying supports, by its name."""
    # Late: some of them are slow to import, and no answer needs them all.
    from truenorth.models.formulations import cp_sat, gangs, milp
    from truenorth.solvers.bounds import closed_form, part_sums, refutation
    from truenorth.solvers.bounds.lagrangian import improve as lagrangian
    from truenorth.solvers.exact import arc_flow, consecutive, exhaustive, start_orders
    from truenorth.solvers.search import beam, decoder, queues
    from truenorth.solvers.search import gangs as orders

    return {
        "local search": decoder.SUPPORTS,
        "local search over requests": queues.SUPPORTS,
        "local search over orders, for several GPUs": orders.SUPPORTS,
        "beams": beam.SUPPORTS,
        "CP-SAT": cp_sat.SUPPORTS,
        "CP-SAT for several GPUs": gangs.SUPPORTS,
        "MILP": milp.SUPPORTS,
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
    """Return the table of the page in Markdown: what each method does not support."""
    rows = (f"| {name} | {', '.join(each for each in PRESENT if each not in of)} |" for name, of in supports().items())
    return "\n".join(["| method | no support for |", "| --- | --- |", *rows])
