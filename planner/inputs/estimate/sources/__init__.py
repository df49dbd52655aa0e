"""What a job is, read from its Python source, configurations and launch lines; nothing is executed or imported."""

from planner.inputs.estimate.sources.description import (
    FIELDS,
    PRECISIONS,
    DescriptionCache,
    Evidence,
    JobDescription,
    Problem,
)
from planner.inputs.estimate.sources.reading import describe

__all__ = [
    "FIELDS",
    "PRECISIONS",
    "DescriptionCache",
    "Evidence",
    "JobDescription",
    "Problem",
    "describe",
]
