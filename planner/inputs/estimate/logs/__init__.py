"""How far a job is, how long it still needs and why it failed, read from its log."""

from truenorth.planner.inputs.estimate.logs.failures import FailureClass, LogFailure
from truenorth.planner.inputs.estimate.logs.marks import Rate
from truenorth.planner.inputs.estimate.logs.progress import Count, Remaining
from truenorth.planner.inputs.estimate.logs.reading import LogReading, read_log

__all__ = ["Count", "FailureClass", "LogFailure", "LogReading", "Rate", "Remaining", "read_log"]
