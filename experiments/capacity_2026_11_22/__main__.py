"""``python -m experiments.capacity_2026_11_22``: five commands from the log to the report, and how long each takes."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from experiments.capacity_2026_11_22 import requests
from models.scenario import load_scenario
from planner import servers
from planner.answers.servers.written import write
from planner.command.cli import app
from planner.command.manners import run

HERE = Path(__file__).parent
IMPORT = (
    "truenorth import 'table:release=received,model=endpoint,runtime=took ms,runtime_unit=ms' {log} "
    "--catalogue catalogue.yaml -o morning.yaml"
)
LOOK = "truenorth simulate morning.yaml --policy jit"
ASK = "truenorth servers morning.yaml --time-limit {limit} -o answer"
CHECK = "truenorth check answer/enough.json answer/plan.json"
REPORT = "truenorth report answer -o order.html"


def answer(limit_s: float) -> None:
    """Ask as `ASK` does, and print when the work turned to what."""
    begun = time.monotonic()

    def tell(words: str) -> None:
        print(f"   {time.monotonic() - begun:6.1f} s: {words}", flush=True)

    write(servers(load_scenario(Path("morning.yaml")), time_limit_s=limit_s, watch=tell), Path("answer"))


def main() -> None:
    """Run the commands in an empty folder beside log and catalogue."""
    parser = argparse.ArgumentParser(prog="python -m experiments.capacity_2026_11_22", description=__doc__)
    parser.add_argument("--log", default="requests.csv", choices=["requests.csv", "small.csv"])
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds for the servers")
    parser.add_argument("--draw", action="store_true", help="write the logs anew in place of asking")
    parser.add_argument("--folder", type=Path, help="keep the files here")
    options = parser.parse_args()
    if options.draw:
        requests.write(HERE)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        for file in (options.log, "catalogue.yaml"):
            shutil.copy(HERE / file, folder)
        os.chdir(folder)
        begun = time.monotonic()
        for command in (IMPORT.format(log=options.log), LOOK, ASK.format(limit=options.time_limit), CHECK, REPORT):
            asked: Callable[[], object] = (
                (lambda: answer(options.time_limit)) if " servers " in command else (lambda: _call(command))  # noqa: B023
            )
            at = time.monotonic()
            asked()
            print(f"{time.monotonic() - at:6.1f} s  $ {command}", flush=True)
        print(f"{time.monotonic() - begun:6.1f} s in all")


def _call(command: str) -> None:
    code = run(app, shlex.split(command)[1:])
    if code:
        raise RuntimeError(f"exit code {code}: {command}")


if __name__ == "__main__":
    main()
