"""What is proved elsewhere, inside the CP-SAT model: a bound, floors of the first jobs, and surcharges above a bound.

The objective alone notices that a job waits only once nearly all orders are fixed. A bound from elsewhere knows what
waiting costs; what a plan pays above it tells much earlier that the plan cannot be good enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ortools.sat.python import cp_model

from truenorth.models.formulations.cp_sat_variables import CpSatVariables
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.formulations.windows import Surcharges


def respect_floors(model: cp_model.CpModel, v: CpSatVariables, scaled: ScaledObjective, floors: Sequence[int]) -> None:
    """Redundant: the first jobs cost no less than they do without the others.

    sum_(j < k) w_j T_j >= floor_k.

    Notes
    -----
    Invariant: every plan satisfies it: jobs that come later take room, they give none.
    Because: a plan of all jobs contains one of the first k, in normal form at no later times (`normal_form.restrict`).
    If wrong: unsound. Floors are proved one after the other, each inside the model with those before.
    """
    for count, floor in enumerate(floors[: len(v.term)]):
        if count > 1:
            cost = sum(weight * term for weight, term in zip(scaled.weights, v.term[:count], strict=False))
            model.add(cost >= floor).with_name(f"floor[{count}]")


def respect_bound(model: cp_model.CpModel, v: CpSatVariables, least: int) -> None:
    """Redundant: the largest weighted term is no less than a bound from elsewhere.

    W >= least.
    """
    if v.worst is not None and least > 0:
        model.add(v.worst >= least).with_name("least")


def pay_surcharges(
    model: cp_model.CpModel, v: CpSatVariables, scaled: ScaledObjective, surcharges: Surcharges | None
) -> None:
    """Redundant: the objective is at least the bound and what the jobs pay above it.

    l_tk <=> s_t on step k;  R_j >= sum_k (least_tk - least_t(k-1)) l_tk;  sum_j R_j <= spare;
    sum_j w_j T_j >= base + sum_j R_j.

    Notes
    -----
    Invariant: every plan within the limit satisfies it.
    Because: base and steps come from a Lagrangian bound: with its prices a plan costs at least the base, and a task
        that starts on a step at least that much more; each direction of a task is a staircase, of which the highest
        step counts.
    Cost: two reified bounds per step.
    If wrong: unsound, since `spare` then forbids plans that are good enough; without it the objective is blind to
        orders.
    """
    if surcharges is None:
        return
    for step, literal in v.step.items():
        start, time, name = v.start[step.task], step.time_us, f"step[{step.task},{step.time_us}]"
        # Both ways, or a step could be left untaken for nothing.
        on, off = (start >= time, start < time) if step.late else (start <= time, start > time)
        model.add(on).with_name(name).only_enforce_if(literal)
        model.add(off).with_name(name).only_enforce_if(literal.negated())
    for job, surcharge in v.surcharge.items():
        for (task, late), steps in groupby(surcharges.steps[job], key=lambda step: (step.task, step.late)):
            # Steps grow outwards, so what is paid on one is what it adds to those below.
            climbed, paid = 0, []
            for step in steps:
                paid.append((step.least - climbed) * v.step[step])
                climbed = step.least
            model.add(surcharge >= sum(paid)).with_name(f"paid[{task},{late}]")
    total = sum(v.surcharge.values())
    model.add(total <= surcharges.spare).with_name("spare")
    cost = sum(weight * term for weight, term in zip(scaled.weights, v.term, strict=True))
    model.add(cost >= surcharges.base + total).with_name("surcharged")
