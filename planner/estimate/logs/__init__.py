"""How far a job is, how long it still needs and why it failed, read from its log."""

from planner.estimate.logs.causes import FailureClass
from planner.estimate.logs.failures import Failure
from planner.estimate.logs.marks import Rate
from planner.estimate.logs.pace import Remaining
from planner.estimate.logs.progress import Count
from planner.estimate.logs.reading import LogReading, read_log

__all__ = ["Count", "Failure", "FailureClass", "LogReading", "Rate", "Remaining", "read_log"]
