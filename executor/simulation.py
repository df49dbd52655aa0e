"""Simulate: a policy on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from executor.device import VirtualDevice
from executor.engine import Engine
from executor.errors import PolicyError
from executor.noise import Noise
from executor.policy import Policy
from models import Instance, Timeline


def simulate(instance: Instance, policy: Callable[[], Policy], seed: int = 0, noise: Noise | None = None) -> Timeline:
    """Return what a policy makes of an instance; equal arguments give equal timelines.

    Parameters
    ----------
    policy
        Makes the policy of this run: a policy's class, or what `parse_policy` or `replay` returns.
    seed
        Of the ingress servers and of the noise.
    noise
        On run times and loads; the timeline is then `realised`.

    Raises
    ------
    PolicyError
        If the policy cannot serve the instance, or misbehaves.
    """
    made = policy()
    if made.instance_for(instance) is not instance:
        raise PolicyError("this policy runs on another instance: simulate instance_for(instance, policy) instead")
    return Engine(instance, made, VirtualDevice(noise, seed), seed).run()


def instance_for(instance: Instance, policy: Callable[[], Policy]) -> Instance:
    """Return the instance on which a policy runs in place of this one.

    The same, but for ``compass-released``: see `executor.policies.released.twin_instance`. Its timelines must be
    checked and measured against that instance; tasks have the same numbers in both.
    """
    return policy().instance_for(instance)
