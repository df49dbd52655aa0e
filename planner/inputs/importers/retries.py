"""Retries that a log lists as rows of their own: they become attempts of one job, each after the one that failed.

A row is a retry of the failed one of the same key (who submits it, under which name or group, and GPUs) that had ended
last before it was submitted, if that is no longer ago than a given time and no other row has followed it. What passed
between the two passes in any schedule: a person, or a daemon, had to see the failure first.

A job comes with its first attempt, counts once its last has ended, and fails if that failed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truenorth.models.errors import QuestionError
from truenorth.models.instance import Ints
from truenorth.models.units import seconds
from truenorth.planner.inputs.importers.sessions import chain
from truenorth.planner.inputs.importers.tables import Requests

FIRST, AGAIN = "run", "retry {}"
"""The tasks of a job, the second from 1."""
MOST_DELAYS = 20_000_000
"""Jobs times retries of one of them: a trace has a column for each retry."""


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """Which rows of a log are attempts of which jobs, those of a job one after the other.

    Parameters
    ----------
    row
        The row of each attempt, of those that are made.
    job, place
        Its job, by their first attempts, and which of its attempts it is, from 0.
    delay_us
        From the end of the one before it to its own submission; 0 for the first of a job. Shape of all: [attempts].
    left_out
        Attempts that are not made: those behind a failure for good that failed for good as well, where such failures
        are stopped early. The time that passed before them passes all the same.
    within_us
        After which time a row is no retry any more.
    """

    row: Ints
    job: Ints
    place: Ints
    delay_us: Ints
    left_out: int
    within_us: int

    @property
    def first(self) -> Ints:
        """The row of the first attempt of each job. Shape [jobs]."""
        return np.asarray(self.row[self.place == 0], np.int64)

    @property
    def last(self) -> Ints:
        """The row of the last attempt of each job. Shape [jobs]."""
        return np.asarray(self.row[np.append(self.place[1:] == 0, True)], np.int64)

    def delays_us(self) -> dict[str, Ints]:
        """Return, by task, what passes before it in each job; -1 where a job has no such task. Shape [jobs] each.

        Raises
        ------
        QuestionError
            If some job is tried so often that the table of all would be too large.
        """
        jobs, most, found = int(self.job[-1]) + 1, int(self.place.max()), {}
        if jobs * most > MOST_DELAYS:
            problem = f"makes a job of {most + 1:,} attempts, among {jobs:,} jobs"
            raise QuestionError(f"retries={seconds(self.within_us)} {problem}; allowed is a shorter time, or a window")
        for place in range(1, most + 1):
            found[AGAIN.format(place)] = np.full(jobs, -1, np.int64)
            at = self.place == place
            found[AGAIN.format(place)][self.job[at]] = self.delay_us[at]
        return found


def attempts_of(asked: Requests) -> Attempts | None:
    """Return how rows in the order of their submission make jobs; None if retries are jobs by themselves."""
    if asked.tries_us is None or asked.key is None or asked.end_us is None or asked.failed is None:
        return None
    submit_us = asked.release_us.tolist()
    stopped = np.zeros(len(submit_us), np.bool_) if asked.stopped is None else asked.stopped
    calls = chain(asked.key.tolist(), submit_us, asked.end_us.tolist(), asked.failed.tolist(), asked.tries_us)
    made: list[tuple[int, int, int, int]] = []
    passed_us, places = 0, np.zeros(len(submit_us), np.int64)
    for row in np.lexsort((calls.place, calls.job)).tolist():
        before = int(calls.before[row])
        passed_us = int(calls.delay_us[row]) + (passed_us if before >= 0 else 0)
        # What failed for good would fail again: only what its user has changed by then can end otherwise.
        if before >= 0 and stopped[before] and stopped[row]:
            places[row] = places[before]
            continue
        places[row] = places[before] + 1 if before >= 0 else 0
        made.append((row, int(calls.job[row]), int(places[row]), passed_us))
        passed_us = 0
    row, job, place, delay_us = np.array(made, np.int64).T
    return Attempts(row, job, place, delay_us, len(submit_us) - len(made), asked.tries_us)


def say_attempts(attempts: Attempts, failed: NDArray[np.bool_]) -> list[str]:
    """Return in words how rows make jobs; `failed` is per row."""
    jobs, tried = len(attempts.first), int((np.bincount(attempts.job) > 1).sum())
    within = f"submitted within {seconds(attempts.within_us)} of the end of a failed one, by the same user"
    said = [
        f"{len(attempts.row) + attempts.left_out:,} rows make {jobs:,} jobs: {tried:,} are tried again, {within}; "
        f"{int(failed[attempts.last].sum()):,} of the jobs fail in the end and weigh 0"
    ]
    if attempts.left_out:
        said.append(f"attempts left out that failed for good right after one that had, too: {attempts.left_out:,}")
    return said
