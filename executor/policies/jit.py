"""JIT: no plan; every task, when it becomes runnable, goes where it could start first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from executor.policies.hashing import hash_gpu
from executor.policies.options import QueueOptions, one_of, option
from executor.policies.queueing import QueuePolicy
from executor.policy import Knows


@dataclass(frozen=True, slots=True)
class JitOptions(QueueOptions):
    """Readings of JIT.

    Parameters
    ----------
    roots
        Tasks without predecessors go to the ``least`` wait + TD as all others do, or by ``hash`` as in the simulator
        that one of the Compass authors released.
    """

    roots: str = option("least", one_of("least", "hash"))


class Jit(QueuePolicy):
    """Just-in-time placement: argmin of wait + TD over the workers (several kinds: plus the run time there).

    A task becomes runnable when its last predecessor finishes; the server where that happened decides, by its view.
    Equal workers: those of the job's ingress server, then the lowest index.
    """

    Options: ClassVar[type[object]] = JitOptions
    knows: ClassVar[Knows] = Knows.WAITS

    def __init__(self, options: JitOptions | None = None) -> None:
        self._roots = (options or JitOptions()).roots
        super().__init__(options or JitOptions())

    def runnable(self, task: int, server: int) -> None:
        """Place the task where it could start (several kinds: finish) first, as every policy does without its own."""
        if self._roots == "hash" and not self.site.inputs[self.site.template[task]]:
            self.place(task, hash_gpu(self.site, task))
        else:
            super().runnable(task, server)
