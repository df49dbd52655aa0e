"""The workloads of the league, as scenario files whose arrival seeds or trace windows replicate them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import truenorth as tn
from experiments import authors
from experiments.gentd26_2026_11_21.__main__ import FILES
from experiments.scenarios.azure_arrivals import arrivals
from truenorth.models.scenario import Scenario, load_scenario
from truenorth.models.scenario.writing import write_scenario
from truenorth.planner.inputs.importers.format import Override

FOLDER = Path(__file__).parent
SCENARIOS = FOLDER.parent / "scenarios"
AZURE = Path(__file__).parents[3] / "shared" / "data" / "azure_llm_2023"
_GENTD26_WINDOW_S = 360
_MINUTES = 50
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload: what it is, in words, and who writes its scenario file, given a folder and a number of jobs."""

    words: str
    write: Callable[[Path, int], Path]


def _changed(name: str, change: Callable[[Data, int], Mapping[str, Any]], like: str = "compass_edge") -> Any:
    """Return who writes a scenario of the house with some sections changed."""

    def write(folder: Path, jobs: int) -> Path:
        data = yaml.safe_load((SCENARIOS / f"{like}.yaml").read_text())
        path = folder / f"{name}.yaml"
        write_scenario(path, {**data, "name": name, **change(data, jobs)})
        return path

    return write


def _poisson(rate: float, jobs: int) -> Data:
    return {"workload": {"poisson": {"rate": f"{rate} /s", "jobs": jobs, "seed": 1}}}


def _scarce(data: Data, jobs: int) -> Data:
    gpu = {**data["cluster"]["gpu"], "memory": "7 GB"}
    return {"cluster": {**data["cluster"], "gpu": gpu}, **_poisson(3, jobs)}


def _batched(data: Data, jobs: int) -> Data:
    """Return the authors' workflows in which tasks of a model and run time form batches, as `authors` has them."""
    batches: Data = {}
    workflows: Data = {}
    for name, workflow in data["workflows"].items():
        tasks: Data = {}
        for step, task in workflow["tasks"].items():
            asked = dict(task)
            if asked.get("models"):
                (model,), runtime = asked.pop("models"), asked.pop("runtime")
                of_class = authors.batch_class(model, round(float(runtime.removesuffix(" ms")) * 1000))
                times = {size: f"{time_us} us" for size, time_us in of_class.runtime_us["*"].items()}
                asked["batch"] = f"{model} {runtime}"
                batches[asked["batch"]] = {"models": [model], "runtime": times}
            tasks[step] = asked
        workflows[name] = {"tasks": tasks}
    return {"workflows": workflows, "batches": batches, **_poisson(6, jobs)}


def _own(data: Data, jobs: int) -> Data:
    """Return a workload of its own arrivals, so many of them."""
    return {"workload": {"poisson": {**data["workload"]["poisson"], "jobs": jobs}}}


def _azure(name: str, trace: str, servers: int, window_s: int) -> Any:
    """Return who writes windows of Azure's arrivals, which drive the authors' workflows."""

    def change(data: Data, _: int) -> Data:
        return {
            "cluster": {**data["cluster"], "servers": servers},
            "workload": {"trace": {"file": f"{name}.csv", "window": ["0 s", f"{window_s} s"]}},
        }

    def write(folder: Path, jobs: int) -> Path:
        """Write arrivals and scenario; return where the scenario lies."""
        with (folder / f"{name}.csv").open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(("time_ms", "workflow"))
            rows.writerows((f"{time:f}", workflow) for time, workflow in arrivals(AZURE / trace, _MINUTES))
        path: Path = _changed(name, change)(folder, jobs)
        return path

    return write


def _gentd26(name: str, begin: str, end: str, servers: int) -> Any:
    """Return who writes an hour of a diffusion service, in windows of six minutes."""

    def write(folder: Path, _: int) -> Path:
        """Write the scenario of the window; return where."""
        made = tn.import_trace(
            "gentd26", FILES, window=(f"{begin}:00", f"{end}:00"), override=Override(servers=servers).apply
        )
        path = folder / f"{name}.yaml"
        made.save(path)
        data = yaml.safe_load(path.read_text())
        data["workload"]["trace"]["window"] = ["0 s", f"{_GENTD26_WINDOW_S} s"]
        write_scenario(path, data)
        return path

    return write


WORKLOADS: Mapping[str, Workload] = {
    "authors-2": Workload("the Compass authors', 2 jobs/s", _changed("authors-2", lambda _, jobs: _poisson(2, jobs))),
    "authors-3": Workload("the same, 3 jobs/s", _changed("authors-3", lambda _, jobs: _poisson(3, jobs))),
    "authors-4": Workload("the same, 4 jobs/s", _changed("authors-4", lambda _, jobs: _poisson(4, jobs))),
    "scarce": Workload("the same, 3 jobs/s, half the memory", _changed("scarce", _scarce)),
    "batches": Workload("the same in batches, 6 jobs/s", _changed("batches", _batched)),
    "branches": Workload(
        "the same with uncertain paths, 5 jobs/s", _changed("branches", lambda _, jobs: _poisson(5, jobs), "branches")
    ),
    "two-kinds": Workload("six published models in batches on A100 and A10", _changed("two-kinds", _own, "six_models")),
    "azure-code": Workload(
        "Azure code 2023, which comes in bursts, 5 GPUs",
        _azure("azure-code", "AzureLLMInferenceTrace_code.csv.gz", 5, 300),
    ),
    "azure-conv": Workload(
        "Azure conversation 2023, 8 GPUs", _azure("azure-conv", "AzureLLMInferenceTrace_conv.csv.gz", 8, 20)
    ),
    "gentd26-06": Workload(
        "a diffusion service, the hour from 2024-12-06T00:00",
        _gentd26("gentd26-06", "2024-12-06T00", "2024-12-06T01", 3),
    ),
    "gentd26-03": Workload(
        "the same, from 2024-12-03T00:00", _gentd26("gentd26-03", "2024-12-03T00", "2024-12-03T01", 3)
    ),
    "gentd26-05": Workload(
        "the same, from 2024-12-05T21:00", _gentd26("gentd26-05", "2024-12-05T21", "2024-12-05T22", 3)
    ),
}
"""By name, in the order of the table."""


def drawn(name: str, kept: Path, jobs: int) -> Scenario:
    """Return the scenario of a workload, written into a folder of its own."""
    folder = kept / name
    folder.mkdir(parents=True, exist_ok=True)
    return load_scenario(WORKLOADS[name].write(folder, jobs))
