"""Reads what README.md and docs/ show: commands, files that they need, and Python.

- A line of a code block (fenced, or indented by four spaces) that starts with ``truenorth`` or ``$ truenorth`` is a
  command. A backslash at its end continues it; two spaces or `` #`` end it, and what follows explains it. The lines
  below it are what it says.
- A fenced block after ``<!-- file: NAME -->`` is that file.
- A block after ``<!-- not run: REASON -->`` is not run; after ``<!-- exits 1 -->`` its commands exit with 1.
- Other ``python`` blocks are run, one after the other; a fenced block without a language behind one is what it prints.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>file|not run|exits):? (?P<value>.+?) -->\n+)?"
    r"(?:^```(?P<language>\w*)[^\n]*\n(?P<fenced>.*?)^```$(?:\n+^```\n(?P<printed>.*?)^```$)?"
    r"|(?P<indented>(?:^    [^\n]*\n(?:[ ]*\n)*)+))",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"^(?:\$ )?(truenorth (?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_RULES = re.compile(r"[\u2500-\u257f]")
_EXPLANATION = re.compile(r"\s{2,}\S.*|\s#.*")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a page: a command and its exit code, a file to write, or Python to run; and what the page shows."""

    line: int
    command: tuple[str, ...] = ()
    exit_code: int = 0
    file: str = ""
    text: str = ""
    shown: tuple[str, ...] = ()

    def contradicts(self, said: str) -> str | None:
        """Return the first shown line that is not among what was said, in order; None if all are.

        White space and rules of tables do not count. Lines in brackets and `...` are the page's own; `...` in a line
        stands for anything.
        """
        rest = iter([_words(line) for line in said.splitlines()])
        for line in self.shown:
            words = _words(line)
            pattern = ".*".join(re.escape(part) for part in words.split("..."))
            if not _is_own(line) and not any(re.fullmatch(pattern, candidate) for candidate in rest):
                return line
        return None

    def renewed(self, said: str) -> list[str]:
        """Return the shown lines as they should be: each becomes the line that resembles it most, in order.

        Lines that still hold, and the page's own, stay as they are.
        """
        if self.contradicts(said) is None:
            return list(self.shown)
        lines = [line.rstrip() for line in said.strip("\n").splitlines()]
        if not any(_is_own(line) for line in self.shown):
            return lines
        best = _align([_words(line) for line in self.shown], [_words(line) for line in lines])
        return [line if _is_own(line) or at is None else lines[at] for line, at in zip(self.shown, best, strict=True)]


def _is_own(line: str) -> bool:
    words = _words(line)
    return not words.strip(". ") or (words.startswith("(") and words.endswith(")"))


def _align(shown: list[str], said: list[str]) -> list[int | None]:
    """Return for each shown line which said line it is most likely meant to be, in ascending order."""
    alike = [[0.0 if _is_own(one) else SequenceMatcher(None, one, other).ratio() for other in said] for one in shown]
    best = [[0.0] * (len(said) + 1) for _ in range(len(shown) + 1)]
    for i in range(len(shown) - 1, -1, -1):
        for j in range(len(said) - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + alike[i][j])
    found: list[int | None] = []
    i = j = 0
    while i < len(shown):
        if j < len(said) and best[i][j] == best[i][j + 1]:
            j += 1
        elif j < len(said) and best[i][j] != best[i + 1][j]:
            found.append(j)
            i, j = i + 1, j + 1
        else:
            found.append(None)
            i += 1
    return found


def _words(line: str) -> str:
    return " ".join(_RULES.sub(" ", line).split())


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
            yield Step(line, text=text, shown=tuple((block["printed"] or "").splitlines()))
        else:
            for found in _COMMAND.finditer(text):
                below = re.split(r"^(?:\$ |truenorth )", text[found.end() :], maxsplit=1, flags=re.MULTILINE)[0]
                words = found[1].replace("\\\n", " ") if "\\\n" in found[1] else _EXPLANATION.sub("", found[1])
                code = int(value) if mark == "exits" else 0
                at = line + text.count("\n", 0, found.start())
                yield Step(at, tuple(shlex.split(words)[1:]), code, shown=tuple(below.strip("\n").splitlines()))


def with_shown(page: str, step: Step, shown: list[str]) -> str:
    """Return a page's text in which a step shows other lines, indented as those that it shows."""
    lines, old = page.split("\n"), [line.strip() for line in step.shown]
    found = (i for i in range(len(lines)) if [line.strip() for line in lines[i : i + len(old)]] == old)
    at = min(found, key=lambda i: abs(i - step.line))  # earlier steps may have moved it
    first = next(line for line in lines[at:] if line.strip())
    indent = first[: len(first) - len(first.lstrip())] if first.startswith("    ") else ""
    inner = min((len(line) - len(line.lstrip()) for line in step.shown if line.strip()), default=0)
    margin = indent[: len(indent) - inner] if inner else indent
    lines[at : at + len(old)] = [f"{margin}{line}".rstrip() for line in shown]
    return "\n".join(lines)
