"""A policy of the user's own: whatever goes wrong inside it is told in one line that says where."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from executor.errors import IllegalActionError, PolicyError
from executor.policy import Policy
from models.errors import UserError

_ABOUT = {
    "__init__": "",
    "begin": "",
    "released": "job",
    "runnable": "task",
    "finished": "task",
    "arrived": "task",
    "turned_to": "task",
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
    PolicyError, stays as it is.
    """
    methods = {method: _guard(getattr(policy, method), name, about) for method, about in _known(policy)}
    return type(policy.__name__, (policy,), {"__module__": policy.__module__, "__doc__": policy.__doc__, **methods})


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
            raise PolicyError(f"{where}: {type(error).__name__}: {error}") from error

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
