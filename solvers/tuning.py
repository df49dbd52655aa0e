"""Shares of the time, sizes and seconds by which methods get their turn: data, named in every result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Which windows are put to what, and how the time is shared out.

    Parameters
    ----------
    name
        By which a result says how it was found.
    dispatched_tasks
        Above so many tasks a dispatch rule gives the first plan: simulating a policy takes ten times as long.
    starts_share
        At most this share of the time goes to making plans where the search starts.
    ascent_s_per_task, ascent_share
        What an ascent takes before it first looks at the clock, as measured, and the share of its time that it may
        take.
    bound_share, short_bound_s, lone_bound_share
        The bound gets a share of the time, and of a short limit the first so many seconds, in which it gains most;
        beside annealing by the same worker at most the last share.
    begin_share
        What looks for a plan to begin with has this share of an annealing's time: more costs more than it gains.
    before_parts_share
        Where proofs part by part follow the bound has this share of the time: they want good prices and a good plan.
    guide_share, short_guide_s, short_guide_share
        Beams wait for prices of the bound for a share of the time, and of a short limit for so many seconds or this
        share: soon prices are nearly as good a guide as they will ever be. With one worker the bound gets its usual
        share.
    asked_bound_share
        Who asks for a bound has prices raised for this share of an annealing's time.
    lanes_share, certify_share
        Of the time for a bound, what proofs on a twin take, and prices for a certificate after proofs that have none.
    exact_tasks, exact_tasks_of_maxima
        Windows of up to so many tasks are worth CP-SAT's time where the objective adds up over jobs, and where it is a
        maximum over jobs: nothing else proves those, and CP-SAT is strong there.
    building_share
        CP-SAT is asked unbidden if building its model takes at most this share of the time.
    warm_up_s_per_task, warm_up_share, short_warm_up_s, short_warm_up_share
        Before CP-SAT up to so many seconds, and this share of a short limit: until then the Lagrangian bound gains
        most.
    warm_up_share_of_maxima
        No prices are made for a maximum over jobs, so its plans and proofs soon go on side by side.
    again_share
        A warm-up too short for the bound is repeated, twice as long, while it takes less than this share of the rest.
    plain_tasks, plain_share, plain_s, plain_again_share
        Windows of up to so many tasks are put to CP-SAT as they are first, for this share of the time or so many
        seconds: most textbook windows are proved so at once. What other proofs leave open has another turn, for the
        last share.
    beam_share
        Before the programme over start orders beams may take so much of the time: a poor plan costs it states.
    start_orders_share, better_plan_share
        The programme over start orders proves most windows that it suits in seconds, and may take the first of these
        shares of what is left for others; the second goes to a better plan if it fails.
    gangs_exact_share, gangs_prices_share
        Small windows with runs on several GPUs are put to CP-SAT for a share of the time, and again after the rest of
        it, of which prices of the torn twin have a share while fewer workers anneal.
    refutation_share
        Most maxima of some twenty tasks are proved by refutation in a second; others may take this share of the time.
    arc_flow_share
        Packings are decided at once or capacity by capacity, which may take for ever: others have the rest of the time.
    side_by_side_share
        So long is a maximum annealed beside CP-SAT; then CP-SAT goes on from the best plan with all workers.
    cp_sat_share
        CP-SAT has this share of the time where there are batches: what it proves it has proved by then.
    consecutive_share
        The programme of consecutive batches proves small windows at once, and may take this share of the time for
        others.
    formulas_share
        Bounds that need no ascent are begun if they take at most this share of the time that is left.
    floors_jobs
        CP-SAT proves windows of so many jobs or more job by job first.
    cut_loss
        A cut into parts may lose so much of the gap between plan and bound.
    milp_tasks
        The MILP confirms proofs of windows of up to so many tasks; of larger ones it rarely knows an answer in time.
    """

    name: str = "usual"
    dispatched_tasks: int = 20_000
    starts_share: float = 0.3
    ascent_s_per_task: float = 1e-4
    ascent_share: float = 0.5
    bound_share: float = 0.3
    short_bound_s: float = 10.0
    lone_bound_share: float = 0.5
    begin_share: float = 0.05
    before_parts_share: float = 0.3
    guide_share: float = 0.25
    short_guide_s: float = 8.0
    short_guide_share: float = 0.4
    asked_bound_share: float = 0.8
    lanes_share: float = 0.5
    certify_share: float = 0.5
    exact_tasks: int = 150
    exact_tasks_of_maxima: int = 400
    building_share: float = 0.2
    warm_up_s_per_task: float = 0.06
    warm_up_share: float = 0.15
    short_warm_up_s: float = 3.0
    short_warm_up_share: float = 0.5
    warm_up_share_of_maxima: float = 0.05
    again_share: float = 0.5
    plain_tasks: int = 60
    plain_share: float = 0.15
    plain_s: float = 2.0
    plain_again_share: float = 0.5
    beam_share: float = 0.1
    start_orders_share: float = 0.5
    better_plan_share: float = 0.3
    gangs_exact_share: float = 0.5
    gangs_prices_share: float = 0.5
    refutation_share: float = 0.4
    arc_flow_share: float = 0.5
    side_by_side_share: float = 0.75
    cp_sat_share: float = 0.5
    consecutive_share: float = 0.5
    formulas_share: float = 0.5
    floors_jobs: int = 5
    cut_loss: float = 1e-3
    milp_tasks: int = 20


USUAL = Tuning()
"""As measured best on many windows."""
