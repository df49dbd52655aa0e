"""Answers about GPU inference clusters: plans, bounds, comparisons, servers, sweeps, and how to show and keep them.

>>> from truenorth.models.scenario import load_scenario
>>> from truenorth.planner import frame, simulate
>>> ran = simulate(load_scenario("experiments/scenarios/paper_small.yaml"), "srpt")
>>> ran.policy
'srpt'

Every call is loaded when it is first asked for. In a notebook answers then show themselves.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truenorth.planner.answers.bound import verify_file as verify_file
    from truenorth.planner.answers.profile import profile as profile
    from truenorth.planner.answers.questions import bound as bound
    from truenorth.planner.answers.questions import compare as compare
    from truenorth.planner.answers.questions import plan as plan
    from truenorth.planner.answers.questions import plan_uncertain as plan_uncertain
    from truenorth.planner.answers.questions import servers as servers
    from truenorth.planner.answers.replan import replan as replan
    from truenorth.planner.answers.replay import replay_on_devices as replay_on_devices
    from truenorth.planner.answers.replications import replicate as replicate
    from truenorth.planner.answers.simulate import simulate as simulate
    from truenorth.planner.answers.take_apart import regret as regret
    from truenorth.planner.answers.trial import trial as trial
    from truenorth.planner.answers.whatif import sweep as sweep
    from truenorth.planner.answers.whatif import whatif as whatif
    from truenorth.planner.inputs.importers.trace import import_trace as import_trace
    from truenorth.planner.show.frames import frame as frame
    from truenorth.planner.show.frames import jobs as jobs
    from truenorth.planner.show.frames import residencies as residencies
    from truenorth.planner.show.frames import tasks as tasks
    from truenorth.planner.show.report import report as report
    from truenorth.planner.show.saving import save as save
    from truenorth.planner.show.templates import chart as chart
    from truenorth.planner.show.workflow_figure import draw_workflow as draw_workflow

_HOME = {
    "bound": "truenorth.planner.answers.questions",
    "chart": "truenorth.planner.show.templates",
    "compare": "truenorth.planner.answers.questions",
    "draw_workflow": "truenorth.planner.show.workflow_figure",
    "frame": "truenorth.planner.show.frames",
    "import_trace": "truenorth.planner.inputs.importers.trace",
    "jobs": "truenorth.planner.show.frames",
    "plan": "truenorth.planner.answers.questions",
    "plan_uncertain": "truenorth.planner.answers.questions",
    "profile": "truenorth.planner.answers.profile",
    "regret": "truenorth.planner.answers.take_apart",
    "replan": "truenorth.planner.answers.replan",
    "replay_on_devices": "truenorth.planner.answers.replay",
    "replicate": "truenorth.planner.answers.replications",
    "report": "truenorth.planner.show.report",
    "residencies": "truenorth.planner.show.frames",
    "save": "truenorth.planner.show.saving",
    "servers": "truenorth.planner.answers.questions",
    "simulate": "truenorth.planner.answers.simulate",
    "sweep": "truenorth.planner.answers.whatif",
    "tasks": "truenorth.planner.show.frames",
    "trial": "truenorth.planner.answers.trial",
    "verify_file": "truenorth.planner.answers.bound",
    "whatif": "truenorth.planner.answers.whatif",
}
"""Where each public call lives; the same list as above, which is for type checkers."""


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'planner' has no call {name!r}; it has {', '.join(_HOME)}")
    if "IPython" in sys.modules:
        import_module("truenorth.planner.show.notebook").register()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
