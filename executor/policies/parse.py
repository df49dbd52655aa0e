"""Policies by name: ``name:key=value,key=value`` for the built-in ones, ``module:Class`` for one's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path

from executor.errors import PolicyError
from executor.policies.compass import Compass
from executor.policies.hashing import Hash
from executor.policies.heft import Heft
from executor.policies.jit import Jit
from executor.policies.released import ReleasedCompass
from executor.policies.srpt import Srpt
from executor.policies.static import Static
from executor.policy import Policy

POLICIES: Mapping[str, type[Policy]] = {
    "compass": Compass,
    "compass-released": ReleasedCompass,
    "jit": Jit,
    "srpt": Srpt,
    "heft": Heft,
    "hash": Hash,
    "static": Static,
}
"""The built-in online policies by name."""


@dataclass(frozen=True, slots=True)
class ParsedPolicy:
    """A policy as it was written: its name, its class, its options; calling it makes a fresh policy."""

    name: str
    policy: Callable[..., Policy]
    options: object | None = None

    def __call__(self) -> Policy:
        """Return a policy that no run has used yet."""
        return self.policy() if self.options is None else self.policy(self.options)


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
            f"unknown policy {name!r}{_nearest(name, policies)}; allowed are {', '.join(policies)}, module:Class"
        )
    policy = _load(name, attribute)
    return ParsedPolicy(text.strip(), policy, _options(f"{name}:{attribute}", policy, options))


def _load(module_name: str, attribute: str) -> type[Policy]:
    """Import a policy of the user's."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError, ValueError) as error:
        raise PolicyError(
            f"policy {module_name}:{attribute}: module {module_name} cannot be imported: {error}"
        ) from None
    finally:
        if added:
            sys.path.remove(here)
    policy = getattr(module, attribute, None)
    if policy is None:
        known = [name for name in vars(module) if not name.startswith("_")]
        raise PolicyError(f"policy {module_name}:{attribute}: no such class{_nearest(attribute, known)}")
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise PolicyError(f"policy {module_name}:{attribute} is no subclass of executor.Policy")
    return policy


def _options(name: str, policy: type[Policy], text: str) -> object | None:
    """Read ``key=value,key=value`` into the policy's options; None if it has none."""
    kind = getattr(policy, "Options", None)
    readers = {field.name: field.metadata["read"] for field in fields(kind)} if is_dataclass(kind) else {}
    values: dict[str, object] = {}
    for item in filter(None, text.split(",")):
        key, given, value = item.strip().partition("=")
        if key not in readers:
            allowed = ", ".join(readers) or "none"
            raise PolicyError(f"policy {name}: unknown option {key!r}{_nearest(key, readers)}; allowed are {allowed}")
        if not given or key in values:
            raise PolicyError(f"policy {name}: option {key!r} must be given once, as {key}=value")
        try:
            values[key] = readers[key](value)
        except ValueError as error:
            raise PolicyError(f"policy {name}: option {key}: {error}") from None
    return kind(**values) if isinstance(kind, type) else None


def _nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
