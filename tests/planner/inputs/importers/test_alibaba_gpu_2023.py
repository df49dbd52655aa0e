"""Alibaba GPU 2023: pods run from being scheduled to being deleted, and pods that ask for the same share a model."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from tests.planner.inputs.importers.outcomes import jobs
from tests.planner.inputs.importers.small import written
from truenorth.models.scenario import InputError

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
LOG = (
    HEADER
    + """\
pod-0,12000,16384,1,1000,,LS,Running,0,100,0
pod-1,6000,12288,1,460,T4,BE,Failed,20,90,50
pod-2,6000,12288,1,460,V100M16|V100M32,LS,Succeeded,30,45,40
pod-3,6000,12288,1,460,,LS,Pending,60,70,
pod-4,32000,65536,0,0,,LS,Running,61,80,62
pod-5,88000,327680,8,1000,,Burstable,Succeeded,62,85,65
pod-6,6000,12288,1,460,,LS,Running,63,64,64
"""
)
SMALL, LARGE = "cpu6000-memory12288-gpu460", "cpu12000-memory16384-gpu1000"


def test_pods_on_one_gpu_that_ran_count_from_their_creation(tmp_path: Path) -> None:
    made = tn.import_trace("alibaba-gpu-2023:gpus=single", [written(tmp_path, LOG)])
    # Run times count from being scheduled: 100 - 0, 90 - 50 and 45 - 40 s.
    assert jobs(made) == [(0, f"{LARGE} 100 s"), (20_000_000, f"{SMALL} 40 s"), (30_000_000, f"{SMALL} 5 s")]
    assert made.tally.left_out == {"never scheduled": 1, "no GPU": 1, "several GPUs": 1, "ran for 0 s": 1}
    assert any(note == "pods that ask for kinds of GPU, and here run on any: 2" for note in made.notes)


def test_pods_on_several_gpus_can_be_split(tmp_path: Path) -> None:
    made = tn.import_trace("alibaba-gpu-2023:gpus=split,phase=succeeded", [written(tmp_path, LOG)])
    split = "cpu88000-memory327680-gpu1000 20 s x 8"
    assert jobs(made) == [(30_000_000, f"{SMALL} 5 s"), (62_000_000, split)]
    [tasks] = [workflow.tasks for workflow in made.workload.workflows if workflow.name == split]
    assert (len(tasks), {task.fastest_us for task in tasks}) == (8, {20_000_000})
    # Five pods ran or waited, but did not succeed.
    assert made.tally.left_out == {"pod_phase Running": 3, "pod_phase Failed": 1, "pod_phase Pending": 1}


def test_the_quality_of_service_can_tell_models_apart(tmp_path: Path) -> None:
    made = tn.import_trace("alibaba-gpu-2023:gpus=single,model=shape-qos", [written(tmp_path, LOG)])
    assert made.summary.model_requests == {f"{LARGE}-LS": 1, f"{SMALL}-BE": 1, f"{SMALL}-LS": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("pod-0,1,1,1,1,,LS,Running,0,100,0", "log.csv:3: name: 'pod-0' stands in an earlier row"),
        ("pod-9,1,1,1,1,,LS,Running,0,10,20", "log.csv:3: deletion_time: '10' is before scheduled_time"),
        ("pod-9,1,1,1,1,,LS,Running,30,50,20", "log.csv:3: scheduled_time: '20' is before creation_time"),
        ("pod-9,1,1,1,1,,LS,Running,-5,50,20", "log.csv:3: creation_time: '-5' is no time in range"),
        ("pod-9,1,1,1.5,1,,LS,Running,5,50,20", "log.csv:3: num_gpu: '1.5' is no whole number in range"),
        ("pod-9,x,1,1,1,,LS,Running,5,50,20", "log.csv:3: cpu_milli: 'x' is no whole number in range"),
    ],
)
def test_malformed_pods_are_refused_by_line_or_counted(tmp_path: Path, row: str, message: str) -> None:
    log = written(tmp_path, HEADER + "pod-0,12000,16384,1,1000,,LS,Running,0,100,0\n" + row + "\n")
    with pytest.raises(InputError, match=message):
        tn.import_trace("alibaba-gpu-2023:gpus=single", [log])
    made = tn.import_trace("alibaba-gpu-2023:gpus=single", [log], skip_malformed=True)
    assert (made.tally.refused.total(), jobs(made)) == (1, [(0, f"{LARGE} 100 s")])


def test_a_list_of_nodes_is_no_list_of_pods(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:1: header: has no column 'name'"):
        tn.import_trace(
            "alibaba-gpu-2023:gpus=single", [written(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,8,G3\n")]
        )
