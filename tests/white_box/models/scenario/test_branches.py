"""Branches in scenario files: built, drawn, told by jobs and traces, written again, drawn as a picture, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import truenorth as tn
from truenorth.models.branches import branch_of
from truenorth.models.scenario import InputError, Scenario, load_scenario
from truenorth.models.scenario.writing import job_sections

TEXT = """\
cluster: {servers: 1, gpu: {kind: T4, memory: 10 GB, load_bandwidth: 10 GB/s}}
workflows:
  chat:
    tasks:
      ask: {runtime: 2 s}
      search: {runtime: 5 s, after: [ask]}
      answer: {runtime: 1 s, after: [ask, search]}
    branches: [{probability: 0.7, tasks: [search]}, {probability: 0.3}]
workload:
  jobs:
    - {release: 0 s, workflow: chat, path: 1}
    - {release: 1 s, workflow: chat, path: 0}
    - {release: 2 s, workflow: chat}
"""


def written(folder: Path, text: str = TEXT) -> Scenario:
    path = folder / "chat.yaml"
    path.write_text(text)
    return load_scenario(path)


def paths(scenario: Scenario) -> list[int]:
    return [branch_of(job.workflow) for job in scenario.instance.jobs]


def test_a_job_runs_the_path_that_it_names(tmp_path: Path) -> None:
    scenario = written(tmp_path)
    first, second, third = scenario.instance.jobs
    assert [task.name for task in first.workflow.tasks] == ["ask", "answer"]
    assert (first.critical_path_us, second.critical_path_us) == (3_000_000, 8_000_000)
    assert scenario.instance.catalogue[0].critical_path_us == 6_500_000
    assert third.workflow.of == scenario.instance.catalogue[0]
    assert [section.get("path") for section in job_sections(scenario.instance)] == paths(scenario)


def test_paths_are_drawn_by_seed_and_job_and_told_by_traces(tmp_path: Path) -> None:
    jobs = TEXT[TEXT.index("  jobs:") :]
    drawn = [
        paths(written(tmp_path, TEXT.replace(jobs, f"  poisson: {{rate: 1 /s, jobs: 40, seed: {s}}}\n")))
        for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 0 < sum(drawn[0]) < 40
    (tmp_path / "t.csv").write_text("time_s,workflow,path\n0,chat,1\n1,chat,0\n2,chat,\n")
    assert paths(written(tmp_path, TEXT.replace(jobs, "  trace: {file: t.csv}\n")))[:2] == [1, 0]
    (tmp_path / "t.csv").write_text("time_s,workflow,path\n0,chat,x\n")
    with pytest.raises(InputError, match=r"t\.csv:2: path: 'x' is no branch; allowed is its number, from 0"):
        written(tmp_path, TEXT.replace(jobs, "  trace: {file: t.csv}\n"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.3}", "0.2}", r"8: workflows\.chat\.branches: .* do not add up to 1; allowed are branches"),
        (
            "[search]}",
            "[serach]}",
            r"8: workflows\.chat\.branches\[0\]\.tasks\[0\]: unknown task; did you mean 'search'",
        ),
        ("path: 1", "path: 2", r"workload: job 0 takes branch 2 of chat, which has 2; allowed are numbers"),
        ("path: 1", "path: -1", r"workload\.jobs\[0\]\.path: "),
    ],
)
def test_what_is_wrong_is_blamed_on_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        written(tmp_path, TEXT.replace(old, new))


def test_the_picture_says_how_likely_tasks_are(tmp_path: Path) -> None:
    whole = written(tmp_path).instance.catalogue[0]
    words = [text.get_text() for text in tn.draw_workflow(whole).axes[0].texts]
    assert [word.endswith("0.7 of jobs") for word in words] == [False, True, False]
