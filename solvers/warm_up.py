"""Compile every kernel once, at installation, so that no run pays for it: ``python -m solvers.warm_up``."""

from __future__ import annotations

from fractions import Fraction

from models.cluster import GPU, Cluster, Link, Network
from models.instance import Instance
from models.objective import Objective
from models.workload import Job, MLModel, Task, Workflow
from solvers.bounds.lagrangian.improve import improve as raise_bound
from solvers.result import Search
from solvers.search.annealing import improve


def warm_up() -> None:
    """Compile every kernel, so that no later run pays for it; the machine code stays on disk."""
    gpu = GPU("s0/g0", 0, "any", 1, Fraction(1))
    link = Link()
    job = Job(Workflow("one", (Task("one", {"any": 1}, ("one",)),)), 0)
    smallest = Instance(Cluster((gpu,), Network(link, link)), (MLModel("one", 1),), (job,))
    improve(Search(smallest, Objective.MEAN_LATENCY, time_limit_s=600.0), iterations=100)
    raise_bound(Search(smallest, Objective.MEAN_LATENCY, time_limit_s=600.0))


if __name__ == "__main__":
    warm_up()
