"""A row of the league's results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """What a contender came to on a workload: means over its replications, most with the ends of their intervals.

    The objective is mean slowdown; `ratio_to_best` is to the best contender of each replication, `ratio_to_bound` to its
    lower bound (the ratio to the optimum lies between the two), `difference` to the best online policy of the workload.
    `converged_in` counts the replications whose plan is converged. What parts lose is known of policies that are taken apart.
    """

    workload: str
    policy: str
    replications: int
    objective: float
    objective_low: float | None
    objective_high: float | None
    ratio_to_best: float | None
    ratio_to_best_low: float | None
    ratio_to_best_high: float | None
    ratio_to_bound: float | None
    ratio_to_bound_low: float | None
    ratio_to_bound_high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    better_in: int | None
    bound_methods: str
    converged_in: int
    gap_to_bound: float | None
    lost_to_residency: float | None
    lost_to_batches: float | None
    lost_to_order: float | None
    lost_to_placement: float | None
    lost_to_open: float | None

    @property
    def cell(self) -> tuple[str, str]:
        """Whose row it is."""
        return self.workload, self.policy
