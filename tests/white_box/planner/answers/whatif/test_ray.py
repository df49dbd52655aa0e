"""A sweep on two Ray nodes of this machine, one of them killed on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import app, run
from tests.planner.answers.whatif.calls import square
from tests.planner.answers.whatif.small import written
from truenorth.models.errors import QuestionError
from truenorth.planner.answers.pool import in_order

pytest.importorskip("ray")


@pytest.mark.nightly
def test_nothing_is_lost_with_a_node(tmp_path: Path) -> None:
    sweep = written(
        tmp_path,
        "scenario: scenario.yaml\nsettings: {policy: jit}\n"
        "grid:\n  workload.poisson.jobs: [100, 200, 300, 400]\n  cluster.servers: [1, 2, 3, 4, 5, 6]\n",
    )
    # In a process of its own, whose output goes to a file: Ray leaves threads, and processes that hold on to a pipe.
    command = [sys.executable, "-m", "experiments", "sweep_recovery", "ray", "--file", str(sweep)]
    with (tmp_path / "said").open("w") as said:
        root = Path(__file__).parents[5]
        done = subprocess.run(command, stdout=said, stderr=said, check=False, timeout=240, cwd=root)  # noqa: S603
    text = (tmp_path / "said").read_text()
    assert "24 cells on two Ray nodes, one killed after a quarter: 0 failed, tables identical" in text
    assert done.returncode == 0


def test_no_cluster_is_bad_usage() -> None:
    with pytest.raises(QuestionError, match=r"ray: no cluster at '127\.0\.0\.1:1': .*allowed is HOST:PORT"):
        in_order(square, [1], ray="127.0.0.1:1")


@pytest.mark.parametrize("verb", ["plan", "bound", "compare"])
def test_no_cluster_is_said_before_anything_else(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, [verb, "experiments/scenarios/compass_edge.yaml", "--ray", "127.0.0.1:1"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("truenorth: error: --ray: no cluster at '127.0.0.1:1': ")
