"""What a plan costs above a bound because tasks start later, or sooner, than the bound would have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """A start at which a surcharge grows: it is at least `least` from `time_us` on (`late`) or up to it (not `late`).

    The steps of a task in one direction grow outwards, in the order in which they are listed.
    """

    task: int
    late: bool
    time_us: int
    least: int

    def taken(self, start_us: int) -> bool:
        """Say whether a start lies on the step."""
        return start_us >= self.time_us if self.late else start_us <= self.time_us


@dataclass(frozen=True, slots=True)
class Surcharges:
    """The objective is at least `base` and the surcharges of all jobs; a job pays at least the dearest step it takes.

    Parameters
    ----------
    base, spare
        Scaled objective at no surcharge, and the most that all surcharges of a plan within the limit add up to.
    steps
        Per job.
    """

    base: int
    spare: int
    steps: tuple[tuple[Step, ...], ...]

    def of_job(self, job: int, start_us: list[int]) -> int:
        """Return the least surcharge of a job, given the starts of all tasks."""
        return max((step.least for step in self.steps[job] if step.taken(start_us[step.task])), default=0)
