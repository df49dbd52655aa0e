"""``truenorth servers`` as other tools call it: keys, files, exit codes, one line per error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import app, run
from truenorth.models.scenario import InputError

TEXT = """\
name: three
cluster:
  servers: 2
  gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}
  network: {bandwidth: 12 GB/s}
workflows:
  w: {tasks: {a: {runtime: 400 ms}}}
workload:
  jobs:
  - {release: 0 s, workflow: w, deadline: 500 ms}
  - {release: 0 s, workflow: w, deadline: 500 ms, ingress: s1}
  - {release: 0 s, workflow: w, deadline: 500 ms, weight: 0.5}
slo: no late jobs
restrictions: {forbid: [{workflow: w, on: [s1]}]}
"""
"""Server s1 is forbidden, so that three tasks of 400 ms within 500 ms need s0, s2 and s3: four servers."""

POISSON = """\
cluster:
  servers: 1
  gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}
  network: {bandwidth: 12 GB/s}
workflows:
  w: {tasks: {a: {runtime: 1 s}}}
workload:
  poisson: {rate: 1000 /s, jobs: 3, seed: 1}
slo: p100 slowdown <= 1.5
"""
"""Three jobs of 1 s arrive within milliseconds and may take 1.5 s: whatever the seed, each needs its own server."""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: object) -> tuple[int, str, str]:
        code = run(app, [str(argument) for argument in arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return called


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "three.yaml"
    path.write_text(TEXT)
    return path


def _json(call: Call, *arguments: object, code: int = 0) -> dict[str, Any]:
    found, out, _ = call("servers", *arguments, "--json", "--time-limit", "20")
    assert found == code
    document: dict[str, Any] = json.loads(out)
    return document


def test_answer_plan_and_certificate(call: Call, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    document = _json(call, file, "-o", folder, "--policies", "srpt")
    assert document["slo"] == "no late jobs"
    assert document["minimum"] == {
        "servers": 4,
        "proved": True,
        "lower_bound": 4,
        "value": 1.0,
        "plan": str(folder / "plan.json"),
    }
    reached = [{"servers": 4, "value": 1.0}]
    found = {"servers": 4, "knows": "run times", "simulated_up_to": 4, "not_simulated": 0, "reached": reached}
    assert document["policies"] == {"srpt": found | {"information_used": "run times", "closest": None}}
    assert document["refutation"]["servers"] == 3
    # s0 and s2 offer 1 s, s1 nothing, and 1.2 s are needed: the energetic bound knows that s1 is out.
    assert document["refutation"]["method"] == "energetic"
    assert document["refutation"]["recomputable"]
    code, out, _ = call("check", folder / "enough.json", folder / "plan.json", "--json")
    assert (code, json.loads(out)["valid"]) == (0, True)
    code, out, _ = call("verify", folder / "too_few.json", folder / "certificate.json", "--json")
    assert (code, json.loads(out)["valid"]) == (0, True)
    assert json.loads(out)["lower_bound"] >= 1
    answer = json.loads((folder / "answer.json").read_text())
    assert answer["minimum"]["servers"] == 4
    # What repeats it says the limit that was asked for, not what was left of it once the file was read.
    asked = "--policies srpt --time-limit 20 --workers 2 --seed 0"
    assert answer["command"] == f"truenorth servers {file} --slo 'no late jobs' {asked}"


def test_several_levels_reach_files_and_report(call: Call, tmp_path: Path) -> None:
    # Three jobs of 1 s at once, of which the one of v within 1 s: two servers leave one of w to wait until 2 s.
    # One serves v first, and those of w end at 2 and 3 s.
    path, folder = tmp_path / "two.yaml", tmp_path / "out"
    late = POISSON[: POISSON.index("workload")] + "  v: {tasks: {a: {runtime: 1 s}}}\n"
    jobs = "".join(f"  - {{release: 0 s, workflow: {name}}}\n" for name in "wvw")
    path.write_text(f"{late}workload:\n  jobs:\n{jobs}slo: [p100 latency of v <= 1 s, mean latency of w <= 1.5 s]\n")
    document = _json(call, path, "-o", folder, "--policies", "jit")
    assert document["slo"] == ["p100 latency of v <= 1 s", "mean latency of w <= 1.5 s"]
    assert (document["minimum"]["servers"], document["minimum"]["proved"]) == (2, True)
    assert document["minimum"]["value"] == [1.0, 1.5]
    answer = json.loads((folder / "answer.json").read_text())
    asked = "--slo 'p100 latency of v <= 1 s' --slo 'mean latency of w <= 1.5 s'"
    assert f"two.yaml {asked} --policies jit" in answer["command"]
    assert json.loads((folder / "enough.json").read_text())["slo"] == document["slo"]
    code, _, _ = call("report", folder, "-o", tmp_path / "page.html")
    assert code == 0
    assert "p100 latency of v in s over the number of servers" in (tmp_path / "page.html").read_text()


def test_a_certificate_is_refused_at_the_size_that_is_enough(call: Call, file: Path, tmp_path: Path) -> None:
    _json(call, file, "-o", tmp_path / "out", "--policies", "srpt")
    code, out, _ = call("verify", tmp_path / "out" / "enough.json", tmp_path / "out" / "certificate.json", "--json")
    assert (code, json.loads(out)["valid"]) == (1, False)


def test_a_maximum_that_is_too_low(call: Call, file: Path) -> None:
    document = _json(call, file, "--max", "3", "--policies", "srpt", code=1)
    assert document["minimum"] == {
        "servers": None,
        "proved": False,
        "lower_bound": 4,
        "value": None,
        "plan": None,
    }
    assert document["policies"]["srpt"]["servers"] is None


def test_replications_report_the_spread_and_what_is_enough_for_the_next(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "poisson.yaml"
    path.write_text(POISSON.replace("1000 /s", "0.1 /s"))  # one after the other, but for a hundred times the traffic
    asked = ("--rate", "100", "--policies", "hash", "--confidence", "0.5", "-o", tmp_path / "kept", "--workers", "1")
    document = _json(call, path, "--replications", "2", *asked)
    assert document["minimum"] == {"servers": 3, "lower_bound": 3, "proved": True}
    assert [one["plan"]["servers"] for one in document["replications"]] == [3, 3]
    # The larger of two, of rank 2 = 0.5 x 3 rounded up, serves the next with a probability of two thirds.
    of_two = {"least": 3, "median": 3.0, "most": 3, "found": 2, "enough": 3, "hardest": "1"}
    assert document["spread"]["plan"] == of_two


IDLE = """\
cluster:
  groups:
  - {count: 1, gpu: {kind: T4, memory: 14 GB, load_bandwidth: 10 GB/s}, price_per_hour: 1}
  - {count: 1, gpu: {kind: A10, memory: 24 GB, load_bandwidth: 10 GB/s}, price_per_hour: 3}
  network: {bandwidth: 12 GB/s}
