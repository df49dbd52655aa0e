"""Faults of the command itself: signals that end it, and disks that are full; who and what is left behind."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from math import inf
from pathlib import Path
from unittest.mock import patch

from truenorth.planner.command import cli, manners

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
SCENARIO = """
cluster:
  servers: 2
  gpu: {kind: core, memory: 3 MB, load_bandwidth: 2 GB/s}
  network: {bandwidth: 1 GB/s, latency: 200 us}
models: {large: {weights: 2 MB}}
workflows: {ask: {tasks: {draft: {models: [large], runtime: 5 ms, output: 2 KB}}}}
workload: {poisson: {rate: 100 /s, jobs: 20, seed: 1}}
objective: mean_latency
"""
WRITERS: Mapping[str, Sequence[str]] = {
    "trial": ("--policies", "jit,srpt", "--repeats", "2", "--virtual", "serial", "-o", "{}"),
    "profile": ("--device", "cpu", "--rounds", "3", "-o", "{}.yaml"),
    "replay": ("--policy", "jit", "--virtual", "serial", "-o", "{}"),
}
"""What writes what it has measured, with its options; the braces are a name."""
_KEPT = {"trial": "{}/runs", "profile": "{}.rounds", "replay": "{}/runs"}
_NAMES = "/dev/shm"  # noqa: S108
_FULL = os.strerror(errno.ENOSPC)


def end_heads(number: signal.Signals, runs: int, seed: int = 0) -> dict[str, int]:
    """Send a signal to trials at random moments; return how many ended as they must, and what stayed behind."""
    draw, well, left = random.Random(seed), 0, 0  # noqa: S311
    command = str(Path(sys.executable).with_name("truenorth"))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "s.yaml").write_text(SCENARIO)
        asked = ["trial", "s.yaml", "--policies", "jit,srpt", "--repeats", "1000", "--virtual", "serial"]
        for _ in range(runs):
            before = os.listdir(_NAMES)
            head = subprocess.Popen([command, *asked], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603
            while not (family := descendants(head.pid)) and head.poll() is None:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 3))
            family = descendants(head.pid) or family
            head.send_signal(number)
            head.communicate()
            well += head.returncode == (-number if number == signal.SIGKILL else 130)
            left += left_behind(before, family)
    return {"runs": runs, "well": well, "left": left}


@dataclass(slots=True)
class _Disk:
    """Has room for so many files."""

    room: float
    files: int = 0

    def sync(self, descriptor: int) -> None:
        """Stand for `os.fsync`, which is where a full disk tells at the latest."""
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            if self.files >= self.room:
                raise OSError(errno.ENOSPC, _FULL)
            self.files += 1


@dataclass(frozen=True, slots=True)
class _Said:
    """How a command has ended, what it printed, and how many files it wrote."""

    code: int
    out: str
    err: str
    files: int

    @property
    def told_what_it_had(self) -> bool:
        """Whether it ended as it must on a disk that is full: it prints what was measured, if anything was."""
        if self.code == manners.BAD_INPUT:  # before anything was measured
            return not self.out and self.err.count("\n") == 1 and _FULL in self.err
        return self.code == manners.NOT_ACHIEVED and isinstance(json.loads(self.out), dict) and _FULL in self.err


def fill_disks(verb: str, runs: int, seed: int = 0) -> dict[str, int]:
    """Let the disk be full for a command from a random file on; return how many ended as they must, and what stayed.

    Then the same command is given once more, with room: it ends well, and measures nothing anew that had been kept.
    """
    draw, well, left = random.Random(seed), 0, 0  # noqa: S311
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "s.yaml").write_text(SCENARIO)
        whole = _ask(verb, folder, "whole")
        for number in range(runs):
            room = draw.randrange(whole.files)
            struck = _ask(verb, folder, str(number), room)
            left += len(list(folder.rglob("*.tmp")))
            kept = len(list((folder / _KEPT[verb].format(number)).glob("*.json")))
            again = _ask(verb, folder, str(number))
            began = kept > 0 or verb == "replay"  # the first file of others is the question
            well += (
                struck.told_what_it_had
                and began == (struck.code == manners.NOT_ACHIEVED)
                and (again.code, again.files) == (manners.DONE, whole.files - kept)
            )
    return {"runs": runs, "well": well, "left": left}


def _ask(verb: str, folder: Path, name: str, room: float = inf) -> _Said:
    """Give the command, with room for so many files."""
    options = [option.format(folder / name) for option in WRITERS[verb]]
    disk, out, err = _Disk(room), StringIO(), StringIO()
    with patch("os.fsync", disk.sync), redirect_stdout(out), redirect_stderr(err):
        code = manners.run(cli.app, [verb, str(folder / "s.yaml"), *options, "--json"])
    return _Said(code, out.getvalue(), err.getvalue(), disk.files)


def left_behind(before: Sequence[str], processes: Sequence[int]) -> int:
    """Return how many of some processes, and of the new names in shared memory that nobody uses, are left for good.

    What is gone within a minute is not: on a busy machine processes take their time, and others have names for moments.
    """
    fresh = set(os.listdir(_NAMES)) - set(before)
    for _ in range(600):
        left = [each for each in processes if Path(f"/proc/{each}").exists()]
        fresh &= set(os.listdir(_NAMES))
        unused = fresh - _names_in_use() if fresh else fresh
        if not left and not unused:
            break
        time.sleep(0.1)
    return len(left) + len(unused)


def _names_in_use() -> set[str]:
    """Return the names in shared memory that some process has mapped or open."""
    used: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            maps = (process / "maps").read_text().split()
            held = [*maps, *(os.readlink(path) for path in (process / "fd").iterdir())]
            used.update(name.removeprefix(f"{_NAMES}/") for name in held if name.startswith(_NAMES))
    return used


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have started."""
    threads = Path(f"/proc/{process}/task").glob("*/children") if Path(f"/proc/{process}").exists() else ()
    found = [int(number) for path in threads for number in path.read_text().split()]
    return found + [further for child in found for further in descendants(child)]
