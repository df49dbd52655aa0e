"""What can go wrong with an import besides its files."""


class WorkloadError(ValueError):
    """What was read makes no such workload; the message says what is allowed."""
