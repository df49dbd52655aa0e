"""One self-contained page of what other verbs found: question, answer, table, pictures, and how to repeat it."""

from truenorth.planner.show.report.page import Report, report

__all__ = ["Report", "report"]
