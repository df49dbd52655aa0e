"""Where the processes of GPUs come from, and where they go: forks of a process that has everything and does nothing.

The head, where the engine and the policy are, starts one process that has PyTorch and waits (the nursery). For every
crew that forks one that makes the runner and reads the weights (the template), which forks one per device. So a device
that is lost is there again in the time of a fork, weights are in memory once, and nobody forks who has threads or has
touched a GPU. Whoever loses its parent ends: nobody is left behind, whatever ends the head.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from truenorth.executor.devices.gpu_process import GpuProcess, Residents, in_words
from truenorth.executor.devices.lane import Channel
from truenorth.executor.devices.physical import Physical
from truenorth.executor.devices.records import Clock
from truenorth.executor.devices.runner import MakeRunner, Runner, TeamRunner
from truenorth.executor.devices.shelf import Shelf, make_piece, share_memory
from truenorth.executor.devices.station import Seating
from truenorth.executor.devices.team import Teams
from truenorth.executor.devices.weights import HostWeights, aligned, host_sizes
from truenorth.executor.errors import DeviceError
from truenorth.models import GPU, NEVER, Instance

_SET_PARENT_DEATH_SIGNAL = 1
_ALLOWED_TOGETHER = "allowed for runs on several GPUs is --runner synthetic"
_FIRST_TO_GO = 500
"""What makes the kernel end a process of a GPU rather than the head where memory is exhausted."""


@dataclass(frozen=True, slots=True)
class Equipment:
    """What all processes of a crew have.

    Parameters
    ----------
    instance
        Its models and tasks.
    make
        Makes the runner.
    seatings
        By template of a request and GPU class: how its stream class is served there.
    devices
        Per process: its device, and the planned GPUs on it with their numbers.
    """

    instance: Instance
    make: MakeRunner
    seatings: Mapping[tuple[int, int], Seating]
    devices: Sequence[tuple[Physical, Mapping[int, GPU]]]

    @property
    def split(self) -> list[tuple[int, int]]:
        """Models that runs on several GPUs have split, each with the number of GPUs."""
        instance, found = self.instance, set[tuple[int, int]]()
        sizes = {int(kind): len(gpus) for kind, gpus in zip(instance.place_class, instance.places.gpus, strict=True)}
        for template, kind in np.argwhere(instance.split & (instance.run_us != NEVER)).tolist():
            found.update((model, sizes[kind]) for model in instance.needs[template])
        return sorted(found)


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """With what a process begins.

    Parameters
    ----------
    index
        Which of the crew's it is.
    residents
        By planned GPU: models that are to be in its memory, or parts of them, and their addresses.
    """

    index: int
    residents: Residents | None = None


class Contact(Channel, Protocol):
    """What the head tells one process beside all orders."""

    number: int
    """Which it is, of all that there have been."""

    def open_lane(self, name: str) -> Channel:
        """Have it serve one more lane; return what goes there."""


class ProcessSource(Protocol):
    """Where the processes of a crew's devices come from."""

    shelf: Shelf
    """Where they put outputs. Behind their pieces there is one for the head."""
    is_here: bool
    """Whether the head reads on the shelf what they put there."""

    def fileno(self) -> int:
        """Return what is ready to be read when a process has ended."""

    def fork(self, start: ProcessStart, reports: socket.socket) -> Contact:
        """Start the process of a device, which reports to a socket."""

    def kill(self, number: int) -> None:
        """End a process, whatever it does."""

    def ended(self) -> Sequence[tuple[int, str]]:
        """Return which processes have ended, and how.

        Raises
        ------
        DeviceError
            If none can be started any more.
        """

    def compare_clocks(self) -> Sequence[Clock]:
        """Compare the clocks of other machines with that of this one."""

    def close(self) -> None:
        """End them all."""


class _Forked:
    """A process of this machine: number in the system, and the socket through which it is handed those of lanes."""

    def __init__(self, number: int, control: socket.socket) -> None:
        self.number, self._control = number, control
        self.send, self.close = control.send, control.close

    def open_lane(self, name: str) -> Channel:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far, suppress(OSError):
            socket.send_fds(self._control, [name.encode()], [far.fileno()])
        return near


