"""Scenario and plan files of engines as they are measured: keys, errors, hashes, and who joined in what order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import truenorth as tn
from tests.streams.worlds import as_served
from truenorth.models import check
from truenorth.models.identity import scenario_hash
from truenorth.models.scenario import InputError, Scenario, TimelineHeader, load_scenario, read_timeline, write_timeline
from truenorth.models.streams import StreamSpeed

MEASURED = {"context": "0.03 us", "mixed": "0.3 ms", "budget": "shared", "kv": "grows", "block": 4}


def scenario(folder: Path, **keys: Any) -> Scenario:
    """Return four requests on a GPU with 20 tokens of KV."""
    stream = {
        "prefill": "1000 /s",
        "chunk": 16,
        "concurrency": 4,
        "step": {1: "1 ms", 4: "2 ms"},
        "kv_per_token": "1 KB",
    }
    document = {
        "cluster": {
            "servers": 1,
            "gpu": {"kind": "A", "memory": "20 KB", "load_bandwidth": "1 GB/s"},
            "network": {"bandwidth": "1 GB/s"},
        },
        "streams": {"chat": stream | keys},
        "workflows": {"chat": {"tasks": {"answer": {"stream": "chat", "prompt": 5, "output_tokens": 9}}}},
        "workload": {"jobs": [{"release": f"{at} ms", "workflow": "chat"} for at in (0, 0, 1, 2)]},
    }
    path = folder / "chat.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_scenario(path)


def speed_of(made: Scenario) -> StreamSpeed:
    assert made.instance.streams is not None
    speed = made.instance.streams.speeds[0][0]
    assert speed is not None
    return speed


def test_keys_for_every_kind_or_per_kind(tmp_path: Path) -> None:
    speed = speed_of(scenario(tmp_path, **MEASURED))
    assert (speed.context_ps, speed.mixed_us, speed.shared, speed.block) == (30_000, 300, True, 4)
    per_kind = {key: {"A": value, "B": value} for key, value in MEASURED.items()}
    kinds = {key: {"A": value, "B": value} for key, value in {"chunk": 16, "concurrency": 4}.items()}
    assert speed_of(scenario(tmp_path, **per_kind, **kinds)).content == speed.content


def test_a_tie_to_nobody_names_the_key_and_who_there_is(tmp_path: Path) -> None:
    scenario(tmp_path)
    path = tmp_path / "chat.yaml"
    document = yaml.safe_load(path.read_text())
    again = {"stream": "chat", "prompt": 5, "output_tokens": 9, "after": ["answer"], "with": "anser"}
    document["workflows"]["chat"]["tasks"]["again"] = again
    path.write_text(yaml.safe_dump(document))
    named = "workflows.chat.tasks.again.with: unknown task 'anser'; did you mean 'answer'?"
    with pytest.raises(InputError, match=re.escape(named)):
        load_scenario(path)


FITTED = {"log": "run.jsonl", "requests": 300, "mean_error": 0.012, "p95_error": 0.0}


def test_what_a_law_was_fitted_to_is_kept_beside_it_and_not_in_the_hash(tmp_path: Path) -> None:
    made = scenario(tmp_path, fitted=FITTED)
    kinds = {key: {"A": value, "B": value} for key, value in {"chunk": 16, "concurrency": 4}.items()}
    of_a = scenario(tmp_path, **kinds, fitted={"A": FITTED})
    streams = (each.instance.streams for each in (made, of_a, scenario(tmp_path)))
    said = [[str(law) for law in tables.fitted] for tables in streams if tables is not None]
    far = "(300 requests): fitted to the earlier half alone, means are off by at most 1.2%, p95 by at most 0.0% over"
    assert said == [
        [f"The step law of chat is fitted to run.jsonl {far} the whole log"],
        [f"The step law of chat on A is fitted to run.jsonl {far} the whole log"],
        [],
    ]
    assert scenario_hash(made.instance) == scenario_hash(scenario(tmp_path).instance)
    with pytest.raises(InputError, match=r"chat.yaml:\d+: streams.chat.fitted: unknown kind 'C'; allowed are A, B"):
        scenario(tmp_path, **kinds, fitted={"C": FITTED})


def test_defaults_are_not_in_the_hash(tmp_path: Path) -> None:
    plain = scenario_hash(scenario(tmp_path).instance)
    defaults = {"context": "0 us", "mixed": "0 us", "budget": "separate", "kv": "reserved", "block": 4}
    assert scenario_hash(scenario(tmp_path, **defaults).instance) == plain
    hashes = {scenario_hash(scenario(tmp_path, **{key: MEASURED[key]}).instance) for key in MEASURED if key != "block"}
    assert len(hashes | {plain}) == 5


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kv": "grow"}, "'grow' is unknown; allowed are reserved, grows"),
        ({"budget": True}, "is unknown; allowed are separate, shared"),
        ({"budget": "shared", "chunk": 4}, "allowed is a chunk above the concurrency where the budget is shared"),
        ({"context": "2 ms"}, "is out of range"),
        ({"context": "3"}, "is no time"),
        ({"contxt": "3 us"}, "did you mean 'context'"),
    ],
)
def test_errors_say_what_is_allowed(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scenario(tmp_path, **keys)


def test_a_request_fits_if_all_but_its_last_token_do(tmp_path: Path) -> None:
    """5 + 9 - 1 tokens are 4 blocks of 4; with blocks of 13 one holds them, with 21 KB and more none of 22."""
    assert speed_of(scenario(tmp_path, kv="grows", block=13)).block == 13
    with pytest.raises(InputError, match="fit no GPU"):
        scenario(tmp_path, kv="grows", block=21)


def test_a_file_keeps_the_order_in_which_requests_joined(tmp_path: Path) -> None:
    made = scenario(tmp_path, **MEASURED)
    found = tn.simulate(made, "round_robin")
    assert found.metrics.preemptions > 0  # type: ignore[attr-defined]
    path = tmp_path / "timeline.json"
    write_timeline(path, made.instance, found.timeline, TimelineHeader())
    read = read_timeline(path, made.instance).timeline
    assert check(made.instance, read) == []
    assert as_served(read) == as_served(found.timeline)
    assert read.served is not None
    assert read.served.order is not None
    assert read.served.order.tolist() == [0, 1, 2, 3]
    # Without the new keys a file does not say it.
    plain = scenario(tmp_path)
    write_timeline(path, plain.instance, tn.simulate(plain, "round_robin").timeline, TimelineHeader())
    assert "order" not in path.read_text()
