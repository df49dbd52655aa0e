"""What the MILP begins with: a problem that looks at the clock, units, and what jobs cost.

Times and costs are divided by powers of two. Every number so keeps its value in floating point and the largest are
around a thousand: a solver's absolute tolerances then mean something.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import pulp

from truenorth.models.formulations.allowance import Allowance
from truenorth.models.formulations.scale import ScaledObjective
from truenorth.models.instance import Instance, Ints
from truenorth.models.objective import Term, charges, completion_us
from truenorth.models.timeline import Timeline

TERM_BYTES, TERM_S = 130, 4e-6
"""What a term of a row takes, as measured: in PuLP's expressions and the solver's copy, to write and to hand over."""
_LOOK_TERMS = 100_000
"""Terms between two looks at memory."""


def new_problem(allowance: Allowance) -> pulp.LpProblem:
    """Return an empty minimisation; whoever adds a row when time or memory is up hears `GivenUpError`."""
    problem, unseen = pulp.LpProblem("truenorth", pulp.LpMinimize), 0
    add_row = problem.addConstraint

    def add_while_there_is_room(row: pulp.LpConstraint, name: str | None = None) -> None:
        nonlocal unseen
        allowance.go_on()
        # Memory is looked at every so many terms: asking the system for every row would take longer than the rows.
        unseen += len(row)
        if unseen > _LOOK_TERMS:
            allowance.fit(unseen, TERM_BYTES)
            unseen = 0
        add_row(row, name)

    problem.addConstraint = add_while_there_is_room
    return problem


_LARGEST_BITS = 10


class Completions(Protocol):
    """Times in microseconds between which jobs complete. Shape [jobs]."""

    @property
    def completion_lower_us(self) -> Ints:
        """No job completes earlier."""

    @property
    def completion_upper_us(self) -> Ints:
        """No job need complete later."""


class Choices(Protocol):
    """What a program decides over, as far as costs depend on it."""

    @property
    def instance(self) -> Instance:
        """The window."""

    @property
    def windows(self) -> Completions:
        """When its jobs complete."""


@dataclass(frozen=True, slots=True)
class Units:
    """Exponents of the powers of two by which microseconds, job weights and terms are divided."""

    time_bits: int
    weight_bits: int
    term_bits: int

    @classmethod
    def of(cls, choices: Choices, scaled: ScaledObjective) -> Units:
        """Return units in which the latest end is below 1024 and the largest weight at most 1."""
        time_bits = max(0, int(choices.windows.completion_upper_us.max()).bit_length() - _LARGEST_BITS)
        return cls(time_bits, max(scaled.weights).bit_length(), 0 if scaled.term is Term.LATE else time_bits)

    def time(self, us: int) -> float:
        """Return a time in units."""
        return math.ldexp(us, -self.time_bits)

    def term(self, value: int) -> float:
        """Return a job's term in units."""
        return math.ldexp(value, -self.term_bits)

    def weight(self, weight: int) -> float:
        """Return a job's weight in units."""
        return math.ldexp(weight, -self.weight_bits)

    def cost(self, scaled: int) -> float:
        """Return a scaled objective value, a weight times a term, in units."""
        return math.ldexp(scaled, -self.weight_bits - self.term_bits)

    def scaled(self, cost: float) -> Fraction:
        """Return a cost in units as the exact scaled objective value."""
        return Fraction(cost) * (1 << self.weight_bits + self.term_bits)


