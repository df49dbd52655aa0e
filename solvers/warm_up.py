"""Compile every kernel once, at installation, so that no run pays for it: ``python -m solvers.warm_up``."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context

from models.cluster import GPU, Cluster, Link, Network
from models.instance import Instance
from models.objective import Objective
from models.workload import WHOLE, Job, MLModel, Task, Workflow
from solvers.bounds.lagrangian.improve import improve as raise_bound
from solvers.result import Search
from solvers.search.annealing import improve


def warm_up() -> None:
    """Compile every kernel, so that no later run pays for it; the machine code stays on disk.

    Searches and bound share next to no kernels, so that a process each shortens the wait.
    """
    parts = (_compile_search, _compile_serving, _compile_bound)
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        for compiled in [pool.submit(part) for part in parts]:
            compiled.result()


def _compile_search() -> None:
    improve(_smallest(), iterations=100)


def _compile_serving() -> None:
    improve(_smallest(share=WHOLE // 2), iterations=100)


def _compile_bound() -> None:
    raise_bound(_smallest())


def _smallest(share: int = WHOLE) -> Search:
    """Return a search for one task of one job."""
    gpu = GPU("s0/g0", 0, "any", 1, Fraction(1))
    link = Link()
    job = Job(Workflow("one", (Task("one", {"any": 1}, ("one",), share=share),)), 0)
    instance = Instance(Cluster((gpu,), Network(link, link)), (MLModel("one", 1),), (job,))
    return Search(instance, Objective.MEAN_LATENCY, time_limit_s=600.0)


if __name__ == "__main__":
    warm_up()
