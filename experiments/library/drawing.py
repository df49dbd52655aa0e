"""Where the instances of the library come from: each is drawn once, written out, and from then on a file like others.

``python -m experiments library draw`` writes those that are not there yet. What a seed draws may change from one
version to the next; what lies in the library does not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.azure_arrivals import arrivals
from experiments.library.store import INSTANCE, Entry, Library, packed, path_of
from experiments.suites import graphs, shops, tool_switching
from experiments.suites.case import KNOWN_OPTIMA, Case, FirstFilling, alike, unlike
from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import Scenario, scenario_from, write_atomically
from truenorth.models.scenario.writing import document_of, job_sections

SCENARIOS = Path(__file__).parents[1] / "scenarios"
AZURE = KNOWN_OPTIMA.parent / "azure_llm_2023"
Data = dict[str, Any]

AUTHORS = "workflows of the Compass authors (figures of arXiv 2402.17652 and github aliciayuting/mNavigator)"
OWN = "drawn for this library; CC0"
FACTS = f"{AUTHORS}; arrivals drawn for this library, CC0"
DATASHEETS = "sizes of models' cards, times from data sheets (experiments/scenarios/six_models.yaml); arrivals CC0"
CC_BY = "Azure LLM inference trace 2023 (github Azure/AzurePublicDataset, Patel et al., ISCA 2024), CC-BY 4.0"
GENTD26 = "figures of GenTD26 (Lin et al., SoCC 2025), whose rows may not be passed on; arrivals drawn, CC0"
FJSP = "github SchedulingLab/fjsp-instances, MIT; best known values of ScheduleOpt/benchmarks"
ASYNC_HOW = "github fangru-lin/graph-llm-asynchow-plan, MIT (Lin et al., ICML 2024)"
HEFT = "Topcuoglu, Hariri, Wu, IEEE TPDS 2002, Fig. 2"


@dataclass(frozen=True, slots=True)
class Drawn:
    """An instance before it is written.

    Parameters
    ----------
    name, sort, words, source
        What the catalogue says of it; `sort` is its class.
    scenario
        Of which everything is written out.
    known
        What the literature knows of the optimum, in the objective's unit: bound and value.
    """

    name: str
    sort: str
    words: str
    source: str
    scenario: Scenario
    known: tuple[float, float] | None = None


def draw_into(library: Library, instances: Iterable[Drawn]) -> Iterator[str]:
    """Write those of some instances that a library lacks, then its catalogue; yield their names."""
    entries = dict(library.entries)
    for each in instances:
        if each.name not in entries:
            instance, folder = each.scenario.instance, library.folder
            identity, tasks = scenario_hash(instance), instance.n_tasks
            entry = Entry(each.name, each.sort, each.words, each.source, identity, tasks, each.known)
            path = path_of(folder, INSTANCE, entry)
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, packed(path, json.dumps(written_out(each.name, each.scenario), indent=1) + "\n"))
            entries[each.name] = entry
            yield each.name
    listed = {name: asdict(entry) for name, entry in entries.items()}
    write_atomically(library.folder / "instances.json", json.dumps(listed, indent=1) + "\n")


def written_out(name: str, scenario: Scenario) -> Data:
    """Return the content of an instance's file: the scenario with every job, and nothing that jobs do not need."""
    return {"name": name, "objective": str(scenario.objective), **document_of(scenario.instance)}


def drawn() -> Iterator[Drawn]:
    """Yield all instances, class by class."""
    yield from _authors()
    yield from _batches()
    yield from _shares()
    yield from _due()
    yield from _away()
    yield from _branches()
    yield from _azure()
    yield from _diffusion()
    yield from _two_kinds()
    yield from _classical()


def _house(like: str, changes: Mapping[str, Any]) -> Scenario:
    """Return a scenario of the house with some sections in place of its own."""
    data = yaml.safe_load((SCENARIOS / f"{like}.yaml").read_text())
    data.pop("slo", None)
    return scenario_from({**data, **changes})


