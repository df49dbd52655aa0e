"""Requests of streams are refused in one line, and levels on tokens where no job has any."""

from typing import Any

import pytest

import truenorth as tn
from tests.planner.answers.servers.scenarios import scenario
from truenorth.models import ServiceLevels
from truenorth.models.errors import QuestionError
from truenorth.models.instance import UnsupportedInstanceError

CHAT: dict[str, Any] = {
    "streams": {
        "chat": {"prefill": "8000 /s", "chunk": 2048, "concurrency": 4, "step": {1: "12 ms", 4: "20 ms"}},
    }
}


def test_streams_are_refused() -> None:
    task = {"stream": "chat", "prompt": 900, "output_tokens": 20}
    asked = scenario({"chat": task}, [(0, "chat", 100)], **CHAT)
    with pytest.raises(UnsupportedInstanceError, match=r"servers knows no streams"):
        tn.servers(asked, ServiceLevels.parse("p95 first token <= 2 s"))


def test_levels_on_tokens_need_requests() -> None:
    asked = scenario({"plain": {"runtime": "1 s"}}, [(0, "plain", 100)])
    with pytest.raises(QuestionError, match="no job has a request of a stream"):
        tn.servers(asked, ServiceLevels.parse("p95 first token <= 2 s"))
