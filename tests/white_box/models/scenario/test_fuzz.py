"""Whatever the files hold, only an `InputError` of one line comes out."""

import atexit
import random
import shutil
import string
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.models.scenario.small import SMALL, loaded
from truenorth.models import Instance, Placement, Residency, Timeline
from truenorth.models.scenario import InputError, TimelineHeader, load_scenario, read_timeline, write_timeline
from truenorth.models.scenario.arrivals import read_trace

FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
TRACE = "time_ms,workflow,deadline_ms,weight,ingress\n0,qa,,,\n0.5,qa,800,2.5,s1\n7,qa,1e3,,0\n"
ODD = ["", "-1", "0", "nan", "inf", "1e999", "1e-999", "9" * 40, "null", "true", "[]", "{}", "*a", "&a", "!!x", "\0", "\n", '"', "'", ":", "é", "\ud83d\ude00", "0.0000001 us", "1e15 us", "s0/g0", "group 1", "qa", "opt", ",", "#", "%", "---", "\t", "\x85", "{", "["]  # noqa: E501  # fmt: skip


@cache
def folder() -> Path:
    made = mkdtemp()
    atexit.register(shutil.rmtree, made)
    return Path(made)


@cache
def small() -> Instance:
    return loaded(folder(), SMALL).instance


@cache
def plan() -> str:
    timeline = Timeline.build(4, [Placement(1, 0, 3, 4)], [Residency(0, 1, 0, 5), Residency(1, 0, 0, 0, 9, None, True)])
    write_timeline(folder() / "good.json", small(), timeline, TimelineHeader(objective="makespan", value=1.0))
    return (folder() / "good.json").read_text()


def mutated(text: str, seed: int) -> bytes:
    """Replace, drop, repeat or damage a few words, characters and bytes."""
    rng = random.Random(seed)
    for _ in range(rng.randrange(1, 4)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 1, 1, 3, 10, 60]))
        if rng.random() < 0.4:
            while end < len(text) and text[end] in string.ascii_letters + string.digits + ". ":
                end += 1
        text = text[:start] + rng.choice([*ODD, text[start:end] * 2, rng.choice(ODD) + text[start:end]]) + text[end:]
    data = text.encode(errors="replace")
    if rng.random() < 0.2:
        where = rng.randrange(len(data) + 1)
        data = data[:where] + rng.randbytes(2) + data[where + 2 :]
    return data


def only_input_errors(name: str, data: bytes, read: Callable[[Path], object]) -> None:
    path = folder() / name
    path.write_bytes(data)
    try:
        read(path)
    except InputError as refused:
        error = refused
    else:
        return
    assert str(error).isprintable()
    assert error.line is not None
    assert 1 <= error.line <= data.count(b"\n") + data.count(b"\r") + 2
    assert "allowed" in error.problem or "duplicate key" in error.problem


seeds = st.integers(0, 2**32)


@FEW
@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf")
@example(b"? ? ? ? ?")
@example(b"{" * 9999)
@example(b"- " * 9999)
@example(b"a: &a {b: &b [*a]}")
def test_random_bytes(data: bytes) -> None:
    only_input_errors("bytes.yaml", data, load_scenario)
    only_input_errors("bytes.json", data, load_scenario)
    only_input_errors("plan.json", data, lambda path: read_timeline(path, small()))
    only_input_errors("trace.csv", data, lambda path: read_trace(path, ["qa"], 2))
    only_input_errors("trace.csv", b"time_ms,workflow\n" + data, lambda path: read_trace(path, ["qa"], 2))


@FEW
@given(seeds)
def test_mutated_scenario(seed: int) -> None:
    only_input_errors("mutated.yaml", mutated(SMALL, seed), load_scenario)


@FEW
@given(seeds)
def test_mutated_trace(seed: int) -> None:
    only_input_errors("trace.csv", mutated(TRACE, seed), lambda path: read_trace(path, ["qa"], 2))


@FEW
@given(seeds)
def test_mutated_plan(seed: int) -> None:
    only_input_errors("plan.json", mutated(plan(), seed), lambda path: read_timeline(path, small()))
