"""The command as tests call it: ``run(app, [...])`` returns the exit code."""

from planner.command.cli import app as app
from planner.command.manners import BAD_INPUT as BAD_INPUT
from planner.command.manners import DONE as DONE
from planner.command.manners import NOT_ACHIEVED as NOT_ACHIEVED
from planner.command.manners import run as run
