"""What can go wrong with a policy: its text, its wishes, or its silence; and with a device or a runner."""

from truenorth.models.errors import UserError


class PolicyError(UserError, ValueError):
    """A policy cannot be used: unknown, misconfigured, or unable to serve this instance."""


class PolicyFaultError(PolicyError):
    """A policy is at fault: it raised or broke a rule, and no other size or window says otherwise."""


class IllegalActionError(PolicyFaultError):
    """A policy asked for something that the rules forbid; nothing was done."""


class StalledError(PolicyError):
    """Nothing is under way and nothing will arrive, yet tasks are left: the policy never started them."""


class StoppedError(Exception):
    """A simulation was told to stop before every task had ended: time is up."""


class DeviceError(UserError, ValueError):
    """A device or a runner cannot be used as asked; the message says what is wrong and what is allowed."""
