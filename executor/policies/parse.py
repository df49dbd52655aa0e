"""Policies by name: ``name:key=value,key=value`` for the built-in ones, ``module:Class`` for one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from executor.errors import PolicyError
from executor.named import Kind, nearest
from executor.policies.ahead import Ahead
from executor.policies.clockwork import Clockwork
from executor.policies.compass import Compass
from executor.policies.dally import Dally
from executor.policies.deferred import Deferred
from executor.policies.hadar import Hadar
from executor.policies.hashing import Hash
from executor.policies.heft import Heft
from executor.policies.jit import Jit
from executor.policies.lru import Lru
from executor.policies.own import guarded
from executor.policies.released import ReleasedCompass
from executor.policies.rltune import Rltune
from executor.policies.srpt import Srpt
from executor.policies.static import Static
from executor.policy import Knows, Policy

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
    "clockwork": Clockwork,
    "deferred": Deferred,
}
"""The built-in online policies by name."""

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
        return Knows.FUTURE if self.looks_ahead else self.policy.knows


def parse_policy(text: str, policies: Mapping[str, type[Policy]] = POLICIES) -> ParsedPolicy:
    """Read a policy.

    Parameters
    ----------
    text
        ``compass``, ``compass:prefetch=0,period=100ms,adjust=off``, or ``module:Class`` with a subclass of
        `executor.Policy`, importable or in the working folder; options may follow it as ``module:Class:key=value``
        if the class has a frozen dataclass named ``Options``.
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
        raise PolicyError(f"policy {name}:{attribute} is no subclass of executor.Policy")
    if policy.write_back or hasattr(policy, "instance_for"):
        raise PolicyError(
            f"policy {name}:{attribute} changes the instance or its loads (instance_for, write_back); allowed are "
            "policies that run on the scenario as it stands"
        )
    own = f"{name}:{attribute}"
    return ParsedPolicy(text.strip(), guarded(policy, own), _options(own, policy, options))


def _options(name: str, policy: type[Policy], text: str) -> object | None:
    return _KIND.options(name, getattr(policy, "Options", None), text)
