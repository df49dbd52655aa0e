"""Policies by name: ``name:key=value,key=value`` for the built-in ones, ``module:Class`` for one's own.

``mine.py:Class`` names a class by its file. What goes wrong inside a user's own is told in one line that says where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import FunctionType
from typing import Any

from truenorth.executor.errors import IllegalActionError, PolicyError, PolicyFaultError
from truenorth.executor.policies.ahead import Ahead
from truenorth.executor.policies.baselines import Hash, Heft, Jit, Lru
from truenorth.executor.policies.compass import Compass, ReleasedCompass
from truenorth.executor.policies.conservative import Conservative
from truenorth.executor.policies.dally import Dally
from truenorth.executor.policies.due_queue import Clockwork, Deferred
from truenorth.executor.policies.gangs import Easy, Fifo, Qssf, Sjf
from truenorth.executor.policies.gateways import (
    GatewayOptions,
    LeastDelay,
    LeastRequests,
    LeastTokens,
    LeastWork,
    PrefixAffinity,
    RoundRobin,
)
from truenorth.executor.policies.hadar import Hadar
from truenorth.executor.policies.options import Kind, by_old_name, nearest
from truenorth.executor.policies.rltune import Rltune
from truenorth.executor.policies.srpt import Srpt
from truenorth.executor.policies.static import Static
from truenorth.executor.policies.turns import Turns
from truenorth.executor.policy import Knows, Policy
from truenorth.models import Instance
from truenorth.models.errors import UserError
from truenorth.models.stream_tables import StreamTables

POLICIES: Mapping[str, type[Policy]] = {
    "compass": Compass,
    "compass-released": ReleasedCompass,
    "jit": Jit,
    "srpt": Srpt,
    "ahead": Ahead,
    "heft": Heft,
    "hash": Hash,
    "static": Static,
    "lru": Lru,
    "dally": Dally,
    "hadar": Hadar,
    "rltune": Rltune,
    "fifo": Fifo,
    "easy": Easy,
    "conservative": Conservative,
    "sjf": Sjf,
    "qssf": Qssf,
    "clockwork": Clockwork,
    "deferred": Deferred,
    "round_robin": RoundRobin,
    "least_requests": LeastRequests,
    "least_tokens": LeastTokens,
    "least_work": LeastWork,
    "least_delay": LeastDelay,
    "prefix_affinity": PrefixAffinity,
    "turns": Turns,
}
"""The built-in online policies by name."""
WEIGHING = ("least_delay", "least_work")
"""Gateways that know how fast a node is: asked where nodes are unlike, since elsewhere they do about what others do."""
SWAPPING = "turns"
"""The gateway that swaps models rarely: asked where a node cannot hold them all."""

_KIND = Kind("policy", PolicyError)


@dataclass(frozen=True, slots=True)
class ParsedPolicy:
    """A policy as it was written, and its class; calling it makes a fresh policy.

    Parameters
    ----------
    name
        The text that was read.
    policy, options, given
        The class, its options, and what else it is made from.
    """

    name: str
    policy: type[Policy]
    options: object | None = None
    given: Mapping[str, object] = field(default_factory=dict)

    def __call__(self) -> Policy:
        """Return a policy that no run has used yet."""
        return self.policy(*([] if self.options is None else [self.options]), **self.given)

    @property
    def looks_ahead(self) -> bool:
        """Whether it knows the future, or says that it knows paths or when servers come and go."""
        return self.policy.looks_ahead(self.options) or self.policy.knows_paths or self.policy.foresees

    @property
    def knows(self) -> Knows:
        """What its decisions make of run times."""
        return Knows.FUTURE if self.looks_ahead else self.policy.knows_with(self.options)

    @property
    def uses(self) -> str:
        """The information used, in words."""
        return Knows.FUTURE.information if self.looks_ahead else self.policy.uses_with(self.options)

    @property
    def limit(self) -> int | None:
        """Most requests that a gateway lets a node serve at once; None: as many as its engine has seats."""
        return self.options.limit if isinstance(self.options, GatewayOptions) else None


def suited(instance: Instance) -> tuple[str, ...]:
    """Return the gateways that nodes ask for: who weighs step laws where these differ, and turns where models swap."""
    streams = instance.streams
    if streams is None:
        return ()
    return (*(WEIGHING if streams.unlike else ()), *((SWAPPING,) if _swaps(instance, streams) else ()))


def _swaps(instance: Instance, streams: StreamTables) -> bool:
    """Say whether some GPU has no room for the models of all classes of requests that it can serve."""
    weights = {model.name: model.weight_bytes for model in instance.models}
    for here, gpu in enumerate(instance.class_gpu):
        served = (each for each, row in zip(streams.classes, streams.speeds, strict=True) if row[here] is not None)
        if sum(weights[name] for name in {name for each in served for name in each.models}) > gpu.memory_bytes:
            return True
    return False


def parse_policy(text: str, policies: Mapping[str, type[Policy]] = POLICIES) -> ParsedPolicy:
    """Read a policy.

    Parameters
    ----------
    text
        ``compass``, ``compass:prefetch=0,period=100ms,adjust=off``, or ``module:Class`` with a subclass of
        `truenorth.executor.Policy`, importable or in the working folder, or ``mine.py:Class`` with the path of its
        file; options may follow as ``module:Class:key=value`` if the class has a frozen dataclass named ``Options``.
    policies
        The policies that have a name.

    Raises
    ------
    PolicyError
        If there is no such policy or option, or a value cannot be read; the message says what is allowed.
    """
    name, _, rest = text.strip().partition(":")
    if name in policies:
        return ParsedPolicy(text.strip(), policies[name], _options(name, policies[name], rest))
    attribute, _, options = rest.partition(":")
    if not rest or "=" in attribute:
        raise PolicyError(
            f"unknown policy {name!r}{nearest(name, policies)}; allowed are {', '.join(policies)}, module:Class"
        )
    policy = _KIND.load(name, attribute)
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise PolicyError(f"policy {name}:{attribute} is no subclass of executor.Policy{by_old_name(policy)}")
    if policy.write_back or hasattr(policy, "instance_for"):
        raise PolicyError(
            f"policy {name}:{attribute} changes the instance or its loads (instance_for, write_back); allowed are "
            "policies that run on the scenario as it stands"
        )
    own = f"{name}:{attribute}"
    written = _by_the_user(policy)
    if written and not any(isinstance(each, FunctionType) for base in written for each in vars(base).values()):
        raise PolicyError(
            f"policy {own} overrides no method of {policy.__mro__[1].__name__}; write for example `runnable`"
        )
    return ParsedPolicy(text.strip(), guarded(policy, own), _options(own, policy, options))


def _by_the_user(policy: type[Policy]) -> list[type]:
    """Return the class and those of its bases that are not Truenorth's."""
    return [base for base in policy.__mro__ if base.__module__.partition(".")[0] not in ("truenorth", "builtins")]