def _poisson(rate: float, jobs: int, seed: int = 1) -> Data:
    return {"workload": {"poisson": {"rate": f"{rate} /s", "jobs": jobs, "seed": seed}}}


def _edge(**hardware: Any) -> Data:
    """Return the authors' cluster with some keys of its own."""
    data: Data = yaml.safe_load((SCENARIOS / "compass_edge.yaml").read_text())["cluster"]
    gpu = {**data["gpu"], **{key: value for key, value in hardware.items() if key in ("memory", "slots")}}
    if "slots" in hardware:
        del gpu["memory"]
    return {"cluster": {**data, "servers": hardware.get("servers", data["servers"]), "gpu": gpu}}


def _authors() -> Iterator[Drawn]:
    """Yield the authors' workload by load, size, memory and kinds."""
    for rate, jobs in (
        (0.5, 20), (1, 20), (2, 20), (3, 20), (4, 20), (2, 50), (3, 50), (2, 100), (3, 100), (4, 100), (3, 300),
        (4, 2_000), (4, 26_000),
    ):  # fmt: skip
        scenario = _house("compass_edge", _poisson(rate, jobs))
        yield Drawn(f"authors-{rate:g}-{jobs}", "authors", f"{jobs} jobs at {rate:g}/s", FACTS, scenario)
    for memory, jobs in (("7 GB", 40), ("28 GB", 40)):
        scenario = _house("compass_edge", {**_edge(memory=memory), **_poisson(3, jobs)})
        words = f"{jobs} jobs at 3/s, GPUs of {memory}"
        yield Drawn(f"authors-{memory.split()[0]}gb-{jobs}", "memory", words, FACTS, scenario)
    slots = _house("compass_edge", {**_edge(slots=["6 GB", "4 GB", "3 GB"]), **_poisson(2, 20)})
    yield Drawn("authors-slots-20", "memory", "20 jobs at 2/s, GPUs of three slots", FACTS, slots)
    alone = {"options": {"overlap_loads": False}}
    serial = _house("compass_edge", {**alone, **_poisson(2, 20)})
    yield Drawn("authors-serial-20", "memory", "20 jobs at 2/s, GPUs that run or load", FACTS, serial)
    resident = {
        f"s{gpu}/g0": models
        for gpu, models in enumerate((("opt", "nli", "mt5"), ("vit", "txt2speech"), ("detr", "depth")))
    }
    warm = [{"gpu": gpu, "model": model} for gpu, models in resident.items() for model in models]
    begun = _house("compass_edge", {"options": {"initial_residency": warm}, **_poisson(3, 30)})
    yield Drawn("authors-warm-30", "memory", "30 jobs at 3/s, seven models resident from the start", FACTS, begun)
    for jobs in (20, 60):
        scenario = _house("compass_edge", {**_poisson(2.5, jobs), **_slower()})
        words = f"{jobs} jobs at 2.5/s, two of five GPUs half as fast"
        yield Drawn(f"authors-kinds-{jobs}", "kinds", words, FACTS, scenario)


def _slower() -> Data:
    """Return the authors' cluster and workflows where two GPUs take twice as long."""
    data: Data = yaml.safe_load((SCENARIOS / "compass_edge.yaml").read_text())
    gpu = data["cluster"]["gpu"]
    groups = [{"count": 3, "gpu": gpu}, {"count": 2, "gpu": {**gpu, "kind": "slow"}}]
    for workflow in data["workflows"].values():
        for task in workflow["tasks"].values():
            taken = float(task["runtime"].removesuffix(" ms"))
            task["runtime"] = {"T4": f"{taken:g} ms", "slow": f"{2 * taken:g} ms"}
    return {"cluster": {"groups": groups, "network": data["cluster"]["network"]}, "workflows": data["workflows"]}


