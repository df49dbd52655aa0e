"""Reads what README.md and docs/ show: commands, files that they need, and Python.

- A line of a code block (fenced, or indented by four spaces) that starts with ``truenorth`` or ``$ truenorth`` is a
  command. A backslash at its end continues it; two spaces or `` #`` end it, and what follows explains it.
- A fenced block after ``<!-- file: NAME -->`` is that file.
- A block after ``<!-- not run: REASON -->`` is not run; after ``<!-- exits 1 -->`` its commands exit with 1.
- Other ``python`` blocks are run, one after the other.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>file|not run|exits):? (?P<value>.+?) -->\n+)?"
    r"(?:^```(?P<language>\w*)[^\n]*\n(?P<fenced>.*?)^```$|(?P<indented>(?:^    [^\n]*\n(?:[ ]*\n)*)+))",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^(?:\$ )?(truenorth (?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_EXPLANATION = re.compile(r"\s{2,}\S.*|\s#.*")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a page: a command and its exit code, a file to write, or Python to run."""

    line: int
    command: tuple[str, ...] = ()
    exit_code: int = 0
    file: str = ""
    text: str = ""


def pages() -> list[Path]:
    """Return README.md and the pages in docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def steps(page: str) -> Iterator[Step]:
    """Yield what a page's text asks to be done, in order."""
    for block in _BLOCK.finditer(page):
        mark, value, language = block["mark"], block["value"], block["language"]
        text = block["fenced"] if block["indented"] is None else re.sub(r"^    ", "", block["indented"], flags=re.M)
        line = page.count("\n", 0, block.start("fenced" if block["indented"] is None else "indented")) + 1
        if mark == "file":
            yield Step(line, file=value, text=text)
        elif mark == "not run":
            continue
        elif language == "python":
            yield Step(line, text=text)
        else:
            for found in _COMMAND.finditer(text):
                words = found[1].replace("\\\n", " ") if "\\\n" in found[1] else _EXPLANATION.sub("", found[1])
                code = int(value) if mark == "exits" else 0
                yield Step(line + text.count("\n", 0, found.start()), tuple(shlex.split(words)[1:]), code)
