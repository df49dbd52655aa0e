"""Write the pages of docs/ that follow from the code: ``commands.md``, and the tables of keys in ``scenario.md``.

``make docs`` runs it; a test holds the pages to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import typer.main

from tests.command import app
from tests.documentation.pages import ROOT
from truenorth.models.scenario import json_schema

COMMANDS, SCENARIO = ROOT / "docs" / "commands.md", ROOT / "docs" / "scenario.md"
_BEGIN, _END = "<!-- keys of the schema -->", "<!-- end of the keys -->"
_ABOUT = """\
# Commands

The command is installed at `.venv/bin/truenorth`. Each command has one question to answer, and most of them
have a [Python call](python.md) of the same name. `truenorth COMMAND --help` shows what this page shows.

All of them keep these rules:

- `--json` prints one object on standard output. Progress goes to standard error, and only to a terminal.
- Nothing is written without `-o`.
- The exit code is 0 if all is done, 1 if the answer is negative (infeasible, a rule broken, no plan in time),
  2 for wrong input, 130 after Ctrl-C. After Ctrl-C the best plan found so far is kept and written.
- An error is one line: `truenorth: error: FILE:LINE: key: what is wrong; what to write instead`.

This page is generated from the definitions of the commands (`make docs`).
"""


def commands_page() -> str:
    """Return the page of all commands, by group."""
    groups: dict[str, list[str]] = {}
    known: Mapping[str, Any] = typer.main.get_group(app).commands
    for name, command in known.items():
        groups.setdefault(str(command.rich_help_panel), []).append(_command(name, command))
    parts = [_ABOUT]
    for title, commands in groups.items():
        parts += [f"## {title}\n", *commands]
    return "\n".join(parts)


def _command(name: str, command: Any) -> str:
    given = [each for each in command.params if each.param_type_name == "argument"]
    usage = " ".join(["truenorth", name, *(_usage(each) for each in given), "[OPTIONS]"])
    rows = [f"| `{_metavar(each)}` | | {_meaning(each)} |" for each in given]
    rows += [
        f"| `{', '.join(sorted(each.opts, key=len))}` | {_value(each)} | {_meaning(each)} |"
        for each in command.params
        if each not in given
    ]
    paragraphs = [" ".join(text.split()) for text in (command.help or "").split("\n\n")]
    return "\n".join(
        [
            f"### truenorth {name}\n",
            "\n\n".join(paragraphs) + "\n",
            f"<!-- not run: the form of the command -->\n```text\n{usage}\n```\n",
            f"<!-- not run: an example -->\n```text\n{command.epilog}\n```\n",
            "| argument or option | value | meaning |\n| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _metavar(each: Any) -> str:
    return str(each.metavar or each.name).strip("{}[].").upper()


def _usage(each: Any) -> str:
    name = _metavar(each) + "..." * (each.nargs == -1)
    return name if each.required else f"[{name}]"


def _value(each: Any) -> str:
    """Return what may stand behind an option, in words; nothing for a flag."""
    kind = each.type_descriptor.annotation
    if kind is bool:
        return ""
    if isinstance(kind, type) and issubclass(kind, Enum):
        words = [str(choice.value) for choice in kind]
    else:
        words = str(each.metavar or _OF_TYPE.get(kind, "TEXT")).split("|")
    return " or ".join(f"`{word}`" for word in words)


_OF_TYPE: Mapping[type, str] = {int: "N", float: "X", Path: "FILE"}


def _meaning(each: Any) -> str:
    text, default = _cell(each.help or ""), getattr(each.default, "value", each.default)
    if isinstance(each.show_default, str):
        return f"{text} Default: {each.show_default}."
    if default in (None, "") or isinstance(default, bool | list | tuple) or "default" in text.lower():
        return text
    return f"{text} Default: `{default}`."


def scenario_keys() -> str:
    """Return a table of keys per section of scenario files."""
    schema = json_schema()
    return "\n".join(_section(path, each, schema) for path, each in _sections(schema))


def _sections(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield every section once, with the paths that lead to it, in the order of the file."""
    places: dict[str, list[str]] = {}

    def visit(path: str, section: Mapping[str, Any]) -> None:
        for key, value in section["properties"].items():
            for name, more in _references(value):
                where = f"{path}{key}{more}"
                known = name in places
                places.setdefault(name, []).append(where)
                if not known:
                    visit(where + ".", schema["$defs"][name])

    visit("", schema)
    yield (), schema
    for name, paths in places.items():
        yield tuple(paths), schema["$defs"][name]


