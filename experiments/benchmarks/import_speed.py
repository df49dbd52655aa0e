"""``python -m experiments import_speed``: imports drawn logs of a million rows, each in a process of its own.

Time is that of the whole import: reading, mapping, summary and writing the scenario, without the start of Python;
processor time is what a busy machine does not change.
Memory is the most that the process ever held, Python and libraries included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from experiments.bench import ask
from truenorth.planner.inputs.importers.trace import import_trace

Draws = np.random.Generator
_START = pd.Timestamp("2020-04-01")


def gentd26(rows: int, draws: Draws) -> pd.DataFrame:
    """Return requests every two seconds, for 86 models with skewed shares."""
    return pd.DataFrame(
        {
            "gmt_create": _moments(2 * np.arange(rows)),
            "predict_type": "TXT_2_IMG",
            "predict_status": np.where(draws.random(rows) < 0.984, "SUCCEED", "FAILED"),
            "exec_time_seconds": np.maximum(1, draws.lognormal(3.1, 0.6, rows).round()),
            "groupId": _names("G", draws.integers(0, 4247, rows)),
            "checkpoint_model_version_id": _names("M", np.minimum(85, draws.geometric(0.15, rows))),
            "num_lora": draws.integers(0, 3, rows),
        }
    )


def azure_llm(rows: int, draws: Draws) -> pd.DataFrame:
    """Return requests with exponential gaps and seven decimals of a second."""
    ticks = np.cumsum(draws.exponential(2e6, rows)).astype(np.int64)
    moments = zip(_moments(ticks // 10**7), ticks % 10**7, strict=True)
    return pd.DataFrame(
        {
            "TIMESTAMP": [f"{second}.{tick:07}" for second, tick in moments],
            "ContextTokens": draws.integers(3, 8_000, rows),
            "GeneratedTokens": draws.integers(1, 1_000, rows),
        }
    )


def azure_functions(rows: int, draws: Draws) -> pd.DataFrame:
    """Return invocations of 400 functions of 100 apps with durations of microsecond precision."""
    function, duration = draws.integers(0, 400, rows), draws.lognormal(0, 1, rows).round(6)
    return pd.DataFrame(
        {
            "app": _names("app", function // 4),
            "func": _names("func", function),
            "end_timestamp": (1_000 + 0.5 * np.arange(rows) + duration).round(6),
            "duration": duration,
        }
    )


def alibaba_gpu(rows: int, draws: Draws) -> pd.DataFrame:
    """Return pods of a few hundred shapes."""
    created = 10 * np.arange(rows)
    scheduled = created + draws.integers(0, 60, rows)
    return pd.DataFrame(
        {
            "name": _names("openb-pod-", np.arange(rows)),
            "cpu_milli": 1_000 * draws.integers(1, 16, rows),
            "memory_mib": 1_024 * draws.integers(1, 16, rows),
            "num_gpu": draws.integers(0, 3, rows),
            "gpu_milli": 1_000,
            "gpu_spec": "",
            "qos": draws.choice(["LS", "BE"], rows),
            "pod_phase": draws.choice(["Running", "Succeeded", "Failed"], rows),
            "creation_time": created,
            "deletion_time": scheduled + draws.integers(1, 100_000, rows),
            "scheduled_time": scheduled,
        }
    )


def acme(rows: int, draws: Draws) -> pd.DataFrame:
    """Return jobs with time zones in their times."""
    jobs = helios(rows, draws).assign(type=draws.choice(["Eval", "SFT", "Debug"], rows))
    for column in ("submit_time", "start_time", "end_time"):
        jobs[column] += "+08:00"
    return jobs.assign(gpu_time=0.0)


def helios(rows: int, draws: Draws) -> pd.DataFrame:
    """Return jobs of 500 users, most on one GPU."""
    submitted = 10 * np.arange(rows)
    started = submitted + draws.integers(0, 600, rows)
    duration = draws.integers(1, 100_000, rows)
    return pd.DataFrame(
        {
            "job_id": np.arange(rows),
            "user": _names("u", draws.integers(0, 500, rows)),
            "vc": _names("vc", draws.integers(0, 20, rows)),
            "gpu_num": draws.choice([0, 1, 1, 1, 8], rows),
            "cpu_num": 4,
            "node_num": 1,
            "state": draws.choice(["COMPLETED", "FAILED", "CANCELLED"], rows),
            "submit_time": _moments(submitted),
            "start_time": _moments(started),
            "end_time": _moments(started + duration),
            "duration": duration,
            "queue": started - submitted,
        }
    )


def philly(rows: int, draws: Draws) -> list[dict[str, object]]:
    """Return jobs of one attempt on one GPU each."""
    jobs = helios(rows, draws)
    columns = (jobs[name] for name in ("job_id", "user", "vc", "submit_time", "start_time", "end_time"))
    return [
        {
            "status": "Pass",
            "vc": vc,
            "jobid": f"application_{job}",
            "attempts": [{"start_time": start, "end_time": end, "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}],
            "submitted_time": submitted,
            "user": user,
        }
        for job, user, vc, submitted, start, end in zip(*columns, strict=True)
    ]


def rltune(rows: int, draws: Draws) -> pd.DataFrame:
    """Return jobs of 500 users in 19 columns."""
    cells = np.full((rows, 19), -1, np.int64)
    cells[:, 0], cells[:, 1] = np.arange(rows), 10 * np.arange(rows)
    cells[:, 2], cells[:, 3] = draws.integers(0, 600, rows), draws.integers(1, 100_000, rows)
    cells[:, 4], cells[:, 11] = draws.choice([1, 1, 1, 8], rows), draws.integers(0, 500, rows)
    return pd.DataFrame(cells)


def table(rows: int, draws: Draws) -> pd.DataFrame:
    """Return releases, models and run times with three decimals."""
    runtime = draws.lognormal(0, 1, rows).round(3) + 0.001
    return pd.DataFrame({"release": np.arange(rows), "model": _names("M", np.arange(rows) % 50), "runtime": runtime})


LOGS: dict[str, Callable[[int, Draws], pd.DataFrame | list[dict[str, object]]]] = {
    "gentd26": gentd26,
    "azure-llm": azure_llm,
    "azure-functions-2021": azure_functions,
    "alibaba-gpu-2023": alibaba_gpu,
    "acme": acme,
    "helios": helios,
    "philly": philly,
    "rltune": rltune,
    "table": table,
}


def draw(name: str, rows: int, path: Path) -> None:
    """Write a log of a format."""
    drawn = LOGS[name](rows, np.random.default_rng(1))
    if isinstance(drawn, list):
        path.write_text(json.dumps(drawn, indent=1))
    else:
        drawn.to_csv(path, index=False, header=name != "rltune")


def _moments(seconds: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pd.Index[str]:
    return (_START + pd.to_timedelta(seconds, unit="s")).strftime("%Y-%m-%d %H:%M:%S")


def _names(prefix: str, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    return [f"{prefix}{number:04}" for number in numbers]


def measured(name: str, log: Path) -> None:
    """Import a log and print how long it took; memory is that of the process's whole life."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    made = import_trace(name, [log])
    made.as_dict()
    made.save(log.with_suffix(".yaml"))
    seconds, busy = time.perf_counter() - begin, time.process_time() - begin_cpu
    megabytes = _most_memory_kb() / 1e3
    rows = f"{name:>20}: {made.tally.read:,} rows"
    print(f"{rows} in {seconds:.1f} s ({busy:.1f} s of processor time), at most {megabytes:,.0f} MB", flush=True)


def _most_memory_kb() -> int:
    """Return the process's own peak; that of getrusage begins with what its parent held."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0])


def import_speed(
    rows: int = 1_000_000,
    formats: Annotated[tuple[str, ...], tuple(LOGS)] = tuple(LOGS),
    log: Annotated[Path | None, "import only this file, of the first of --formats"] = None,
) -> None:
    """Draw every log and import it in a process of its own."""
    if log is not None:
        measured(formats[0], log)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in formats:
            drawn = Path(folder) / name
            draw(name, rows, drawn)
            alone = [
                sys.executable,
                "-m",
                "experiments",
                "import_speed",
                "--formats",
                name,
                "--log",
                str(drawn),
            ]
            subprocess.run(alone, check=True)  # noqa: S603
            drawn.unlink()


main = partial(ask, import_speed)
