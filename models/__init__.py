"""The world, the plan and the rules: cluster, workload, instance, timeline, checker, objectives and metrics."""

from models.cluster import GPU, Cluster, Link, Network
from models.feasibility import InfeasibleTimelineError, Violation, assert_feasible, check
from models.identity import scenario_hash
from models.instance import NEVER, InitialResidency, Instance, InstanceError, Restrictions
from models.metrics import Metrics, measure
from models.objective import Objective, completion_us, objective_value, timeline_value
from models.slo import ServiceLevel
from models.timeline import Placement, Residency, Timeline
from models.workload import Edge, Job, MLModel, Task, Workflow

__all__ = [
    "GPU",
    "NEVER",
    "Cluster",
    "Edge",
    "InfeasibleTimelineError",
    "InitialResidency",
    "Instance",
    "InstanceError",
    "Job",
    "Link",
    "MLModel",
    "Metrics",
    "Network",
    "Objective",
    "Placement",
    "Residency",
    "Restrictions",
    "ServiceLevel",
    "Task",
    "Timeline",
    "Violation",
    "Workflow",
    "assert_feasible",
    "check",
    "completion_us",
    "measure",
    "objective_value",
    "scenario_hash",
    "timeline_value",
]