def _batches() -> Iterator[Drawn]:
    """Yield the authors' workload in batches, and a single class."""
    for rate, jobs in ((2, 15), (6, 20), (6, 40), (6, 100)):
        scenario = _house("compass_batches", _poisson(rate, jobs))
        yield Drawn(f"batches-{rate}-{jobs}", "batches", f"{jobs} jobs at {rate}/s in batches", FACTS, scenario)
    for jobs in (12, 40):
        rng = random.Random(jobs)  # noqa: S311
        releases = sorted(rng.randrange(jobs * 400_000) for _ in range(jobs))
        data = {
            "cluster": alike(1),
            "batches": {"chat": {"runtime": {1: "700 ms", 2: "820 ms", 4: "1060 ms", 8: "1540 ms"}}},
            "workflows": {"chat": {"tasks": {"answer": {"batch": "chat"}}}},
            "workload": {"jobs": [{"release": f"{release} us", "workflow": "chat"} for release in releases]},
            "objective": "mean_latency",
        }
        words = f"{jobs} requests of one class on one GPU"
        yield Drawn(f"batches-one-{jobs}", "batches", words, OWN, scenario_from(data))


def _shares() -> Iterator[Drawn]:
    """Yield requests that take a share of a GPU and hold KV memory beside two models."""
    for name, jobs, memory in (("shares", 15, False), ("kv", 15, True), ("kv", 40, True)):
        rng = random.Random(f"{name} {jobs}")  # noqa: S311
        workflows: Data = {}
        listed = []
        now = 0
        for _ in range(jobs):
            model, tokens = rng.choice(("llama", "mistral")), rng.choice((4, 8, 16))
            now += round(rng.expovariate(1 / 0.35) * 1e6)
            held = {"memory": f"{tokens * 131_072_000} B"} if memory else {}
            task = {"models": [model], "runtime": f"{tokens * 450} ms", "share": 0.25, **held}
            workflows[f"{model}_{tokens}k"] = {"tasks": {"answer": task}}
            listed.append({"release": f"{now} us", "workflow": f"{model}_{tokens}k"})
        gpu = {"kind": "A100", "memory": "38 GB", "load_bandwidth": "25 GB/s", "load_overhead": "20 ms"}
        data = {
            "cluster": {"servers": 2, "gpu": gpu, "network": {"bandwidth": "3.125 GB/s"}},
            "models": {"llama": {"weights": "16.06 GB"}, "mistral": {"weights": "14.5 GB"}},
            "workflows": workflows,
            "workload": {"jobs": listed},
            "objective": "mean_latency",
        }
        words = f"{jobs} requests, four at once on a GPU" + (", KV of 4 to 16 thousand tokens each" if memory else "")
        yield Drawn(f"{name}-{jobs}", "shares and KV", words, OWN, scenario_from(data))


def _due() -> Iterator[Drawn]:
    """Yield the authors' workload with due dates, and other objectives."""
    for objective, jobs, rate in (
        ("weighted_tardiness", 20, 4), ("weighted_tardiness", 60, 4), ("late_jobs", 20, 4), ("late_jobs", 60, 4),
        ("max_slowdown", 20, 2), ("weighted_latency", 20, 3), ("makespan", 20, 4),
    ):  # fmt: skip
        plain = _house("compass_edge", _poisson(rate, jobs))
        rng = random.Random(f"{objective} {jobs}")  # noqa: S311
        listed = [
            {**job, "deadline": f"{round(rng.uniform(1.1, 3) * due)} us", "weight": rng.randint(1, 4)}
            for job, due in zip(job_sections(plain.instance), plain.instance.job_ideal_us.tolist(), strict=True)
        ]
        scenario = _house("compass_edge", {"workload": {"jobs": listed}, "objective": objective})
        words = f"{jobs} jobs at {rate}/s, {objective.replace('_', ' ')}"
        yield Drawn(f"{objective.replace('_', '-')}-{jobs}", "due dates", words, FACTS, scenario)


