"""Kernels are compiled where they are first used, once, before any clock starts.

That takes about a minute, which no time limit allows for. It happens in a process of its own, which a signal ends at
once; several that want the same kernels wait for one. A mark beside the machine code says what is complete.
"""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numba

from truenorth.models.errors import chosen
from truenorth.models.instance import Instance
from truenorth.solvers.budget import Method
from truenorth.solvers.compiled import MACHINE_CODE

_LOOK_S = 0.1
_ROOT = Path(__file__).parents[2]


def compile_once(instance: Instance, say: Callable[[], None] = lambda: None, method: str | None = None) -> None:
    """Compile what plans and bounds of an instance need, unless this machine has it already or cannot keep it.

    Parameters
    ----------
    say
        Called before the first compilation.
    method
        How plans are searched for, if they are.

    Raises
    ------
    UnsupportedInstanceError, QuestionError
        If the method does not support what the window has: known before anything is compiled.
    """
    if method is not None:
        from truenorth.solvers.portfolio import refuse

        refuse(instance, chosen(Method, method, "method"))
    parts: tuple[str, ...] = ("search", "bound") if instance.one_at_a_time else ("search", "bound", "serving")
    if instance.gangs:
        parts = ("bound", "gangs")
    if instance.streams is not None:
        parts = ("queues",)
    if all(map(_is_complete, parts)) or not _is_writable():
        return
    say()
    with _alone():
        missing = [part for part in parts if not _is_complete(part)]
        if missing:
            _compile_elsewhere(missing)


def mark_complete(parts: Sequence[str]) -> None:
    """Note that the kernels of these parts are on disk."""
    with suppress(OSError):
        for part in parts:
            _mark(part).write_text(_machine())


def _is_complete(part: str) -> bool:
    with suppress(OSError):
        return _mark(part).read_text() == _machine()
    return False


def _mark(part: str) -> Path:
    return MACHINE_CODE / f"{part}.complete"


def _machine() -> str:
    """Return what machine code depends on beside the texts of the kernels."""
    return f"numba {numba.__version__}, Python {platform.python_version()}, {platform.machine()} {platform.node()}"


def _is_writable() -> bool:
    with suppress(OSError):
        MACHINE_CODE.mkdir(parents=True, exist_ok=True)
        return os.access(MACHINE_CODE, os.W_OK)
    return False


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process compiles these kernels."""
    with (MACHINE_CODE / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOOK_S)
        yield


def _compile_elsewhere(parts: Sequence[str]) -> None:
    """Compile in another process; if that fails kernels are compiled when they are called."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "truenorth.solvers.warm_up", *parts],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    )
    try:
        process.wait()
    finally:
        process.terminate()


def count_loaded() -> int:
    """Return a count that grows whenever a kernel is read or compiled for types that it has not met before."""
    from numba.extending import is_jitted

    modules = [module for name, module in sys.modules.items() if name.startswith("truenorth.solvers.")]
    kernels = (each for module in modules for each in vars(module).values() if is_jitted(each))
    return sum(len(kernel.signatures) for kernel in kernels)
