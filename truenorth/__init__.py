"""Plans, bounds and comparisons of GPU inference clusters: what a person asks, in one name.

>>> import truenorth as tn
>>> scenario = tn.load("experiments/scenarios/paper_small.yaml")
>>> tn.simulate(scenario, "srpt").policy
'srpt'

Every name is loaded when it is first asked for: this import waits for no solver. In a notebook answers show themselves.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from executor.policies.queueing import QueuePolicy as QueuePolicy
    from executor.site import Site as Site
    from models.errors import QuestionError as QuestionError
    from models.errors import UserError as UserError
    from models.instance import Instance as Instance
    from models.metrics import Metrics as Metrics
    from models.objective import Objective as Objective
    from models.scenario.build import Scenario as Scenario
    from models.scenario.errors import InputError as InputError
    from models.status import Status as Status
    from models.timeline import Timeline as Timeline
    from models.violation import Violation as Violation
    from planner.answers.bound import Bound as Bound
    from planner.answers.bound import VerdictRecord as VerdictRecord
    from planner.answers.check import Checked as Checked
    from planner.answers.compare import Comparison as Comparison
    from planner.answers.plan import Plan as Plan
    from planner.answers.profile import Profile as Profile
    from planner.answers.regret import Regret as Regret
    from planner.answers.replan import replan as replan
    from planner.answers.replay import Replayed as Replayed
    from planner.answers.replicated_servers import Replications as Replications
    from planner.answers.replications import Replicated as Replicated
    from planner.answers.servers.answer import ServersAnswer as ServersAnswer
    from planner.answers.servers.scheduled import ScheduleAnswer as ScheduleAnswer
    from planner.answers.simulate import Simulation as Simulation
    from planner.answers.take_apart import regret as regret
    from planner.answers.trial import Trial as Trial
    from planner.answers.uncertain.planning import UncertainPlan as UncertainPlan
    from planner.answers.whatif import sweep as sweep
    from planner.answers.whatif.result import Sweep as Sweep
    from planner.inputs.importers.trace import Imported as Imported
    from planner.inputs.importers.trace import import_trace as import_trace
    from planner.show.frames import frame as frame
    from planner.show.frames import jobs as jobs
    from planner.show.frames import residencies as residencies
    from planner.show.frames import tasks as tasks
    from planner.show.report import report as report
    from planner.show.saving import save as save
    from planner.show.templates import chart as chart
    from planner.show.workflow_figure import draw_workflow as draw_workflow
    from truenorth.calls import bound as bound
    from truenorth.calls import check as check
    from truenorth.calls import compare as compare
    from truenorth.calls import gantt as gantt
    from truenorth.calls import load as load
    from truenorth.calls import plan as plan
    from truenorth.calls import plan_uncertain as plan_uncertain
    from truenorth.calls import profile as profile
    from truenorth.calls import replay as replay
    from truenorth.calls import replicate as replicate
    from truenorth.calls import replicate_servers as replicate_servers
    from truenorth.calls import servers as servers
    from truenorth.calls import servers_by as servers_by
    from truenorth.calls import simulate as simulate
    from truenorth.calls import trial as trial
    from truenorth.calls import verify as verify
    from truenorth.calls import whatif as whatif

_HOME = {
    "Bound": "planner.answers.bound",
    "Checked": "planner.answers.check",
    "Comparison": "planner.answers.compare",
    "Imported": "planner.inputs.importers.trace",
    "InputError": "models.scenario.errors",
    "Instance": "models.instance",
    "Metrics": "models.metrics",
    "Objective": "models.objective",
    "Plan": "planner.answers.plan",
    "Profile": "planner.answers.profile",
    "QuestionError": "models.errors",
    "QueuePolicy": "executor.policies.queueing",
    "Regret": "planner.answers.regret",
    "Replayed": "planner.answers.replay",
    "Replicated": "planner.answers.replications",
    "Replications": "planner.answers.replicated_servers",
    "Scenario": "models.scenario.build",
    "ScheduleAnswer": "planner.answers.servers.scheduled",
    "ServersAnswer": "planner.answers.servers.answer",
    "Simulation": "planner.answers.simulate",
    "Site": "executor.site",
    "Status": "models.status",
    "Sweep": "planner.answers.whatif.result",
    "Timeline": "models.timeline",
    "Trial": "planner.answers.trial",
    "UncertainPlan": "planner.answers.uncertain.planning",
    "UserError": "models.errors",
    "VerdictRecord": "planner.answers.bound",
    "Violation": "models.violation",
    "bound": "truenorth.calls",
    "chart": "planner.show.templates",
    "check": "truenorth.calls",
    "compare": "truenorth.calls",
    "draw_workflow": "planner.show.workflow_figure",
    "frame": "planner.show.frames",
    "gantt": "truenorth.calls",
    "import_trace": "planner.inputs.importers.trace",
    "jobs": "planner.show.frames",
    "load": "truenorth.calls",
    "plan": "truenorth.calls",
    "plan_uncertain": "truenorth.calls",
    "profile": "truenorth.calls",
    "regret": "planner.answers.take_apart",
    "replan": "planner.answers.replan",
    "replay": "truenorth.calls",
    "replicate": "truenorth.calls",
    "replicate_servers": "truenorth.calls",
    "report": "planner.show.report",
    "residencies": "planner.show.frames",
    "save": "planner.show.saving",
    "servers": "truenorth.calls",
    "servers_by": "truenorth.calls",
    "simulate": "truenorth.calls",
    "sweep": "planner.answers.whatif",
    "tasks": "planner.show.frames",
    "trial": "truenorth.calls",
    "verify": "truenorth.calls",
    "whatif": "truenorth.calls",
}
"""Where each call, and the type of each answer, lives; the same list as above, which is for type checkers."""
_OF_DEVICES = {"Profile", "Replayed", "Trial"}
"""Types whose modules need PyTorch."""
__all__ = sorted(_HOME.keys() - _OF_DEVICES)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'truenorth' has no {name!r}; it has {', '.join(_HOME)}")
    if "IPython" in sys.modules:
        import_module("planner.show.notebook").register()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
