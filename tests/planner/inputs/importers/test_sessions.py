"""Sessions of a log become jobs: by hand, by what was simulated, and one line for whatever is wrong."""

from __future__ import annotations

import csv
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import truenorth as tn
from tests.night import by_day
from tests.planner.inputs.importers.test_tokens import CATALOGUE
from truenorth.models.errors import QuestionError
from truenorth.models.scenario import InputError, load_scenario, scenario_from
from truenorth.planner.inputs.importers.catalogued import Catalogued
from truenorth.planner.inputs.importers.sessions import chain
from truenorth.planner.inputs.importers.trace import Imported, import_trace

COLUMNS = ("arrived_s", "ended_s", "input_tokens", "output_tokens", "conversation", "hits")
OPTIONS = "release=arrived_s,prompt=input_tokens,output=output_tokens,unit=s"
SESSIONS = f"tokens:{OPTIONS},session=conversation,end=ended_s"


def imported(folder: Path, rows: list[tuple[Any, ...]], options: str = SESSIONS, **more: Any) -> Imported:
    log, catalogue = folder / "log.csv", folder / "catalogue.yaml"
    with log.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    catalogue.write_text(CATALOGUE)
    return import_trace(options, [log], catalogue=Catalogued.load(catalogue), **more)


ROWS: list[tuple[Any, ...]] = [
    (0, 3, 900, 100, "a", ""),
    (1, 9, 500, 50, "b", 400),
    (5, 8, 1200, 60, "a", 950),
    (6, 7, 1000, 10, "a", 100),  # while the second call runs: no later call of that job, but one of the first is gone
    (8, 9, 1300, 20, "a", 1290),  # after the second, which ended at this very time
    (12, 13, 200, 5, "", 7),
]
"""Of session a two jobs, of three calls and of one; the last row has no session."""


def test_calls_wait_for_the_one_before_by_hand(tmp_path: Path) -> None:
    made = imported(tmp_path, ROWS)
    jobs = made.scenario.instance.jobs
    assert [(job.release_us, job.workflow.name, job.delays_us) for job in jobs] == [
        (0, "chat x 3", {"call 2": 2_000_000}),
        (1_000_000, "chat x 1", None),
        (6_000_000, "chat x 1", None),
        (12_000_000, "chat x 1", None),
    ]
    assert {name: tuple(tokens) for name, tokens in (jobs[0].tokens or {}).items()} == {
        "call 1": (900, 900, 100),
        "call 2": (1200, 1200, 60),
        "call 3": (1300, 1300, 20),
    }
    assert not any(edge.hold for job in jobs for task in job.workflow.tasks for edge in task.inputs)
    said = "calls of one session and model make a job: 6 requests in 4 jobs, each after the one before it and what "
    assert f"{said}passed between them, 0 s in the median; 1 without a session are jobs by themselves" in made.notes
    assert made.as_dict()["tasks"] == 6
    assert made.as_dict()["jobs"] == 4


def test_what_the_log_says_was_cached_is_held(tmp_path: Path) -> None:
    """The second call finds 950 of the 1,000 tokens of the first, the third 1,260 of the 1,290; others have none."""
    made = imported(tmp_path, ROWS, f"{SESSIONS},cached=hits")
    first = made.scenario.instance.jobs[0]
    assert [tokens.uncached for tokens in (first.tokens or {}).values()] == [900, 250, 40]
    assert [(task.tied_to, [edge.hold for edge in task.inputs]) for task in first.workflow.tasks] == [
        (None, []),
        ("call 1", [True]),
        ("call 2", [True]),
    ]
    lost = 400 + 100 + 7 + 30
    share = (950 + 1260) / sum(int(str(row[2])) for row in ROWS)
    assert any(f"{share:.1%} of the prompt tokens, by the log; {lost} more" in note for note in made.notes)


