"""``python -m experiments.import_speed``: imports drawn logs of a million rows, each in a process of its own.

Time is that of the whole import: reading, mapping, summary and writing the scenario, without the start of Python;
processor time is what a busy machine does not change.
Memory is the most that the process ever held, Python and libraries included.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from planner.importers.trace import import_trace


def gentd26(rows: int) -> pd.DataFrame:
    """Return a log in the columns of GenTD26: a request every two seconds, 86 models with skewed shares."""
    rng = np.random.default_rng(1)
    moments = pd.Timestamp("2024-01-01") + pd.to_timedelta(2 * np.arange(rows), unit="s")
    return pd.DataFrame(
        {
            "gmt_create": moments.strftime("%Y-%m-%d %H:%M:%S"),
            "predict_type": "TXT_2_IMG",
            "predict_status": np.where(rng.random(rows) < 0.984, "SUCCEED", "FAILED"),
            "exec_time_seconds": np.maximum(1, rng.lognormal(3.1, 0.6, rows).round()),
            "groupId": [f"G{number:04}" for number in rng.integers(0, 4247, rows)],
            "checkpoint_model_version_id": [f"M{number:04}" for number in np.minimum(85, rng.geometric(0.15, rows))],
            "num_lora": rng.integers(0, 3, rows),
        }
    )


def azure_llm(rows: int) -> pd.DataFrame:
    """Return a log in the columns of the Azure LLM trace: exponential gaps, seven decimals of a second."""
    rng = np.random.default_rng(1)
    ticks = np.cumsum(rng.exponential(2e6, rows)).astype(np.int64)
    seconds = (pd.Timestamp("2023-11-16 18:15:00") + pd.to_timedelta(ticks // 10**7, unit="s")).strftime(
        "%Y-%m-%d %H:%M:%S"
    )
    return pd.DataFrame(
        {
            "TIMESTAMP": [f"{second}.{tick:07}" for second, tick in zip(seconds, ticks % 10**7, strict=True)],
            "ContextTokens": rng.integers(3, 8_000, rows),
            "GeneratedTokens": rng.integers(1, 1_000, rows),
        }
    )


LOGS = {"gentd26": gentd26, "azure-llm": azure_llm}


def measured(name: str, log: Path) -> None:
    """Import a log and print how long it took; memory is that of the process's whole life."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    made = import_trace(name, [log])
    made.as_dict()
    made.save(log.with_suffix(".yaml"))
    seconds, busy = time.perf_counter() - begin, time.process_time() - begin_cpu
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    rows = f"{name}: {made.tally.read:,} rows"
    print(f"{rows} in {seconds:.1f} s ({busy:.1f} s of processor time), at most {megabytes:,.0f} MB", flush=True)


def main() -> None:
    """Draw every log and import it in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m experiments.import_speed", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--log", type=Path, help="import only this file, of --format")
    parser.add_argument("--format", choices=LOGS, default="gentd26")
    options = parser.parse_args()
    if options.log is not None:
        measured(options.format, options.log)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, drawn in LOGS.items():
            log = Path(folder) / f"{name}.csv"
            drawn(options.rows).to_csv(log, index=False)
            alone = [sys.executable, "-m", "experiments.import_speed", "--format", name, "--log", str(log)]
            subprocess.run(alone, check=True)  # noqa: S603


if __name__ == "__main__":
    main()
