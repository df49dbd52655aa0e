"""What can be ordered rests on no more than a gateway knows of run times, or says what it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.planner.answers.servers.scenarios import rows
from tests.white_box.planner.test_command import Command, command
from truenorth.executor import Knows, NoiseError
from truenorth.models.scenario import load_scenario
from truenorth.planner.answers.servers import ServersAnswer
from truenorth.planner.answers.servers.deployable import lead
from truenorth.planner.answers.servers.record import WorkDone
from truenorth.planner.show.servers import alternatives_table
from truenorth.planner.show.servers_words import answer_in_words, information_in_words

__all__ = ["command"]

LOG = """\
name: log
cluster:
  servers: 2
  gpu: {kind: A, memory: 10 GB, load_bandwidth: 10 GB/s}
  network: {bandwidth: 1 GB/s}
models: {m: {weights: 1 GB}}
workflows:
  short: {tasks: {run: {models: [m], runtime: 10 s}}}
  long: {tasks: {run: {models: [m], runtime: 50 s}}}
workload:
  jobs:
  - {release: 0 s, workflow: short}
  - {release: 1 s, workflow: long}
  - {release: 2 s, workflow: short}
slo: mean latency <= 40 s
"""
"""A log with a run time for each request of one model. On one server its load takes until 0.1 s; then the first runs,
until 10.1 s, when the long and the other short one wait. Shortest first: latencies of 10.1, 18.1 and 69.1 s, 32.4 in
the mean; first come, first served: 10.1, 59.1 and 68.1 s, 45.8 in the mean. On two servers jit comes to 10.1, 50.1 and
18.1 s."""


def _ask(folder: Path, policies: str, **asked: Any) -> ServersAnswer:
    path = folder / "log.yaml"
    path.write_text(LOG)
    return tn.servers(load_scenario(path), policies=policies.split(","), time_limit=60, max=2, **asked)


def test_who_knows_more_than_a_gateway_is_no_order(tmp_path: Path) -> None:
    answer = _ask(tmp_path, "srpt,jit")
    assert [(each.policy, each.knows, each.mix) for each in answer.alternatives] == [
        ("jit", Knows.WAITS, (2,)),
        ("srpt", Knows.RUN_TIMES, (1,)),
    ]
    assert answer.growth is not None
    assert answer.growth.policy == "jit"
    assert answer_in_words(answer.record()).startswith(
        "jit (information used: queue lengths) needs 2 servers "
        "(srpt (information used: run times) would do with 1 server)"
    )
    assert [row[:3] for row in rows(answer)] == [
        ("plan (offline optimum)", "clairvoyant", "1"),
        ("srpt", "run times", "1"),
        ("jit", "queue lengths", "2"),
    ]
    tn.save(answer, tmp_path / "out")
    (section,) = tn.report([tmp_path / "out"]).sections
    assert [row[:3] for row in section.tables[2].cells()] == [["jit", "queue lengths", "2"], ["srpt", "run times", "1"]]


def test_the_page_draws_what_it_recommends_and_a_series_per_policy(tmp_path: Path) -> None:
    answer = _ask(tmp_path, "srpt,jit,dally")
    # The plan, and shortest first, would do with one server; jit is ordered for, on two.
    assert (answer.mix, answer.alternatives[0].policy, answer.alternatives[0].mix) == ((1,), "jit", (2,))
    tn.save(answer, tmp_path / "out")
    (section,) = tn.report([tmp_path / "out"]).sections
    assert section.timelines is not None
    assert [gpu.id for gpu in section.timelines.instances[0].gpus] == ["s0/g0", "s1/g0"]
    assert [each.name for each in section.timelines.timelines] == ["jit on 2 servers", "plan on 1 server"]
    assert [len(instance.gpus) for instance in section.timelines.instances] == [2, 1]
    costs = section.figures[0]
    assert costs.title.startswith("What a tighter or looser limit costs")
    assert [curve.name for curve in costs.curves] == ["mean latency <= 40 s", "jit", "dally"]
    assert all(words.startswith(curve.name) for curve in costs.curves[1:] for words in curve.words)


def test_an_order_that_takes_more_knowledge_says_so(tmp_path: Path) -> None:
    words = answer_in_words(_ask(tmp_path, "srpt").record())
    assert words.startswith("srpt (information used: run times) needs 1 server")
    words = answer_in_words(_ask(tmp_path, "dally").record())
    assert words.startswith("dally (information used: none) needs 2 servers")


def test_told_means_only_shortest_first_needs_as_many_as_a_gateway(tmp_path: Path) -> None:
    answer = _ask(tmp_path, "srpt,jit", noise="told=mean")
    assert {row.policy: row.mix for row in answer.policies} == {"srpt": (2,), "jit": (2,)}
    assert (answer.mix, answer.proved) == ((1,), True)  # the plan is of the run times that hold
    assert "told mean run times only) needs 2 servers." in answer_in_words(answer.record())
    tn.save(answer, tmp_path / "out")
    (section,) = tn.report([tmp_path / "out"]).sections
    assert "--noise told=mean" in section.reproduce["command"]
    assert any("simulated under the noise told=mean" in remark for remark in section.notes)


def test_what_runs_longer_than_told_is_no_plan_of_the_window(tmp_path: Path) -> None:
    # Run times around those of the scenario: what happens is another window, at a size where the true one is refuted.
    path = tmp_path / "log.yaml"
    path.write_text(LOG.replace("<= 40 s", "<= 32 s"))  # 32.4 s is the least on one server
    answer = tn.servers(load_scenario(path), policies=["jit"], time_limit=60, max=2, noise="true=lognormal:1", seed=3)
    assert answer.mix == (2,)
    assert answer.timeline is not None
    assert not answer.timeline.realised


def test_noise_by_the_command(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "log.yaml"
    path.write_text(LOG)
    asked = ("servers", path, "--policies", "srpt", "--max", 2, "--time-limit", 20, "--noise")
    found = command.json(*asked, "told=mean")
    assert (found["noise"], found["policies"]["srpt"]["servers"]) == ("told=mean", 2)
    day = command.json(*asked, "told=mean", "--by", "60 s")
    assert day["intervals"][0]["policies"]["srpt"]["servers"] == 2
    assert "servers allows told=, true=, run= and load=" in command.error(*asked, "estimates=a.csv")
    assert "told=mean" in command.error(*asked, "told=median")


@pytest.mark.parametrize(
    ("noise", "leads"),
    [
        (None, [0, 0, 1, 2, 1]),
        ("load=normal:0.1", [0, 0, 1, 2, 1]),
        ("told=mean", [0, 0, 0, 2, 0]),
        ("run=normal:0.1", [0, 0, 0, 2, 0]),
    ],
)
def test_under_noise_on_run_times_nobody_knows_them_exactly(noise: str | None, leads: list[int]) -> None:
    assert [lead(knows, noise) for knows in Knows] == leads


def test_noise_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NoiseError, match="told=mean"):
        _ask(tmp_path, "jit", noise="told=averages")


SHARED = """\
name: shared
cluster:
  servers: 2
  gpu: {kind: A, memory: 10 GB, load_bandwidth: 10 GB/s}
  network: {bandwidth: 1 GB/s}
