"""Where no model may ever leave: a packing of all templates, found or given up."""

from __future__ import annotations

from tests.instances import chain, cluster, gpu, instance, network, task
from truenorth.models import Cluster, Instance, Job, Restrictions
from truenorth.solvers.search.static_models import static_models


def _never_swapping(jobs: list[Job], models: dict[str, int], on: Cluster) -> Instance:
    return instance(jobs, models, on, restrictions=Restrictions(no_swaps=True))


def test_a_packing_goes_back_where_a_model_finds_no_room() -> None:
    # 10 and 6 bytes for models of 6, 5 and 5: the largest first goes to the first GPU, where no 5 then fits beside it,
    # and the second GPU takes only one. With the 6 on the second GPU the first takes both.
    flows = [chain(task("run", 1, [name]), name=name) for name in ("six", "five", "other")]
    gpus = Cluster((gpu(0), gpu(1, memory_bytes=6)), network())
    mask = static_models(_never_swapping([Job(flow, 0) for flow in flows], {"six": 6, "five": 5, "other": 5}, gpus))
    assert mask is not None
    assert mask.tolist() == [[False, True, True], [True, False, False]]


def test_no_packing() -> None:
    flows = [chain(task("run", 1, [name]), name=name) for name in ("a", "b")]
    assert static_models(_never_swapping([Job(flow, 0) for flow in flows], {"a": 6, "b": 5}, cluster())) is None


def test_more_templates_than_python_recurses() -> None:
    many = chain(*(task(f"t{number}", 1, ["a"]) for number in range(1_500)))
    mask = static_models(_never_swapping([Job(many, 0)], {"a": 6}, cluster()))
    assert mask is not None
    assert mask.tolist() == [[True]]
