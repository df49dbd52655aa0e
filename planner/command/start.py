"""The way in: Ctrl-C and SIGTERM end the command with one line at any instant, also while it is being loaded."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_STANDARD_ERROR, _INTERRUPTED = 2, 130


def main() -> None:
    """Run the command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    from truenorth.planner.command import cli, manners  # a tenth of a second

    with manners.reported():
        code = manners.run(cli.app)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and written
    sys.exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: an exception would get lost in libraries that call Python back, and files are written whole or not.

    A verb that keeps its best plan has handlers of its own meanwhile.
    """
    os.write(_STANDARD_ERROR, b"truenorth: interrupted\n")
    os._exit(_INTERRUPTED)
