"""Spare servers: the level must hold with any of them gone, derived by hand and by proofs for every mix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.checks.nightly import compare_mixes
from experiments.random_scenarios import draw
from tests.command import app, run
from tests.white_box.planner.answers.servers.test_words import TEXT
from truenorth.planner.answers.servers.sizes import remainders


def test_any_server_may_be_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Two tasks of 400 ms at once within 500 ms take two L4, or the two H100 of one server, which run them in 200 ms.
    # One gone: of 3 L4 two are left; of 1 L4 and the H100 perhaps only the L4; of the H100 alone nothing. Two gone: of
    # all four the two that are left are two L4, or an L4 and the H100.
    path = tmp_path / "dear.yaml"
    path.write_text(TEXT)
    for spare, mix in ((1, [3, 0]), (2, [3, 1])):
        asked = [str(path), "--policies", "jit", "--spare", str(spare), "--json", "-o", str(tmp_path / "out")]
        assert run(app, ["servers", *asked]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["spare"], found["minimum"]["mix"], found["minimum"]["proved"]) == (spare, mix, True)
        assert found["policies"]["jit"]["mix"] == mix
        # Written is the plan for what is left with the dearest gone: two L4.
        files = [str(tmp_path / "out" / name) for name in ("enough.json", "plan.json")]
        assert json.loads(Path(files[0]).read_text())["cluster"]["groups"][0]["count"] == 2
        assert run(app, ["check", *files]) == 0
        capsys.readouterr()
    # Three gone leave one server: perhaps an L4 alone, which is too few.
    assert run(app, ["servers", str(path), "--policies", "jit", "--spare", "3", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["open_sizes"] == 0


def test_what_is_reached_with_a_server_gone_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Two tasks of 400 ms at once: three L4 take 400 ms, and so do the two left of them; one left of two takes 800 ms.
    path = tmp_path / "dear.yaml"
    path.write_text(TEXT.replace("p100 latency <= 500 ms", "mean latency <= 700 ms"))
    assert run(app, ["servers", str(path), "--policies", "jit", "--spare", "1"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    figures = "(at worst mean latency 0.6 s then; mean latency 0.4 s with all there)"
    assert f"2 L4 at 1.6 per hour, any one of which may be gone {figures}" in said


def test_a_server_that_may_be_gone_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pinned.yaml"
    groups = TEXT[TEXT.index("  groups") : TEXT.index("  network")]
    one = "  servers: 4\n  gpu: {kind: L4, memory: 24 GB, load_bandwidth: 12 GB/s}\n"
    path.write_text(TEXT.replace(groups, one) + "restrictions: {forbid: [{workflow: w, on: [s1]}]}\n")
    assert run(app, ["servers", str(path), "--spare", "1"]) == 2
    said = capsys.readouterr().err
    assert "restrictions or options: names servers, of which any may be gone; name groups" in said


def test_what_may_be_left_of_three_groups() -> None:
    assert set(remainders((2, 1, 0), 2)) == {(0, 1, 0), (1, 0, 0)}
    assert remainders((2, 1, 0), 0) == [(2, 1, 0)]


@pytest.mark.parametrize("spare", [0, 1])
def test_random_draws_agree_with_the_oracle_for_every_mix(spare: int) -> None:
    for seed in range(3):
        compared = next(compare_mixes(draw(seed, priced=True), 20.0, spare))
        assert compared.contradiction is None
