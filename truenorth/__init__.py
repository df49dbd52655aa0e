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
    from truenorth.executor.policies.queueing import QueuePolicy as QueuePolicy
    from truenorth.executor.site import Site as Site
    from truenorth.models.errors import QuestionError as QuestionError
    from truenorth.models.errors import UserError as UserError
    from truenorth.models.instance import Instance as Instance
    from truenorth.models.metrics import Metrics as Metrics
    from truenorth.models.objective import Objective as Objective
    from truenorth.models.objective import Status as Status
    from truenorth.models.scenario.build import Scenario as Scenario
    from truenorth.models.scenario.errors import InputError as InputError
    from truenorth.models.timeline import Timeline as Timeline
    from truenorth.models.violation import Violation as Violation
    from truenorth.planner.answers.bound import Bound as Bound
    from truenorth.planner.answers.bound import VerdictRecord as VerdictRecord
    from truenorth.planner.answers.check import Checked as Checked
    from truenorth.planner.answers.compare import Comparison as Comparison
    from truenorth.planner.answers.plan import Plan as Plan
    from truenorth.planner.answers.profile import Profile as Profile
    from truenorth.planner.answers.regret import Regret as Regret
    from truenorth.planner.answers.replan import replan as replan
    from truenorth.planner.answers.replay import Replayed as Replayed
    from truenorth.planner.answers.replicated_servers import Replications as Replications
    from truenorth.planner.answers.replications import Replicated as Replicated
    from truenorth.planner.answers.servers.answer import ServersAnswer as ServersAnswer
    from truenorth.planner.answers.servers.scheduled import ScheduleAnswer as ScheduleAnswer
    from truenorth.planner.answers.simulate import Simulation as Simulation
    from truenorth.planner.answers.take_apart import regret as regret
    from truenorth.planner.answers.trial import Trial as Trial
    from truenorth.planner.answers.uncertain.planning import UncertainPlan as UncertainPlan
    from truenorth.planner.answers.whatif import sweep as sweep
    from truenorth.planner.answers.whatif.result import Sweep as Sweep
    from truenorth.planner.inputs.importers.trace import Imported as Imported
    from truenorth.planner.inputs.importers.trace import import_trace as import_trace
    from truenorth.planner.show.pictures import curve as curve
    from truenorth.planner.show.pictures import heat_map as heat_map
    from truenorth.planner.show.pictures import history as history
    from truenorth.planner.show.pictures import importance as importance
    from truenorth.planner.show.pictures import parallel as parallel
    from truenorth.planner.show.report import chart as chart
    from truenorth.planner.show.report import report as report
    from truenorth.planner.show.saving import frame as frame
    from truenorth.planner.show.saving import jobs as jobs
    from truenorth.planner.show.saving import residencies as residencies
    from truenorth.planner.show.saving import save as save
    from truenorth.planner.show.saving import tasks as tasks
    from truenorth.planner.show.workflow_figure import draw_workflow as draw_workflow

_HOME = {
    "Bound": "truenorth.planner.answers.bound",
    "Checked": "truenorth.planner.answers.check",
    "Comparison": "truenorth.planner.answers.compare",
    "Imported": "truenorth.planner.inputs.importers.trace",
    "InputError": "truenorth.models.scenario.errors",
    "Instance": "truenorth.models.instance",
    "Metrics": "truenorth.models.metrics",
    "Objective": "truenorth.models.objective",
    "Plan": "truenorth.planner.answers.plan",
    "Profile": "truenorth.planner.answers.profile",
    "QuestionError": "truenorth.models.errors",
    "QueuePolicy": "truenorth.executor.policies.queueing",
    "Regret": "truenorth.planner.answers.regret",
    "Replayed": "truenorth.planner.answers.replay",
    "Replicated": "truenorth.planner.answers.replications",
    "Replications": "truenorth.planner.answers.replicated_servers",
    "Scenario": "truenorth.models.scenario.build",
    "ScheduleAnswer": "truenorth.planner.answers.servers.scheduled",
    "ServersAnswer": "truenorth.planner.answers.servers.answer",
    "Simulation": "truenorth.planner.answers.simulate",
    "Site": "truenorth.executor.site",
    "Status": "truenorth.models.objective",
    "Sweep": "truenorth.planner.answers.whatif.result",
    "Timeline": "truenorth.models.timeline",
    "Trial": "truenorth.planner.answers.trial",
    "UncertainPlan": "truenorth.planner.answers.uncertain.planning",
    "UserError": "truenorth.models.errors",
    "VerdictRecord": "truenorth.planner.answers.bound",
    "Violation": "truenorth.models.violation",
    "bound": "truenorth.calls",
    "chart": "truenorth.planner.show.report",
    "check": "truenorth.calls",
    "compare": "truenorth.calls",
    "curve": "truenorth.planner.show.pictures",
    "draw_workflow": "truenorth.planner.show.workflow_figure",
    "frame": "truenorth.planner.show.saving",
    "gantt": "truenorth.calls",
    "heat_map": "truenorth.planner.show.pictures",
    "history": "truenorth.planner.show.pictures",
    "importance": "truenorth.planner.show.pictures",
    "import_trace": "truenorth.planner.inputs.importers.trace",
    "jobs": "truenorth.planner.show.saving",
    "load": "truenorth.calls",
    "parallel": "truenorth.planner.show.pictures",
    "plan": "truenorth.calls",
    "plan_uncertain": "truenorth.calls",
    "profile": "truenorth.calls",
    "regret": "truenorth.planner.answers.take_apart",
    "replan": "truenorth.planner.answers.replan",
    "replay": "truenorth.calls",
    "replicate": "truenorth.calls",
    "replicate_servers": "truenorth.calls",
    "report": "truenorth.planner.show.report",
    "residencies": "truenorth.planner.show.saving",
    "save": "truenorth.planner.show.saving",
    "servers": "truenorth.calls",
    "servers_by": "truenorth.calls",
    "simulate": "truenorth.calls",
    "sweep": "truenorth.planner.answers.whatif",
    "tasks": "truenorth.planner.show.saving",
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
        import_module("truenorth.planner.show.notebook").register()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
