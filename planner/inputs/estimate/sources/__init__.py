"""What a job is, read from its Python source, configurations and launch lines; nothing is executed or imported.

See `describe` for what overrides what.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from truenorth.models.scenario import InputError
from truenorth.models.scenario.files import read_beginning
from truenorth.planner.inputs.estimate.sources.description import (
    FIELDS,
    DescriptionCache,
    Evidence,
    JobDescription,
    Precision,
    Problem,
)
from truenorth.planner.inputs.estimate.sources.outside import LaunchOptions, LaunchReader, read_settings
from truenorth.planner.inputs.estimate.sources.python_code import CodeReader, parse
from truenorth.planner.inputs.estimate.sources.settings import (
    EVALUATION,
    GPUS_PER_NODE,
    NODES,
    Setting,
    SettingOrigin,
    canonical,
    field_of,
    is_aside,
    is_off,
    read_value,
    words,
)

MAX_FILE_BYTES = 2_000_000
PYTHON, CONFIGS, SCRIPTS = (".py",), (".yaml", ".yml", ".json", ".toml"), (".sh", ".bash", ".sbatch", ".slurm")
COMMAND = "command"
"""What evidence calls the launch line that the caller gave."""
Rank = tuple[bool, SettingOrigin, bool, int]
"""Whether it is the job proper's, where it stands, whether it surely runs, and its position among all settings."""
_MIXED_WITH = "mixed with"
MAX_CHARACTERS = 8_000
_LONGEST_STRING = 200
_MOST_WORDS = 50_000
_WORD = re.compile(r"[A-Za-z_][\w./-]{1,79}")


def describe(files: Sequence[str | Path], command: str = "", cache: DescriptionCache | None = None) -> JobDescription:
    """Describe a job by its source, configurations and launch lines; nothing is executed or imported.

    A later item overrides an earlier one: defaults (of options, dataclasses, parameters); assignments
    in source; arguments of calls; configuration files; shell scripts; `command`. Within one of
    these, the file named later and then the later line win. An option that a launch line or a
    configuration sets is followed to where the source reads it, under whatever name it was declared.
    What belongs to an evaluation, or to a tokeniser, counts only if nothing else does; calls in
    branches that disagree say nothing. An override whose value only a shell or the run would know
    makes the field unknown.

    Parameters
    ----------
    files
        Python (``.py``), configurations (``.yaml``, ``.yml``, ``.json``, ``.toml``) and shell
        scripts (``.sh``, ``.bash``, ``.sbatch``, ``.slurm``).
    command
        The line that launches the job, such as ``torchrun --nproc_per_node=4 train.py --lr 1e-4``.
    cache
        Is asked first, and told.

    Raises
    ------
    InputError
        If a file is missing, cannot be read or is of another kind. A file that can be read but not
        understood is a `Problem` of the description.
    """
    job = [_bytes(Path(file)) for file in files]
    key = _key(job, command)
    names = {str(at): str(file) for at, file in enumerate(files)} | {COMMAND: COMMAND}
    described = None if cache is None else cache.get(key)
    if described is None or not _files(described) <= set(names):
        described = _describe(job, command)
        if cache is not None:
            cache.keep(key, described)
    return replace(
        described,
        evidence=tuple(replace(each, file=names[each.file]) for each in described.evidence),
        problems=tuple(replace(each, file=names[each.file]) for each in described.problems),
    )


def _files(description: JobDescription) -> set[str]:
    return {each.file for each in description.evidence} | {each.file for each in description.problems}


@dataclass(frozen=True, slots=True)
class _SourceFile:
    """A file by its kind and content."""

    suffix: str
    data: bytes


@dataclass(slots=True)
class _Gathered:
    """What has been read so far; files go by their position, so that a description depends on content alone."""

    options: LaunchOptions = field(default_factory=LaunchOptions)
    environment: dict[str, str | None] = field(default_factory=dict)
    outside: list[Setting] = field(default_factory=list)
    """Settings of configurations and launch lines."""
    problems: list[Problem] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def _bytes(path: Path) -> _SourceFile:
    suffix = path.suffix.lower()
    if suffix not in (*PYTHON, *CONFIGS, *SCRIPTS):
        allowed = ", ".join((*PYTHON, *CONFIGS, *SCRIPTS))
        raise InputError(str(path), None, "file", f"is of no kind that is read; allowed are {allowed}")
    return _SourceFile(suffix, read_beginning(path, MAX_FILE_BYTES + 1))


