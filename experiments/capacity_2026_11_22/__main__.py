"""``python -m experiments.capacity_2026_11_22``: five commands from the log to the report, and how long each takes.

The log is drawn: five minutes of a service with six models, in columns of its own.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import truenorth as tn
from experiments.bench import ask
from truenorth.models.scenario import load_scenario
from truenorth.planner.answers.servers.written import write
from truenorth.planner.command.cli import app
from truenorth.planner.command.manners import run

HERE = Path(__file__).parent
IMPORT = (
    "truenorth import 'table:release=received,model=endpoint,runtime=took ms,runtime_unit=ms' {log} "
    "--catalogue catalogue.yaml -o morning.yaml"
)
LOOK = "truenorth simulate morning.yaml --policy jit"
ASK = "truenorth servers morning.yaml --time-limit {limit} -o answer"
CHECK = "truenorth check answer/enough.json answer/plan.json"
REPORT = "truenorth report answer -o order.html"
BEGIN = datetime(2026, 11, 20, 9, 0)
CUSTOMERS = ("acme", "birch", "cobalt", "dune", "elm")
ENDPOINTS = {
    # name in the log: share of the requests, median run time in s, spread (of its logarithm)
    "bge": (0.30, 0.030, 0.2),
    "whisper-large": (0.15, 0.45, 0.3),
    "sdxl": (0.08, 1.30, 0.05),
    "mistral-7b": (0.20, 0.70, 0.25),
    "llama-8b": (0.20, 0.80, 0.25),
    "qwen-20b": (0.07, 0.60, 0.3),
}


def answer(limit_s: float) -> None:
    """Ask as `ASK` does, and print when the work turned to what."""
    begun = time.monotonic()

    def tell(words: str) -> None:
        print(f"   {time.monotonic() - begun:6.1f} s: {words}", flush=True)

    write(tn.servers(load_scenario(Path("morning.yaml")), time_limit=limit_s, watch=tell), Path("answer"))


def order(
    log: Annotated[str, "what the road begins with", ("requests.csv", "small.csv")] = "requests.csv",
    time_limit: Annotated[float, "seconds for the servers"] = 120.0,
    draw: Annotated[bool, "write the logs anew in place of asking"] = False,
    folder: Annotated[Path | None, "keep the files here"] = None,
) -> None:
    """Run the commands in an empty folder beside log and catalogue."""
    if draw:
        write_logs(HERE)
        return
    with tempfile.TemporaryDirectory() as name:
        for file in (log, "catalogue.yaml"):
            shutil.copy(HERE / file, folder or name)
        os.chdir(folder or name)
        begun = time.monotonic()
        for command in (IMPORT.format(log=log), LOOK, ASK.format(limit=time_limit), CHECK, REPORT):
            at = time.monotonic()
            if " servers " in command:
                answer(time_limit)
            else:
                _call(command)
            print(f"{time.monotonic() - at:6.1f} s  $ {command}", flush=True)
        print(f"{time.monotonic() - begun:6.1f} s in all")


def _call(command: str) -> None:
    code = run(app, shlex.split(command)[1:])
    if code:
        raise RuntimeError(f"exit code {code}: {command}")


def rows(requests: int, per_second: float, seed: int) -> list[str]:
    """Return the log, its header first; in the middle third requests come half as often again."""
    rng = random.Random(seed)  # noqa: S311
    at, lines = 0.0, ["received;endpoint;customer;took ms"]
    for index in range(requests):
        busy = requests <= 3 * index < 2 * requests
        at += rng.expovariate(per_second * (1.5 if busy else 1.0))
        name = rng.choices(list(ENDPOINTS), [share for share, _, _ in ENDPOINTS.values()])[0]
        _, median, spread = ENDPOINTS[name]
        took = median * rng.lognormvariate(0, spread)
        customer = rng.choices(CUSTOMERS, [8, 4, 2, 1, 1])[0]
        moment = (BEGIN + timedelta(seconds=at)).isoformat(sep=" ", timespec="milliseconds")
        lines.append(f"{moment};{name};{customer};{1000 * took:.0f}")
    return lines


def write_logs(folder: Path) -> None:
    """Write the log of the study and the small one of the pages."""
    for name, requests, seed in (("requests.csv", 1800, 1), ("small.csv", 60, 3)):
        (folder / name).write_text("\n".join(rows(requests, 6.0, seed)) + "\n")


if __name__ == "__main__":
    ask(order)
