"""How many servers are enough: the question asked, and the answer with its proof, policies and what forces it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from models import ServiceLevel, Timeline
from models.cluster import MICROSECONDS_PER_SECOND
from models.errors import QuestionError
from models.scenario import Scenario
from planner.answers.policies.parse import parse
from planner.answers.servers.by_policy import DEFAULT_POLICIES, Scanned, scan
from planner.answers.servers.decide import Refutation, reached_by
from planner.answers.servers.goal import needs_deadlines, tolerances
from planner.answers.servers.hunt import LONG_TRACE, Hunt, floor_of
from planner.answers.servers.question import Question, candidates, cost
from planner.answers.servers.sizes import Mix, Sizes
from planner.answers.simulate import is_file

_POLICY_SHARE = 0.4
"""At most this share of the time goes to simulating policies."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The least size that meets a level, or the interval it lies in.

    Parameters
    ----------
    sizes, level
        What was asked about.
    mix, timeline
        The cheapest size with a plan within the level, and that plan; None if none was found.
    undecided
        Cheaper sizes that are neither refuted nor met, cheapest first; none: the size is proved least.
    refutations
        Sizes that were refuted, each standing for all mixes with no more servers of any group.
    policies
        What simulating each online policy found.
    largest
        The largest size that was asked about.
    runtime_s
        Wall-clock time.
    options
        What else was asked for, as options of the command.
    """

    sizes: Sizes
    level: ServiceLevel
    mix: Mix | None
    timeline: Timeline | None
    undecided: tuple[Mix, ...]
    refutations: tuple[Refutation, ...]
    policies: tuple[Scanned, ...]
    largest: Mix
    runtime_s: float
    options: tuple[str, ...] = ()

    @property
    def servers(self) -> int | None:
        """Servers of the size found."""
        return None if self.mix is None else sum(self.mix)

    @property
    def proved(self) -> bool:
        """Whether every cheaper size is refuted."""
        return self.mix is not None and not self.undecided

    @property
    def least(self) -> Mix | None:
        """The cheapest size that is not refuted; None if all are."""
        return self.undecided[0] if self.undecided else self.mix

    @property
    def lower_bound(self) -> int:
        """Fewest servers of any size that may still be the cheapest; one more than asked about if all are refuted."""
        possible = [*self.undecided, *([] if self.mix is None else [self.mix])]
        return min((sum(mix) for mix in possible), default=sum(self.largest) + 1)

    @property
    def refutation(self) -> Refutation | None:
        """The refutation of the most expensive size below the answer: it says what forces one more."""
        return max(self.refutations, key=lambda done: self.cost(done.mix), default=None)

    def cost(self, mix: Mix) -> Fraction:
        """Return the price of a mix for an hour, or its servers where there is one group."""
        return cost(self.sizes, mix)

    def save(self, folder: Path) -> list[Path]:
        """Write answer, plan, certificate and the scenarios that belong to them into a folder; return the paths."""
        from planner.answers.servers.written import write

        return write(self, folder)

    def as_dict(self, plan: Path | None = None, certificate: Path | None = None) -> dict[str, Any]:
        """Return the answer with the keys of ``servers --json``."""
        priced = self.sizes.prices is not None

        def size(mix: Mix | None) -> dict[str, Any]:
            """Return how many servers, and of priced groups also how many of each and for how much an hour."""
            servers = {"servers": None if mix is None else sum(mix)}
            if not priced:
                return servers
            return {
                **servers,
                "mix": None if mix is None else list(mix),
                "price_per_hour": None if mix is None else float(self.cost(mix)),
            }

        done, least = self.refutation, self.least
        minimum = size(self.mix) | {
            "proved": self.proved,
            "lower_bound": self.lower_bound,
            "value": self._figure(self._planned()),
            "plan": None if plan is None else str(plan),
        }
        if priced:
            minimum["lower_bound_price_per_hour"] = None if least is None else float(self.cost(least))
        return {
            "slo": str(self.level),
            "minimum": minimum,
            "policies": {
                row.policy: size(row.mix)
                | {
                    "simulated_up_to": None if row.upto is None else sum(row.upto),
                    "reached": [size(mix) | {"value": self._figure(value)} for mix, value in row.reached],
                }
                for row in self.policies
            },
            "refutation": None
            if done is None
            else size(done.mix)
            | {
                "method": done.method,
                "forces": done.forces,
                "recomputable": done.certificate is not None,
                "certificate": None if certificate is None else str(certificate),
            },
            "runtime_s": self.runtime_s,
        }

    def _planned(self) -> Fraction | None:
        """Return what the plan reaches of the figure that the level limits."""
        if self.mix is None or self.timeline is None:
            return None
        return reached_by(self.sizes.at(self.mix).instance, self.timeline, self.level)

    def _figure(self, value: Fraction | None) -> float | None:
        """Return a figure that the level limits in seconds, as a ratio or as a share."""
        if value is None:
            return None
        return float(value / MICROSECONDS_PER_SECOND if self.level.measure == "latency" else value)

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        import pandas as pd

        from planner.show.servers import rows

        return str(pd.DataFrame(rows(self)).set_index("who").to_html())


def servers(
    scenario: Scenario,
    level: ServiceLevel | None = None,
    *,
    policies: Sequence[str] | None = None,
    most: int | None = None,
    time_limit_s: float = 300.0,
    workers: int = 2,
    seed: int = 0,
    tell: Callable[[str], None] = lambda words: None,
    stop: threading.Event | None = None,
) -> Answer:
    """Find the least number of servers that meets a service level, or of priced groups the cheapest mix.

    Parameters
    ----------
    level
        None: the scenario's own.
    policies
        Online policies to simulate beside it; None: all, unless the window is too long to plan.
    most
        The largest number of servers, per group, that is looked at.
    time_limit_s
        For everything together.
    tell
        Called with a few words whenever the work turns to something else.
    stop
        Set it to end early with what is known.

    Raises
    ------
    QuestionError, InputError, PolicyError
        If there is no level, a policy is unknown, or the scenario cannot be asked about other sizes.
    """
    begun = time.monotonic()
    chosen = level or scenario.slo
    if chosen is None:
        raise QuestionError("is missing; allowed is 'p99 slowdown <= 2' and the like, here or in the scenario", "slo")
    needs_deadlines(scenario.instance, chosen, scenario.source.file)
    long = scenario.instance.n_tasks > LONG_TRACE
    names = (() if long else DEFAULT_POLICIES) if policies is None else tuple(policies)
    for name in names:
        if is_file(name):
            raise QuestionError(f"{name!r} is a file, which fits one number of servers only; name policies", "policies")
        parse(name, scenario)
    sizes = Sizes(scenario)
    tell("fluid bound")
    floor = floor_of(scenario.instance, tolerances(chosen))
    asked = candidates(sizes, most, floor.gpus)
    question = Question(sizes, chosen, asked, begun + time_limit_s, workers, seed, stop or threading.Event(), tell)
    hunt = Hunt(question)
    hunt.apply_floor(floor)
    if not long:
        hunt.bisect()
    scanned = scan(hunt, names, _POLICY_SHARE)
    if not long:
        hunt.search()
    return Answer(
        sizes,
        chosen,
        hunt.best,
        hunt.timeline,
        tuple(hunt.open),
        tuple(hunt.refutations),
        tuple(scanned),
        asked[-1],
        time.monotonic() - begun,
        (*(() if most is None else ("--max", str(most))), "--time-limit", f"{time_limit_s:g}", "--seed", str(seed)),
    )
