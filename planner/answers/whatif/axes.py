"""The axes of a grid: what is written in it, and which names belong to the scenario and which to the verb."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from executor import POLICIES
from models.scenario import InputError
from models.scenario.document import ScenarioDocument
from models.scenario.errors import Source, Where, allowed, quote
from planner.answers.policies.parse import RECEDING
from planner.answers.whatif.document import SweepDocument
from planner.answers.whatif.verbs import VERBS, Verb

POLICY_OPTION = "policy."
"""What the name of an axis over an option of the policy begins with."""


@dataclass(frozen=True, slots=True)
class Point:
    """A value of an axis: how it is written, and what it changes.

    Parameters
    ----------
    label
        As it stands in the grid.
    changes
        New values by dotted path or by setting.
    where
        Its place in the sweep document.
    """

    label: object
    changes: Mapping[str, object]
    where: Where

    def blame(self, name: str, problem: str, source: Source) -> InputError:
        """Return the error of one of the changes."""
        is_value = isinstance(self.where[-1], int)
        return source.error(self.where if is_value else (*self.where, name), problem)


@dataclass(frozen=True, slots=True)
class Axis:
    """A name and its points."""

    name: str
    points: tuple[Point, ...]


def verb_of(document: SweepDocument, source: Source) -> type[Verb]:
    """Return the verb of a sweep.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if document.verb not in VERBS:
        raise source.error(("verb",), f"unknown verb {quote(document.verb)}; {allowed(document.verb, VERBS)}")
    return VERBS[document.verb]


def read_axes(document: SweepDocument, source: Source) -> tuple[Axis, ...]:
    """Return the axes in the order of the document.

    A list makes an axis over the path or setting that it is named after. A mapping makes cases: its keys are their
    names, its values mappings from paths or settings to values; the axis may then have any name.

    Raises
    ------
    InputError
        If an axis is neither, or a name is neither a path nor a setting.
    """
    kind = verb_of(document, source)
    axes = []
    for name, value in document.grid.items():
        where: Where = ("grid", name)
        if isinstance(value, Mapping) and value:
            points = [
                Point(label, _changes(case, (*where, label), source), (*where, label)) for label, case in value.items()
            ]
        elif isinstance(value, (list, tuple, range)) and len(value):
            points = [Point(one, {name: one}, (*where, position)) for position, one in enumerate(value)]
        else:
            problem = "is no axis; allowed is a list of values, or a mapping from names of cases to their changes"
            raise source.error(where, problem)
        for point in points:
            for changed in point.changes:
                _refuse_unknown(changed, point, kind, source)
        axes.append(Axis(name, tuple(points)))
    return tuple(axes)


def _changes(case: object, where: Where, source: Source) -> Mapping[str, object]:
    if case is not None and not isinstance(case, Mapping):
        raise source.error(where, "is no case; allowed is a mapping from paths or settings to values")
    return case or {}


def _refuse_unknown(name: str, point: Point, kind: type[Verb], source: Source) -> None:
    head = name.partition(".")[0].partition("[")[0]
    if not is_setting(name, kind) and head not in ScenarioDocument.model_fields:
        known = [*kind.model_fields, *ScenarioDocument.model_fields]
        raise point.blame(name, f"{quote(name)} is no path and no setting of the verb; {allowed(head, known)}", source)


def is_setting(name: str, kind: type[Verb]) -> bool:
    """Say whether the name of a change belongs to the verb rather than to the scenario."""
    return name in kind.model_fields or (name.startswith(POLICY_OPTION) and "policy" in kind.model_fields)


def told(settings: Mapping[str, object], changes: Mapping[str, object], kind: type[Verb]) -> dict[str, object]:
    """Return settings after changes; ``policy.lookahead`` and the like add an option to the policy."""
    merged = {**settings, **{name: value for name, value in changes.items() if name in kind.model_fields}}
    for name, value in changes.items():
        if name not in merged and is_setting(name, kind) and isinstance(merged.get("policy"), str):
            merged["policy"] = with_option(str(merged["policy"]), name.removeprefix(POLICY_OPTION), value)
    return merged


def with_option(policy: str, option: str, value: object) -> str:
    """Return a policy with one more option.

    >>> with_option("compass", "lookahead", 2), with_option("mine:Policy:x=1", "y", 2)
    ('compass:lookahead=2', 'mine:Policy:x=1,y=2')
    """
    name, _, rest = policy.partition(":")
    has_options = bool(rest) if name in POLICIES or name == RECEDING else ":" in rest
    return f"{policy}{',' if has_options else ':'}{option}={value}"