def _key(job: Iterable[_SourceFile], command: str) -> str:
    """Return the hash of everything that a description depends on."""
    digest = hashlib.sha256()
    for part in [command.encode("utf-8", "replace"), *(p for file in job for p in (file.suffix.encode(), file.data))]:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def _describe(files: Sequence[_SourceFile], command: str) -> JobDescription:
    job = _Gathered()
    sources = [(str(at), file) for at, file in enumerate(files) if _is_small(str(at), file, job)]
    code = [reader for name, file in sources if file.suffix in PYTHON if (reader := _code(name, file, job))]
    job.options = _together([reader.options for reader in code])
    for name, file in sources:
        if file.suffix in CONFIGS:
            _config(name, file, job)
    for name, file in sources:
        if file.suffix in SCRIPTS:
            _launch(
                LaunchReader(name, SettingOrigin.SCRIPT, job.options, job.environment),
                _text(name, file, job) or "",
                job,
            )
    _launch(LaunchReader(COMMAND, SettingOrigin.COMMAND, job.options, dict(job.environment)), command, job)
    inside = [setting for reader in code for setting in reader.settings(overrides_of(job.outside), job.environment)]
    decision = Decision([*inside, *job.outside])
    text = join_bounded([*setting_words(job.outside), *job.words])
    return JobDescription(**decision.fields(), problems=tuple(job.problems), text=text)


def _is_small(name: str, file: _SourceFile, job: _Gathered) -> bool:
    if len(file.data) <= MAX_FILE_BYTES:
        return True
    job.problems.append(Problem(name, 1, f"is too large; allowed are {MAX_FILE_BYTES} bytes"))
    return False


def _code(name: str, file: _SourceFile, job: _Gathered) -> CodeReader | None:
    tree = parse(file.data, name)
    if isinstance(tree, ast.Module):
        job.words += code_words(tree)
        return CodeReader(tree, name)
    job.problems.append(tree)
    job.words += plain_words(file.data.decode("utf-8", "replace"))
    return None


def _text(name: str, file: _SourceFile, job: _Gathered) -> str | None:
    try:
        return file.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = file.data.count(b"\n", 0, error.start) + 1
        job.problems.append(Problem(name, line, "is not UTF-8 text; allowed is UTF-8"))
        return None


def _config(name: str, file: _SourceFile, job: _Gathered) -> None:
    text = _text(name, file, job)
    if text is None:
        return
    settings = read_settings(text, name, file.suffix)
    if isinstance(settings, Problem):
        job.problems.append(settings)
        job.words += plain_words(text)
    else:
        job.outside += settings


def _launch(reader: LaunchReader, text: str, job: _Gathered) -> None:
    job.outside += reader.settings(text)
    job.words += plain_words(text)


def _together(declared: Sequence[LaunchOptions]) -> LaunchOptions:
    """Return the options of all files as one; the file named later wins."""
    names: dict[str, str] = {}
    for options in declared:
        names |= options.names
    switches = frozenset(flag for options in declared for flag in options.switches)
    return LaunchOptions(names, switches, next((o.positionals for o in reversed(declared) if o.positionals), ()))


