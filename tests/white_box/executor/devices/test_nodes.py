"""Runs on nodes of a Ray cluster: the rules, outputs and ends of runs on one machine; what cannot serve is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest

from tests.executor.devices.small import gpus
from truenorth.executor.devices.nodes import Nodes, RayNode
from truenorth.executor.devices.records import SET_ASIDE, STARTED_AGAIN

pytest.importorskip("ray")
# Two nodes take minutes to start where they share two cores.
pytestmark = pytest.mark.nightly

TASKS, JOBS = 4, 4


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `on_nodes` has tried, all with one cluster: that takes longer to start than most of it.

    Once for all of pytest's workers, which take tests of this file from each other: the first runs it, the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "nodes"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not (folder / "tried").exists():
            _try_on_nodes(folder)
            (folder / "tried").touch()
    return dict(json.loads(line) for line in (folder / "said").read_text().splitlines())


def _try_on_nodes(folder: Path) -> None:
    root = Path(__file__).parents[4]
    environment = os.environ | {"PYTHONPATH": str(root), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-m", "tests.executor.devices.on_nodes"]
    for _ in range(3):  # Ray gives a node 30 s to start, which may be too short where much else runs
        with (folder / "said").open("w") as said, (folder / "errors").open("w") as errors:
            done = subprocess.run(  # noqa: S603
                command, stdout=said, stderr=errors, check=False, timeout=900, cwd=root, env=environment
            )
        if "timed out during startup" not in (folder / "errors").read_text():
            break
    assert done.returncode == 0, (folder / "errors").read_text()[-2000:]


def test_a_plan_on_four_devices_of_two_nodes_is_what_it_is_here(shown: dict[str, Any]) -> None:
    """Placement, rules at 0 us, and every output bit for bit."""
    run = shown["four"]
    assert (run["failed"], run["faults"], run["broken"]) == ([], [], [])
    assert run["outputs"] == TASKS * JOBS
    assert (run["same"], run["kept"], run["gpus"], run["transfers"]) == (True, True, True, True)
    assert Counter(name.rpartition(" ")[2] for name in run["devices"]) == {"#1": 2, "#2": 2}


def test_a_trial_on_two_nodes_puts_out_what_a_replay_does_here(shown: dict[str, Any]) -> None:
    trial = shown["two"]
    row, clocks = trial["rows"][0], trial["clocks"]
    assert (row["counted"], row["faults"], row["different_outputs"]) == (2, 0, 0)
    assert (trial["same"], trial["outputs"]) == ([True] * 3, 4)
    assert [clock["node"].rpartition(" ")[2] for clock in clocks] == ["#1", "#2"]
    assert all(set(clock) == {"node", "ahead_first_us", "ahead_last_us", "uncertainty_us"} for clock in clocks)


def test_a_profile_names_its_node(shown: dict[str, Any]) -> None:
    assert "cpu core 0 of node" in shown["profile"]["device"]
    assert (shown["profile"]["rounds"], len(shown["profile"]["tasks"])) == (1, 2)


def test_clocks_are_compared_before_and_behind_a_run(shown: dict[str, Any]) -> None:
    """Both nodes are this machine: their clocks are one, so what is measured is no more than its uncertainty."""
    clocks = shown["four"]["clocks"]
    assert [clock["node"].rpartition(" ")[2] for clock in clocks] == ["#1", "#2"] * 2
    assert all(abs(clock["ahead_us"]) <= clock["uncertainty_us"] for clock in clocks)


def test_what_ends_a_process_on_a_node_costs_its_run_alone(shown: dict[str, Any]) -> None:
    run = shown["killed"]
    assert (run["failed"], run["why"]) == ([1], ["its process was killed by SIGKILL"])
    assert [what for what, _, _ in run["faults"]] == [STARTED_AGAIN]
    assert (run["outputs"], run["same"], run["kept"]) == (TASKS * (JOBS - 1), True, True)


def test_an_outpost_that_is_lost_is_made_again(shown: dict[str, Any]) -> None:
    """No run is to blame: a job fails only if an output that it still needs lay there."""
    run = shown["outpost"]
    assert [(what, gpu) for what, gpu, _ in run["faults"] if what == STARTED_AGAIN] == [(STARTED_AGAIN, 1)]
    assert "node" in run["faults"][0][2]
    assert all("lost" in why for why in run["why"])
    assert (run["same"], run["kept"]) == (True, True)
    after = shown["after"]
    assert (after["failed"], after["faults"], after["outputs"]) == ([], [], TASKS * JOBS)
    assert (after["same"], after["gpus"], after["broken"]) == (True, True, [])


def test_a_node_that_is_lost_has_its_gpus_set_aside(shown: dict[str, Any]) -> None:
    """What was not under way there goes elsewhere."""
    run = shown["node"]
    aside = {gpu for what, gpu, _ in run["faults"] if what == SET_ASIDE}
    assert len(aside) == len({run["devices"][gpu].rpartition(" ")[2] for gpu in aside}) + 1 == 2
    assert {gpu for what, gpu, _ in run["faults"] if what == STARTED_AGAIN} == aside
    assert all(what.startswith("transfer") for what, gpu, _ in run["faults"] if gpu not in aside)  # from there
    assert (run["same"], run["kept"]) == (True, True)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("other version", " has Truenorth 9.9, this machine "),
        ("no card", "no node of the cluster has a GPU; allowed is a cluster that has, or another --device"),
        ("too many", "the scenario has 5 GPUs, the cluster of "),
        ("beside", " has most devices, 2; --beside 2 needs 3"),
        ("no runner", ": runner only_here:make: module only_here cannot be imported: No module named 'only_here'; "),
    ],
)
def test_what_cannot_serve_is_named_in_a_line(shown: dict[str, Any], what: str, said: str) -> None:
    assert said in shown[what]
    assert "node" in shown[what] or what == "too many"
    assert "\n" not in shown[what]


def test_gpus_of_a_server_share_a_node_while_that_has_devices() -> None:
    """Node a has 3 devices, b 2: the first server goes to a, the second to b, the third where one is left."""
    nodes = Nodes(None, "cpu", [RayNode("1", "a", 3), RayNode("2", "b", 2)])
    one, two, three = gpus(3, 1).gpus
    seats = nodes.seat([one, one, two, two, three, three])
    assert [(node.name, at) for node, at in seats] == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2)]
