"""``python -m experiments.league_2026_11_22 plans``, ``online``: every policy on every workload, ten replications each.

Every replication of a workload is kept when it is finished: killed at any time, the same command goes on. The traces
are read from ``../shared/data`` (they are no part of this repository).
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import yaml

import truenorth as tn
from experiments import authors
from experiments.azure_arrivals import arrivals
from experiments.bench import ask
from experiments.gaps import GENTD26
from experiments.study import Study, markdown, write
from truenorth.executor import PolicyError
from truenorth.models.record import encode
from truenorth.models.scenario import Scenario, load_scenario, write_atomically
from truenorth.models.scenario.writing import write_scenario
from truenorth.planner.answers.compare import BATCHING_POLICIES, DEFAULT_POLICIES
from truenorth.planner.answers.intervals import interval_of
from truenorth.planner.answers.policies.parse import RECEDING
from truenorth.planner.answers.replicated_servers import scenarios
from truenorth.planner.answers.replications import Replicated
from truenorth.planner.inputs.importers.format import Override

FOLDER = Path(__file__).with_suffix("")
SCENARIOS = FOLDER.parent / "scenarios"
AZURE = Path(__file__).parents[2] / "shared" / "data" / "azure_llm_2023"
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
        _azure("azure-code", "AzureLLMInferenceTrace_code.csv.gz", 5, 300),
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
    jobs: Annotated[int, "per replication, where arrivals are drawn"] = 100,
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
    """Yield two tables: per policy and workload its objective, times the best and times the bound."""
    policies = dict.fromkeys(row.policy for one in made.values() for row in one.rows)
    for ratio, words in (("ratio_to_best", "x best"), ("ratio_to_bound", "x bound")):
        lines = [[f"`{policy}`", *(_cell(one, policy, ratio) for one in made.values())] for policy in policies]
        yield markdown([words, *made], lines, " --: |")
        yield ""
    for name, one in made.items():
        yield f"{name}: {one.proof}{'' if one.warning is None else f' {one.warning}'}"


def _cell(made: Replicated, policy: str, ratio: str) -> str:
    row: Mapping[str, Any] = next((encode(row) for row in made.rows if row.policy == policy), {})
    mean, low, high = (row.get(f"{ratio}{end}") for end in ("", "_low", "_high"))
    if mean is None:
        return "-"
    shown = f"{mean:.3g}" if low is None or high is None else f"{mean:.3g} [{low:.3g}, {high:.3g}]"
    return f"**{shown}**" if policy == made.against else shown


BATCHED = ("batches", "two-kinds")
"""Workloads whose tasks come in batch classes."""
TOO_LONG = ("azure-code",)
"""Workloads of thousands of tasks, whose bursts take the receding horizon hours."""
POLICIES = (*(policy for policy in DEFAULT_POLICIES if policy != RECEDING), *BATCHING_POLICIES, RECEDING)
"""The receding horizon last: its decisions take longest."""


@dataclass(frozen=True, slots=True)
class OnlineResult:
    """The objective of a policy on a replication, None where it cannot serve it; and CPU time per task."""

    workload: str
    replication: int
    jobs: int
    policy: str
    value: float | None
    us_per_task: float


def online(
    jobs: Annotated[int, "per replication, where arrivals are drawn"] = 100,
    replications: int = 10,
    workloads: Annotated[tuple[str, ...], tuple(WORKLOADS)] = tuple(WORKLOADS),
    kept: Annotated[Path, "where scenarios are kept"] = Path("league"),
    folder: Annotated[Path, "where online.csv lies"] = FOLDER,
) -> None:
    """Fill what is missing and print the table."""

    @cache
    def replicated(name: str) -> list[Scenario]:
        found, _ = scenarios(drawn(name, kept, jobs), replications)
        return found

    def measured(name: str, replication: int, jobs: int, policy: str) -> Iterator[OnlineResult]:
        """Yield the figures of one policy on one draw."""
        scenario, begun = replicated(name)[replication], time.process_time()
        try:
            value = float(tn.simulate(scenario, policy).value)
        except PolicyError:
            value = None
        took_us = 1e6 * (time.process_time() - begun) / scenario.instance.n_tasks
        yield OnlineResult(name, replication, jobs, policy, value, round(took_us, 1))

    Study(OnlineResult, 4, measured, [online_table], results="online.csv").run(
        (
            (name, replication, jobs, policy)
            for policy, name, replication in product(POLICIES, workloads, range(replications))
            if runs_on(policy, name)
        ),
        folder,
    )


def runs_on(policy: str, workload: str) -> bool:
    """Say whether a policy takes part on a workload."""
    return (policy not in BATCHING_POLICIES or workload in BATCHED) and (policy != RECEDING or workload not in TOO_LONG)


def online_table(rows: Sequence[OnlineResult]) -> str:
    """Return each policy's objective, times that of the best one of the same replication."""
    value = {(row.workload, row.replication, row.policy): row.value for row in rows}
    workloads = sorted({row.workload for row in rows}, key=list(WORKLOADS).index)
    lines = [[f"`{policy}`", *(_online_cell(value, workload, policy) for workload in workloads)] for policy in POLICIES]
    return markdown(["policy", *workloads], lines, " --: |")


def _online_cell(value: dict[tuple[str, int, str], float | None], workload: str, policy: str) -> str:
    ratios = []
    for index in {index for name, index, _ in value if name == workload}:
        mine = value.get((workload, index, policy))
        others = [value.get((workload, index, other)) for other in POLICIES]
        if mine is not None:
            ratios.append(mine / min(other for other in others if other is not None))
    if not ratios:
        return "-"
    found = interval_of(ratios)
    return f"{found.mean:.3g}" + ("" if found.low is None else f" [{found.low:.3g}, {found.high:.3g}]")


if __name__ == "__main__":
    ask({"plans": league, "online": online})
