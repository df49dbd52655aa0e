"""The command as tests call it: ``run(app, [...])`` returns the exit code."""

from truenorth.planner.command.cli import app as app
from truenorth.planner.command.manners import BAD_INPUT as BAD_INPUT
from truenorth.planner.command.manners import DONE as DONE
from truenorth.planner.command.manners import NOT_ACHIEVED as NOT_ACHIEVED
from truenorth.planner.command.manners import run as run
