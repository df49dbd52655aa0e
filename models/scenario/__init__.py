"""Scenario, plan and timeline files: read with line numbers in every error, written whole or not at all."""

from truenorth.models.scenario.build import Scenario, build, load_scenario, scenario_from
from truenorth.models.scenario.document import ScenarioDocument, json_schema
from truenorth.models.scenario.errors import InputError
from truenorth.models.scenario.files import admit, assert_writable, open_now, promise, write_atomically
from truenorth.models.scenario.plan_file import (
    PlanFile,
    TimelineHeader,
    read_timeline,
    timeline_document,
    write_timeline,
)
from truenorth.models.scenario.work import workflow_graph, workflow_section

__all__ = [
    "InputError",
    "PlanFile",
    "Scenario",
    "ScenarioDocument",
    "TimelineHeader",
    "admit",
    "assert_writable",
    "build",
    "json_schema",
    "load_scenario",
    "open_now",
    "promise",
    "read_timeline",
    "scenario_from",
    "timeline_document",
    "workflow_graph",
    "workflow_section",
    "write_atomically",
    "write_timeline",
]
