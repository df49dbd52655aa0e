"""The texts of ``--noise``: noise on what happens, errors of what is told, or both sides from a file of estimates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from executor import Noise, NoiseError, parse_noise
from models.instance import Instance
from models.scenario import Scenario
from planner.answers.uncertain.error import GRAMMAR, Error, parse_error
from planner.answers.uncertain.estimates_file import read_told
from planner.answers.uncertain.means import MEAN, tell_means
from planner.answers.uncertain.told import TRUTH, Told

_OWN = ("told", "true", "estimates")
_ALLOWED = f"{GRAMMAR}, or 'estimates=FILE'"


@dataclass(frozen=True, slots=True)
class Sides:
    """What is told of run times, and the instance whose run times hold."""

    told: Told
    truth: Instance


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """What a text of ``--noise`` asks for.

    Parameters
    ----------
    noise
        On runs and loads, whatever is told; None: there is none.
    wrongly_told
        The scenario's run times hold, and planners and policies are told wrong ones.
    straying
        Planners and policies are told the scenario's run times, and others hold.
    estimates
        A file of estimates: planners and policies are told its medians, and the run times that hold are drawn from it.
    told_means
        The scenario's run times hold, and planners and policies are told the mean of a task's class.
    """

    noise: Noise | None = None
    wrongly_told: Error | None = None
    straying: Error | None = None
    estimates: Path | None = None
    told_means: bool = False

    @property
    def keeps_truth(self) -> bool:
        """Whether the run and load times that hold are the scenario's, so that its bounds hold as well."""
        return self.noise is None and self.straying is None and self.estimates is None

    @property
    def tells_exactly(self) -> bool:
        """Whether planners and policies are told the run times that hold."""
        as_given = self.noise is None or self.noise.run is None
        return as_given and not self.told_means and not (self.wrongly_told or self.straying or self.estimates)

    def sides(self, scenario: Scenario, seed: int) -> Sides:
        """Return what is told and what holds.

        Raises
        ------
        InputError
            If the file of estimates cannot be used.
        NoiseError
            If run times become too long.
        """
        try:
            return self._sides(scenario, seed)
        except NoiseError as error:
            raise NoiseError(f"noise {self._said}: {error}") from None

    @property
    def _said(self) -> str:
        """What tells of run times, as ``--noise`` has it."""
        said = {"told": self.wrongly_told, "true": self.straying, "estimates": self.estimates}
        return next(f"{what}={value}" for what, value in said.items() if value is not None)

    def _sides(self, scenario: Scenario, seed: int) -> Sides:
        given = scenario.instance
        if self.told_means:
            return Sides(Told.exactly(tell_means(given)), given)
        if self.wrongly_told is not None:
            return Sides(self.wrongly_told.told(self.wrongly_told.around(given, seed)), given)
        if self.straying is not None:
            return Sides(self.straying.told(given), self.straying.around(given, seed))
        if self.estimates is not None:
            told = read_told(self.estimates, scenario)
            return Sides(told, told.draw(seed, TRUTH))
        return Sides(Told.exactly(given), given)


def parse_uncertainty(text: str | None) -> Uncertainty:
    """Read the text of ``--noise``.

    >>> parse_uncertainty("told=published:0.5,load=normal:0.1").wrongly_told
    Error(kind='published', size=0.5, by_job=True)

    Raises
    ------
    NoiseError
        If the text is none; the message says what is allowed.
    """
    own: dict[str, str] = {}
    rest = []
    for item in [] if text is None else [item.strip() for item in text.split(",")]:
        what, _, value = item.partition("=")
        if what not in _OWN:
            rest.append(item)
        elif own:
            raise NoiseError(f"{text!r} tells of run times twice; allowed is one of {_ALLOWED}")
        elif not value:
            raise NoiseError(f"{text!r} says nothing after {what}=; allowed is {_ALLOWED}")
        else:
            own[what] = value
    try:
        noise = parse_noise(",".join(rest)) if rest else None
    except NoiseError as error:
        raise NoiseError(f"{error}; beside it {_ALLOWED}") from None
    means = own.get("told") == MEAN
    return Uncertainty(
        noise,
        parse_error(own["told"]) if "told" in own and not means else None,
        parse_error(own["true"]) if "true" in own else None,
        Path(own["estimates"]) if "estimates" in own else None,
        means,
    )


def refuse_estimates(noise: str | None) -> None:
    """Refuse a file of estimates: it gives run times of the scenario itself, whatever size or growth is asked about.

    Raises
    ------
    NoiseError
        If the noise is one, or none at all.
    """
    if parse_uncertainty(noise).estimates is not None:
        raise NoiseError(f"{noise!r} names a file of estimates; servers allows told=, true=, run= and load=")
