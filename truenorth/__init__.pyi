from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

import truenorth.calls as _calls
from truenorth.calls import bound as bound
from truenorth.calls import check as check
from truenorth.calls import compare as compare
from truenorth.calls import gantt as gantt
from truenorth.calls import import_trace as import_trace
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
from truenorth.models.scenario.build import Scenario as _Scenario
from truenorth.models.scenario.errors import InputError as InputError
from truenorth.models.timeline import Timeline as Timeline
from truenorth.models.timeline import Violation as Violation
from truenorth.planner.answers.bound import Bound as Bound
from truenorth.planner.answers.check import Checked as Checked
from truenorth.planner.answers.compare import Comparison as Comparison
from truenorth.planner.answers.fit import Fit as Fit
from truenorth.planner.answers.fit import fit as fit
from truenorth.planner.answers.fit_table import FittedTable as FittedTable
from truenorth.planner.answers.fit_table import fit_table as fit_table
from truenorth.planner.answers.plan import Plan as Plan
from truenorth.planner.answers.profile import Profile as Profile
from truenorth.planner.answers.regret import Regret as Regret
from truenorth.planner.answers.replan import replan as replan
from truenorth.planner.answers.replayed import Replayed as Replayed
from truenorth.planner.answers.replications import Replicated as Replicated
from truenorth.planner.answers.replications import Replications as Replications
from truenorth.planner.answers.servers.answer import ServersAnswer as ServersAnswer
from truenorth.planner.answers.servers.scheduled import ScheduleAnswer as ScheduleAnswer
from truenorth.planner.answers.simulate import Simulation as Simulation
from truenorth.planner.answers.take_apart import regret as regret
from truenorth.planner.answers.trial import Trial as Trial
from truenorth.planner.answers.uncertain.planning import UncertainPlan as UncertainPlan
from truenorth.planner.answers.verify import VerdictRecord as VerdictRecord
from truenorth.planner.answers.whatif import sweep as sweep
from truenorth.planner.answers.whatif.result import Sweep as Sweep
from truenorth.planner.inputs.importers.trace import Imported as Imported
from truenorth.planner.show.pictures import curve as curve
from truenorth.planner.show.pictures import draw_workflow as draw_workflow
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

class Scenario(_Scenario):
    """What type checkers know of a scenario: `truenorth.calls` gives it its methods."""

    @staticmethod
    def load(scenario: _calls.ScenarioGiven) -> Scenario: ...
    def changed(self, changes: Mapping[str, object]) -> Scenario: ...
    def frame(self) -> pd.DataFrame: ...
    def to_frame(self) -> pd.DataFrame: ...
    bound = bound
    check = check
    compare = compare
    plan = plan
    plan_uncertain = plan_uncertain
    profile = profile
    replay = replay
    replicate = replicate
    replicate_servers = replicate_servers
    servers = servers
    servers_by = servers_by
    simulate = simulate
    trial = trial
    verify = verify
    whatif = whatif

def load(scenario: _calls.ScenarioGiven) -> Scenario: ...
def read_csv(log: _calls.LogGiven | Sequence[_calls.LogGiven], *, format: str = "table", **asked: Any) -> Scenario: ...  # noqa: A002
