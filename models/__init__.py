"""The world, the plan and the rules: cluster, workload, instance, timeline, checker, objectives and metrics."""

from truenorth.models.cluster import GPU, Cluster, Link, Network
from truenorth.models.feasibility import InfeasibleTimelineError, assert_feasible, check
from truenorth.models.gpu_state import IDLE, GPUState, Memory, Run
from truenorth.models.identity import scenario_hash
from truenorth.models.instance import (
    NEVER,
    NONE,
    InitialResidency,
    Instance,
    InstanceError,
    Restrictions,
    UnsupportedInstanceError,
)
from truenorth.models.metrics import Metrics, measure
from truenorth.models.objective import Objective, completion_us, objective_value, timeline_value
from truenorth.models.slo import ServiceLevel, ServiceLevels
from truenorth.models.streams import StreamClass, StreamSpeed, Tokens
from truenorth.models.timeline import Placement, Residency, ServedRequests, Timeline, Violation
from truenorth.models.workload import WHOLE, BatchClass, Edge, Job, MLModel, Mode, Task, Workflow

__all__ = [
    "GPU",
    "IDLE",
    "NEVER",
    "NONE",
    "WHOLE",
    "BatchClass",
    "Cluster",
    "Edge",
    "GPUState",
    "InfeasibleTimelineError",
    "InitialResidency",
    "Instance",
    "InstanceError",
    "Job",
    "Link",
    "MLModel",
    "Memory",
    "Metrics",
    "Mode",
    "Network",
    "Objective",
    "Placement",
    "Residency",
    "Restrictions",
    "Run",
    "ServedRequests",
    "ServiceLevel",
    "ServiceLevels",
    "StreamClass",
    "StreamSpeed",
    "Task",
    "Timeline",
    "Tokens",
    "UnsupportedInstanceError",
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
