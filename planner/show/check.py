"""The outcome of a check in words: what was checked, and what was not."""

from __future__ import annotations

from rich.text import Text

from planner.answers.check import Checked


def check_view(outcome: Checked) -> Text:
    """Return every violation, or what holds; then what was taken from the file and what stays a claim."""
    if outcome.violations:
        return Text("\n".join(str(violation) for violation in outcome.violations))
    times, claims = outcome.own_times, outcome.claims
    if outcome.realised:
        lines = [
            "valid as a timeline that happened: every rule holds, with run and load times taken from the file",
            f"other times than the scenario's: {times['runs_of_other_times']} of {times['runs']} runs, "
            f"{times['loads_of_other_times']} of {times['loads']} loads",
        ]
    else:
        lines = ["valid: every rule holds"]
    if claims.checked:
        lines.append(f"as the file says: {', '.join(claims.checked)}")
    if "value" in claims.unchecked:
        lines.append(f"unchecked: value {claims.unchecked['value']}")
    if claims.unproved:
        lines.append(f"claimed, unproved without a certificate: {_listed(claims.unproved)}")
    made = [name for name in claims.unchecked if name != "value"]
    if made:
        lines.append(f"unchecked, of how it was made: {', '.join(made)}")
    return Text("\n".join(lines))


def _listed(unproved: dict[str, str]) -> str:
    return "; ".join(f"{name} {said}" for name, said in unproved.items())
