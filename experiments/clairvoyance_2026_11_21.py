"""Mean slowdown of policies that know ever more of the future, on the recorded arrivals; one rate per run.

Policies whose figures the results hold already are not run again, so an interrupted run goes on where it was. Once the
results of 300 jobs are there at all rates, look_ahead.png is drawn beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from experiments import authors
from experiments.bench import ask, carry_out
from experiments.study import Study, canvas, draw, read
from truenorth.executor import Policy, simulate
from truenorth.models import Instance, Objective, Timeline, assert_feasible, measure
from truenorth.planner.answers.policies.receding_horizon import EVERYTHING, Oracle, RecedingHorizon, RecedingOptions
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


from dataclasses import replace
from typing import Any

from experiments.bench import bench
from truenorth.models import timeline_value

HERE = Path(__file__).with_suffix("")
SECOND = 1_000_000
LOOKAHEADS = {"0 s": 0, "1 s": SECOND, "5 s": 5 * SECOND, "20 s": 20 * SECOND, "all": EVERYTHING}
ONLINE = ("compass", "jit", "srpt")
RECEDING = "receding, look-ahead "
RATES = (2, 3, 4)
REFERENCES = {"compass": "--", "srpt": ":", "plan, 30 s": "-."}
"""Policies drawn as level lines."""


@dataclass(frozen=True, slots=True)
class AnnouncedRow:
    """A policy's figures at a rate, with so many moves per decision where decisions are searched for and timed."""

    rate: int
    policy: str
    moves: int | None
    mean_slowdown: float
    p99_slowdown: float
    mean_latency_s: float
    loads: int
    decisions: int | None = None
    decision_ms: float | None = None
    p99_decision_ms: float | None = None


def clairvoyance(
    rate: Annotated[int, "jobs per second", RATES] = 3,
    jobs: Annotated[int, "how many of the recorded jobs"] = 300,
    moves: Annotated[int, "moves per decision"] = 6_000,
    lookaheads: Annotated[str, "which look-aheads"] = ",".join(LOOKAHEADS),
    plan: Annotated[float, "seconds for an offline plan; 0: none"] = 30.0,
    folder: Annotated[Path, "where the results lie"] = HERE,
) -> None:
    """Run the policies that the results lack at one rate, and print their rows."""
    if not authors.ARRIVALS.is_dir():
        raise SystemExit(f"the recorded arrivals are not at {authors.ARRIVALS}")
    receding(authors.instance([(0, "translation"), (1, "question_answer")]), RecedingOptions(moves=10))  # compiles
    policies: list[tuple[str, int | None]] = [(policy, None) for policy in ONLINE]
    policies += [(f"{RECEDING}{name}", moves) for name in lookaheads.split(",")]
    policies += [(f"plan, {plan:g} s", None)] if plan else []
    on = authors.instance(authors.recorded(rate, jobs))
    study = Study(
        AnnouncedRow,
        3,
        partial(measured, on, plan),
        results=results(jobs, rate),
        tell=lambda rows: " ".join(map(str, rows)),
    )
    study.run(((rate, policy, count) for policy, count in policies), folder)
    if all((folder / results(300, rate)).exists() for rate in RATES):
        draw(figure(folder), folder / "look_ahead.png")


def results(jobs: int, rate: int) -> str:
    """Return the name of a results file."""
    return f"results_{jobs}_jobs_{rate}_per_s.csv"


def measured(on: Instance, plan_s: float, rate: int, policy: str, moves: int | None) -> Iterator[AnnouncedRow]:
    """Yield the row of a policy."""
    times: list[float] = []
    if moves is not None:
        lookahead = LOOKAHEADS[policy.removeprefix(RECEDING)]
        timeline, times = receding(on, RecedingOptions(moves=moves, lookahead=lookahead))
    elif policy in ONLINE:
        _, timeline = carry_out(on, policy)
    else:
        timeline = annealed(on, plan_s)
    assert_feasible(on, timeline)
    metrics = measure(on, timeline)
    slowdowns = round(metrics.mean_slowdown, 3), round(metrics.p99_slowdown, 3)
    spread = [round(float(value), 1) for value in (np.mean(times), np.percentile(times, 99))] if times else [None, None]
    counts = metrics.loads, len(times) or None
    yield AnnouncedRow(rate, policy, moves, *slowdowns, round(metrics.mean_latency_s, 3), *counts, *spread)


def annealed(on: Instance, seconds: float) -> Timeline:
    """Return an offline plan."""
    search = Search(on, Objective.MEAN_SLOWDOWN, seconds)
    annealing.improve(search)
    assert search.timeline is not None
    return search.timeline


def receding(on: Instance, options: RecedingOptions) -> tuple[Timeline, list[float]]:
    """Return the timeline of the receding horizon, and the milliseconds of its decisions."""
    made: list[RecedingHorizon] = []

    def make() -> Policy:
        made.append(RecedingHorizon(options, Oracle(on.jobs) if options.lookahead else None))
        return made[-1]

    factory: Callable[[], Policy] = make
    timeline = simulate(on, factory)
    return timeline, [1000 * seconds for seconds in made[-1].decision_s]


def figure(folder: Path) -> Figure:
    """Return mean slowdown over what is known of the future, from the written results."""
    made = canvas(9, 3)
    panels = made.subplots(1, len(RATES))
    for rate, axes in zip(RATES, panels, strict=True):
        slowdown = {row.policy: row.mean_slowdown for row in read(folder / results(300, rate), AnnouncedRow)}
        known = [slowdown[f"{RECEDING}{name}"] for name in LOOKAHEADS]
        axes.plot(list(LOOKAHEADS), known, marker="o", color="black", label="receding")
        for policy, style in REFERENCES.items():
            axes.axhline(slowdown[policy], linestyle=style, color="grey", label=f"{policy}: {slowdown[policy]:.2f}")
        axes.set(title=f"{rate} jobs/s", xlabel="look-ahead", ylim=(1, None))
        axes.legend(fontsize="x-small")
    panels[0].set_ylabel("mean slowdown")
    return made


def loss(
    rate: Annotated[int, "jobs per second", RATES] = 4,
    jobs: Annotated[int, "how many of the recorded jobs"] = 100,
    plan: Annotated[float, "seconds for an offline plan"] = 30.0,
) -> None:
    """Print a row per policy."""
    on = authors.instance(authors.recorded(rate, jobs))
    free = on.with_tasks(lambda task: replace(task, models=()))
    cases: dict[str, Callable[[Instance], Timeline]] = {
        policy: (lambda each, policy=policy: carry_out(each, policy)[1])  # type: ignore[misc]
        for policy in ONLINE
    }
    for name, lookahead in (("0 s", 0), ("all", EVERYTHING)):
        chosen = RecedingOptions(moves=6_000, lookahead=lookahead)
        cases[f"receding, look-ahead {name}"] = lambda each, chosen=chosen: receding(each, chosen)[0]  # type: ignore[misc]
    cases[f"plan, {plan:g} s"] = lambda each: annealed(each, plan)

    def slowdowns(make: Callable[[Instance], Timeline]) -> dict[str, Any]:
        values = [float(timeline_value(Objective.MEAN_SLOWDOWN, each, make(each))) for each in (on, free)]
        return {"with_models": values[0], "without": values[1]}

    head = f"mean slowdown, {jobs} jobs at {rate} jobs/s     with models   without"
    bench(cases.items(), slowdowns, "{name:45} {with_models:12.3f} {without:9.3f}", head)


if __name__ == "__main__":
    ask({"look-ahead": clairvoyance, "loss": loss})
