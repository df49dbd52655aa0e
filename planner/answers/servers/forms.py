"""Both forms of a fleet: nodes that prefill and decode, or nodes that do one of both. The cheaper one is ordered.

Either is sized by itself, the second on a scenario with prefill apart from decode, where a mix of groups says in which
ratio. On one kind of GPU its requests take no less time alone than those of the first, as KV is sent besides.
"""

from __future__ import annotations

from dataclasses import replace

from truenorth.models.scenario import Scenario
from truenorth.models.scenario.disaggregated import disaggregate
from truenorth.planner.answers.servers.answer import ServersAnswer, answer_sizes
from truenorth.planner.questions.sizes import ServersQuestion
from truenorth.solvers.budget import Budget

_TOGETHER_SHARE = 0.4


def answer_forms(asked: ServersQuestion, scenario: Scenario, budget: Budget) -> ServersAnswer:
    """Find the least size of a scenario within a budget, of both forms if that is asked.

    Raises
    ------
    InputError
        If prefill cannot be apart from decode.
    """
    if not asked.split:
        return answer_sizes(asked, scenario, budget)
    divided = disaggregate(scenario)
    kinds = {gpu.kind for gpu in scenario.instance.cluster.gpus}
    together = answer_sizes(asked, scenario, budget.share(_TOGETHER_SHARE))
    if together.impossible and len(kinds) == 1:
        return together
    # Mere servers have no count of their own: of either form there may be as many.
    most = asked.most or (None if together.sizes.grouped else sum(together.largest))
    apart = answer_sizes(replace(asked, most=most), divided, budget.share(1.0), split=True)
    best, other = sorted((together, replace(apart, asked=together.asked)), key=_rank)
    return replace(best, beside=other, runtime_s=budget.elapsed_s)


def _rank(answer: ServersAnswer) -> tuple[object, ...]:
    """Return by what an answer is better than another: a policy that met the levels, then a plan, by their size."""
    best = answer.recommended
    mix = answer.mix if best is None else best.mix
    return best is None, mix is None, answer.sizes.rank(mix or answer.largest)
