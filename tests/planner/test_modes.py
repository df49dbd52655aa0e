"""Jobs that choose how many GPUs they take, as the tutorial has them, from the file to the answers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import truenorth as tn
from tests.command import app
from tests.gangs import moldable, servers, window
from truenorth.models.objective import Status
from truenorth.models.timeline import Timeline
from truenorth.planner.answers.compare import GANG_POLICIES, SLOWER_GANG_POLICIES
from truenorth.planner.answers.uncertain.spec import tell_means
from truenorth.planner.command.manners import DONE, run
from truenorth.planner.inputs.told import stretch_workflow

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
MINUTE = 60


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Return the scenario of the page: three jobs of 120 min, 36 on four GPUs or 24 on all, and two of 20 min."""
    found = re.search(r"<!-- file: modes.yaml -->\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "modes.yaml"
    path.write_text(found[1])
    return path


def _sizes(scenario: tn.Scenario, timeline: Timeline) -> list[int]:
    return [len(scenario.instance.places.gpus[place]) for place in timeline.place.tolist()]


def test_a_plan_chooses_and_is_optimal(scenario: Path, tmp_path: Path) -> None:
    # Each long one takes a server: [0, 36) and [36, 72) on the first, [35, 71) on the second, which the small ones have
    # from 10 and 15 on. Latencies 36 + 67 + 61 + 20 + 20 = 204 min: a mean of 2,448 s.
    loaded, path = tn.load(scenario), tmp_path / "plan.json"
    planned = tn.plan(loaded, time_limit=20)
    assert planned.result.status is Status.OPTIMAL
    assert planned.value == pytest.approx(2448)
    assert run(app, ["plan", str(scenario), "--time-limit", "20", "-o", str(path)]) == DONE
    assert run(app, ["check", str(scenario), str(path)]) == DONE
    # What the file says of GPUs tells the mode: carried out, it comes to the same.
    assert tn.simulate(loaded, str(path)).value == pytest.approx(2448)


def test_policies_take_the_mode_that_ends_first(scenario: Path) -> None:
    # The first takes all eight GPUs, 24 min instead of 36 on four, and so does the second.
    loaded = tn.load(scenario)
    easy = tn.simulate(loaded, "easy")
    assert _sizes(loaded, easy.timeline)[:2] == [8, 8]
    assert easy.value == pytest.approx(3024)
    names = {row.policy for row in tn.compare(loaded, time_limit=3).rows}
    assert names == {"plan", *GANG_POLICIES, *SLOWER_GANG_POLICIES}


def test_certificates_of_such_windows_verify(scenario: Path, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    assert run(app, ["bound", str(scenario), "--time-limit", "3", "-o", str(path)]) == DONE
    assert run(app, ["verify", str(scenario), str(path)]) == DONE


def test_means_and_factors_are_told_of_every_mode() -> None:
    one, other = moldable({1: 40, 4: 12}), moldable({1: 60, 4: 20})
    renamed = replace(other, workflow=replace(other.workflow, name=one.workflow.name))
    made = window(one, renamed, on=servers(1, 4))
    told = tell_means(made)
    means = told.jobs[0].workflow.tasks[0].modes
    assert [dict(mode.runtime_us) for mode in means] == [{"*": 50}, {"*": 16}]
    assert told.jobs[1].workflow == told.jobs[0].workflow
    stretched = stretch_workflow(one.workflow, np.array([1.5]))
    assert [dict(mode.runtime_us) for mode in stretched.tasks[0].modes] == [{"*": 60}, {"*": 18}]


@pytest.mark.parametrize("policy", ["easy", "offline"])
def test_policies_are_told_wrongly_of_such_jobs(scenario: Path, policy: str) -> None:
    assert tn.simulate(tn.load(scenario), policy, noise="told=lognormal:0.5").value >= 2448
