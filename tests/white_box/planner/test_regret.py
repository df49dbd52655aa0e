"""Regret on instances small enough to solve by hand, and on random ones against the exhaustive optimum."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from io import StringIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import truenorth as tn
from tests.command import app
from tests.command import run as command
from tests.instances import chain, cluster, instance, random_instance, random_serving_instance, task
from truenorth.executor import parse_noise, parse_policy, twin_instance
from truenorth.executor import simulate as run
from truenorth.models import (
    BatchClass,
    Instance,
    Job,
    Objective,
    Placement,
    Residency,
    Task,
    Timeline,
    check,
    timeline_value,
)
from truenorth.models.scenario import InputError, Scenario
from truenorth.models.timeline import batch_leaders
from truenorth.planner.answers.regret import AS_IT_RAN, ORDER, PLACEMENT, RESIDENCY, Clairvoyance, Regret, RegretStep
from truenorth.planner.answers.take_apart import (
    hold,
    with_given_loads,
    with_placement,
    without_models,
    worth_of_clairvoyance,
)
from truenorth.planner.show.regret import losses_table, regret_bars
from truenorth.planner.show.table import terminal
from truenorth.solvers.budget import Budget
from truenorth.solvers.exact.exhaustive import solve

SECONDS = 300.0  # every instance here is proved long before, whatever else the machine does


def taken_apart(scenario: Scenario, window: Instance, timeline: Timeline) -> Regret:
    assert check(window, timeline) == []
    made = replace(scenario, instance=window, objective=Objective.MEAN_LATENCY)
    return tn.regret(made, timeline, "by hand", time_limit_s=SECONDS)


def parts(made: Regret) -> dict[str, tuple[Fraction, Fraction, Fraction]]:
    return {loss.part: (loss.lost, loss.at_least, loss.at_most) for loss in made.losses}


def exactly(value: Fraction | int) -> tuple[Fraction, Fraction, Fraction]:
    return (Fraction(value),) * 3


def evicting() -> tuple[Instance, Timeline]:
    # One GPU with room for two of the models a, b, c (5 us to load each); tasks a, b, c, a of 1 us come every 10 us.
    # The policy loads on arrival and evicts a for c, so that every job takes 5 + 1. With the window known, b and c are
    # there before they are asked for and b leaves for c: 6 + 1 + 1 + 1. The first job cannot take less than 6.
    jobs = [Job(chain(task("t", 1, [m]), name=m), release) for m, release in zip("abca", (0, 10, 20, 30), strict=True)]
    window = instance(jobs, {"a": 5, "b": 5, "c": 5})
    runs = [Placement(t, 0, release + 5, release + 6) for t, release in enumerate((0, 10, 20, 30))]
    loads = [Residency(0, 0, 0, 5, 20), Residency(1, 0, 10, 15, 30), Residency(2, 0, 20, 25), Residency(0, 0, 30, 35)]
    return window, Timeline.build(4, runs, loads)


def test_only_residency_loses(scenario: Scenario) -> None:
    made = taken_apart(scenario, *evicting())
    assert [step.value for step in made.steps] == [6, Fraction(9, 4), Fraction(9, 4), Fraction(9, 4)]
    assert parts(made) == {
        "residency": exactly(Fraction(15, 4)),
        "order": exactly(0),
        "placement": exactly(0),
        "open": exactly(0),
    }


def test_only_order_loses(scenario: Scenario) -> None:
    # Runs of 10 and 1 us at time 0 on one GPU: long first (10 + 11) / 2, short first (1 + 11) / 2.
    window = instance([Job(chain(task("t", 10), name="long"), 0), Job(chain(task("t", 1), name="short"), 0)])
    made = taken_apart(scenario, window, Timeline.build(2, [Placement(0, 0, 0, 10), Placement(1, 0, 10, 11)], []))
    assert [step.value for step in made.steps] == [Fraction(21, 2), Fraction(21, 2), 6, 6]
    assert parts(made)["order"] == exactly(Fraction(9, 2))
    assert all(step.proved for step in made.steps)


def test_only_placement_loses(scenario: Scenario) -> None:
    # Two runs of 4 us on the same of two GPUs: (4 + 8) / 2; apart 4. No order on one GPU is better than 6.
    two = Job(chain(task("t", 4)), 0)
    window = instance([two, two], on=cluster(2))
    made = taken_apart(scenario, window, Timeline.build(2, [Placement(0, 0, 0, 4), Placement(1, 0, 4, 8)], []))
    assert [step.value for step in made.steps] == [6, 6, 6, 4]
    assert parts(made)["placement"] == exactly(2)
    assert parts(made)["order"] == exactly(0)


def pairs(*releases: int) -> list[Job]:
    """Return jobs of one task each of a class that takes 4 us alone and 5 us in a batch of two."""
    two = BatchClass("pairs", {"*": {1: 4, 2: 5}})
    return [Job(chain(Task.of_class("t", two)), release) for release in releases]


@pytest.mark.parametrize(
    ("releases", "starts", "lost"),
    [
        ((0, 0), ((0, 4), (4, 8)), 1),  # one by one (4 + 8) / 2, together 5
        ((0, 1), ((1, 6), (1, 6)), 0),  # together (6 + 5) / 2, one by one (4 + 7) / 2: the same
        ((0, 3), ((3, 8), (3, 8)), 2),  # together (8 + 5) / 2, one by one (4 + 5) / 2
    ],
)
def test_only_batches_lose(
    scenario: Scenario, releases: tuple[int, ...], starts: tuple[tuple[int, int], ...], lost: int
) -> None:
    runs = [Placement(t, 0, start, end) for t, (start, end) in enumerate(starts)]
    made = taken_apart(scenario, instance(pairs(*releases)), Timeline.build(2, runs, []))
    assert parts(made) == {
        "residency": exactly(0),
        "batches": exactly(lost),
        "order": exactly(0),
        "placement": exactly(0),
        "open": exactly(0),
    }


def test_tasks_between_two_of_a_class_keep_them_apart_until_the_order_is_free(scenario: Scenario) -> None:
    # A plain task of 2 us lies between the two of the class: (4 + 6 + 10) / 3. First it, then both: (2 + 7 + 7) / 3.
    window = instance([*pairs(0), Job(chain(task("t", 2), name="plain"), 0), *pairs(0)])
    runs = [Placement(0, 0, 0, 4), Placement(1, 0, 4, 6), Placement(2, 0, 6, 10)]
    found = parts(taken_apart(scenario, window, Timeline.build(3, runs, [])))
    assert found["batches"] == exactly(0)
    assert found["order"] == exactly(Fraction(4, 3))


@pytest.mark.parametrize("seed", range(4))
def test_steps_of_windows_with_batches_are_feasible_and_keep_what_they_say(scenario: Scenario, seed: int) -> None:
    window = random_serving_instance(random.Random(seed), max_tasks=8)
    made = replace(scenario, instance=window, objective=Objective.MEAN_LATENCY)
    ran = run(window, parse_policy("jit:batch=delay:3us"))
    steps = hold(made, ran, "jit", Budget(1.0)).steps
    assert [step.part for step in steps] == ["as it ran", "residency", "batches", "order"]
    for before, after in pairwise(steps):
        assert check(window, after.timeline) == []
        assert after.value <= before.value
        assert after.timeline.place.tolist() == ran.place.tolist()
    residency, batches = (step.timeline for step in steps[1:3])
    assert (batch_leaders(window, residency) == batch_leaders(window, ran)).all()
    for timeline in (residency, batches):
        by_start = np.lexsort((timeline.start_us, ran.start_us, ran.place))
        on_one_gpu = ran.place[by_start][1:] == ran.place[by_start][:-1]
        assert (np.diff(timeline.start_us[by_start])[on_one_gpu] >= 0).all()


def test_parts_add_up_and_a_steps_bound_belongs_to_what_it_keeps(scenario: Scenario) -> None:
    # As above with runs of 8 and 2 us, the long one first on GPU 0: (8 + 10) / 2 = 9. Short first: (2 + 10) / 2 = 6.
    # Apart: (8 + 2) / 2 = 5. No schedule that keeps both on GPU 0 lies below 6, although the bound of all plans is 5.
    window = instance(
        [Job(chain(task("t", 8), name="long"), 0), Job(chain(task("t", 2), name="short"), 0)], on=cluster(2)
    )
    made = taken_apart(scenario, window, Timeline.build(2, [Placement(0, 0, 0, 8), Placement(1, 0, 8, 10)], []))
    assert [step.part for step in made.steps] == ["as it ran", "residency", "order", "placement"]
    assert [step.value for step in made.steps] == [step.lower_bound for step in made.steps] == [9, 9, 6, 5]
    assert sum(loss.lost for loss in made.losses) == made.total == 4
    assert [row.share for row in made.record.losses] == [0.0, 0.75, 0.25, 0.0]
    assert tn.frame(made)["lost"].to_dict() == {"residency": 0.0, "order": 3e-6, "placement": 1e-6, "open": 0.0}


def test_order_and_placement_are_freed_together_where_the_cluster_is_too_wide(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truenorth.planner.answers.take_apart._WIDEST", 0)
    long, short = (Job(chain(task("t", run_us), name=str(run_us)), 0) for run_us in (8, 2))
    timeline = Timeline.build(2, [Placement(0, 0, 0, 8), Placement(1, 0, 8, 10)], [])
    made = taken_apart(scenario, instance([long, short], on=cluster(2)), timeline)
    assert [step.part for step in made.steps] == ["as it ran", "residency", "order and placement"]
    assert [step.value for step in made.steps] == [9, 9, 5]


def test_a_perfect_policy_has_no_regret(scenario: Scenario) -> None:
    window = instance([Job(chain(task("t", 4)), 0)])
    made = taken_apart(scenario, window, Timeline.build(1, [Placement(0, 0, 0, 4)], []))
    assert made.total == 0
    assert [row.share for row in made.record.losses] == [None] * 4


@pytest.mark.parametrize("seed", range(10))
def test_no_step_is_worse_than_the_one_before_and_every_timeline_is_feasible(scenario: Scenario, seed: int) -> None:
    rng = random.Random(seed)
    window, objective = random_instance(rng, max_tasks=4), rng.choice(list(Objective))
    made = replace(scenario, instance=window, objective=objective)
    timeline = run(window, parse_policy(rng.choice(("hash", "jit", "compass"))))
    apart = tn.regret(made, timeline, "online", time_limit_s=4)
    assert [step.part for step in apart.steps] == ["as it ran", "residency", "order", "placement"]
    for step in apart.steps:
        assert check(window, step.timeline) == []
        assert timeline_value(objective, window, step.timeline) == step.value >= step.lower_bound >= apart.lower_bound
    for before, after in pairwise(apart.steps):
        assert before.value >= after.value
        assert before.lower_bound >= after.lower_bound
    as_ran, _, order, _ = apart.steps
    for step in apart.steps[:3]:
        assert step.timeline.place.tolist() == as_ran.timeline.place.tolist()
    best, best_there = (solve(world, objective).value for world in (window, with_placement(window, timeline.place)))
    assert best is not None
    assert best_there is not None
    assert apart.lower_bound <= best <= apart.steps[-1].value
    assert order.lower_bound <= best_there <= order.value


@pytest.mark.parametrize("seed", range(10))
def test_order_is_kept_while_only_residency_is_free(scenario: Scenario, seed: int) -> None:
    window = random_instance(random.Random(seed), max_tasks=6)
    timeline = run(window, parse_policy("hash"))
    steps = hold(replace(scenario, instance=window), timeline, "hash", Budget(0.1)).steps
    for gpu in range(window.n_gpus):
        here = [task for task in range(window.n_tasks) if timeline.place[task] == gpu]
        before, after = (sorted(here, key=lambda t: step.timeline.start_us[t]) for step in steps[:2])
        assert before == after


@pytest.mark.parametrize("draw", [random_instance, random_serving_instance])
@pytest.mark.parametrize("seed", range(20))
def test_instances_with_a_part_given_have_the_same_timelines_and_bounds(
    seed: int, draw: Callable[[random.Random, int], Instance]
) -> None:
    window = draw(random.Random(seed), 4)
    timeline = run(window, parse_policy("hash"))
    fixed = with_placement(window, timeline.place)
    assert check(fixed, timeline) == []
    assert fixed.job_critical_us.tolist() == window.job_critical_us.tolist()
    assert [fixed.eligible_gpus(task) for task in range(fixed.n_tasks)] == [[gpu] for gpu in timeline.place.tolist()]
    objective = Objective.MEAN_SLOWDOWN
    bare, free, held = (solve(world, objective).value for world in (without_models(window), window, fixed))
    assert bare is not None
    assert free is not None
    assert held is not None
    assert bare <= free <= held <= timeline_value(objective, window, timeline)


def test_the_twin_of_compass_released_is_taken_apart_as_such(scenario: Scenario) -> None:
    simulation = tn.simulate(scenario, "compass-released")
    assert simulation.timeline.realised
    made = replace(scenario, instance=simulation.instance)
    apart = tn.regret(made, simulation.timeline, "compass-released", time_limit_s=SECONDS)
    assert apart.steps[0].value == simulation.exact
    assert check(twin_instance(scenario.instance), apart.steps[-1].timeline) == []
    assert apart.steps[-1].value == apart.lower_bound == Fraction(7, 5)  # models are not shared here anyway


def test_loads_that_took_longer_start_later_and_noise_on_runs_is_refused() -> None:
    window, timeline = evicting()
    slow = replace(timeline.residencies[1], load_start_us=9)
    happened = replace(timeline, residencies=(timeline.residencies[0], slow, *timeline.residencies[2:]), realised=True)
    assert check(window, happened) == []
    made = with_given_loads(window, happened)
    assert (made.realised, made.residencies) == (False, timeline.residencies)
    noisy = run(window, parse_policy("jit"), noise=parse_noise("run=lognormal:0.5"))
    with pytest.raises(ValueError, match="other times"):
        with_given_loads(window, noisy)


def test_what_clairvoyance_is_worth(scenario: Scenario) -> None:
    # Job 1 comes at 4. With all known, m is on the other GPU by then: 1.4. Otherwise it is loaded there in [4, 8), and
    # both jobs have latency 9; waiting for GPU 0 is no better.
    assert worth_of_clairvoyance(scenario, 1.0, 0) == Clairvoyance("receding", Fraction(9, 5), Fraction(7, 5))
    assert worth_of_clairvoyance(scenario, 0.0, 0) is None


def test_compare_takes_the_best_online_policy_and_compass_apart(scenario: Scenario, tmp_path: Path) -> None:
    made = tn.compare(scenario, ["hash", "compass", "jit", "compass-released"], time_limit=SECONDS)
    online = [row.policy for row in made.rows if row.policy not in ("plan", "compass-released")]
    assert [apart.policy for apart in made.regrets] == list(dict.fromkeys([online[0], "compass"]))
    assert [row.policy for row in made.record.regret] == [apart.policy for apart in made.regrets]
    for apart in made.regrets:
        assert apart.steps[-1].value == made.plan.result.value
    assert tmp_path / "regret.png" in tn.save(made, tmp_path)


def test_bars_run_from_the_bound_to_the_policys_value(scenario: Scenario) -> None:
    made = taken_apart(scenario, *evicting())
    (axes,) = regret_bars([made]).axes
    spans = [path.get_extents() for shape in axes.collections for path in shape.get_paths()]
    assert [(round(box.x0 * 1e6, 3), round(box.x1 * 1e6, 3)) for box in spans] == [(2.25, 6.0)]
    words = [text.get_text().strip() for text in axes.texts]
    assert words[:2] == ["by hand", "6e-06 s"]
    assert words[2].startswith("3.75e-06 s (100%) residency")
    assert "knows the future" in axes.get_title(loc="left")


def test_a_schedule_that_breaks_a_rule_is_refused(scenario: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "noisy.json"
    tn.save(tn.simulate(scenario, "jit", noise="run=lognormal:0.5"), path)
    with pytest.raises(InputError, match="other times"):
        tn.bound(scenario, schedule=path, time_limit=1)


def test_bound_tells_the_regret_of_a_schedule(
    scenario_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # jit loads m for job 0 in [0, 4), as any plan must, and both jobs in GPU 0's queue (see test_compare).
    path = tmp_path / "jit.json"
    assert command(app, ["simulate", str(scenario_file), "--policy", "jit", "-o", str(path)]) == 0
    capsys.readouterr()
    assert command(app, ["bound", str(scenario_file), "--schedule", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["lower_bound"], document["regret"]["policy"]) == (1.4, "jit")
    first, last = document["regret"]["steps"][0], document["regret"]["steps"][-1]
    assert (first["free"], last["free"], last["value"], last["proved"]) == ("as it ran", "placement", 1.4, True)
    lost = sum(part["lost"] for part in document["regret"]["losses"])
    assert lost == pytest.approx(first["value"] - 1.4)
    assert command(app, ["bound", str(scenario_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["regret"] is None
    assert command(app, ["bound", str(scenario_file), "--schedule", str(path)]) == 0
    assert "everything free: the plan" in capsys.readouterr().out


def test_a_loss_that_is_only_bounded_is_shown_with_its_interval(scenario: Scenario) -> None:
    # Values 4, 3, 3, 2 and bounds 4, 1, 1, 1: residency cost 1 of 3, exactly 1 (4 - 3) to 3 (4 - 1); order 0, but up to
    # 3 - 1 = 2; placement 1, exactly 0 to 2.
    timeline = tn.simulate(scenario, "jit").timeline
    rows = ((AS_IT_RAN, 4, 4), (RESIDENCY, 3, 1), (ORDER, 3, 1), (PLACEMENT, 2, 1))
    steps = tuple(RegretStep(part, timeline, Fraction(value), Fraction(bound)) for part, value, bound in rows)
    made = Regret(scenario, "p", steps, Fraction(1), "by hand")
    text = StringIO()
    Console(file=text, width=200).print(terminal(losses_table([made.record])))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.getvalue().splitlines() if "│" in line]
    assert cells[0][2:5] == ["1  33.3%", "0  0.0%", "1  33.3%"]
    assert cells[1][2:5] == ["1 to 3", "0 to 2", "0 to 2"]
    words = "\n".join(said.get_text().strip() for axes in regret_bars([made]).axes for said in axes.texts)
    assert "1 (33%) residency: lost by its loads and evictions; exactly 1 to 3" in words
    assert "0 (0%) order: lost by the order of its tasks; exactly 0 to 2" in words