def test_files_say_the_same_and_times_scale_with_the_rate_but_thoughts_do_not(tmp_path: Path) -> None:
    for options in (SESSIONS, f"{SESSIONS},cached=hits"):
        for factor in (1, 2):
            made = imported(tmp_path, ROWS, options, rate_factor=Fraction(factor))
            made.save(tmp_path / "made.yaml")
            read = load_scenario(tmp_path / "made.yaml").instance.jobs
            own = made.scenario.instance.jobs
            assert [(job.workflow, job.tokens, job.as_run) for job in read] == [
                (job.workflow, job.tokens, job.as_run) for job in own
            ]
            assert [job.release_us for job in read] == [at // factor for at in (0, 1_000_000, 6_000_000, 12_000_000)]
            assert own[0].delays_us == {"call 2": 2_000_000}


def test_levels_of_a_model_are_over_sessions_of_any_length(tmp_path: Path) -> None:
    log = imported(tmp_path, ROWS)
    text = CATALOGUE.replace("slo: p95 first", "slo: p95 latency of chat <= 60 s\n#")
    (tmp_path / "levels.yaml").write_text(text)
    made = import_trace(SESSIONS, list(log.files), catalogue=Catalogued.load(tmp_path / "levels.yaml"))
    assert str(made.scenario.slo) == "p95 latency of chat * <= 60 s"


@pytest.mark.parametrize("seed", by_day(range(200), 20))
def test_chains_are_as_the_rule_says(seed: int) -> None:
    rng = random.Random(seed)
    release = sorted(rng.randint(0, 40) for _ in range(rng.randint(1, 30)))
    end = [at + rng.randint(0, 15) for at in release]
    session = [rng.choice(("", "a", "b")) for _ in release]
    calls = chain(session, release, end)
    followed: set[int] = set()
    for call, before in enumerate(calls.before.tolist()):
        free = [
            other
            for other in range(call)
            if session[other] == session[call] != "" and end[other] <= release[call] and other not in followed
        ]
        if before < 0:
            assert not free
            assert calls.place[call] == calls.delay_us[call] == 0
            continue
        assert before in free
        assert end[before] == max(end[other] for other in free)
        assert (calls.job[call], calls.place[call]) == (calls.job[before], calls.place[before] + 1)
        assert calls.delay_us[call] == release[call] - end[before]
        followed.add(before)
    firsts = calls.job[calls.place == 0].tolist()
    assert firsts == list(range(len(firsts)))


def agents(rng: random.Random, hold: bool) -> dict[str, Any]:
    """Return a scenario of agents on one node, as a catalogue with their log would make it."""
    law = {
        "models": ["chat"],
        "prefill": {"H100": "8000 /s"},
        "chunk": {"H100": 2048},
        "concurrency": {"H100": 4},
        "step": {"H100": {1: "10 ms", 4: "20 ms"}},
        "kv_per_token": {"H100": "1 MB"},
    }
    flows: dict[str, Any] = {}
    for count in (1, 2, 3):
        tasks: dict[str, Any] = {"call 1": {"stream": "chat"}}
        for at in range(2, count + 1):
            tied = {"with": f"call {at - 1}"} if hold else {}
            tasks[f"call {at}"] = {
                "stream": "chat",
                "after": {f"call {at - 1}": {"bytes": "0 B", "hold": hold}},
                **tied,
            }
        flows[f"chat x {count}"] = {"tasks": tasks}
    jobs, release = [], 0
    for _ in range(12):
        release += rng.randint(1, 900)
        count, context = rng.randint(1, 3), 0
        job: dict[str, Any] = {"release": f"{release} ms", "workflow": f"chat x {count}", "tokens": {}, "delay": {}}
        for at in range(1, count + 1):
            new, output = rng.randint(1, 700), rng.randint(1, 60)
            found = rng.randint(0, context) if hold else 0
            job["tokens"][f"call {at}"] = [context + new, context + new - found, output]
            job["delay"] |= {f"call {at}": f"{rng.randint(0, 3000)} ms"} if at > 1 else {}
            context += new + output
        jobs.append(job)
    gpu = {"kind": "H100", "memory": "20 GB", "load_bandwidth": "50 GB/s"}
    return {
        "cluster": {"servers": 1, "gpu": gpu},
        "models": {"chat": {"weights": "16 GB"}},
        "streams": {"chat": law},
        "workflows": flows,
        "workload": {"jobs": jobs},
    }


@pytest.mark.parametrize(("seed", "hold"), by_day([(s, h) for s in range(30) for h in (False, True)], 6))
def test_the_log_of_a_simulation_is_that_scenario_again(seed: int, hold: bool, tmp_path: Path) -> None:
    """Arrivals, ends and tokens of every call are logged, and give back its jobs, delays and timeline."""
    given = scenario_from(agents(random.Random(seed), hold))
    ran, rows = tn.simulate(given, "least_tokens"), list[tuple[Any, ...]]()
    for job, of in enumerate(given.instance.jobs):
        came_us = of.release_us
        for at, task in enumerate(given.instance.tasks_of(job)):
            tokens, delay_us = given.instance.streams.tokens(task), (of.delays_us or {}).get(f"call {at + 1}", 0)  # type: ignore[union-attr]
            came_us = came_us if at == 0 else int(ran.timeline.end_us[task - 1]) + delay_us
            end_us = int(ran.timeline.end_us[task])
            hits = tokens.prompt - tokens.uncached
            rows.append((came_us / 1e6, end_us / 1e6, tokens.prompt, tokens.output, f"run {job}", hits))
    rows.sort()
    made = imported(tmp_path, rows, f"{SESSIONS},cached=hits" if hold else SESSIONS)
    again = made.scenario.instance.jobs
    assert [job.release_us for job in again] == [job.release_us for job in given.instance.jobs]
    assert [job.tokens for job in again] == [job.tokens for job in given.instance.jobs]
    for one, other in zip(again, given.instance.jobs, strict=True):
        calls = [[(task.name, task.inputs, task.tied_to) for task in job.as_run.tasks] for job in (one, other)]
        assert calls[0] == calls[1]
    alone = made.scenario.changed({"cluster.groups[1]": None, "cluster.groups[0].count": 1})
    assert tn.simulate(alone, "least_tokens").timeline.end_us.tolist() == ran.timeline.end_us.tolist()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="allowed are session= and end= together, and cached= with them"):
        imported(tmp_path, ROWS, f"tokens:{OPTIONS},session=conversation")
    with pytest.raises(QuestionError, match="allowed are session= and end= together, and cached= with them"):
        imported(tmp_path, ROWS, f"tokens:{OPTIONS},cached=hits")
    with pytest.raises(InputError, match="is before the request came"):
        imported(tmp_path, [(5, 3, 10, 10, "a", "")])
    with pytest.raises(QuestionError, match="is for jobs that are one request; allowed is without session="):
        imported(tmp_path, ROWS, split=True)
    with pytest.raises(QuestionError, match="ideal beside cached=COLUMN"):
        imported(tmp_path, ROWS, f"{SESSIONS},cached=hits", cache="ideal")
