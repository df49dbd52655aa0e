"""A broken rule of a timeline, and the names by which messages call its subjects."""

from __future__ import annotations

from dataclasses import dataclass

from truenorth.models.instance import Instance
from truenorth.models.timeline import Residency


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule.

    Parameters
    ----------
    rule
        Its number, R1 to R6, T1 to T3, T3b, T3c, A1, or X for an operator's restriction.
    subject
        The task, residency or GPU at fault, by name.
    problem
        What is wrong, in words.
    found, allowed
        The two values that disagree (microseconds, bytes, shares or counts).
    """

    rule: str
    subject: str
    problem: str
    found: int | str
    allowed: int | str

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}: {self.problem} (found {self.found}, allowed {self.allowed})"


def name_task(instance: Instance, task: int) -> str:
    """Return how a violation calls a task."""
    return f"job {instance.task_job[task]} task {instance.task_name(task)}"


def name_residency(instance: Instance, residency: Residency) -> str:
    """Return how a violation calls a residency."""
    model, gpu = instance.models[residency.model].name, instance.cluster.gpus[residency.gpu].id
    return f"{model} on {gpu} from {residency.load_start_us} us"
