"""What stands outside the source: configuration files and launch lines, as settings.

Configurations are YAML, JSON and TOML, with limits on depth, size and aliases. Launch lines are shell text, read
without a shell. Understood are assignments of constants, ``$NAME``, ``${NAME}`` and ``${NAME:-default}``, continued
lines, ``#SBATCH`` lines and the arguments of programs that launch jobs; every other word that a shell would expand
counts as unknown.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from truenorth.models.scenario import InputError
from truenorth.models.scenario.errors import Node
from truenorth.models.scenario.reading import parse_document
from truenorth.planner.inputs.estimate.sources.description import Problem
from truenorth.planner.inputs.estimate.sources.settings import Constant, Setting, SettingOrigin, canonical

MAX_SETTINGS = 20_000
_DEEPEST = 30
_TABLE = re.compile(r"\s{0,40}\[{1,2}([^\[\]]{1,200})\]{1,2}")
_KEY = re.compile(r"\s{0,40}([\w.\"'-]{1,200})\s{0,40}=")
MAX_LINE = 20_000
_LAUNCHER = re.compile(
    r"python[\d.]{0,6}|torchrun|accelerate|deepspeed|composer|lightning|fabric|srun|sbatch|mpirun|mpiexec|horovodrun"
    r"|vllm|colossalai|axolotl|tune|llamafactory-cli|ray|uv|poetry|sglang|text-generation-launcher"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,99})=(.*)", re.DOTALL)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]{0,199})=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_]\w{0,99})|\{(?P<braced>[A-Za-z_]\w{0,99})(?::-(?P<otherwise>[^${}`]*))?\})"
)
_NUMBER = re.compile(r"-\d[\d.eE+-]*")
_SLURM = {"-N": "nodes", "--nodes": "nodes", "-G": "gpus", "--gpus": "gpus", "--gpus-per-node": "gpus_per_node"}
_RANKS = frozenset(["np", "n"])


def read_settings(text: str, file: str, suffix: str) -> list[Setting] | Problem:
    """Return the scalars, and the lists of scalars, of a configuration; or why it cannot be read."""
    try:
        if suffix == ".toml":
            return list(_take_first(_of_table(tomllib.loads(text), (), file, _toml_lines(text), 1)))
        root = parse_document(text, file, suffix)
    except InputError as error:
        return Problem(file, error.line or 1, error.problem)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        return Problem(file, int(found[1]) if found else 1, f"{error}; allowed is TOML")
    except (RecursionError, ValueError):
        return Problem(file, 1, "is nested too deeply or holds a number without end; allowed is less")
    return list(_take_first(_of_node(root, (), file)))


def _take_first(settings: Iterator[Setting]) -> Iterator[Setting]:
    for setting, _ in zip(settings, range(MAX_SETTINGS), strict=False):
        yield setting


def _of_node(root: Node, path: tuple[str, ...], file: str) -> Iterator[Setting]:
    waiting = [(path, root)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node.content, dict):
            waiting += [((*path, key), value) for key, (_, value) in reversed(node.content.items())]
        elif isinstance(node.content, list):
            nested = [item for item in node.content[:MAX_SETTINGS] if isinstance(item.content, dict | list)]
            waiting += [(path, item) for item in reversed(nested)]
            if not nested and path:
                items = tuple(item.content for item in node.content[:MAX_SETTINGS])
                yield Setting(path, items, SettingOrigin.CONFIG, file, node.line)
        elif node.content is not None and path:
            yield Setting(path, str(node.content), SettingOrigin.CONFIG, file, node.line)


def _of_table(
    table: object, path: tuple[str, ...], file: str, lines: dict[tuple[str, ...], int], line: int
) -> Iterator[Setting]:
    line = lines.get(path, line)
    if isinstance(table, dict) and len(path) < _DEEPEST:
        for key, value in table.items():
            yield from _of_table(value, (*path, key), file, lines, line)
    elif isinstance(table, list) and any(isinstance(item, dict) for item in table):
        for item in table:
            yield from _of_table(item, path, file, lines, line)
    elif isinstance(table, list):
        yield Setting(path, tuple(table), SettingOrigin.CONFIG, file, line)
    elif isinstance(table, str | int | float | bool):
        yield Setting(path, table, SettingOrigin.CONFIG, file, line)


def _toml_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of every key that stands on a line of its own."""
    table: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if found := _TABLE.match(line):
            table = _parts(found[1])
            lines.setdefault(table, number)
        elif found := _KEY.match(line):
            lines.setdefault((*table, *_parts(found[1])), number)
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options that a script declares.

    Parameters
    ----------
    names
        From a flag as written, such as ``-b``, to the name under which the script reads it.
    switches
        Flags without a value.
    positionals
        Names of the positional arguments, in order.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    positionals: tuple[str, ...] = ()