workflows:
  w: {tasks: {run: {batch: pair}}}
batches:
  pair: {models: [], runtime: {1: 4 s, 2: 6 s}, share: 0.25}
workload: {jobs: [{release: 0 s, workflow: w}, {release: 0 s, workflow: w}, {release: 0 s, workflow: w}]}
slo: p100 latency <= 10 s
"""


def test_work_counts_a_batch_once_with_its_share(tmp_path: Path) -> None:
    # Two of the three run together for 6 s and one for 4 s, a quarter of the GPU each: 2.5 GPU-seconds of the 6 that
    # one GPU offers until 6 s. Their run times alone would be 12 s, and the batches without the share 10 s.
    path = tmp_path / "shared.yaml"
    path.write_text(SHARED)
    found = tn.servers(load_scenario(path), policies=["jit"], time_limit=60, max=1).record()
    (best,) = found.alternatives
    assert best.work == WorkDone(2.5, 6.0)
    assert alternatives_table(found).cells()[0][-2:] == ["42%", "2.5 of 6"]


@pytest.mark.parametrize(
    ("knows", "noise", "said"),
    [
        ("nothing", "told=mean", "none"),
        ("nothing", "run=normal:0.1", "none, under run=normal:0.1"),
        ("run times", "told=lognormal:1", "run times, under told=lognormal:1"),
        ("not declared", "told=mean", "not declared, told mean run times only"),
        ("the future", "told=mean", "clairvoyant, under told=mean"),
    ],
)
def test_noise_is_said_where_it_matters(knows: str, noise: str, said: str) -> None:
    assert information_in_words(Knows(knows).information, Knows(knows), noise) == said
