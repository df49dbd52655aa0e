"""The scenario of an import with a catalogue: a group of servers for each kind, the log's models, few workflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from models.cluster import GPU
from models.errors import QuestionError
from models.instance import Ints
from models.scenario.errors import Plain
from models.scenario.writing import scenario_text
from models.slo import ServiceLevel, ServiceLevels
from models.workload import WHOLE
from planner.inputs.importers.catalogue.document import CatalogueDocument, load_catalogue
from planner.inputs.importers.catalogue.join import join
from planner.inputs.importers.classes import Classes
from planner.inputs.importers.document import gigabytes, gigabytes_per_s, model_names, seconds, work_sections
from planner.inputs.importers.rows import Tally
from planner.inputs.importers.tables import DagJobs, Requests
from planner.inputs.importers.workload import Workload

_NETWORK = {"bandwidth": "10 GB/s", "latency": "0 s"}


@dataclass(frozen=True, slots=True)
class Catalogued:
    """A catalogue that a log is joined with.

    Parameters
    ----------
    document, file
        The catalogue and the name of its file.
    unmatched
        Filled by `workload`: models of the log that it does not have, and how many requests each has.
    """

    document: CatalogueDocument
    file: str
    unmatched: dict[str, int] = field(default_factory=dict, compare=False)

    @classmethod
    def load(cls, path: Path) -> Catalogued:
        """Return the catalogue of a file, or of the package.

        Raises
        ------
        InputError
            If it is none.
        """
        return cls(*load_catalogue(path))

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return sum(kind.count for kind in self.document.kinds.values())

    @property
    def words(self) -> str:
        """The cluster in words."""
        groups = [
            f"{section.count} {kind}"
            + ("" if section.price_per_hour is None else f" at {float(section.price_per_hour):g} per hour")
            for kind, section in self.document.kinds.items()
        ]
        return f"{', '.join(groups)}; models, kinds and prices of {self.file}"

    def load_us(self, model: str) -> int:
        """Return how long a model takes to load where that is quickest."""
        weights = self.document.models[model].weights
        gpus = [
            GPU("s0/g0", 0, kind, known.memory, known.load_bandwidth, load_overhead_us=known.load_overhead)
            for kind, known in self.document.kinds.items()
        ]
        return min(gpu.load_us(weights) for gpu in gpus)

    def workload(
        self, found: Requests | DagJobs, rows: Ints, release_us: Ints, classes: Classes, tally: Tally
    ) -> Workload:
        """Return the requests that the catalogue knows as jobs; the others are counted by model.

        Raises
        ------
        QuestionError
            If the log is of whole jobs, or as `join` says.
        """
        if isinstance(found, DagJobs):
            raise QuestionError("joins requests by model, and this log has whole jobs; allowed is without", "catalogue")
        if found.serving is not None and (found.serving.batch_us or (found.serving.share < WHOLE).any()):
            problem = "brings shares and batches; allowed is a log without these columns"
            raise QuestionError(problem, "catalogue")
        asked = found.at(rows)
        joined = join(self.document, asked, classes)
        self.unmatched.update(joined.unmatched)
        for model, count in joined.unmatched.items():
            tally.left_out[f"of {model[:60]}, which the catalogue does not have"] += count
        kept = joined.kept
        made = Workload(
            joined.workflows,
            joined.workflow,
            release_us[kept],
            None if asked.deadline_us is None else asked.deadline_us[kept],
            joined.mapping,
            None if asked.weight is None else asked.weight[kept],
            joined.rounding,
        )
        tally.notes += self._shared(made)
        tally.notes += [
            f"no request is of a model of the level '{level}', which is left out" for level in self._vacuous(made)
        ]
        return made

    def content(self, workload: Workload, arrivals: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the scenario file."""
        document = self.document
        return {
            "cluster": {"groups": [self._group(kind) for kind in document.kinds], "network": self._network()},
            "models": {
                model: {"weights": gigabytes(document.models[model].weights)} for model in model_names(workload)
            },
            **work_sections(workload),
            "workload": arrivals,
            **self._levels(workload),
        }

    def text(self, workload: Workload, arrivals: dict[str, Any], comments: list[str], path: Path) -> str:
        """Return the scenario file's text."""
        return scenario_text(path, self.content(workload, arrivals), comments)

    def _levels(self, workload: Workload) -> dict[str, Any]:
        """Return the section of service levels; those of a model are over every workflow that was made of it."""
        names = {workflow.name for workflow in workload.workflows}
        asked = [level for level in self.document.slo or () if level not in self._vacuous(workload)]
        levels = tuple(
            replace(level, workflow=f"{level.workflow} *")
            if level.workflow in self.document.models and level.workflow not in names
            else level
            for level in asked
        )
        return {"slo": ServiceLevels(levels).written} if levels else {}

    def _vacuous(self, workload: Workload) -> list[ServiceLevel]:
        """Return levels of models that no request is for."""
        used = model_names(workload)
        unused = [model for model in self.document.models if model not in used]
        return [level for level in self.document.slo or () if level.workflow in unused]

    def _shared(self, workload: Workload) -> list[str]:
        """Return what is assumed of models whose requests take shares of a GPU."""
        several = {model: WHOLE // self.document.models[model].share for model in model_names(workload)}
        return [
            f"run times of {model} are taken to hold beside {count - 1} more of its requests, which its share lets run"
            for model, count in several.items()
            if count > 1
        ]

    def _group(self, kind: str) -> dict[str, Any]:
        known = self.document.kinds[kind]
        gpu = {
            "kind": kind,
            "memory": gigabytes(known.memory),
            "load_bandwidth": gigabytes_per_s(known.load_bandwidth),
            "load_overhead": seconds(known.load_overhead),
        }
        price = known.price_per_hour
        return {"count": known.count, "gpu": gpu} | (
            {} if price is None else {"price_per_hour": Plain(f"{float(price):.12g}")}
        )

    def _network(self) -> Mapping[str, Any]:
        section = self.document.network
        if section is None:
            return _NETWORK
        network: dict[str, Any] = {
            "bandwidth": gigabytes_per_s(section.bandwidth),
            "latency": seconds(section.latency),
            "staged": section.staged,
        }
        inside = section.within_server
        if inside is not None:
            given = {
                "bandwidth": None if inside.bandwidth is None else gigabytes_per_s(inside.bandwidth),
                "latency": None if inside.latency is None else seconds(inside.latency),
            }
            network["within_server"] = {key: value for key, value in given.items() if value is not None}
        return network
