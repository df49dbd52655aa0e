"""What a job is, read from its Python source, configurations and launch lines; nothing is executed or imported."""

from planner.estimate.sources.cache import DescriptionCache
from planner.estimate.sources.description import FIELDS, PRECISIONS, Evidence, JobDescription, Problem
from planner.estimate.sources.reading import describe

__all__ = [
    "FIELDS",
    "PRECISIONS",
    "DescriptionCache",
    "Evidence",
    "JobDescription",
    "Problem",
    "describe",
]
