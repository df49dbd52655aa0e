"""The command as tests call it: ``run(app, [...])`` returns the exit code."""

from tests.command import BAD_INPUT as BAD_INPUT
from tests.command import DONE as DONE
from tests.command import app as app
from tests.command import run as run
