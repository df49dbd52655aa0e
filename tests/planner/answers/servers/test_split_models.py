"""How many servers are enough where runs on several GPUs need models: by hand, and beside an oracle that tries all."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.command import app
from tests.night import by_day
from tests.planner.answers.servers.test_gangs import NETWORK
from tests.split_models import optimum
from truenorth.models import InstanceError, check
from truenorth.models.instance import UnsupportedInstanceError
from truenorth.models.scenario import InputError, Scenario, scenario_from
from truenorth.planner.answers.servers.answer import ServersAnswer
from truenorth.planner.answers.servers.decide import meets
from truenorth.planner.answers.servers.goal import goals
from truenorth.planner.answers.servers.sizes import Mix
from truenorth.planner.command.manners import DONE, run

MODELS = {"large": {"weights": "12 GB"}, "small": {"weights": "4 GB"}}


def written(tasks: list[dict[str, Any]], *, releases: list[int] | None = None, **cluster: Any) -> dict[str, Any]:
    """Return jobs of one task each, as in a file, on a server of two GPUs of 10 GB that load a gigabyte per second."""
    gpu = {"kind": "A", "memory": "10 GB", "load_bandwidth": "1 GB/s"}
    released = sorted(releases or [0] * len(tasks))
    return {
        "cluster": {"servers": 1, "gpus_per_server": 2, "gpu": gpu, "network": NETWORK} | cluster,
        "models": MODELS,
        "workflows": {f"w{at}": {"tasks": {"run": task}} for at, task in enumerate(tasks)},
        "workload": {"jobs": [{"release": f"{us} s", "workflow": f"w{at}"} for at, us in enumerate(released)]},
    }


def needing(model: str, run_s: int, gpus: int, **keys: Any) -> dict[str, Any]:
    """Return a task."""
    return {"models": [model], "runtime": f"{run_s} s", "gpus": gpus} | keys


def test_each_place_loads_its_own_parts(tmp_path: Path) -> None:
    """6 GB of 12 on each of two GPUs take 6 s; four runs of 5 s within 16 s are two on each of two servers."""
    path, out = tmp_path / "four.json", tmp_path / "out"
    path.write_text(json.dumps(written([needing("large", 5, 2)] * 4)))
    answer = tn.servers(path, slo="p100 latency <= 16 s", time_limit=10)
    assert (answer.servers, answer.proved) == (2, True)
    names = ("sjf", "easy", "qssf", "fifo", "compass")
    assert {name: row.mix for row in answer.policies if (name := row.policy) in names} == dict.fromkeys(names, (2,))
    asked = ["servers", str(path), "--slo", "p100 latency <= 16 s", "--time-limit", "10", "-o", str(out)]
    assert run(app, asked) == DONE
    assert run(app, ["verify", str(out / "too_few.json"), str(out / "certificate.json")]) == DONE
    assert run(app, ["check", str(out / "enough.json"), str(out / "plan.json")]) == DONE


def test_a_model_that_one_server_cannot_hold_takes_two() -> None:
    """24 GB are 12 on each of two GPUs, and 6 on each of four."""
    made = written([needing("large", 5, 4)], servers=2)
    made["models"] = {"large": {"weights": "24 GB"}}
    answer = tn.servers(scenario_from(made), slo="p100 latency <= 11 s", time_limit=10)
    assert (answer.servers, answer.proved) == (2, True)
    assert [(done.mix, done.method) for done in answer.refutations] == [((1,), "eligibility")]


def test_what_forces_a_size_names_the_parts_of_models() -> None:
    """Within 11 s a pair of GPUs loads and runs one of these; the demand of each is of parts."""
    made = written([needing("large", 5, 2), needing("small", 9, 2)])
    made["models"]["small"] = {"weights": "4 GB"}
    answer = tn.servers(scenario_from(made), slo="p100 latency <= 11 s", time_limit=10)
    assert (answer.servers, answer.proved) == (2, True)
    assert answer.refutation is not None
    assert "large/2 parts" in answer.refutation.forces


def test_limits_that_no_policy_keeps_are_refused() -> None:
    limited = written([needing("large", 5, 2)]) | {"restrictions": {"max_replicas": {"large": 1}}}
    with pytest.raises(UnsupportedInstanceError, match="how many servers has no support for limits on replicas"):
        tn.servers(scenario_from(limited), slo="p100 latency <= 16 s")


def _is_enough(answer: ServersAnswer, mix: Mix) -> bool:
    """Say whether the best plan of all, at a size, meets the levels of an answer."""
    try:
        instance = answer.sizes.at(mix).instance
    except InstanceError:
        return False
    goal = goals(instance, answer.levels)[0]
    assert goal.suffices
    return optimum(goal.instance, goal.objective) <= goal.most


def _draw_task(rng: random.Random, sizes: list[int], kinds: str) -> dict[str, Any]:
    def mode(size: int) -> dict[str, Any]:
        copies = {"weights": "copy"} if size > 1 and rng.random() < 0.3 else {}
        return {"gpus": size, "runtime": {kind: f"{rng.randint(1, 5)} s" for kind in kinds}} | copies

    chosen = rng.sample(sizes, rng.choice((1, 1, 1, min(2, len(sizes)))))
    run = mode(chosen[0]) if len(chosen) == 1 else {"modes": [mode(size) for size in chosen]}
    needed = rng.sample(["a", "b"], rng.choice((0, 1, 1, 1, 2)))
    return run | {"models": needed, "memory": rng.choice(("0 B", "0 B", "1 GB"))}


def _draw(rng: random.Random, held: int, groups: int) -> Scenario:
    """Return two jobs on servers of one or two GPUs, with places of one to four."""
    kinds, sizes = "AB"[:groups], [1, 2] if held == 1 or groups > 1 else [1, 2, 4]
    gpus = [
        {"kind": kind, "memory": f"{rng.randint(4, 8)} GB", "load_bandwidth": f"{rng.choice((1, 2))} GB/s"}
        for kind in kinds
    ]
    tasks = [_draw_task(rng, sizes, kinds) for _ in range(2)]
    made = written(tasks, releases=[rng.choice((0, 0, 2, 4)) for _ in tasks])
    priced = [{"count": 2, "gpus_per_server": 1, "gpu": gpu, "price_per_hour": rng.choice((1, 2, 3))} for gpu in gpus]
    alike = {"servers": rng.choice((1, 2)), "gpus_per_server": held, "gpu": gpus[0]}
    made["cluster"] = {"network": NETWORK} | ({"groups": priced} if groups > 1 else alike)
    made["models"] = {name: {"weights": f"{rng.randint(2, 8)} GB"} for name in "ab"}
    try:
        scenario = scenario_from(made)
    except InputError:  # a run that has room nowhere
        return _draw(rng, held, groups)
    loaded = scenario.instance.gangs and any(scenario.instance.needs)
    return scenario if loaded else _draw(rng, held, groups)


def _draw_level(rng: random.Random) -> str:
    return rng.choice(
        (
            f"mean latency <= {rng.randint(3, 9)} s",
            f"p100 latency <= {rng.randint(5, 14)} s",
            f"p60 latency <= {rng.randint(3, 9)} s",
            f"mean slowdown <= {rng.choice((1.5, 2, 3))}",
        )
    )


def _hold_against_the_oracle(answer: ServersAnswer) -> None:
    """See that nothing enough is refuted, and that what is offered has a plan within the levels."""
    slo, sizes = str(answer.levels), answer.sizes
    for done in answer.refutations:
        # What stands for every number of servers is of more than anybody asks about.
        mix = answer.largest if done.however_many else done.mix
        assert not _is_enough(answer, mix), (slo, done)
    for row in answer.policies:
        for mix, ran in row.met_at.items():
            instance = sizes.at(mix).instance
            assert check(instance, ran.timeline) == []
            assert meets(instance, ran.timeline, answer.levels)
    if answer.planned is not None and answer.timeline is not None:
        instance = sizes.at(answer.planned).instance
        assert check(instance, answer.timeline) == []
        assert meets(instance, answer.timeline, answer.levels)


@pytest.mark.parametrize("seed", by_day(range(200), 6))
def test_no_size_is_refuted_that_has_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    held = rng.choice((1, 1, 2))
    made, slo, spare = _draw(rng, held, 1), _draw_level(rng), rng.choice((0, 0, 1))
    # Of runs that take several servers none may be gone.
    spare = spare if int(made.instance.template_gpus.max()) <= held else 0
    answer = tn.servers(made, slo=slo, max=3 if held == 1 else 2, spare=spare, time_limit=3)
    _hold_against_the_oracle(answer)


@pytest.mark.parametrize("seed", by_day(range(100), 2))
def test_no_mix_of_groups_is_refuted_that_has_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    _hold_against_the_oracle(tn.servers(_draw(rng, 1, 2), slo=_draw_level(rng), max=2, time_limit=3))
