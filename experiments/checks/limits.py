"""``python -m experiments limits``: ask random questions for some minutes, and print every limit that is not kept."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from experiments import bench
from experiments.random_scenarios import Document, random_scenario

MEMORY_BYTES = 4 * 10**9
GRACE_S, FACTOR = 3.0, 1.5
"""An answer comes no later than its limit times this factor and so many seconds; then start-up is in them, too."""
_START_UP_S = 3.0
"""The command's imports take so long on a slow machine: no limit counts them."""
_HUNG_S = 120.0
_END_S, _END = 1.0, 0.05
"""By so many seconds, or so much of it, a limit may be passed that `within_time_limit` calls kept."""
_CODES = (0, 1, 2)

VERBS = (
    ("plan", "--method", "auto"),
    ("plan", "--method", "search"),
    ("plan", "--method", "cp-sat"),
    ("plan", "--method", "milp"),
    ("plan", "--workers", "1"),
    ("bound",),
    ("compare",),
    ("servers", "--slo", "p95 slowdown <= 4", "--max", "6"),
    ("simulate", "--policy", "compass"),
    ("simulate", "--policy", "srpt"),
    ("simulate", "--policy", "receding"),
    ("sweep",),
    ("verify",),
    ("check",),
)
_LIMITED = ("plan", "bound", "compare", "servers")


@dataclass(frozen=True, slots=True)
class LimitFault:
    """What was asked, and what is wrong with how it ended."""

    asked: str
    problem: str


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended, and after how long: by the clock, or by processors if that is less, on a busy machine."""

    code: int
    out: str
    error: str
    seconds: float


def ask(seed: int, folder: Path) -> tuple[str, list[LimitFault]]:
    """Draw a scenario and a question; return its words and what was wrong with the answer."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    path, verb, limit_s = folder / f"{seed}.json", rng.choice(VERBS), rng.randint(1, 5)
    document = random_scenario(rng)
    path.write_text(json.dumps(document))
    found, words = [], []
    for arguments in _questions(verb, path, document, limit_s, folder):
        ended = run(arguments)
        words = [*arguments]
        asked = f"{' '.join(arguments)}  (seed {seed})"
        found += [LimitFault(asked, problem) for problem in problems(ended, arguments[0], limit_s)]
        if found or ended.code:
            break
    return " ".join(words), found


def _questions(
    verb: tuple[str, ...], path: Path, document: Document, limit_s: int, folder: Path
) -> list[tuple[str, ...]]:
    """Return the commands that a verb needs, the last of them its own."""
    limit, scenario, made = ("--time-limit", str(limit_s)), str(path), str(path.with_suffix(".made.json"))
    if verb[0] == "verify":
        return [("bound", scenario, *limit, "--json", "-o", made), ("verify", scenario, made, "--json")]
    if verb[0] == "check":
        return [("plan", scenario, *limit, "--json", "-o", made), ("check", scenario, made, "--json")]
    if verb[0] == "sweep":
        sweep = path.with_suffix(".sweep.json")
        grid = {"time_limit": [f"{limit_s} s"]}
        sweep.write_text(json.dumps({"scenario": document, "verb": "plan", "grid": grid}))
        return [("sweep", str(sweep), "-o", str(folder / f"{path.stem}.swept"), "--json")]
    return [(verb[0], scenario, *verb[1:], *(limit if verb[0] in _LIMITED else ()), "--json")]


def run(arguments: tuple[str, ...]) -> CommandEnd:
    """Run the command with little memory."""
    cap = partial(resource.setrlimit, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    program = "from truenorth.planner.command.start import main; main()"
    begun, used = time.monotonic(), _processor_s()
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=cap,
    )
    try:
        out, error = process.communicate(timeout=_HUNG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
    seconds = min(time.monotonic() - begun, _processor_s() - used)
    return CommandEnd(process.returncode, out, error, seconds)


def _processor_s() -> float:
    """Return what ended commands took of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def problems(ended: CommandEnd, verb: str, limit_s: float) -> list[str]:
    """Return what is wrong with how a command ended."""
    found = []
    if ended.code not in _CODES or "Traceback" in ended.error:
        found.append(f"ends with {ended.code}: {ended.error.strip().splitlines()[-1:]}")
    if ended.code == 2 and len(ended.error.strip().splitlines()) != 1:
        found.append(f"refuses in more than a line: {ended.error!r}")
    most_s = FACTOR * limit_s + GRACE_S + _START_UP_S
    if verb in _LIMITED and ended.seconds > most_s:
        found.append(f"took {ended.seconds:.1f} s for a limit of {limit_s} s")
    if verb == "plan" and ended.code in (0, 1) and ended.out:
        found += _false_claims(json.loads(ended.out), limit_s)
    return found


def _false_claims(answer: Document, limit_s: float) -> list[str]:
    late = answer["runtime_s"] > limit_s + max(_END_S, _END * limit_s)
    return ["within_time_limit is false, and says true"] if late and answer["within_time_limit"] else []


def limits(
    minutes: float = 10.0,
    first: Annotated[int, "the first seed"] = 0,
    keep: Annotated[Path | None, "a folder for the scenarios that were asked about"] = None,
) -> None:
    """Print what was found; exit with 1 if anything was."""
    end_s, seed, wrong, asked = time.monotonic() + 60 * minutes, first, 0, Counter[str]()
    with TemporaryDirectory() as folder:
        kept = keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        while time.monotonic() < end_s:
            words, found = ask(seed, kept)
            asked[words.split()[0]] += 1
            for fault in found:
                print(f"{fault.problem}\n    {fault.asked}", flush=True)
            wrong += bool(found)
            seed += 1
    print(f"{sum(asked.values())} questions, {wrong} of them with faults: {dict(asked.most_common())}")
    raise SystemExit(1 if wrong else 0)


main = partial(bench.ask, limits)
