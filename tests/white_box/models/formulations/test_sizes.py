"""How large formulations will be, told before they are built."""

from __future__ import annotations

import pytest

from tests import instances as make
from truenorth.models import Job, Objective
from truenorth.models.formulations import cp_sat
from truenorth.models.formulations.allowance import Allowance, GivenUpError
from truenorth.models.formulations.choices import Choices


@pytest.mark.parametrize("inputs", [0, 1, 8])
def test_terms_of_cp_sat_are_told_within_a_factor_of_four(inputs: int) -> None:
    tasks = [
        make.task(f"t{place}", 5, ["m"], {f"t{before}": 3 for before in range(max(0, place - inputs), place)})
        for place in range(12)
    ]
    built = make.instance([Job(make.chain(*tasks), 0)], {"m": 3}, make.cluster(3))
    formulation = cp_sat.formulate(built, Objective.MAKESPAN)
    real = len(formulation.model.proto.variables) + len(formulation.model.proto.constraints)
    assert real / 2 <= cp_sat.count_terms(formulation.choices) <= 4 * real


def test_pairs_of_tasks_are_looked_at_while_time_is_left() -> None:
    built = make.instance([Job(make.chain(make.task("t", 5, ["m"])), 0)] * 6, {"m": 3}, make.cluster(2))
    windows = cp_sat.formulate(built, Objective.MAKESPAN).choices.windows
    asked = iter([1.0, 1.0, 1.0, 0.0])
    with pytest.raises(GivenUpError):
        Choices.of(built, windows, Allowance(lambda: next(asked)))
    assert next(asked, None) is None