def overrides_of(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return settings by the names under which source may read them: ``model_name`` and ``name`` for ``model.name``.

    A last name that sections of one origin fill differently is left out, and so is what evaluations set.
    """
    found: dict[str, Setting] = {}
    ambiguous: set[tuple[str, SettingOrigin]] = set()
    for setting in settings:
        sections = setting.path[:-1]
        if is_aside(sections) or EVALUATION.intersection(word for section in sections for word in words(section)):
            continue
        key = canonical(setting.path[-1])
        before = found.get(key)
        if before is not None and before.origin == setting.origin and before.path[:-1] != sections:
            ambiguous.add((key, setting.origin))
        found["_".join(map(canonical, setting.path[-2:]))] = found[key] = setting
    return {key: setting for key, setting in found.items() if (key, setting.origin) not in ambiguous}


class Decision:
    """The value of each field and the setting it comes from, of settings in which later ones override earlier ones."""

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._best: dict[str, tuple[Rank, object, Setting]] = {}
        candidates = [found for order, setting in enumerate(settings) for found in _candidates(order, setting)]
        branches: dict[tuple[str, bool, SettingOrigin], set[object]] = {}
        for name, (proper, origin, certain, _), value, _ in candidates:
            if not certain:
                branches.setdefault((name, proper, origin), set()).add(value)
        for name, rank, value, setting in candidates:
            disagree = not rank[2] and len(branches[name, rank[0], rank[1]]) > 1
            if not disagree and (name not in self._best or rank >= self._best[name][0]):
                self._best[name] = rank, value, setting

    def fields(self) -> Mapping[str, Any]:
        """Return the fields of a description, evidence included."""
        values: dict[str, object] = {}
        evidence: list[Evidence] = []
        for name in FIELDS:
            value, sources = self._gpus() if name == "gpus" else self._single(name)
            if value is not None:
                values[name] = value
                evidence += dict.fromkeys(Evidence(name, source.file, source.line) for source in sources)
        return values | {"evidence": tuple(evidence)}

    def _single(self, field: str) -> tuple[object, list[Setting]]:
        if field not in self._best:
            return None, []
        _, value, setting = self._best[field]
        if value == "amp" and _MIXED_WITH in self._best:
            # A switch says that precision is mixed; what it is mixed with stands elsewhere.
            _, value, setting = self._best[_MIXED_WITH]
        return value, [setting]

    def _gpus(self) -> tuple[object, list[Setting]]:
        """Return all GPUs of the job: as one number, or those of a node times the nodes."""
        whole, per_node = self._best.get("gpus"), self._best.get(GPUS_PER_NODE)
        if per_node is None or (whole is not None and whole[0] > per_node[0]):
            return self._single("gpus")
        _, count, setting = per_node
        if NODES not in self._best or not isinstance(count, int):
            return count, [setting]
        _, nodes, nodes_setting = self._best[NODES]
        return (count * nodes if isinstance(nodes, int) else None), [setting, nodes_setting]


def _candidates(order: int, setting: Setting) -> Iterator[tuple[str, Rank, object, Setting]]:
    """Yield the fields that a setting is about, with its rank and its value: None if that is unknown."""
    found = field_of(setting.path, setting.origin)
    if found is None or is_off(setting.path, setting.value):
        return
    field, evaluation = found
    value = None if setting.value is None else read_value(field, setting.path, setting.value)
    if value is None and setting.origin < SettingOrigin.CONFIG:
        return
    rank = (not (evaluation or setting.weak), setting.origin, setting.certain, order)
    yield field, rank, value, setting
    if field == "precision" and value in ("fp16", "bf16"):
        yield _MIXED_WITH, rank, value, setting


def code_words(tree: ast.Module) -> list[str]:
    """Return the imports, then the names and attributes, then the short strings of a tree."""
    imports: list[str] = []
    names: list[str] = []
    strings: list[str] = []
    for node, _ in zip(ast.walk(tree), range(_MOST_WORDS), strict=False):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports += [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _LONGEST_STRING:
            strings.append(node.value)
        else:
            names += _list_names(node)
    return [*imports, *names, *strings]


def _list_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg


def plain_words(text: str) -> list[str]:
    """Return the words of a text that could not be parsed."""
    return [found[0] for found, _ in zip(_WORD.finditer(text), range(_MOST_WORDS), strict=False)]


def setting_words(settings: Iterable[Setting]) -> list[str]:
    """Return the keys and short values of configurations and launch lines."""
    return [
        f"{'.'.join(setting.path)}={setting.value}"
        for setting in settings
        if isinstance(setting.value, str | int | float) and len(str(setting.value)) <= _LONGEST_STRING
    ]


def join_bounded(parts: Sequence[str]) -> str:
    """Return the parts without repetition, in their order, as one line of at most `MAX_CHARACTERS`.

    >>> join_bounded(["torch", "train", "torch"])
    'torch train'
    """
    kept: dict[str, None] = {}
    length = 0
    for part in parts:
        word = " ".join("".join(letter if letter.isprintable() else " " for letter in part).split())
        if word and word not in kept:
            length += len(word) + 1
            if length > MAX_CHARACTERS + 1:
                break
            kept[word] = None
    return " ".join(kept)


__all__ = ["FIELDS", "DescriptionCache", "Evidence", "JobDescription", "Precision", "Problem", "describe"]
