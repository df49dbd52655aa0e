"""Answers about GPU inference clusters: plans, bounds, comparisons, servers, sweeps, and how to show and keep them.

>>> from models.scenario import load_scenario
>>> from planner import frame, simulate
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
    from planner.answers.bound import verify_file as verify_file
    from planner.answers.profile import profile as profile
    from planner.answers.questions import bound as bound
    from planner.answers.questions import compare as compare
    from planner.answers.questions import plan as plan
    from planner.answers.questions import plan_uncertain as plan_uncertain
    from planner.answers.questions import servers as servers
    from planner.answers.replan import replan as replan
    from planner.answers.replay import replay_on_devices as replay_on_devices
    from planner.answers.replications import replicate as replicate
    from planner.answers.simulate import simulate as simulate
    from planner.answers.take_apart import regret as regret
    from planner.answers.trial import trial as trial
    from planner.answers.whatif import sweep as sweep
    from planner.answers.whatif import whatif as whatif
    from planner.inputs.importers.trace import import_trace as import_trace
    from planner.show.frames import frame as frame
    from planner.show.frames import jobs as jobs
    from planner.show.frames import residencies as residencies
    from planner.show.frames import tasks as tasks
    from planner.show.report import report as report
    from planner.show.saving import save as save
    from planner.show.templates import chart as chart
    from planner.show.workflow_figure import draw_workflow as draw_workflow

_HOME = {
    "bound": "planner.answers.questions",
    "chart": "planner.show.templates",
    "compare": "planner.answers.questions",
    "draw_workflow": "planner.show.workflow_figure",
    "frame": "planner.show.frames",
    "import_trace": "planner.inputs.importers.trace",
    "jobs": "planner.show.frames",
    "plan": "planner.answers.questions",
    "plan_uncertain": "planner.answers.questions",
    "profile": "planner.answers.profile",
    "regret": "planner.answers.take_apart",
    "replan": "planner.answers.replan",
    "replay_on_devices": "planner.answers.replay",
    "replicate": "planner.answers.replications",
    "report": "planner.show.report",
    "residencies": "planner.show.frames",
    "save": "planner.show.saving",
    "servers": "planner.answers.questions",
    "simulate": "planner.answers.simulate",
    "sweep": "planner.answers.whatif",
    "tasks": "planner.show.frames",
    "trial": "planner.answers.trial",
    "verify_file": "planner.answers.bound",
    "whatif": "planner.answers.whatif",
}
"""Where each public call lives; the same list as above, which is for type checkers."""


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'planner' has no call {name!r}; it has {', '.join(_HOME)}")
    if "IPython" in sys.modules:
        import_module("planner.show.notebook").register()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
