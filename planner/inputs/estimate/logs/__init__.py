"""How far a job is, how long it still needs and why it failed, read from its log."""

from planner.inputs.estimate.logs.causes import FailureClass
from planner.inputs.estimate.logs.failures import LogFailure
from planner.inputs.estimate.logs.marks import Rate
from planner.inputs.estimate.logs.pace import Remaining
from planner.inputs.estimate.logs.progress import Count
from planner.inputs.estimate.logs.reading import LogReading, read_log

__all__ = ["Count", "FailureClass", "LogFailure", "LogReading", "Rate", "Remaining", "read_log"]
