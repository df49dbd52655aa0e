"""From many settings to one description: the highest origin wins, among equals the later setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from planner.inputs.estimate.sources.description import FIELDS, Evidence
from planner.inputs.estimate.sources.setting import EVALUATION, Origin, Setting, canonical, words
from planner.inputs.estimate.sources.vocabulary import GPUS_PER_NODE, NODES, field_of, is_aside, is_off, read_value

Rank = tuple[bool, Origin, bool, int]
"""Whether it is the job proper's, where it stands, whether it surely runs, and its position among all settings."""
_MIXED_WITH = "mixed with"


def overrides_of(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return settings by the names under which source may read them: ``model_name`` and ``name`` for ``model.name``.

    A last name that sections of one origin fill differently is left out, and so is what evaluations set.
    """
    found: dict[str, Setting] = {}
    ambiguous: set[tuple[str, Origin]] = set()
    for setting in settings:
        sections = setting.path[:-1]
        if is_aside(sections) or EVALUATION.intersection(word for section in sections for word in words(section)):
            continue
        key = canonical(setting.path[-1])
        before = found.get(key)
        if before is not None and before.origin == setting.origin and before.path[:-1] != sections:
            ambiguous.add((key, setting.origin))
        found["_".join(map(canonical, setting.path[-2:]))] = found[key] = setting
    return {key: setting for key, setting in found.items() if (key, setting.origin) not in ambiguous}


class Decision:
    """The value of each field and the setting it comes from, of settings in which later ones override earlier ones."""

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._best: dict[str, tuple[Rank, object, Setting]] = {}
        candidates = [found for order, setting in enumerate(settings) for found in _candidates(order, setting)]
        branches: dict[tuple[str, bool, Origin], set[object]] = {}
        for name, (proper, origin, certain, _), value, _ in candidates:
            if not certain:
                branches.setdefault((name, proper, origin), set()).add(value)
        for name, rank, value, setting in candidates:
            disagree = not rank[2] and len(branches[name, rank[0], rank[1]]) > 1
            if not disagree and (name not in self._best or rank >= self._best[name][0]):
                self._best[name] = rank, value, setting

    def fields(self) -> Mapping[str, Any]:
        """Return the fields of a description, evidence included."""
        values: dict[str, object] = {}
        evidence: list[Evidence] = []
        for field in FIELDS:
            value, sources = self._gpus() if field == "gpus" else self._single(field)
            if value is not None:
                values[field] = value
                evidence += dict.fromkeys(Evidence(field, source.file, source.line) for source in sources)
        return values | {"evidence": tuple(evidence)}

    def _single(self, field: str) -> tuple[object, list[Setting]]:
        if field not in self._best:
            return None, []
        _, value, setting = self._best[field]
        if value == "amp" and _MIXED_WITH in self._best:
            # A switch says that precision is mixed; what it is mixed with stands elsewhere.
            _, value, setting = self._best[_MIXED_WITH]
        return value, [setting]

    def _gpus(self) -> tuple[object, list[Setting]]:
        """Return all GPUs of the job: as one number, or those of a node times the nodes."""
        whole, per_node = self._best.get("gpus"), self._best.get(GPUS_PER_NODE)
        if per_node is None or (whole is not None and whole[0] > per_node[0]):
            return self._single("gpus")
        _, count, setting = per_node
        if NODES not in self._best or not isinstance(count, int):
            return count, [setting]
        _, nodes, nodes_setting = self._best[NODES]
        return (count * nodes if isinstance(nodes, int) else None), [setting, nodes_setting]


def _candidates(order: int, setting: Setting) -> Iterator[tuple[str, Rank, object, Setting]]:
    """Yield the fields that a setting is about, with its rank and its value: None if that is unknown."""
    found = field_of(setting.path, setting.origin)
    if found is None or is_off(setting.path, setting.value):
        return
    field, evaluation = found
    value = None if setting.value is None else read_value(field, setting.path, setting.value)
    if value is None and setting.origin < Origin.CONFIG:
        return
    rank = (not (evaluation or setting.weak), setting.origin, setting.certain, order)
    yield field, rank, value, setting
    if field == "precision" and value in ("fp16", "bf16"):
        yield _MIXED_WITH, rank, value, setting
