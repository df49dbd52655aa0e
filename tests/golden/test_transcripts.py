"""Nothing that the command answers changes unnoticed: every verb, table, file, page and error line.

``RENEW=1 .venv/bin/python -m pytest tests/golden`` writes what is answered now: read the difference before
you commit it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.golden.transcript import replayed
from tests.night import by_day

HERE = Path(__file__).parent
AT_NIGHT = ("devices", "replications")
STORIES = sorted((HERE / "stories").glob("*.txt"), key=lambda story: (story.stem in AT_NIGHT, story.stem))


@pytest.mark.parametrize("story", by_day(STORIES, len(STORIES) - len(AT_NIGHT)), ids=lambda story: story.stem)
def test_the_answers_are_as_they_were(
    story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(HERE / "inputs", folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    before = story.read_text()
    now = replayed(before, capsys.readouterr).replace(str(folder), "<folder>")
    if os.environ.get("RENEW"):
        story.write_text(now)
    else:
        assert now.splitlines() == before.splitlines()