def _options(name: str, policy: type[Policy], text: str) -> object | None:
    return _KIND.options(name, getattr(policy, "Options", None), text)


_ABOUT = {
    "__init__": "",
    "begin": "",
    "released": "job",
    "runnable": "task",
    "finished": "task",
    "ending": "task",
    "elapsed": "task",
    "arrived": "task",
    "loaded": "model",
    "came": "",
    "went": "",
    "emptied": "",
    "act": "",
}
"""The methods that a policy may have, and what the first argument of each is a number of."""


def guarded(policy: type[Policy], name: str) -> type[Policy]:
    """Return a policy of the user's whose methods raise a PolicyError where they fail.

    It names the policy, the method, the job or task at hand, and what was raised; what a policy says for itself, as a
    PolicyError, stays as it is. What it knows of run times is not declared unless the user's own code says so.
    """
    methods = {method: _guard(getattr(policy, method), name, about) for method, about in _known(policy)}
    written = _by_the_user(policy)
    says = not written or any({"knows", "knows_with"} & vars(base).keys() for base in written)
    own = {} if says else {"knows": Knows.UNDECLARED, "uses": None}
    kept = {"__module__": policy.__module__, "__doc__": policy.__doc__}
    return type(policy.__name__, (policy,), {**kept, **methods, **own})


def _known(policy: type[Policy]) -> list[tuple[str, str]]:
    return [(method, about) for method, about in _ABOUT.items() if hasattr(policy, method)]


def _guard(method: Callable[..., Any], name: str, about: str) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Policy, *arguments: Any, **named: Any) -> Any:
        """Call the hook; what it raises becomes an error of its policy."""
        try:
            return method(self, *arguments, **named)
        except (Exception, SystemExit) as error:  # a policy that ends the process would end it without an answer
            if isinstance(error, UserError) and not isinstance(error, IllegalActionError):
                raise
            where = f"policy {name}: {method.__name__}{_subject(self, about, arguments)}"
            raise PolicyFaultError(f"{where}: {type(error).__name__}: {error}") from error

    return call


def _subject(policy: Policy, about: str, arguments: tuple[Any, ...]) -> str:
    """Return what a method was called for, by name as far as the policy's site knows it."""
    if not about or not arguments:
        return ""
    number, site = arguments[0], getattr(policy, "site", None)
    if site is None or about == "job":
        return f" of {about} {number}"
    if about == "model":
        return f" of model {site.models[number].name}"
    job = site.job[number]
    task = number - site.job_tasks[job].start
    return f" of job {job}, task {site.jobs[job].workflow.tasks[task].name} (number {number})"
