"""The time-indexed linear programme with aggregated residency, solved by HiGHS: what the Lagrangian is compared with.

For one class of GPUs with memory by bytes and workflows with one last task. Variables, per slot u: x[t, u], task t
starts; Y[m, u], GPUs that hold model m; Z[m, u], loads of m that begin. Run and load times are rounded down to slots,
completions cost their true time from the beginning of the slot on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import highspy
import numpy as np

from models import Instance, Objective
from solvers.bounds.critical_path import earliest
from solvers.bounds.lagrangian.relaxation import job_costs


@dataclass(slots=True)
class _Inequalities:
    """The constraints row <= limit, entry by entry."""

    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def add(self, entries: dict[int, float], limit: float) -> None:
        """Add a row."""
        self.starts.append(len(self.columns))
        self.columns += entries.keys()
        self.values += entries.values()
        self.limits.append(limit)


def solve(instance: Instance, objective: Objective, slot_us: int, window_us: int) -> tuple[float, float]:
    """Return the optimal value of the linear programme, and the seconds that HiGHS took.

    Parameters
    ----------
    window_us
        Latest delay of any task; the last slot of a window means "then or later" and takes no capacity.
    """
    costs = job_costs(instance, objective)
    if costs is None or len(instance.class_gpu) != 1:
        raise ValueError("the programme needs an objective that adds up, and GPUs that are alike")
    start, run = earliest(instance).start_us, instance.run_us[instance.task_template, 0]
    first, delays = start // slot_us, window_us // slot_us + 2
    slots = int((start.max() + window_us + run.max()) // slot_us) + 4
    n_models, n_x = len(instance.models), instance.n_tasks * delays
    held, begun = n_x, n_x + n_models * slots
    weight = np.zeros(n_x + 2 * n_models * slots)
    for number, job in enumerate(costs.jobs.tolist()):
        last = instance.tasks_of(job).stop - 1
        begin = np.maximum(start[last], (first[last] + np.arange(delays)) * slot_us)
        late = np.maximum(0, begin + run[last] - costs.free_until_us[number])
        weight[last * delays : (last + 1) * delays] = float(costs.weight[number]) * late
    rows = _Inequalities()
    _capacity_and_use(instance, rows, first, run // slot_us, delays, slots, held)
    _precedence(instance, rows, first, run // slot_us, delays)
    _residency(instance, rows, slot_us, slots, held, begun)
    begin_exact = len(rows.starts)
    for task in range(instance.n_tasks):
        rows.add(dict.fromkeys(range(task * delays, (task + 1) * delays), 1.0), 1.0)
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(weight), len(rows.starts)
    lp.col_cost_, lp.col_lower_ = weight, np.zeros(len(weight))
    lp.col_upper_ = np.full(len(weight), highspy.kHighsInf)
    lower = np.full(len(rows.starts), -highspy.kHighsInf)
    lower[begin_exact:] = 1.0
    lp.row_lower_, lp.row_upper_ = lower, np.array(rows.limits)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*rows.starts, len(rows.columns)])
    lp.a_matrix_.index_, lp.a_matrix_.value_ = np.array(rows.columns), np.array(rows.values)
    model.passModel(lp)
    began = time.monotonic()
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS ended with {model.getModelStatus()}")
    return float(model.getInfo().objective_function_value), time.monotonic() - began


def _capacity_and_use(
    instance: Instance, rows: _Inequalities, first: np.ndarray, run: np.ndarray, delays: int, slots: int, held: int
) -> None:
    """Bound the tasks that run in a slot by the GPUs, and those that use a model by the GPUs that hold it."""
    running: list[dict[int, float]] = [{} for _ in range(slots)]
    using: dict[tuple[int, int], dict[int, float]] = {}
    for task in range(instance.n_tasks):
        for k in range(delays - 1):
            for u in range(first[task] + k, first[task] + k + run[task]):
                running[u][task * delays + k] = 1.0
                for m in instance.task_needs(task):
                    using.setdefault((m, u), {held + m * slots + u: -1.0})[task * delays + k] = 1.0
    for entries in running:
        rows.add(entries, float(instance.n_gpus))
    for entries in using.values():
        rows.add(entries, 0.0)


def _precedence(instance: Instance, rows: _Inequalities, first: np.ndarray, run: np.ndarray, delays: int) -> None:
    """Bound the starts of a successor up to a slot by the ends of its predecessor up to it, inside the window."""
    for target in range(instance.n_tasks):
        for source, _ in instance.task_inputs(target):
            shift = int(first[source] + run[source] - first[target])
            for k in range(delays - 1):
                entries = {target * delays + at: 1.0 for at in range(k + 1)}
                for at in range(min(delays, max(0, k - shift + 1))):
                    entries[source * delays + at] = -1.0
                rows.add(entries, 0.0)


def _residency(instance: Instance, rows: _Inequalities, slot_us: int, slots: int, held: int, begun: int) -> None:
    """Let copies grow by loads only, and memory and copy engines hold what is there and what is under way."""
    load = instance.load_us[:, 0] // slot_us
    n_models, gpus = len(instance.models), float(instance.n_gpus)
    memory = instance.class_gpu[0].memory_bytes
    for u in range(slots):
        room: dict[int, float] = {}
        engines: dict[int, float] = {}
        for m in range(n_models):
            share = int(instance.weight_bytes[m]) / memory
            entries = {held + m * slots + u: 1.0}
            if u:
                entries[held + m * slots + u - 1] = -1.0
            if u >= load[m]:
                entries[begun + m * slots + u - int(load[m])] = -1.0
            rows.add(entries, 0.0)
            room[held + m * slots + u] = share
            for begin in range(max(0, u - int(load[m]) + 1), u + 1):
                room[begun + m * slots + begin] = share
                engines[begun + m * slots + begin] = 1.0
        rows.add(room, gpus)
        rows.add(engines, gpus)