models: {large: {weights: 20 GB}}
workflows:
  v: {tasks: {a: {models: [large], runtime: {A10: 1 s}}}}
  w:
    tasks: {a: {runtime: 1 s}, b: {runtime: 1 s, after: [a]}, c: {runtime: {A10: 1 s}, after: {a: 1 KB}},
      d: {runtime: 2 s, after: [a]}, e: {runtime: 1 s, after: [b, c, d]}}
    branches: [{probability: 0.3, tasks: [b]}, {probability: 0.4, tasks: [c]}, {probability: 0.3, tasks: [d]}]
workload:
  jobs:
  - {release: 0 s, workflow: w, path: 0}
  - {release: 9 s, workflow: w, path: 2}
slo: p100 latency <= 4 s
"""
"""No job takes v or the branch of c, which need an A10; on one T4 the jobs take 3 and 4 s."""


def test_what_no_job_takes_is_left_out_of_the_scenarios_written(call: Call, tmp_path: Path) -> None:
    path, folder = tmp_path / "idle.yaml", tmp_path / "out"
    for taken, branches in ((IDLE, [0.5, 0.5]), (IDLE.replace(", path: 2", ", path: 0"), None)):
        path.write_text(taken)
        assert _json(call, path, "-o", folder, "--policies", "jit")["minimum"]["mix"] == [1, 0]
        written = json.loads((folder / "enough.json").read_text())
        assert (list(written["workflows"]), written.get("models")) == (["w"], {})
        kept = written["workflows"]["w"].get("branches")
        assert branches == (None if kept is None else [branch["probability"] for branch in kept])
        assert [job.get("path") for job in written["workload"]["jobs"]] == ([0, 1] if branches else [None, None])
        code, out, _ = call("check", folder / "enough.json", folder / "plan.json", "--json")
        assert (code, json.loads(out)["valid"]) == (0, True)


def test_an_answer_outlives_what_cannot_be_written_beside_it(
    call: Call, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    _json(call, file, "-o", folder, "--policies", "srpt", "--max", "3", code=1)
    assert sorted(path.name for path in folder.iterdir()) == ["answer.json", "certificate.json", "too_few.json"]

    def refuse(path: Path, *_: object) -> None:
        raise InputError(str(path), None, "file", "cannot be written")

    monkeypatch.setattr("truenorth.planner.answers.servers.answer.write_scenario", refuse)
    code, out, err = call("servers", file, "-o", folder, "--policies", "srpt", "--json", "--time-limit", "20")
    assert (code, json.loads(out)["minimum"]["servers"], json.loads(out)["minimum"]["plan"]) == (2, 4, None)
    assert "enough.json: file: cannot be written" in err
    assert json.loads((folder / "answer.json").read_text())["minimum"]["servers"] == 4
    # What the earlier answer left would stand beside this one as if it belonged to it.
    assert [path.name for path in folder.iterdir()] == ["answer.json"]


def test_more_traffic_takes_more_servers(call: Call, tmp_path: Path) -> None:
    # Three jobs of 400 ms, one every 400 ms, each at once: one server, and two where they come every 200 ms.
    path, folder = tmp_path / "calm.yaml", tmp_path / "out"
    jobs = "".join(f"  - {{release: {at} ms, workflow: w, deadline: 400 ms}}\n" for at in (400, 800, 1200))
    path.write_text(TEXT[: TEXT.index("  jobs:")] + f"  jobs:\n{jobs}slo: no late jobs\n")
    asked = (path, "--policies", "srpt")
    assert _json(call, *asked)["minimum"]["servers"] == 1
    document = _json(call, *asked, "--rate", "2", "-o", folder)
    assert (document["rate"], document["minimum"]["servers"], document["minimum"]["proved"]) == (2.0, 2, True)
    written = json.loads((folder / "enough.json").read_text())
    assert [job["release"] for job in written["workload"]["jobs"]] == ["200000 us", "400000 us", "600000 us"]
    assert " --rate 2 " in json.loads((folder / "answer.json").read_text())["command"]
    assert _json(call, *asked, "--rate", "2", "--by", "300 ms")["intervals"][1]["jobs"] == 1
    assert call("report", folder, "-o", tmp_path / "page.html")[0] == 0
    assert "Requests come 2 times as fast as in the scenario." in (tmp_path / "page.html").read_text()


def test_table(call: Call, file: Path) -> None:
    code, out, _ = call("servers", file, "--policies", "srpt,hash", "--time-limit", "20")
    assert code == 0
    assert "proved" in out
    assert "Why not 3" in out
    assert "not monotone" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--slo", "quick"), "--slo: 'quick' is no service level"),
        (("--slo", "no late jobs of v"), "--slo: unknown workflow 'v'"),
        (("--policies", "plan.json"), "--policies: 'plan.json' is a file"),
        (("--policies", "nobody"), "nobody"),
        (("--rate", "fast"), "--rate: 'fast' is no number; allowed is one such as 1.5"),
        (("--rate", "0"), "--rate: 0 is out of range; allowed is 0.01 to 100"),
        (("--replications", "2"), "--replications: need poisson arrivals"),
    ],
)
def test_wrong_input_is_one_line(call: Call, file: Path, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = call("servers", file, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("truenorth: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_level_is_needed(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    path.write_text(TEXT.replace("slo: no late jobs\n", ""))
    code, _, err = call("servers", path)
    assert (code, "--slo: is missing" in err) == (2, True)


OWN = '''
from truenorth.executor import Knows, QueuePolicy

class Boom(QueuePolicy):
    def runnable(self, task, server):
        raise ValueError("boom")

class Eager(QueuePolicy):
    def runnable(self, task, server):
        self.place(task, 0)
        self.site.start(task)
        self.site.start(task)

class Same(QueuePolicy):
    """Decides as QueuePolicy does."""

class First(QueuePolicy):
    def runnable(self, task, server):
        self.place(task, self.site.eligible_gpus(task)[0])

class Blind(First):
    knows = Knows.NOTHING
'''


@pytest.mark.parametrize("policy", ["Boom", "Eager", "Same"])
@pytest.mark.parametrize("more", [(), ("--by", "1 s")])
def test_a_policy_at_fault_ends_servers_as_it_ends_simulate(
    call: Call, file: Path, tmp_path: Path, policy: str, more: tuple[str, ...]
) -> None:
    """Its error, not a policy that misses the level at every size."""
    own = tmp_path / "mine.py"
    own.write_text(OWN)
    alone = call("simulate", file, "--policy", f"{own}:{policy}")
    asked = call("servers", file, "--slo", "no late jobs", "--policies", f"{own}:{policy}", "--time-limit", "10", *more)
    assert (asked[0], asked[1], asked[2].count("\n")) == (2, "", 1)
    assert asked == alone
    assert f"policy {own}:{policy}" in asked[2]


def test_a_policy_that_does_not_say_what_it_knows_is_shown_so(call: Call, file: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(OWN)
    found = _json(call, file, "--policies", f"{own}:First,{own}:Blind,jit")["policies"]
    assert {name.removeprefix(f"{own}:"): (row["knows"], row["information_used"]) for name, row in found.items()} == {
        "First": ("not declared", "not declared"),
        "Blind": ("nothing", "none"),
        "jit": ("waits", "queue lengths"),
    }
    # All goes to one GPU, whatever the size, so that the level is met nowhere.
    closest = found[f"{own}:First"]["closest"]
    assert found[f"{own}:First"]["servers"] is None
    reached = [each["value"] for each in found[f"{own}:First"]["reached"]]
    assert closest["value"] == max(reached)
    assert closest["share_of_limit"] == pytest.approx(1 / max(reached))
