"""What-if: a grid of changes to a scenario, each cell answered by a verb, in one tidy table."""

from truenorth.planner.answers.whatif.result import Counts, Sweep
from truenorth.planner.answers.whatif.run import sweep, whatif

__all__ = ["Counts", "Sweep", "sweep", "whatif"]
