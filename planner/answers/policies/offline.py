"""Offline: a plan of the whole window from what is told of run times, carried out; if asked, planned anew on surprises.

It is clairvoyant about arrivals, as every plan is, but not about run times. It ranks between a plan, which knows both,
and the online policies, which know neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from truenorth.executor import Policy, PolicyError, Site, replay
from truenorth.executor.policies.options import count, count_from_1, one_of, option, switch
from truenorth.models.instance import Instance
from truenorth.models.objective import Objective
from truenorth.models.scenario import Scenario
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.check import feasible_timeline
from truenorth.planner.answers.policies.following import Following
from truenorth.planner.answers.policies.receding_horizon import RecedingOptions
from truenorth.planner.answers.uncertain.planning import SAMPLES, PlanFor, candidates
from truenorth.planner.answers.uncertain.told import Told, retime
from truenorth.solvers.reductions import on_twin
from truenorth.solvers.result import Search
from truenorth.solvers.search import annealing

_ENDLESS_S = 1e9
"""The search counts moves, not seconds, so that equal seeds give equal plans."""
MAX_SAMPLES = 1_000
"""Every sample is an instance, and for ``on=samples`` a plan of its own."""


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """How it plans.

    Parameters
    ----------
    on
        Run times to plan for: ``p50``, ``p90`` or ``samples``.
    replan
        Whether to plan anew when a run time leaves its interval.
    plan
        A plan file of the scenario to follow in place of a plan of its own.
    moves, samples
        Moves of local search per plan; run-time vectors to draw.
    decision
        Moves of the local search whenever it plans anew.
    seed
        Of the searches and samples.
    """

    on: str = option("p50", one_of(*PlanFor))
    replan: bool = option(False, switch)
    plan: str | None = option(None, str)
    moves: int = option(200_000, count_from_1())
    samples: int = option(SAMPLES, count_from_1(MAX_SAMPLES))
    decision: int = option(2_000, count_from_1())
    seed: int = option(0, count)


class Offline(Policy):
    """Plans before anything happens, then lets the replay of the plan act, or whoever follows and replans it.

    Parameters
    ----------
    options
        How it plans.
    scenario
        For its objective, and for what a plan file belongs to.
    told
        What is known of the run times.
    """

    Options: ClassVar[type[object]] = OfflineOptions
    knows_paths: ClassVar[bool] = True
    foresees: ClassVar[bool] = True

    def __init__(self, options: OfflineOptions, scenario: Scenario, told: Told) -> None:
        self._options, self._scenario, self._told = options, scenario, told

    @classmethod
    def looks_ahead(cls, options: object | None) -> bool:
        """Say that it does: it plans before anything happens."""
        return True

    def begin(self, site: Site) -> None:
        """Plan, and hand over to who carries the plan out.

        Raises
        ------
        PolicyError
            If no plan is found, or it cannot be carried out.
        InputError
            If the plan file cannot be used.
        """
        super().begin(site)
        options, plan = self._options, self._plan()
        if options.replan:
            objective = str(self._scenario.objective)
            receding = RecedingOptions(moves=options.decision, objective=objective, seed=options.seed)
            self._carrier: Policy = Following(self._told, plan, receding)
        else:
            self._carrier = replay(self._told.instance, plan)()
        self._carrier.begin(site)

    def _plan(self) -> Timeline:
        options, objective = self._options, self._scenario.objective
        if options.plan is not None:
            given = self._scenario.instance
            # The file's plan has the true times; it is carried out with those that are told.
            return retime(given, feasible_timeline(given, Path(options.plan)), self._told.instance)

        def planned(instance: Instance) -> Timeline | None:
            return anneal(instance, objective, options.moves, options.seed)

        found = candidates(self._told, objective, PlanFor(options.on), planned, options.seed, options.samples)
        if not found:
            raise PolicyError("policy offline: no plan was found")
        return found[0].timeline

    def released(self, job: int) -> None:
        """Pass a release on."""
        self._carrier.released(job)

    def finished(self, task: int, gpu: int) -> None:
        """Pass the end of a task on."""
        self._carrier.finished(task, gpu)

    def arrived(self, task: int, missing: int) -> None:
        """Pass the arrival of an input on."""
        self._carrier.arrived(task, missing)

    def loaded(self, model: int, gpu: int) -> None:
        """Pass the end of a load on."""
        self._carrier.loaded(model, gpu)

    def came(self, gpu: int) -> None:
        """Pass on that a GPU is there."""
        self._carrier.came(gpu)

    def went(self, gpu: int, tasks: Sequence[int]) -> None:
        """Pass on that a GPU has gone."""
        self._carrier.went(gpu, tasks)

    def act(self, gpus: Sequence[int]) -> None:
        """Let the plan go on."""
        self._carrier.act(gpus)


def anneal(instance: Instance, objective: Objective, moves: int, seed: int) -> Timeline | None:
    """Return the plan that a number of moves of local search leads to; None if there is none."""
    search = Search(instance, objective, _ENDLESS_S)
    annealing.improve(on_twin(search), seed, moves)
    return search.timeline
