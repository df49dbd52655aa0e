"""Carry out plans and online policies, on a virtual clock or on devices; knows no solver."""

from truenorth.executor.errors import (
    DeviceError,
    IllegalActionError,
    PolicyError,
    PolicyFaultError,
    StalledError,
    StoppedError,
)
from truenorth.executor.noise import Noise, NoiseError, NoiseSpread, parse_noise
from truenorth.executor.policies.compass import twin_instance
from truenorth.executor.policies.parse import POLICIES, ParsedPolicy, parse_policy
from truenorth.executor.policies.queueing import QueuePolicy
from truenorth.executor.policies.replay import replay
from truenorth.executor.policy import Knows, Policy
from truenorth.executor.simulation import instance_for, simulate
from truenorth.executor.site import Site

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
    "PolicyFaultError",
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