class Template:
    """The process that those of a crew's devices are forks of, as the head sees it.

    Parameters
    ----------
    equipment
        What they have.

    Raises
    ------
    DeviceError
        If the runner cannot be made, or its weights are not those of the models.
    """

    is_here = True

    def __init__(self, equipment: Equipment) -> None:
        _require_memory(equipment)
        pieces = [make_piece() for _ in range(len(equipment.devices) + 1)]
        self._socket, far = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        self._ended: list[tuple[int, int]] = []
        _nurse(far)
        self._connection.send((list(sys.path), Path.cwd()))
        socket.send_fds(self._socket, [b"."], pieces)
        self.shelf = Shelf(pieces)
        self.shelf.own(len(equipment.devices))
        try:
            self._connection.send(equipment)
            refused: str | None = self._connection.recv()
        except (EOFError, OSError):
            refused = "the process that reads the weights has ended: was there too little memory?"
        except BaseException:
            self.close()
            raise
        if refused is not None:
            self.close()
            raise DeviceError(refused)

    def fileno(self) -> int:
        """Return what is ready to be read when a process has ended."""
        return self._connection.fileno()

    def fork(self, start: ProcessStart, reports: socket.socket) -> Contact:
        """Start the process of a device, which reports to a socket."""
        self._connection.send(start)
        control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            socket.send_fds(self._socket, [b"."], [far.fileno(), reports.fileno()])
            while isinstance(told := self._connection.recv(), tuple):
                self._ended.append(told)
        return _Forked(told, control)

    def kill(self, number: int) -> None:
        """End a process, whatever it does."""
        self._connection.send(number)

    def ended(self) -> Sequence[tuple[int, str]]:
        """Return which processes have ended, and how.

        Raises
        ------
        DeviceError
            If the template itself has ended, and all others with it.
        """
        try:
            while self._connection.poll():
                self._ended.append(self._connection.recv())
        except (EOFError, OSError):
            raise DeviceError("the process that all processes of GPUs are forks of has ended; start again") from None
        ended, self._ended = self._ended, []
        return [(number, _exit_in_words(code)) for number, code in ended]

    def compare_clocks(self) -> Sequence[Clock]:
        """Return nothing: all processes of a machine share its clock."""
        return ()

    def close(self) -> None:
        """End it, and with it every process that it has forked."""
        self._connection.close()
        self._socket.close()
        self.shelf.close()


def _require_memory(equipment: Equipment) -> None:
    """Raise if what is to be in this machine's memory would end the process without a word."""
    on_cores = [gpu for physical, gpus in equipment.devices if not physical.is_cuda for gpu in gpus.values()]
    weight_bytes = sum(host_sizes(equipment.instance.models, equipment.split))
    needed = sum(gpu.memory_bytes for gpu in on_cores) + weight_bytes
    if on_cores:
        equipment.devices[0][0].require_host_memory(needed, "memory for GPUs and weights")


def _exit_in_words(exit_code: int) -> str:
    """Return how a process has ended (by what `os.waitstatus_to_exitcode` says of it).

    >>> _exit_in_words(-9), _exit_in_words(3)
    ('its process was killed by SIGKILL', 'its process ended with exit code 3')
    """
    if exit_code < 0:
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    return f"its process ended with exit code {exit_code}"


_nursery: tuple[subprocess.Popen[bytes], socket.socket] | None = None


def start_nursery() -> None:
    """Start the process that waits, unless it is there; what it has to import it imports while others do theirs."""
    global _nursery
    if _nursery is not None and _nursery[0].poll() is None:
        return
    near, far = socket.socketpair()
    # Until it serves, for an import can take seconds, the kernel ends it with the thread that waits for it here.
    die = f"import ctypes, os, sys; ctypes.CDLL(None).prctl({_SET_PARENT_DEATH_SIGNAL}, {signal.SIGKILL:d})"
    die += f"; os.getppid() == {os.getpid()} or os._exit(0)"
    serve = f"from {__name__} import serve_nursery; serve_nursery({far.fileno()})"
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", f"{die}; sys.path[:] = {sys.path!r}; {serve}"],
        stdin=subprocess.DEVNULL,
        stdout=2,  # what a runner prints must not get between the lines of an answer
        pass_fds=[far.fileno()],
        start_new_session=True,  # Ctrl-C is for the head
    )
    far.close()
    _nursery = process, near
    atexit.register(_end_nursery, process, near)


def _end_nursery(process: subprocess.Popen[bytes], near: socket.socket) -> None:
    near.close()
    process.wait()


