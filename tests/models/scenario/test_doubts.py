"""What a scenario may say, and hardly means."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from truenorth.models.errors import ScenarioWarning
from truenorth.models.scenario import scenario_from

GPU = {"memory": "24 GB", "load_bandwidth": "10 GB/s"}


def _scenario(task: dict[str, Any], kinds: tuple[str, ...] = ("T4", "V100"), **more: Any) -> dict[str, Any]:
    groups = [{"count": 1, "gpu": {"kind": kind, **GPU}, "gpus_per_server": 2} for kind in kinds]
    job = {"release": "0 s", "workflow": "w"}
    return {
        "cluster": {"groups": groups, "network": {"bandwidth": "10 GB/s"}},
        "workflows": {"w": {"tasks": {"t": task}}},
        "workload": {"jobs": [job]},
        **more,
    }


STREAM = {
    "prefill": "8000 /s",
    "chunk": 2048,
    "concurrency": 4,
    "step": {1: "10 ms", 4: "20 ms"},
    "kv_per_token": "1 KB",
}
REQUEST = {"stream": "chat", "prompt": 2000, "output_tokens": 9, "blocks": [1, 2]}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            _scenario({"runtime": {"T4": "2 s", "V10O": "1 s"}}),
            "scenario: workflows.w.tasks.t.runtime: the cluster has no 'V10O', and nothing is said of its 'V100', "
            "which cannot run it",
        ),
        (
            _scenario({"modes": [{"gpus": 1, "runtime": "9 s"}, {"gpus": 16, "runtime": "1 s"}]}),
            "scenario: workflows.w.tasks.t.modes[1]: the cluster has no place of 16 GPUs, so that this mode is never "
            "taken",
        ),
        (
            _scenario(REQUEST, streams={"chat": STREAM}),
            "scenario: streams: prompts list blocks, and no class has a prefix_cache, so that none is ever cached",
        ),
    ],
)
def test_what_has_no_effect_is_told(data: dict[str, Any], said: str) -> None:
    with pytest.warns(ScenarioWarning) as told:
        scenario_from(data)
    assert [str(each.message) for each in told] == [said]


@pytest.mark.parametrize(
    "data",
    [
        # A catalogue of kinds, of which the cluster has some.
        _scenario({"runtime": {"T4": "2 s", "V100": "1 s", "A100": "1 s"}}),
        _scenario({"runtime": {"*": "2 s", "A100": "1 s"}}),
        _scenario({"runtime": {"T4": "2 s"}}),
        _scenario(REQUEST, streams={"chat": STREAM | {"prefix_cache": "node", "prefix_block": 512}}),
    ],
)
def test_what_has_an_effect_is_not(data: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scenario_from(data)