def _away() -> Iterator[Drawn]:
    """Yield the authors' workload where servers come and go."""
    for jobs in (15, 30, 60):
        gpu = _edge()["cluster"]["gpu"]
        leaves, comes = f"{jobs // 6} s", f"{jobs // 4} s"
        groups = [
            {"count": 2, "gpu": gpu},
            {"count": 1, "gpu": gpu, "available": [["0 s", leaves], [comes, "end"]]},
            {"count": 2, "gpu": gpu, "available": [[comes, "end"]]},
        ]
        cluster = {**_edge()["cluster"], "groups": groups}
        for key in ("servers", "gpu", "gpus_per_server"):
            cluster.pop(key, None)
        scenario = _house("compass_edge", {"cluster": cluster, **_poisson(2.5, jobs)})
        words = f"{jobs} jobs at 2.5/s; one server goes for a while, two come late"
        yield Drawn(f"away-{jobs}", "servers that come and go", words, FACTS, scenario)


def _branches() -> Iterator[Drawn]:
    """Yield the authors' workload with paths that only plans know beforehand."""
    for rate, jobs in ((2, 20), (5, 40), (5, 100)):
        scenario = _house("branches", _poisson(rate, jobs))
        words = f"{jobs} jobs at {rate}/s, each on one of its workflow's paths"
        yield Drawn(f"branches-{rate}-{jobs}", "branches", words, FACTS, scenario)


def _azure() -> Iterator[Drawn]:
    """Yield windows of Azure's arrivals, which drive the authors' workflows."""
    for name, trace, gpus, first, jobs in (
        ("conv", "AzureLLMInferenceTrace_conv.csv.gz", 8, 100, 30),
        ("conv", "AzureLLMInferenceTrace_conv.csv.gz", 8, 400, 100),
        ("conv", "AzureLLMInferenceTrace_conv.csv.gz", 8, 0, 1_000),
        ("code", "AzureLLMInferenceTrace_code.csv.gz", 5, 0, 60),
    ):
        rows = arrivals(AZURE / trace, 10)[first : first + jobs]
        listed = [{"release": f"{time - rows[0][0]:f} ms", "workflow": workflow} for time, workflow in rows]
        scenario = _house("compass_edge", {**_edge(servers=gpus), "workload": {"jobs": listed}})
        words = f"{jobs} arrivals of the {name} service, {gpus} GPUs"
        yield Drawn(f"azure-{name}-{jobs}", "Azure 2023", words, f"{CC_BY}; {AUTHORS}", scenario)


def _diffusion() -> Iterator[Drawn]:
    """Yield requests of a diffusion service: 18 models of 6.5 GB, three on a GPU, loads of 8.454 s."""
    gpu = {"kind": "any", "memory": "24 GB", "load_bandwidth": "6.5 GB/s", "load_overhead": "7454 ms"}
    for jobs, gpus, apart_s in ((20, 3, 20.0), (40, 3, 8.0), (100, 3, 8.0), (400, 4, 8.0)):
        rng = random.Random(f"diffusion {jobs}")  # noqa: S311
        workflows, listed, now = Data(), [], 0
        for _ in range(jobs):
            model = f"m{0 if rng.random() < 0.5 else rng.randint(1, 17)}"
            seconds = rng.choice((6, 12, 18, 18, 24, 36))
            now += round(rng.expovariate(1 / apart_s) * 1e6)
            name = f"{model}_{seconds}s"
            workflows[name] = {"tasks": {"draw": {"models": [model], "runtime": f"{seconds} s"}}}
            listed.append({"release": f"{now} us", "workflow": name})
        data = {
            "cluster": {"servers": gpus, "gpu": gpu, "network": {"bandwidth": "1 GB/s"}},
            "models": {f"m{index}": {"weights": "6.5 GB"} for index in range(18)},
            "workflows": workflows,
            "workload": {"jobs": listed},
            "objective": "mean_slowdown",
        }
        words = f"{jobs} pictures by 18 models on {gpus} GPUs"
        yield Drawn(f"diffusion-{jobs}", "diffusion", words, GENTD26, scenario_from(data))


