"""Verify: a certificate's claim computed again, of a bound or of a floor on servers, and accepted or refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from truenorth.models.objective import reported_bound
from truenorth.models.scenario import Scenario
from truenorth.models.scenario.files import read_text
from truenorth.models.scenario.reading import CLAIMS, JSONText
from truenorth.planner.answers.servers.floor_certificate import METHOD, verify_floor
from truenorth.planner.answers.shown import Answer
from truenorth.solvers.bounds.verify import Verdict, verify


def verify_document(scenario: Scenario, document: object) -> Verdict:
    """Compute what a certificate claims again and accept or refuse it; bad content never raises."""
    if isinstance(document, dict) and document.get("method") == METHOD:
        return verify_floor(scenario, document)
    if isinstance(document, dict) and "method" not in document and "tasks" in document:
        return Verdict(False, None, "this is a plan and no certificate; truenorth check reads plans")
    return verify(scenario.instance, document)


def verify_file(scenario: Scenario, path: Path) -> Verdict:
    """Compute what a certificate in a file claims again and accept or refuse it.

    Raises
    ------
    InputError
        If the file cannot be read or is no JSON; a key that stands twice in an object would leave open what is claimed.
    """
    return verify_document(scenario, JSONText(read_text(path), str(path)).data(CLAIMS))


@dataclass(frozen=True, slots=True)
class VerdictRecord(Answer):
    """A verdict with the keys of ``verify --json``, its bound in the reported unit."""

    valid: bool
    lower_bound: float | None
    reason: str | None
    how: str | None = None

    def __repr__(self) -> str:
        if not self.valid:
            return f"<not valid: {self.reason}>"
        proved = self.how if self.lower_bound is None else f"no plan is below {self.lower_bound:.6g}"
        return f"<valid: {proved}>"

    @property
    def record(self) -> VerdictRecord:
        """The verdict itself."""
        return self


def verdict_record(scenario: Scenario, verdict: Verdict) -> VerdictRecord:
    """Return a verdict in reported units."""
    proved = verdict.lower_bound
    lower_bound = None if proved is None else reported_bound(scenario.objective, proved)
    return VerdictRecord(verdict.valid, lower_bound, verdict.reason, verdict.how)
