"""Policies and noise by text."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.executor.scripted import runs
from tests.instances import chain, cluster, instance, task
from truenorth.executor import Noise, NoiseError, NoiseSpread, PolicyError, parse_noise, parse_policy, simulate
from truenorth.executor.policies.compass import CompassOptions, ReleasedOptions
from truenorth.models import Job


def test_options_are_read() -> None:
    parsed = parse_policy("compass:prefetch=0,period=100ms,adjust=off,evict=fifo,threshold=2.5")
    assert parsed.options == CompassOptions(prefetch=0, period=100_000, adjust=False, evict="fifo", threshold=2.5)
    assert parsed.name == "compass:prefetch=0,period=100ms,adjust=off,evict=fifo,threshold=2.5"


def test_defaults_are_those_of_the_paper() -> None:
    assert parse_policy("compass").options == CompassOptions(
        period=1_000, remaining=True, lookahead=3, prefetch=1, evict="lookahead", adjust=True, threshold=1.5
    )
    assert parse_policy("compass-released").options == ReleasedOptions(adjust=False, staleness=1_000, shared=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compas", r"unknown policy 'compas' \(did you mean compass\?\); allowed are compass, compass-released, jit"),
        ("", "unknown policy ''"),
        ("compass:prefetch=x", "policy compass: option prefetch: 'x' is no whole number"),
        ("compass:prefetch=-1", "'-1' is no whole number"),
        ("compass:prefech=1", r"unknown option 'prefech' \(did you mean prefetch\?\); allowed are period, remaining"),
        ("compass:period=100", "option period: '100' is no time; allowed is a number with one of us, ms"),
        ("compass:period=-1ms", "'-1ms' is negative"),
        ("compass:adjust=maybe", "'maybe' is not on or off"),
        ("compass:evict=mru", "'mru' is not one of lookahead, lookahead-fifo, lru, fifo"),
        ("compass:threshold=nan", "'nan' is no finite number"),
        ("compass:adjust", "option 'adjust' must be given once"),
        ("compass:adjust=on,adjust=off", "option 'adjust' must be given once"),
        ("static:prefetch=1", "unknown option 'prefetch'"),
        ("no_such_module:Policy", "module no_such_module cannot be imported"),
        ("truenorth.executor:Nothing", "policy truenorth.executor:Nothing: there is no Nothing"),
        ("truenorth.executor:Site", "policy truenorth.executor:Site is no subclass of executor.Policy$"),
        ("truenorth.executor:QueuePolicyy", r"did you mean QueuePolicy\?"),
    ],
)
def test_errors_say_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_policy(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Own(executor.Policy): ...", "as it is imported now: Policy from truenorth.executor$"),
        ("from executor.nothing import Own", "executor.nothing'.* [(]import it from truenorth.executor[)]"),
    ],
)
def test_a_policy_by_the_old_name_is_told_the_new_one(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ModuleType("executor")
    old.Policy = type("Policy", (), {"__module__": "executor.policy"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "executor", old)
    name = f"old_{len(text)}"
    (tmp_path / f"{name}.py").write_text(f"import executor\n{text}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match=message):
        parse_policy(f"{name}:Own")


OWN = '''
from dataclasses import dataclass
from truenorth.executor import QueuePolicy
from truenorth.executor.policies.options import count, option

@dataclass(frozen=True)
class Options:
    first: int = option(0, count)

class Rotating(QueuePolicy):
    """Tasks go round the GPUs."""

    Options = Options

    def __init__(self, options=Options()):
        super().__init__()
        self.next = options.first

    def runnable(self, task, server):
        self.place(task, self.next % self.site.n_gpus)
        self.next += 1
'''


def test_a_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rotating_policy.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    on = instance([Job(chain(task("t", 5)), 0) for _ in range(3)], on=cluster(2))
    assert runs(simulate(on, parse_policy("my_rotating_policy:Rotating"))) == [(0, 0, 5), (1, 0, 5), (0, 5, 10)]
    shifted = parse_policy("my_rotating_policy:Rotating:first=1")
    assert runs(simulate(on, shifted)) == [(1, 0, 5), (0, 0, 5), (1, 5, 10)]
    assert str(tmp_path) not in sys.path
    with pytest.raises(PolicyError, match="allowed are first"):
        parse_policy("my_rotating_policy:Rotating:second=1")


def test_noise_is_read() -> None:
    assert parse_noise("run=lognormal:0.2,load=normal:0.1") == Noise(
        NoiseSpread("lognormal", 0.2), NoiseSpread("normal", 0.1)
    )
    assert parse_noise("load=uniform:0.5") == Noise(None, NoiseSpread("uniform", 0.5))


@pytest.mark.parametrize(
    "text", ["", "run", "run=0.2", "run=poisson:1", "run=normal:x", "run=normal:-1", "run=normal:nan", "walk=normal:1",
             "run=normal:1,run=normal:2"]
)  # fmt: skip
def test_bad_noise_is_refused(text: str) -> None:
    with pytest.raises(NoiseError):
        parse_noise(text)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("lognormal", 0.5),
        ("normal", 0.3),
        ("normal", 1),
        ("normal", 10),
        ("uniform", 0.8),
        ("uniform", 2),
        ("uniform", 10),
    ],
)
def test_noise_has_mean_one_and_never_reaches_zero(kind: str, size: float) -> None:
    # 20,000 draws: normal:10, cut at 0 and scaled, has a standard deviation of 1.4, so that the standard error of the
    # mean is at most 1 %, and 3 % are three of them. Cut and not scaled, normal:1 has mean 1.083, uniform:2 1.125.
    draws = [NoiseSpread(kind, size).draw(1_000_000, f"luck {k}") for k in range(20_000)]
    assert abs(sum(draws) / len(draws) / 1_000_000 - 1) < 0.03
    assert min(NoiseSpread("normal", 9.0).draw(3, f"luck {k}") for k in range(50)) == 1


def test_noise_falls_on_tasks_not_on_events() -> None:
    # Whatever a policy does, a task takes equally long; loads are drawn by GPU and order.
    on = instance([Job(chain(task("t", 1_000)), release) for release in range(6)], on=cluster(2))
    noise = parse_noise("run=lognormal:0.5")
    one, other = (simulate(on, parse_policy(name), 3, noise) for name in ("heft", "hash"))
    assert one.place.tolist() != other.place.tolist()
    assert (one.end_us - one.start_us).tolist() == (other.end_us - other.start_us).tolist()
    assert len(set((one.end_us - one.start_us).tolist())) == 6


WRONG = """
from truenorth.executor import Policy, QueuePolicy

