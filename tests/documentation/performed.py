"""Does what pages show, step by step, in a folder of its own and in little time, and says what comes of it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import typer.main

from tests.by_hand import TEXT
from tests.command import app, run
from tests.documentation.pages import ROOT, Step, steps

TIME_LIMIT_S = "1"
MOST_REPEATS = 2
_LIMITED = {
    name
    for name, verb in typer.main.get_group(app).commands.items()
    if any("--time-limit" in parameter.opts for parameter in verb.params)
}
_BY_THE_CLOCK = _LIMITED | {"profile", "replay"}
"""Verbs whose answers depend on time."""


def perform(text: str, name: str, folder: Path) -> Iterator[tuple[Step, str, bool]]:
    """Do what a page's text asks for; yield each step, what came of it, and whether that is the same at any speed."""
    (folder / "SCENARIO").write_text(TEXT)
    (folder / "SWEEP").write_text("{scenario: SCENARIO, verb: simulate, grid: {policy: [jit, hash]}}")
    (folder / "LOG").write_text("release,model,runtime\n0,small,1.5\n2,large,4\n")
    (folder / "HISTORY").write_text("model,runtime_s\nsmall,1.5\nlarge,4\n")
    (folder / "REQUESTS").write_text("model\nlarge\n")
    (folder / "JOB_LOG").write_text("step 1/200\nstep 2/200\n")
    (folder / "experiments").symlink_to(ROOT / "experiments")
    namespace: dict[str, object] = {"__name__": "page"}
    chance: set[str] = set()  # files that hold what depends on time
    for step in steps(text):
        if step.file:
            (folder / step.file).write_text(step.text)
            continue
        said = io.StringIO()
        with chdir(folder), redirect_stdout(said), redirect_stderr(said):
            if step.command:
                code = run(app, short(step.command))
                assert code == step.exit_code, (
                    f"{name}:{step.line}: truenorth {' '.join(step.command)}\n{said.getvalue()}"
                )
            else:
                exec(compile(shortened(step.text), f"{name}:{step.line}", "exec"), namespace)  # noqa: S102
        yield step, said.getvalue(), not step.command or repeats(step.command, chance)


def repeats(command: tuple[str, ...], chance: set[str]) -> bool:
    """Say whether a command answers the same at any speed, and note in `chance` whether what it writes does.

    >>> made: set[str] = set()
    >>> repeats(("plan", "a.yaml", "-o", "plan.json"), made), repeats(("check", "a.yaml", "plan.json"), made)
    (False, False)
    >>> repeats(("simulate", "a.yaml", "-o", "plan.json"), made), repeats(("check", "a.yaml", "plan.json"), made)
    (True, True)
    """
    written = {command[at + 1] for at, word in enumerate(command) if word == "-o"}
    read = [word for word in command if word not in written]
    same = command[0] not in _BY_THE_CLOCK and not any(name in word for name in chance for word in read)
    chance.difference_update(written) if same else chance.update(written)
    return same


def shortened(program: str) -> str:
    """Return Python with a short time limit wherever it gives one.

    >>> shortened('tn.plan(made, time_limit=10), tn.plan(made, time_limit="10 s"), tn.regret(made, time_limit_s=10)')
    'tn.plan(made, time_limit=1), tn.plan(made, time_limit="1 s"), tn.regret(made, time_limit_s=1)'
    """
    return re.sub(r'(time_limit(?:_s)?="?)[\d.]+', rf"\g<1>{TIME_LIMIT_S}", program)


def short(command: tuple[str, ...]) -> list[str]:
    """Return a command with few repeats and a short time limit, if its verb takes one.

    >>> short(("trial", "a.yaml", "--repeats", "5", "--time-limit", "60"))
    ['trial', 'a.yaml', '--repeats', '2', '--time-limit', '1']
    """
    words = list(command)
    for option in ("--repeats", "--rounds"):
        if option in words:
            count = words.index(option) + 1
            words[count] = str(min(int(words[count]), MOST_REPEATS))
    if words[0] not in _LIMITED:
        return words
    if "--time-limit" in words:
        at = words.index("--time-limit")
        del words[at : at + 2]
    return [*words, "--time-limit", TIME_LIMIT_S]
