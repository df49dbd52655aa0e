"""One self-contained page of what other verbs found: question, answer, table, pictures, and how to repeat it."""

from planner.report.chart import Chart
from planner.report.page import Report, report
from planner.report.timelines import Shown

__all__ = ["Chart", "Report", "Shown", "report"]