def _two_kinds() -> Iterator[Drawn]:
    """Yield six published models in batches on two kinds of GPU."""
    mix = {"chat": 4, "meeting": 2, "picture": 1, "search": 3}
    for rate, jobs in ((0.5, 12), (3, 25), (3, 60)):
        workload = {"poisson": {"rate": f"{rate} /s", "jobs": jobs, "seed": 1, "mix": mix}}
        scenario = _house("six_models", {"workload": workload})
        words = f"{jobs} requests at {rate:g}/s for six models, A100 and A10"
        yield Drawn(f"six-models-{jobs}", "six models", words, DATASHEETS, scenario)


def _classical() -> Iterator[Drawn]:
    """Yield scheduling problems of the literature, as scenarios."""
    wanted = ("fattahi1", "fattahi5", "fattahi9", "fattahi15", "mk01", "mk03", "mk06", "mk08")
    for case in shops.job_shop_cases(KNOWN_OPTIMA):
        if case.name in wanted:
            yield _case(case, f"fjsp-{case.name}", "flexible job shop", FJSP)
    (graph,) = graphs.heft_cases()
    yield _case(graph, "heft-ten-tasks", "task graph", HEFT)
    plans = {case.name: case for case in graphs.async_how_cases(KNOWN_OPTIMA)}
    longest = max(plans.values(), key=lambda case: len(case.scenario.instance.jobs[0].workflow.tasks))
    yield _case(longest, "asynchow-longest", "task graph", ASYNC_HOW)
    for number, case in enumerate(tool_switching.cases(FirstFilling.PAID, [])):
        if number in (0, 1, 2, 3):
            yield _case(case, f"tools-{number + 1}", "tool switching", f"{OWN}; optimum by enumeration")
    for case in shops.triplet_cases():
        if case.name in ("30 items, seed 1", "120 items, seed 1"):
            yield _case(
                case, f"triplets-{case.name.split()[0]}", "parallel machines", f"{OWN}; optimum by construction"
            )
    for jobs, machines in ((12, 3), (30, 5)):
        yield Drawn(
            f"unrelated-{jobs}", "unrelated machines", f"R||Cmax, {jobs} jobs on {machines} machines", OWN,
            _unrelated(jobs, machines, released=False),
        )  # fmt: skip
    yield Drawn(
        "unrelated-due-20",
        "unrelated machines",
        "R|r_j|sum F_j, 20 jobs on 4 machines",
        OWN,
        _unrelated(20, 4, released=True),
    )


def _case(case: Case, name: str, sort: str, source: str) -> Drawn:
    """Return a case of the suites; what is known of it becomes seconds."""
    known = None
    if case.known is not None:
        low, high = ((case.offset_us + case.scale_us * end) / 1e6 for end in (case.known.lower, case.known.upper))
        known = low, high
    return Drawn(name, sort, case.name, source, case.scenario, known)


def _unrelated(jobs: int, machines: int, released: bool) -> Scenario:
    """Return jobs of 10 to 100 ms, drawn anew for every machine."""
    rng = random.Random(f"unrelated {jobs}")  # noqa: S311
    kinds = [f"M{machine}" for machine in range(machines)]
    workflows = {
        f"j{job}": {"tasks": {"run": {"runtime": {kind: f"{rng.randint(10, 100)} ms" for kind in kinds}}}}
        for job in range(jobs)
    }
    latest_ms = 12 * jobs // machines if released else 0
    listed = [{"release": f"{rng.randint(0, latest_ms)} ms", "workflow": name} for name in workflows]
    objective = "mean_latency" if released else "makespan"
    data = {"cluster": unlike(kinds), "workflows": workflows, "workload": {"jobs": listed}, "objective": objective}
    return scenario_from(data)
