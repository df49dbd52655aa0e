"""``python -m experiments [NAME ...]``: list the experiments, or run one of them; ``NAME --help`` shows its options."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
PLACES = {
    "benchmarks": "how fast, how good, how far",
    "benchmarks/devices": "what devices reach",
    "checks": "is anything wrong; exit 1 if so",
    "studies": "questions that were answered once",
    ".": "collections",
}
"""Folders that hold experiments, and what they ask."""
NAMED_BY_FOLDER = ("__main__", "study")
"""Modules of an experiment that has a folder of its own."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment: its name, its folder, its module (whose ``main`` takes the words behind the name), a sentence."""

    name: str
    place: str
    module: str
    sentence: str


def experiments() -> dict[str, Experiment]:
    """Return all experiments by name; none of them is imported."""
    found = dict[str, Experiment]()
    for place in PLACES:
        folder = FOLDER / place
        for path in sorted([*folder.glob("*.py"), *folder.glob("*/study.py"), *folder.glob("*/__main__.py")]):
            text = path.read_text(encoding="utf-8")
            if re.search(r"^main = ", text, re.MULTILINE):
                name = path.parent.name if path.stem in NAMED_BY_FOLDER else path.stem
                module = ".".join(("experiments", *path.relative_to(FOLDER).with_suffix("").parts))
                found[name] = Experiment(name, place, module, _sentence(text))
    return found


def _sentence(text: str) -> str:
    """Return what the first line of a module says, without the command that it begins with."""
    head = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    said = re.sub(r"^(``[^`]*``(, )?)+: ", "", head)
    return said[:1].upper() + said[1:]


def listing() -> str:
    """Return a line for each experiment, by folder."""
    lines, known = [], experiments().values()
    for place, what in PLACES.items():
        lines.append(f"{place.replace('.', 'experiments')}: {what}")
        lines += [f"  {each.name:<17}{each.sentence}" for each in known if each.place == place]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int | None:
    """Run the experiment that the first word names with the others, or list all."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{__doc__}\n\n{listing()}")
        return 0
    name, *words = arguments
    known = experiments()
    if name not in known:
        print(f"no experiment is named {name}; write one of {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    code: int | None = import_module(known[name].module).main(words)
    return code if isinstance(code, int) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