def _references(value: Any, more: str = "") -> Iterator[tuple[str, str]]:
    """Yield the sections that a value may hold, and how a path goes on to them."""
    if "$ref" in value:
        yield value["$ref"].rsplit("/", 1)[1], more
    for each in value.get("anyOf", ()):
        yield from _references(each, more)
    if isinstance(value.get("items"), dict):
        yield from _references(value["items"], more + "[]")
    if isinstance(value.get("additionalProperties"), dict):
        yield from _references(value["additionalProperties"], more + ".NAME")


def _section(paths: tuple[str, ...], section: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    title = ", ".join(f"`{path}`" for path in paths) or "The file"
    required = section.get("required", [])
    lines = [f"### {title}\n", " ".join(section["description"].split()) + "\n"]
    lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for key, value in section["properties"].items():
        default = "required" if key in required else _default(value.get("default"))
        meaning = value.get("description") or _described(value, schema)
        lines.append(f"| `{key}` | {_kind(value)} | {default} | {_cell(meaning)} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _described(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return what a section, or the quantity, says of itself."""
    for name, _ in _references(value):
        return f"{str(schema['$defs'][name]['description']).splitlines()[0]}"
    return ""


def _default(value: Any) -> str:
    if value is None or isinstance(value, dict) or (isinstance(value, list) and value):
        return ""
    return "" if value == [] else f"`{json.dumps(value) if not isinstance(value, str) else value}`"


_UNITS = {
    "(us|ms": "time",
    "(B|KB": "size",
    "(/s|": "rate",
    "bit": "bandwidth",
    "^s?": "server",
    "^[1-9]": "whole number",
}


def _kind(value: Mapping[str, Any]) -> str:
    """Return in words what stands behind a key.

    >>> _kind({"anyOf": [{"type": "integer"}, {"type": "null"}]}), _kind({"type": "array", "items": {"type": "string"}})
    ('whole number', 'list of names')
    """
    if "$ref" in value:
        return "section"
    if "enum" in value:
        return " or ".join(f"`{each}`" for each in value["enum"])
    if "anyOf" in value:
        kinds = [_kind(each) for each in value["anyOf"] if each.get("type") != "null"]
        if len(kinds) == 2 and kinds[1] in (f"{kinds[0]} per name", f"list of {_plural(kinds[0])}"):
            return f"{kinds[0]}; or one per name" if kinds[1].endswith("per name") else f"{kinds[0]}; or a list"
        return ", or ".join(dict.fromkeys(kinds))
    if "const" in value:
        return f"`{value['const']}`"
    for keys in ("additionalProperties", "patternProperties"):
        inner = value.get(keys)
        if isinstance(inner, dict) and inner:
            first = inner if keys == "additionalProperties" else next(iter(inner.values()))
            return f"{_kind(first)} per {'name' if keys == 'additionalProperties' else 'number'}"
    if value.get("type") == "array":
        return f"list of {_plural(_kind(value.get('items', {})))}"
    return _scalar(value)


def _scalar(value: Mapping[str, Any]) -> str:
    kind = next((unit for sign, unit in _UNITS.items() if sign in str(value.get("pattern", ""))), "")
    if not kind:
        kinds = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`", "array": "list"}
        kind = kinds.get(str(value.get("type")), "text" if value.get("examples") else "name")
    examples = value.get("examples") or []
    shown = examples[-1] if examples and isinstance(examples[-1], str) else ""
    return f"{kind}, `{shown}`" if shown and kind != "whole number" else kind


def _plural(kind: str) -> str:
    return re.sub(r"^(\w+)( number)?", lambda found: found[0] + "s", kind, count=1)


def with_keys(page: str) -> str:
    """Return the page of scenario files with today's keys between its marks."""
    before, rest = page.split(_BEGIN)
    return f"{before}{_BEGIN}\n\n{scenario_keys()}\n{_END}{rest.split(_END)[1]}"


def write_pages() -> None:
    """Write both pages anew."""
    COMMANDS.write_text(commands_page())
    SCENARIO.write_text(with_keys(SCENARIO.read_text()))


if __name__ == "__main__":
    write_pages()
