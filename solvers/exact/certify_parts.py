"""Certificates of proofs part by part: each claims what its verifier computes from what is written.

A proof by start orders is run through the verifier's own programme before it is written. Where that does not succeed
in time, what the part's prices or a formula prove is written in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np

from truenorth.models import Instance, Objective
from truenorth.models.objective import charges
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document, lagrangian_document, parts_document
from truenorth.solvers.bounds.effort import Effort, TooLargeError
from truenorth.solvers.bounds.lagrangian.improve import Priced
from truenorth.solvers.bounds.order_programme import largest_cost, prove, reach_us
from truenorth.solvers.bounds.order_rests import Rate
from truenorth.solvers.bounds.part_sums import MOST_EFFORT, START_ORDERS, order_terms, share
from truenorth.solvers.bounds.recomputed import least_value
from truenorth.solvers.clock import Clock
from truenorth.solvers.exact.start_orders_tables import ComputeRate
from truenorth.solvers.result import Search

_NEAR = Fraction(1, 20_000)
_SPARE = 2
"""Nothing is written that takes more than this part of what a verifier may do."""

Part = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PartProof:
    """What is proved of some jobs of a window by themselves, and what is needed to prove it again.

    Parameters
    ----------
    jobs
        Consecutive jobs of the window.
    bound, value
        In the units of the part's own objective; the value is its best plan's.
    done_us
        When that plan completes.
    rate
        The prices that guided the start orders that prove the bound; None if something else proves it.
    priced
        Its Lagrangian bound, if it has one.
    """

    jobs: range
    bound: Fraction
    value: Fraction | None
    done_us: int
    rate: ComputeRate | None
    priced: Priced | None


def certify(search: Search, proofs: Iterable[PartProof], clock: Clock) -> None:
    """Write down proofs of all parts of a window, in the time that is left; keep it if it proves more."""
    instance, objective = search.instance, search.objective
    effort, total, written = Effort(MOST_EFFORT // _SPARE, lambda: not clock.is_set()), Fraction(0), list[Part]()
    for proof in proofs:
        part = replace(instance, jobs=instance.jobs[proof.jobs.start : proof.jobs.stop])
        bound, document = _write_part(part, objective, proof, effort)
        total += share(instance, part, objective) * bound
        written.append({"first_job": proof.jobs.start} | document)
    bound = least_value(instance, objective, total)
    search.keep(bound, parts_document(instance, objective, bound, written))


def _write_part(part: Instance, objective: Objective, proof: PartProof, effort: Effort) -> tuple[Fraction, Part]:
    """Return what is proved of a part again, and what is written for it."""
    best, method = closed_form.best(part, objective)
    document = closed_form_document(part, objective, method, best)
    if proof.priced is not None and proof.priced.bound > best:
        best, document = proof.priced.bound, lagrangian_document(part, objective, proof.priced)
    otherwise = {key: document[key] for key in ("method", "parameters", "prices")}
    if proof.rate is None or proof.bound <= best:
        return best, otherwise
    ordered = _prove_orders(part, objective, proof, proof.rate, effort)
    if ordered is None or ordered[0] <= best:
        return best, otherwise
    return ordered[0], ordered[1] | {"otherwise": otherwise}


def _prove_orders(
    part: Instance, objective: Objective, proof: PartProof, rate: ComputeRate, effort: Effort
) -> tuple[Fraction, Part] | None:
    """Return what the verifier's programme proves by the prices of a proof, and what is written; None if too large."""
    # Prices count while the part's plan runs: nobody pays others.
    first, last = int(part.job_release_us[0]) // rate.slot_us, -(-proof.done_us // rate.slot_us)
    price = [int(each) for each in rate.by_slot[first:last]]
    try:
        scale = _largest_scale(part, objective, price, first, rate)
        price = [int(each * scale / rate.scale) for each in price]
        limit = ceil(proof.bound * scale)
        # The prover counts costs more coarsely: what it leaves open so near the plan may be proved here.
        if proof.value is not None and proof.value * (1 - _NEAR) <= proof.bound:
            limit = floor(proof.value * scale)
        terms = order_terms(part, objective, scale, Rate(np.array(price, np.int64), first, rate.slot_us), effort)
        least = prove(terms, limit, effort)
    except TooLargeError:
        return None
    parameters = {"scale": scale, "least": least, "slot_us": rate.slot_us, "first_slot": first}
    document = {"method": START_ORDERS, "parameters": parameters, "prices": {"compute": price}}
    return least_value(part, objective, Fraction(least, scale)), document


def _largest_scale(part: Instance, objective: Objective, price: list[int], first: int, rate: ComputeRate) -> int:
    """Return the largest power of two in which costs fit: the larger, the less is lost to rounding down."""
    bought = Fraction(sum(price) * rate.slot_us * part.n_gpus) / rate.scale
    weights = sum(charges(objective, part).job_weights, Fraction(0))
    most = bought + weights * reach_us(part, Rate(np.zeros(len(price), np.int64), first, rate.slot_us))
    return 1 << max(0, min(60, (largest_cost(part) // most).bit_length() - 1))