class MilpCosts:
    """The variables that costs depend on; letters as in the constraints.

    Attributes
    ----------
    units
        What one unit of a time, weight or term stands for.
    end
        Per task (e_t), an expression.
    completion
        Per job that counts (C_j).
    term
        Per job that counts: the term that its weight multiplies (T_j).
    worst
        The largest weighted term, if the objective is a maximum (W).
    """

    end: list[pulp.LpAffineExpression]

    def __init__(self, problem: pulp.LpProblem, choices: Choices, scaled: ScaledObjective) -> None:
        self._problem, self.units = problem, Units.of(choices, scaled)
        self.completion: dict[int, pulp.LpAffineExpression] = {}
        self.term: dict[int, pulp.LpVariable] = {}
        self.worst: pulp.LpVariable | None = None

    def _binary(self, name: str) -> pulp.LpVariable:
        return self._problem.add_variable(name, cat=pulp.LpBinary)

    def _declare_costs(self, choices: Choices, scaled: ScaledObjective) -> None:
        """Declare completions, terms and the largest weighted term; jobs that never count have none."""
        instance, windows, units = choices.instance, choices.windows, self.units
        least = scaled.terms(instance, windows.completion_lower_us)
        most = scaled.terms(instance, windows.completion_upper_us)
        due_us = charges(scaled.objective, instance).due_us
        for job in [job for job, weight in enumerate(scaled.weights) if weight]:
            name = f"{scaled.term.value}[{job}]"
            if scaled.term is Term.LATE:
                self.term[job] = self._binary(name)
            else:
                self.term[job] = self._problem.add_variable(name, units.term(least[job]), units.term(most[job]))
            if scaled.term in (Term.COMPLETION, Term.LATENCY):
                self.completion[job] = self.term[job] + units.time(int(due_us[job]))
            else:
                bounds_us = int(windows.completion_lower_us[job]), int(windows.completion_upper_us[job])
                done = self._problem.add_variable(f"completion[{job}]", *map(units.time, bounds_us))
                self.completion[job] = done + 0
        if not scaled.objective.is_sum:
            bounds = (units.cost(scaled.combine(terms)) for terms in (least, most))
            self.worst = self._problem.add_variable("worst", *bounds)


def complete_jobs(problem: pulp.LpProblem, v: MilpCosts, choices: Choices) -> None:
    """Bound the completion of a job by the ends of its last tasks.

    C_j >= e_t for the tasks without successors.
    """
    for job, completion in v.completion.items():
        for task in choices.instance.tasks_of(job):
            if not any(True for _ in choices.instance.task_outputs(task)):
                problem.addConstraint(completion >= v.end[task], f"completion[{job},{task}]")


def minimise(
    problem: pulp.LpProblem, v: MilpCosts, choices: Choices, scaled: ScaledObjective, most: int | None = None
) -> None:
    """Bind the terms to the completions and minimise.

    T_j >= C_j - r_j - deadline_j, or C_j <= r_j + deadline_j + M T_j;  sum_j w_j T_j, or W with W >= w_j T_j.

    Parameters
    ----------
    most
        Scaled value that no plan exceeds, whatever its windows; None: any.

    Notes
    -----
    Invariant: the problem's value is at most the scaled value of every plan, in units.
    Because: powers of two divide exactly, and terms are only bounded from below.
    If wrong: unsound; `Units.scaled` turns the solver's bound back.
    """
    due_us = charges(scaled.objective, choices.instance).due_us
    latest = choices.windows.completion_upper_us
    for job, term in v.term.items():
        due = int(due_us[job])
        if scaled.term is Term.TARDINESS:
            problem.addConstraint(term >= v.completion[job] - v.units.time(due), f"tardiness[{job}]")
        elif scaled.term is Term.LATE:
            overrun = max(0, int(latest[job]) - due)
            in_time = v.completion[job] <= v.units.time(due) + v.units.time(overrun) * term
            problem.addConstraint(in_time, f"in_time[{job}]")
    weighted = {job: v.units.weight(scaled.weights[job]) * term for job, term in v.term.items()}
    # Only from below, as in the twin.
    for job, cost in weighted.items() if v.worst is not None else ():
        problem.addConstraint(v.worst >= cost, f"worst[{job}]")
    total = pulp.lpSum(weighted.values() if v.worst is None else [v.worst])
    problem.setObjective(total)
    if most is not None:
        problem.addConstraint(total <= v.units.cost(most), "within")


def start_costs(
    v: MilpCosts, scaled: ScaledObjective, instance: Instance, timeline: Timeline
) -> Iterator[tuple[pulp.LpVariable, float]]:
    """Yield the values of completions, terms and the worst term."""
    completion = completion_us(instance, timeline)
    terms = scaled.terms(instance, completion)
    for job, expression in v.completion.items():
        for variable in expression:
            if variable is not v.term[job]:
                yield variable, v.units.time(int(completion[job]))
    for job, term in v.term.items():
        yield term, v.units.term(terms[job])
    if v.worst is not None:
        yield v.worst, v.units.cost(scaled.combine(terms))
