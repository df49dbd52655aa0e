"""``truenorth verify`` on hostile files: refused, or bad input in one line; never a traceback, nor more than proved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import app, run
from tests.instances import chain, instance, task
from tests.white_box.solvers.bounds.test_certificate import certified
from truenorth.models import Job, Objective
from truenorth.models.scenario import load_scenario
from truenorth.solvers.bounds import closed_form
from truenorth.solvers.bounds.certificate import closed_form_document
from truenorth.solvers.bounds.verify import verify

SCENARIO = """\
cluster:
  servers: 1
  gpu: {kind: T4, memory: 10 B, load_bandwidth: 1 MB/s}
  network: {bandwidth: 1 MB/s}
models:
  m: {weights: 4 B}
workflows:
  w: {tasks: {a: {runtime: 4 us, models: [m]}, b: {runtime: 2 us, after: [a]}}}
workload:
  jobs:
  - {release: 0 us, workflow: w, deadline: 16 us}
  - {release: 0 us, workflow: w, deadline: 16 us}
  - {release: 0 us, workflow: w, deadline: 16 us}
  - {release: 0 us, workflow: w, deadline: 16 us}
objective: """

Edit = Callable[[dict[str, Any]], object]


def _put(*path: Any) -> Edit:
    *keys, last, value = path

    def edit(document: dict[str, Any]) -> None:
        inside: Any = document
        for key in keys:
            inside = inside[key]
        inside[last] = value

    return edit


CLAIMS = [10**400, -(10**400), 1e400, float("nan"), True, "4", None, [], {"a": 1}]
ANY = [
    *(_put("lower_bound", claim) for claim in CLAIMS if claim != -(10**400)),
    _put("scenario_hash", "0" * 64),
    _put("objective", "mean"),
    _put("objective", ["late_jobs"]),
    _put("method", {}),
    _put("method", "cp-sat"),
    _put("schema_version", 2),
]
LATE = [  # the honest one: the only GPU, and the interval [0, 16], in which two of four jobs fit
    _put("lower_bound", 3),
    _put("method", "critical_path"),
    _put("method", "mean_busy_time"),
    _put("parameters", []),
    _put("parameters", {"gpu_classes": [0]}),
    _put("parameters", "gpu_classes", []),
    _put("parameters", "gpu_classes", [1]),
    _put("parameters", "gpu_classes", [[0]]),
    _put("parameters", "intervals", [[0, 16], [0, 16]]),
    _put("parameters", "intervals", [[16, 0]]),
    _put("parameters", "intervals", [[0, 10**30]]),
    _put("parameters", "intervals", [[0.0, 16]]),
    _put("parameters", "intervals", [0, 16]),
    _put("parameters", "intervals", None),
]
PRICED = [
    _put("parameters", "scale", 10**400),
    _put("parameters", "scale", 0),
    _put("parameters", "slot_us", 1 << 40),
    _put("parameters", "slot_us", 1.5),
    _put("parameters", "delays", []),
    _put("parameters", "delays", [200_000_000] * 4),
    _put("parameters", "priced_precedences", [[[0, 1]]]),
    _put("parameters", "priced_precedences", [[[[0], 1]]]),
    _put("parameters", "memory_rows", [{"gpu_class": 0, "parts": [0], "capacity": -1}]),
    _put("parameters", "model_uses", [{"model": 0, "gpu_class": 0}] * 2),
    _put("prices", "compute", [[1 << 57] * 100]),
    _put("prices", "compute", [[]]),
    _put("prices", "copy", [[-1] * 10]),
    _put("prices", {}),
]


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Objective, object], tuple[int, Any, str]]:
    def ask(objective: Objective, document: object) -> tuple[int, Any, str]:
        scenario, certificate = tmp_path / "s.yaml", tmp_path / "c.json"
        scenario.write_text(SCENARIO + objective)
        certificate.write_text(document if isinstance(document, str) else json.dumps(document))
        code = run(app, ["verify", str(scenario), str(certificate), "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else None, said.err

    return ask


def _late(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "honest.yaml"
    path.write_text(SCENARIO + Objective.LATE_JOBS)
    built = load_scenario(path).instance
    bound = closed_form.METHODS["energetic"](built, Objective.LATE_JOBS)
    assert bound == 2
    document: dict[str, Any] = closed_form_document(built, Objective.LATE_JOBS, "energetic", bound)
    return document


def _priced(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "honest.yaml"
    path.write_text(SCENARIO + Objective.MEAN_LATENCY)
    found = certified(load_scenario(path).instance, Objective.MEAN_LATENCY, steps=20)
    assert found is not None
    document: dict[str, Any] = found[0]
    return document


def test_honest_certificates_are_valid(asked: Any, tmp_path: Path) -> None:
    valid = {"valid": True, "lower_bound": 2.0, "reason": None, "how": None}
    assert asked(Objective.LATE_JOBS, _late(tmp_path))[:2] == (0, valid)
    assert asked(Objective.MEAN_LATENCY, _priced(tmp_path))[0] == 0


@pytest.mark.parametrize("edit", ANY + LATE)
def test_a_hostile_interval_is_refused(asked: Any, tmp_path: Path, edit: Edit) -> None:
    document = _late(tmp_path)
    edit(document)
    code, answer, said = asked(Objective.LATE_JOBS, document)
    assert (code, answer["valid"], said) == (1, False, "")
    assert answer["reason"]


@pytest.mark.parametrize("edit", ANY + PRICED)
def test_hostile_prices_are_refused(asked: Any, tmp_path: Path, edit: Edit) -> None:
    document = _priced(tmp_path)
    edit(document)
    code, answer, said = asked(Objective.MEAN_LATENCY, document)
    assert (code, answer["valid"], said) == (1, False, "")
    assert answer["reason"]


TWICE = '{"lower_bound": 9, "lower_bound": 1}'
UNREADABLE = ["", "[", "9" * 5000, "[" * 100_000, '{"lower_bound": ' + "9" * 5000 + "}", "\x00", TWICE]


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cannot_be_read_is_bad_input(asked: Any, text: str) -> None:
    code, answer, said = asked(Objective.LATE_JOBS, text)
    assert (code, answer) == (2, None)
    assert said.count("\n") == 1
    assert said.startswith("truenorth: error: ")


def test_a_slowdown_beyond_all_sense_proves_no_more_than_its_interval(asked: Any, tmp_path: Path) -> None:
    path = tmp_path / "honest.yaml"
    path.write_text(SCENARIO + Objective.MAX_SLOWDOWN)
    built = load_scenario(path).instance
    bound = closed_form.METHODS["energetic"](built, Objective.MAX_SLOWDOWN)
    assert bound is not None
    document = closed_form_document(built, Objective.MAX_SLOWDOWN, "energetic", bound)
    assert asked(Objective.MAX_SLOWDOWN, document)[0] == 0
    for level in ([10**59, 1], [1, 10**59]):
        document["parameters"]["level"] = level
        code, answer, _ = asked(Objective.MAX_SLOWDOWN, document)
        assert code == (0 if answer["valid"] else 1)
        assert answer["lower_bound"] <= float(bound)
    unsound: list[object] = [[1, 0], [-1, 1], ["1e999999999", 1], [10**300, 1], [1]]
    for wrong in unsound:
        document["parameters"]["level"] = wrong
        assert asked(Objective.MAX_SLOWDOWN, document)[0] == 1


def test_a_certificate_for_a_long_chain_is_verified() -> None:
    # Verifying walks from the leaves to the root without calling itself: a chain may be longer than Python's stack.
    tasks = [task(f"t{i}", 3, after={f"t{i - 1}": 0} if i else None) for i in range(700)]
    found = certified(instance([Job(chain(*tasks), 0)] * 2), Objective.MEAN_LATENCY, slot_us=50, steps=3)
    assert found is not None
    verdict = verify(instance([Job(chain(*tasks), 0)] * 2), found[0])
    assert verdict.valid
    assert verdict.lower_bound == found[1]