def _nurse(far: socket.socket) -> None:
    """Have a template started that talks to a socket."""
    start_nursery()
    assert _nursery is not None  # noqa: S101
    with far:
        socket.send_fds(_nursery[1], [b"."], [far.fileno()])


def serve_nursery(requests: int) -> None:
    """Fork a template for every socket that comes, as long as the head is there."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, 0)  # of a thread; of the head its socket tells
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # forks look at nothing of this, and share it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a template has ended
    with socket.socket(fileno=requests) as head:
        while fds := socket.recv_fds(head, 1, 1)[1]:
            with socket.socket(fileno=fds[0]) as own:
                _fork(lambda own=own, head=head: _serve_template(head, own))  # type: ignore[misc]


def _fork(do: Callable[[], None]) -> int:
    """Do something in a fork of this process that ends with it; return the fork's number."""
    parent = os.getpid()
    number = os.fork()
    if number:
        return number
    try:
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == parent:  # else it has ended before it could be asked for the signal
            do()
    finally:
        os._exit(0)


def _serve_template(nursery: socket.socket, own: socket.socket) -> None:
    """Make what all processes of a crew have, and fork one whenever the head asks, as long as it is there."""
    nursery.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head = Connection(os.dup(own.fileno()))
    with suppress(EOFError, OSError):
        path, folder = head.recv()
        sys.path[:] = path
        os.chdir(folder)
        shelf = Shelf(socket.recv_fds(own, 1, 1024)[1])
        try:
            equipment: Equipment = head.recv()
            runner = equipment.make()
            if equipment.instance.gangs and not isinstance(runner, TeamRunner):
                raise DeviceError(f"{type(runner).__name__} computes on one GPU at a time; {_ALLOWED_TOGETHER}")
            sizes = [aligned(size) for size in host_sizes(equipment.instance.models, equipment.split)]
            room = share_memory(sum(sizes))
            host = _pack(equipment, runner, torch.split(room, sizes))
        except BaseException as error:  # whatever the runner's code raises is told in one line
            head.send(in_words(error))
            return
        gc.collect()
        gc.freeze()  # so that forks share what is here
        head.send(None)
        _fork_devices(head, own, equipment, host, room, runner, shelf)


def _offer_to_end() -> None:
    """Let the kernel end this process rather than the head; whoever is to go first already stays so."""
    score = Path("/proc/self/oom_score_adj")
    if int(score.read_text()) < _FIRST_TO_GO:
        score.write_text(str(_FIRST_TO_GO))


def _pack(equipment: Equipment, runner: Runner, rooms: Sequence[Tensor]) -> HostWeights:
    """Put the weights of all models into memory, whole and in parts."""
    pieces = iter(rooms)
    models, split = equipment.instance.models, equipment.split
    return HostWeights(models, runner, lambda size_bytes: next(pieces)[:size_bytes], split)


def _fork_devices(
    head: Connection,
    own: socket.socket,
    equipment: Equipment,
    host: HostWeights,
    room: Tensor,
    runner: Runner,
    shelf: Shelf,
) -> None:
    """Fork the process of a device whenever asked; tell how they end."""
    forks: dict[int, int] = {}  # a descriptor that is ready once it has ended, and its number
    teams = Teams()
    while True:
        ready = wait([head, *forks])
        for ended in ready:
            if isinstance(ended, int):
                os.close(ended)
                _, status = os.waitpid(forks[ended], 0)
                head.send((forks.pop(ended), os.waitstatus_to_exitcode(status)))
        if head not in ready:
            continue
        asked: ProcessStart | int = head.recv()
        if isinstance(asked, int):
            if asked in forks.values():
                os.kill(asked, signal.SIGKILL)
            continue
        control, reports = (socket.socket(fileno=fd) for fd in socket.recv_fds(own, 1, 2)[1])

        def serve(
            start: ProcessStart = asked, control: socket.socket = control, reports: socket.socket = reports
        ) -> None:
            head.close()
            own.close()
            _offer_to_end()
            shelf.own(start.index)
            physical, gpus = equipment.devices[start.index]
            physical.pin(room)
            process = GpuProcess(
                equipment.instance, equipment.seatings, host, runner, shelf, physical, gpus, reports, teams
            )
            process.serve(start.index, start.residents or {}, control)

        number = _fork(serve)
        forks[os.pidfd_open(number)] = number
        control.close()
        reports.close()
        head.send(number)
