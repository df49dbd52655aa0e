"""``python -m experiments league``: every policy beside plan and bound on every workload, ten replications.

Every replication of a workload is kept when it is finished: killed at any time, the same command goes on. The traces
are read from ``../shared/data`` (they are no part of this repository).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import yaml

import truenorth as tn
from experiments import authors
from experiments.azure_arrivals import arrivals
from experiments.bench import ask, markdown, shown, write
from experiments.benchmarks.gaps import GENTD26
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, load_scenario, write_atomically
from truenorth.models.scenario.writing import write_scenario
from truenorth.planner.answers.replications import Replicated
from truenorth.planner.inputs.importers.format import Override

FOLDER = Path(__file__).parent
SCENARIOS = FOLDER.parents[1] / "scenarios"
AZURE = Path(__file__).parents[4] / "shared" / "data" / "azure_llm_2023"
_GENTD26_WINDOW_S = 360
_MINUTES = 50
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeagueWorkload:
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
            "gentd26", GENTD26, window=(f"{begin}:00", f"{end}:00"), override=Override(servers=servers).apply
        )
        path = folder / f"{name}.yaml"
        made.save(path)
        data = yaml.safe_load(path.read_text())
        data["workload"]["trace"]["window"] = ["0 s", f"{_GENTD26_WINDOW_S} s"]
        write_scenario(path, data)
        return path

    return write


WORKLOADS: Mapping[str, LeagueWorkload] = {
    "authors-2": LeagueWorkload(
        "the Compass authors', 2 jobs/s", _changed("authors-2", lambda _, jobs: _poisson(2, jobs))
    ),
    "authors-3": LeagueWorkload("the same, 3 jobs/s", _changed("authors-3", lambda _, jobs: _poisson(3, jobs))),
    "authors-4": LeagueWorkload("the same, 4 jobs/s", _changed("authors-4", lambda _, jobs: _poisson(4, jobs))),
    "scarce": LeagueWorkload("the same, 3 jobs/s, half the memory", _changed("scarce", _scarce)),
    "batches": LeagueWorkload("the same in batches, 6 jobs/s", _changed("batches", _batched)),
    "branches": LeagueWorkload(
        "the same with uncertain paths, 5 jobs/s", _changed("branches", lambda _, jobs: _poisson(5, jobs), "branches")
    ),
    "two-kinds": LeagueWorkload(
        "six published models in batches on A100 and A10", _changed("two-kinds", _own, "six_models")
    ),
    "azure-code": LeagueWorkload(
        "Azure code 2023, which comes in bursts, 5 GPUs",
        _azure("azure-code", "AzureLLMInferenceTrace_code.csv.gz", 5, 60),
    ),
    "azure-conv": LeagueWorkload(
        "Azure conversation 2023, 8 GPUs", _azure("azure-conv", "AzureLLMInferenceTrace_conv.csv.gz", 8, 20)
    ),
    "gentd26-06": LeagueWorkload(
        "a diffusion service, the hour from 2024-12-06T00:00",
        _gentd26("gentd26-06", "2024-12-06T00", "2024-12-06T01", 3),
    ),
    "gentd26-03": LeagueWorkload(
        "the same, from 2024-12-03T00:00", _gentd26("gentd26-03", "2024-12-03T00", "2024-12-03T01", 3)
    ),
    "gentd26-05": LeagueWorkload(
        "the same, from 2024-12-05T21:00", _gentd26("gentd26-05", "2024-12-05T21", "2024-12-05T22", 3)
    ),
}
"""By name, in the order of the table."""


def drawn(name: str, kept: Path, jobs: int) -> Scenario:
    """Return the scenario of a workload, written into a folder of its own."""
    folder = kept / name
    folder.mkdir(parents=True, exist_ok=True)
    return load_scenario(WORKLOADS[name].write(folder, jobs))


@dataclass(frozen=True, slots=True)
class LeagueRow:
    """What a contender came to on a workload: means over its replications, most with the ends of their intervals.

    The objective is mean slowdown; `ratio_to_best` is to the best contender of each replication, `ratio_to_bound` to
    its lower bound: the ratio to the optimum lies between. `difference` is to the best online policy of the workload;
    `converged_in` counts the replications whose plan is converged. What parts lose is known of policies that are taken
    apart.
    """

    workload: str
    policy: str
    replications: int
    objective: float
    objective_low: float | None
    objective_high: float | None
    ratio_to_best: float | None
    ratio_to_best_low: float | None
    ratio_to_best_high: float | None
    ratio_to_bound: float | None
    ratio_to_bound_low: float | None
    ratio_to_bound_high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    better_in: int | None
    bound_methods: str
    converged_in: int
    gap_to_bound: float | None
    lost_to_residency: float | None
    lost_to_batches: float | None
    lost_to_order: float | None
    lost_to_placement: float | None
    lost_to_open: float | None


def league(
    jobs: Annotated[int, "per replication, where arrivals are drawn"] = 40,
    replications: int = 10,
    time_limit: Annotated[float, "seconds per replication for plan and bound"] = 20.0,
    workloads: Annotated[tuple[str, ...], tuple(WORKLOADS)] = tuple(WORKLOADS),
    workers: int = 2,
    ray: Annotated[str | None, "address of a Ray cluster in place of local processes"] = None,
    quick: Annotated[bool, "a few jobs and replications, to try it out in minutes"] = False,
    kept: Annotated[Path, "where scenarios and replications are kept"] = Path("league"),
    folder: Annotated[Path, "where league.csv and league.md lie"] = FOLDER,
) -> None:
    """Fill what is missing, then write and print the table."""
    jobs, replications, time_limit = (20, 3, 1.0) if quick else (jobs, replications, time_limit)
    made: dict[str, Replicated] = {}
    for name in workloads:
        made[name] = tn.replicate(
            drawn(name, kept, jobs),
            replications,
            regret=("compass", "srpt", "ahead"),
            time_limit=time_limit,
            folder=kept / name,
            workers=workers,
            ray=ray,
        )
        if made[name].replications:
            tn.save(made[name], kept / name)
    write(folder / "league.csv", [row for name, one in made.items() for row in rows_of(name, one)])
    text = "\n".join(table(made)) + "\n"
    write_atomically(folder / "league.md", text)
    print(text)


def rows_of(name: str, made: Replicated) -> Iterator[LeagueRow]:
    """Yield the rows of a workload."""
    for row in made.rows:
        said = encode(row)
        figures: dict[str, Any] = {key: said.get(key) for key in LeagueRow.__dataclass_fields__ if key != "workload"}
        yield LeagueRow(workload=name, **figures)


def table(made: Mapping[str, Replicated]) -> Iterator[str]:
    """Yield tables: per policy and workload its objective, times the best and times the bound; then what parts lose."""
    policies = dict.fromkeys(row.policy for one in made.values() for row in one.rows)
    for ratio, words in (("ratio_to_best", "x best"), ("ratio_to_bound", "x bound")):
        lines = [[f"`{policy}`", *(_cell(one, policy, ratio) for one in made.values())] for policy in policies]
        yield markdown([words, *made], lines, " --: |")
        yield ""
    yield markdown(["workload", "policy", "value", *_LOSSES], [*_losses(made)], " --: |")
    yield ""
    for name, one in made.items():
        yield f"{name}: {one.proof}{'' if one.warning is None else f' {one.warning}'}"


_LOSSES = ("residency", "batches", "order", "placement", "open")


def _losses(made: Mapping[str, Replicated]) -> Iterator[list[str]]:
    """Yield of each policy that was taken apart what its loads and evictions, batches, order and places lose."""
    for name, one in made.items():
        for row in rows_of(name, one):
            lost = [getattr(row, f"lost_to_{part}") for part in _LOSSES]
            if lost[-1] is not None:
                yield [name, f"`{row.policy}`", f"{row.objective:.3f}", *(shown(each, ".3f") for each in lost)]


def _cell(made: Replicated, policy: str, column: str) -> str:
    row: Mapping[str, Any] = next((encode(row) for row in made.rows if row.policy == policy), {})
    mean, low, high = (row.get(f"{column}{end}") for end in ("", "_low", "_high"))
    if mean is None:
        return "-"
    ratio = f"{mean:.3g}" if low is None or high is None else f"{mean:.3g} [{low:.3g}, {high:.3g}]"
    return f"**{ratio}**" if policy == made.against else ratio


main = partial(ask, league)
