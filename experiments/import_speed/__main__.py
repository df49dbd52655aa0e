"""``python -m experiments.import_speed``: imports drawn logs of a million rows, each in a process of its own.

Time is that of the whole import: reading, mapping, summary and writing the scenario, without the start of Python;
processor time is what a busy machine does not change.
Memory is the most that the process ever held, Python and libraries included.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

from experiments.bench import ask
from experiments.import_speed.logs import LOGS, draw
from truenorth.planner.inputs.importers.trace import import_trace


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
            alone = [sys.executable, "-m", "experiments.import_speed", "--formats", name, "--log", str(drawn)]
            subprocess.run(alone, check=True)  # noqa: S603
            drawn.unlink()


if __name__ == "__main__":
    ask(import_speed)
