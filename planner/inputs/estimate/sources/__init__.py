"""What a job is, read from its Python source, configurations and launch lines; nothing is executed or imported."""

from truenorth.planner.inputs.estimate.sources.description import (
    FIELDS,
    DescriptionCache,
    Evidence,
    JobDescription,
    Precision,
    Problem,
)
from truenorth.planner.inputs.estimate.sources.reading import describe

__all__ = [
    "FIELDS",
    "DescriptionCache",
    "Evidence",
    "JobDescription",
    "Precision",
    "Problem",
    "describe",
]
