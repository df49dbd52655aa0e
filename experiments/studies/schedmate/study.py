"""``python -m experiments schedmate``: what estimates of run times are worth on recorded hours and clusters.

Cells that results.csv holds are not computed again, so an interrupted run goes on where it was. The logs lie outside
the tree: GenTD26 (Alibaba) and the traces published with ElasticFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import mkdtemp
from typing import Annotated

import numpy as np
import pandas as pd

import truenorth as tn
from experiments.bench import Study, ask, markdown
from truenorth.models.scenario import Scenario
from truenorth.planner.inputs.estimate.run import estimate, save
from truenorth.planner.inputs.estimate.table import Naming
from truenorth.planner.inputs.importers.trace import import_trace
from truenorth.planner.inputs.told import read_told

HERE = Path(__file__).parent
DATA = Path(__file__).parents[4] / "shared" / "data"
ELASTICFLOW, GENTD26 = DATA / "elasticflow", DATA / "gentd26" / "lora_request_trace.csv.gz"
ON_SINGLES = ("fifo", "easy", "sjf", "qssf", "dally", "hadar", "rltune", "srpt", "ahead", "receding")
ON_CLUSTERS = (*ON_SINGLES, "conservative")
"""Policies for jobs on one GPU, where `conservative` is `fifo`, and for jobs on several."""
BLIND = ("fifo", "dally")
"""Who asks for no run time."""
OFF_BY_DRAW = ("easy", "sjf", "qssf")
"""Who is told the published errors."""
RESERVING = ("easy", "conservative", "ahead")
"""Who reserves by when running jobs end, and so has a use for their progress."""
PLAN, RANKS = "plan", "rank correlation"
TRUTH, CLASSES, HISTORY, PUBLISHED = "truth", "classes", "history", "published"
PROGRESS = {"0.5": "classes, half done", "0.1": "classes, a tenth done", "0": "classes, begun"}
"""By the share of a run after which its end is told: what is told."""
RETRIED = "run,retries=10min"
LEFT_OUT, FAILED = "left out", ("run", "stop:5s", RETRIED)
"""What becomes of requests that failed: as options of imports have it, or not imported at all."""
SEEDS = 3
"""Draws of the published errors; their mean counts."""


@dataclass(frozen=True, slots=True)
class Log:
    """Columns of a log: when a job came, how long it ran, its class, and all that is known of it before it runs."""

    release: str
    runtime: str
    classes: tuple[str, ...]
    known: tuple[str, ...]
    dated: bool = False


_TRAINING = Log("submission_time", "duration", ("num_gpu",), ("num_gpu",))
_MODEL = "checkpoint_model_version_id"
_KEY = (_MODEL, "predict_type", "num_images_per_prompt", "num_inference_steps", "num_lora", "groupId")
_IMAGES = Log(
    "gmt_create", "exec_time_seconds", (_MODEL,), (*_KEY, "prompt_length", "negative_prompt_length"), dated=True
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a log on a cluster: what was released from a time to another; what ended before is history."""

    log: Log
    path: Path
    start: str
    end: str
    servers: int
    gpus_per_server: int

    def scenario(self, failed: str) -> Scenario:
        """Return its jobs, without models."""
        read, path = "elasticflow", self.path
        if self.log.dated:
            read = f"table:release={self.log.release},runtime={self.log.runtime},model=,status=predict_status"
            read += ",success=SUCCEED" + ("" if failed == LEFT_OUT else f",failed={failed}")
        if failed == RETRIED:
            read, path = f"{read},user=asks,end=ends", self._with_ends()
        made = import_trace(
            read,
            [path],
            window=(self.start, self.end),
            override=lambda of: replace(of, servers=self.servers, gpus_per_server=self.gpus_per_server),
            objective="mean_latency" if failed == LEFT_OUT else None,
        )
        return made.scenario

    def _with_ends(self) -> Path:
        """Return the file of the log with when each request ended, if it began when it came, and who asks for what."""
        table, path = pd.read_csv(self.path), Path(mkdtemp(), "ends.csv")
        table["asks"] = table["groupId"] + " " + table[_MODEL]
        took = pd.to_timedelta(table[self.log.runtime], unit="s")
        table["ends"] = (pd.to_datetime(table[self.log.release]) + took).dt.strftime("%Y-%m-%d %H:%M:%S.%f")
        table.to_csv(path, index=False)
        return path

    def past(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return the columns and run times of what had run before it begins, if it started when it came."""
        table = pd.read_csv(self.path)
        if self.log.dated:
            table = table[table["predict_status"] == "SUCCEED"]
        came_s = (
            pd.to_datetime(table[self.log.release]).astype("datetime64[s]").astype(np.int64)
            if self.log.dated
            else table[self.log.release]
        )
        ended_s = came_s + table[self.log.runtime]
        start_s = pd.Timestamp(self.start).timestamp() if self.log.dated else float(self.start.split()[0])
        known = ended_s[ended_s <= start_s].sort_values(kind="stable").index
        return table.loc[known, [*columns, self.log.runtime]]


PARTS = {
    "cluster03": Part(_TRAINING, ELASTICFLOW / "cluster03.csv.gz", "2160000 s", "3024000 s", 16, 8),
    "cluster06": Part(_TRAINING, ELASTICFLOW / "cluster06.csv.gz", "1728000 s", "2592000 s", 20, 8),
    "6 Dec, 0 h": Part(_IMAGES, GENTD26, "2024-12-06T00:00", "2024-12-06T01:00", 3, 1),
    "3 Dec, 0 h": Part(_IMAGES, GENTD26, "2024-12-03T00:00", "2024-12-03T01:00", 3, 1),
    "2 Dec, 23 h": Part(_IMAGES, GENTD26, "2024-12-02T23:00", "2024-12-03T00:00", 4, 1),
}


@dataclass(frozen=True, slots=True)
class Row:
    """Mean completion time in s of a contender on a part of a log, by what it is told; `bound` is known of plans."""

    part: str
    failed: str
    told: str
    contender: str
    value: float
    bound: float | None = None


@cache
def _scenario(part: str, failed: str) -> Scenario:
    return PARTS[part].scenario(failed)


@cache
def _estimates(part: str, told: str) -> Path:
    """Return the file of the estimates of a log, made of what had ended before a part of it began."""
    log, folder = PARTS[part].log, Path(mkdtemp())
    columns = log.classes if told == CLASSES else log.known
    PARTS[part].past(columns).to_csv(folder / "past.csv", index=False)
    save(estimate(folder / "past.csv", PARTS[part].path, Naming(runtime=log.runtime, key=columns)), folder / "told.csv")
    return folder / "told.csv"


def measure(time_limit: float, part: str, failed: str, told: str, contender: str) -> Iterator[Row]:
    """Yield the row of a cell."""
    scenario = _scenario(part, failed)
    if contender == RANKS:
        known = read_told(_estimates(part, told), scenario).instance
        times = (pd.Series([job.workflow.critical_path_us for job in of.jobs]) for of in (known, scenario.instance))
        yield Row(part, failed, told, contender, float(next(times).rank().corr(next(times).rank())))
    elif contender == PLAN:
        if told == TRUTH:
            made = tn.plan(scenario, time_limit=time_limit)
        else:
            made = tn.plan_uncertain(scenario, _estimates(part, told), time_limit=time_limit).plan
        if made.value is None:
            raise ValueError(f"no plan of {part} was found")
        yield Row(part, failed, told, contender, made.value, made.lower_bound if told == TRUTH else None)
    elif told == PUBLISHED:
        ran = [tn.simulate(scenario, contender, noise="told=published:1", seed=seed).value for seed in range(SEEDS)]
        yield Row(part, failed, told, contender, fmean(ran))
    else:
        progress = next((share for share, said in PROGRESS.items() if said == told), None)
        given = None if told == TRUTH else _estimates(part, told if progress is None else CLASSES)
        found = tn.simulate(scenario, contender, estimates=given, progress=progress)
        yield Row(part, failed, told, contender, found.value)


def cells() -> Iterator[tuple[str, str, str, str]]:
    """Yield what is asked: part of a log, what becomes of failed jobs, what is told, contender."""
    for part, of in PARTS.items():
        levels, policies = ((TRUTH, HISTORY, CLASSES), ON_SINGLES) if of.log.dated else ((TRUTH, CLASSES), ON_CLUSTERS)
        yield from ((part, LEFT_OUT, TRUTH, contender) for contender in BLIND)
        asking = [contender for contender in policies if contender not in BLIND]
        yield from ((part, LEFT_OUT, told, contender) for told, contender in product(levels, asking))
        yield from ((part, LEFT_OUT, PUBLISHED, contender) for contender in OFF_BY_DRAW)
        if not of.log.dated:
            yield from ((part, LEFT_OUT, told, each) for told, each in product(PROGRESS.values(), RESERVING))
        yield from ((part, LEFT_OUT, told, RANKS) for told in levels if told != TRUTH)
        yield from ((part, LEFT_OUT, told, PLAN) for told in levels)
        if of.log.dated:
            yield from ((part, failed, TRUTH, "fifo") for failed in FAILED)


def schedmate(
    time_limit: Annotated[float, "seconds for a plan and its bound"] = 30.0,
    folder: Annotated[Path, "where results.csv lies"] = HERE,
) -> None:
    """Simulate queues on recorded work, told true run times or estimates of them, and plan it; print the tables."""
    Study(Row, 4, partial(measure, time_limit), [completion, parts, failures]).run(cells(), folder)


def completion(rows: Sequence[Row]) -> str:
    """Return mean completion times: one line per contender and what it is told."""
    found = {(row.part, row.told, row.contender): row for row in rows if row.failed == LEFT_OUT}
    contenders = list(dict.fromkeys((row.contender, row.told) for row in rows if row.failed == LEFT_OUT))
    levels, policies = (TRUTH, HISTORY, CLASSES, *PROGRESS.values(), PUBLISHED), (*ON_CLUSTERS, *ON_SINGLES)
    last = {PLAN: 1, RANKS: 2}
    contenders.sort(key=lambda each: (last.get(each[0], 0), levels.index(each[1]), (*policies, *last).index(each[0])))
    lines = []
    for contender, told in contenders:
        values = (found.get((part, told, contender)) for part in PARTS)
        lines.append([f"`{contender}`", told, *("" if row is None else _said(row.value) for row in values)])
    bounds = (found[part, TRUTH, PLAN].bound for part in PARTS)
    lines.append(["no schedule below", "", *("" if bound is None else _said(bound) for bound in bounds)])
    return markdown(["mean completion time in s", "told", *PARTS], lines, " --: |")


def _said(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value > 1 else f"{value:.2f}"


def parts(rows: Sequence[Row]) -> str:
    """Return how many times shorter mean completion gets by each part of what can be told."""
    found = {(row.part, row.told, row.contender): row.value for row in rows if row.failed == LEFT_OUT}
    found |= {(row.part, row.failed, row.contender): row.value for row in rows if row.failed != LEFT_OUT}
    tenth = PROGRESS["0.1"]
    compared = {
        "history: `fifo` over `sjf`": ((TRUTH, "fifo"), (HISTORY, "sjf")),
        "classes: `fifo` over `sjf`": ((TRUTH, "fifo"), (CLASSES, "sjf")),
        "classes: `easy` over `sjf`": ((CLASSES, "easy"), (CLASSES, "sjf")),
        **{f"progress: `{each}`": ((CLASSES, each), (tenth, each)) for each in RESERVING},
        "classes and progress: `fifo` over `easy`": ((TRUTH, "fifo"), (tenth, "easy")),
        "early stopping: `fifo`": ((FAILED[0], "fifo"), (FAILED[1], "fifo")),
        "truth: `fifo` over `sjf`": ((TRUTH, "fifo"), (TRUTH, "sjf")),
    }
    lines = []
    for said, (without, using) in compared.items():
        pairs = [(found.get((part, *without)), found.get((part, *using))) for part in PARTS]
        lines.append([said, *("" if a is None or b is None else f"{a / b:.2f}" for a, b in pairs)])
    bounds = {row.part: row.bound for row in rows if (row.contender, row.told) == (PLAN, TRUTH)}
    most = (None if bounds.get(part) is None else found[part, TRUTH, "fifo"] / (bounds[part] or 1) for part in PARTS)
    lines.append(["no schedule beyond", *("" if each is None else f"{each:.2f}" for each in most)])
    return markdown(["times shorter", *PARTS], lines, " --: |")


def failures(rows: Sequence[Row]) -> str:
    """Return mean completion times of the jobs that did not fail, where the others run on or are stopped."""
    found = {(row.part, row.failed): row.value for row in rows if row.failed in FAILED}
    parts = list(dict.fromkeys(part for part, _ in found))
    lines = [[failed, *(f"{found[part, failed]:,.1f}" for part in parts)] for failed in FAILED]
    return markdown(["failed requests, `fifo`", *parts], lines, " --: |")


main = partial(ask, schedmate)