@dataclass(slots=True)
class LaunchReader:
    """Reads the launch lines of one file, or the one that the caller gave."""

    file: str
    origin: SettingOrigin
    options: LaunchOptions
    variables: dict[str, str | None] = field(default_factory=dict)
    """None: assigned, but not to a constant."""

    def settings(self, text: str) -> Iterator[Setting]:
        """Yield what the lines set, in their order."""
        for line, whole in _logical_lines(text):
            if whole.lstrip().startswith("#SBATCH"):
                yield from self._slurm(whole.split()[1:], line)
                continue
            for command in _commands(whole):
                yield from self._command(command, line)

    def _command(self, command: list[str], line: int) -> Iterator[Setting]:
        if command[0] == "for" and len(command) > 1:
            self.variables[command[1]] = None
        while command and (command[0] in ("export", "env", "exec", "time", "nohup", "do", "then", "else", "declare")):
            command = command[1:]
        while command and (assigned := _ASSIGNMENT.fullmatch(command[0])):
            value = self._expand(assigned[2])
            self.variables[assigned[1]] = value
            if assigned[1] == "CUDA_VISIBLE_DEVICES":
                yield self._setting(assigned[1], value, line)
            command = command[1:]
        if any(_LAUNCHER.fullmatch(word.rsplit("/", 1)[-1]) or word.endswith(".py") for word in command[:4]):
            yield from self._arguments(command, line)

    def _arguments(self, command: list[str], line: int) -> Iterator[Setting]:
        """Yield the options, the overrides such as ``trainer.devices=4``, and the positional arguments."""
        program = command[0].rsplit("/", 1)[-1]
        script = next((at for at, word in enumerate(command) if word.endswith(".py")), None)
        positionals = list(self.options.positionals)
        at = 1
        while at < len(command):
            word = command[at]
            following = command[at + 1] if at + 1 < len(command) else None
            in_script = script is None or at > script
            at += 1
            if word.startswith("-") and not _NUMBER.fullmatch(word):
                flag, given, value = word.partition("=")
                if not given and self._takes(flag, following, in_script):
                    value, at = str(following), at + 1
                elif not given:
                    value = "true"
                if program.startswith(("mpi", "horovod")) and flag.lstrip("-") in _RANKS and not in_script:
                    yield self._setting("num_processes", self._expand(value), line)
                elif flag.startswith("--") or flag in self.options.names:
                    yield self._setting(self._name(flag, in_script), self._expand(value), line)
            elif override := _OVERRIDE.fullmatch(word):
                yield self._setting(override[1], self._expand(override[2]), line)
            elif program == "vllm" and at == 3 and command[1] == "serve":
                yield self._setting("model", self._expand(word), line)
            elif script is not None and at - 1 > script and positionals:
                yield self._setting(positionals.pop(0), self._expand(word), line)

    def _takes(self, flag: str, following: str | None, in_script: bool) -> bool:
        """Say whether the next word is this option's value."""
        if following is None or (in_script and flag in self.options.switches):
            return False
        return not following.startswith("-") or _NUMBER.fullmatch(following) is not None

    def _name(self, flag: str, in_script: bool) -> str:
        return self.options.names.get(flag, flag.lstrip("-")) if in_script else flag.lstrip("-")

    def _slurm(self, arguments: list[str], line: int) -> Iterator[Setting]:
        text = " ".join(arguments)
        for flag, value in re.findall(r"(?<!\S)(--?[A-Za-z][\w-]{0,40})[ =]([^\s#]{1,200})", text):
            if flag in _SLURM:
                yield self._setting(f"slurm_{_SLURM[flag]}", value.rsplit(":", 1)[-1], line)
            elif flag == "--gres":
                yield self._setting("gres", value, line)

    def _setting(self, name: str, value: Constant | None, line: int) -> Setting:
        path = tuple(canonical(part) or part for part in name.split("."))
        return Setting(path, value, self.origin, self.file, line)

    def _expand(self, word: str) -> str | None:
        """Return a word with its variables replaced; None if only a shell would know it."""
        unknown = False

        def value(found: re.Match[str]) -> str:
            """Return what stands for a variable, nothing if that is unknown."""
            nonlocal unknown
            name = found["plain"] or found["braced"]
            known = self.variables.get(name, found["otherwise"])
            unknown = unknown or known is None
            return known or ""

        text = _VARIABLE.sub(value, word)
        return None if unknown or "$" in text or "`" in text or len(text) > MAX_LINE else text


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with what its backslashes continue, and its number."""
    started = 1
    parts: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not parts:
            started = number
        continued = line.endswith("\\")
        parts.append(line[:-1] if continued else line)
        if not continued:
            yield started, " ".join(parts)
            parts = []
    if parts:
        yield started, " ".join(parts)


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line, up to their first redirection; nothing for a line that is no shell."""
    if len(line) > MAX_LINE or not line.strip():
        return
    splitter = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    splitter.whitespace_split = True
    command: list[str] = []
    redirected = False
    try:
        for word in splitter:
            if set(word) <= set("();|&"):
                if command:
                    yield command
                command, redirected = [], False
            elif set(word) <= set("<>&"):
                redirected = True
            elif not redirected:
                command.append(word)
    except ValueError:
        return
    if command:
        yield command
