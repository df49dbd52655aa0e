"""Carry out plans and online policies, on a virtual clock or on devices; knows no solver."""

from executor.errors import DeviceError, IllegalActionError, PolicyError, StalledError, StoppedError
from executor.noise import Noise, NoiseError, NoiseSpread, parse_noise
from executor.policies.compass import twin_instance
from executor.policies.parse import POLICIES, ParsedPolicy, parse_policy
from executor.policies.queueing import QueuePolicy
from executor.policies.replay import replay
from executor.policy import Knows, Policy
from executor.simulation import instance_for, simulate
from executor.site import Site

__all__ = [
    "POLICIES",
    "DeviceError",
    "IllegalActionError",
    "Knows",
    "Noise",
    "NoiseError",
    "NoiseSpread",
    "ParsedPolicy",
    "Policy",
    "PolicyError",
    "QueuePolicy",
    "Site",
    "StalledError",
    "StoppedError",
    "instance_for",
    "parse_noise",
    "parse_policy",
    "replay",
    "simulate",
    "twin_instance",
]