class Wrong(QueuePolicy):
    def runnable(self, task, server):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("self.nothing", r"AttributeError: 'Wrong' object has no attribute 'nothing'"),
        ("self.place(task, 7)", "IllegalActionError: T1 task 1: GPU 7 is not eligible; allowed are 0, 1"),
        ("self.place(task, -1)", "IllegalActionError: T1 task 1: GPU -1 is not eligible; allowed are 0, 1"),
        ("self.place(task, 's0/g0')", "IllegalActionError: T1 task 1: GPU s0/g0 is not eligible; allowed are 0, 1"),
        ("self.site.load(-1, 0)", "IllegalActionError: R1 GPU -1: there is none; allowed are 0 to 1"),
        ("self.site.load(0, -1)", "IllegalActionError: R1 model -1: there is none; allowed are 0 to 0"),
        ("self.site.load('s0/g0', 0)", "TypeError: "),
    ],
)
def test_what_fails_in_a_policy_of_ones_own_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    # The second job's task stumbles, once the first has found its place.
    (tmp_path / "wrong_policy.py").write_text(WRONG.format(body=f"{body} if task else self.place(task, 0)"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "wrong_policy", raising=False)
    on = instance([Job(chain(task("t", 5, ["a"])), release) for release in (0, 1)], {"a": 2}, cluster(2))
    with pytest.raises(PolicyError) as caught:
        simulate(on, parse_policy("wrong_policy:Wrong"))
    where = "policy wrong_policy:Wrong: runnable of job 1, task t (number 1): "
    assert str(caught.value).startswith(where + said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "module bad_policy cannot be imported: ZeroDivisionError: division by zero"),
        (WRONG.format(body="pass"), "policy Wrong: 1 tasks were never started"),
        (
            WRONG.format(body="pass") + "    def __init__(self): pass\n",
            "policy bad_policy:Wrong: __init__: TypeError: ",
        ),
        (
            WRONG.format(body="pass") + "    def loaded(self, model, gpu): raise KeyError(model)\n"
            "    def act(self, gpus): self.site.state[0].loading < 0 and self.site.load(0, 0)\n",
            "policy bad_policy:Wrong: loaded of model a: KeyError: 0",
        ),
    ],
)
def test_what_is_wrong_with_a_module_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    (tmp_path / "bad_policy.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bad_policy", raising=False)
    on = instance([Job(chain(task("t", 5, ["a"])), 0)], {"a": 2}, cluster(1))
    with pytest.raises(PolicyError, match=said):
        simulate(on, parse_policy("bad_policy:Wrong"))
