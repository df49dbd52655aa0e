"""What can go wrong with a policy: its text, its wishes, or its silence."""


class PolicyError(ValueError):
    """A policy cannot be used: unknown, misconfigured, or unable to serve this instance."""


class IllegalActionError(PolicyError):
    """A policy asked for something that the rules forbid; nothing was done."""


class StalledError(PolicyError):
    """Nothing is under way and nothing will arrive, yet tasks are left: the policy never started them."""
