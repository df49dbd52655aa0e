"""From the files of a job to its description; see `describe` for what overrides what."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from models.scenario import InputError
from models.scenario.files import read_beginning
from planner.inputs.estimate.sources import retrieval
from planner.inputs.estimate.sources.cache import DescriptionCache
from planner.inputs.estimate.sources.configs import read_settings
from planner.inputs.estimate.sources.decide import Decision, overrides_of
from planner.inputs.estimate.sources.description import JobDescription, Problem
from planner.inputs.estimate.sources.launch import LaunchOptions, LaunchReader
from planner.inputs.estimate.sources.python_code import CodeReader, parse
from planner.inputs.estimate.sources.setting import Origin, Setting

MAX_FILE_BYTES = 2_000_000
PYTHON, CONFIGS, SCRIPTS = (".py",), (".yaml", ".yml", ".json", ".toml"), (".sh", ".bash", ".sbatch", ".slurm")
COMMAND = "command"
"""What evidence calls the launch line that the caller gave."""


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
            _launch(LaunchReader(name, Origin.SCRIPT, job.options, job.environment), _text(name, file, job) or "", job)
    _launch(LaunchReader(COMMAND, Origin.COMMAND, job.options, dict(job.environment)), command, job)
    inside = [setting for reader in code for setting in reader.settings(overrides_of(job.outside), job.environment)]
    decision = Decision([*inside, *job.outside])
    text = retrieval.join_bounded([*retrieval.setting_words(job.outside), *job.words])
    return JobDescription(**decision.fields(), problems=tuple(job.problems), text=text)


def _is_small(name: str, file: _SourceFile, job: _Gathered) -> bool:
    if len(file.data) <= MAX_FILE_BYTES:
        return True
    job.problems.append(Problem(name, 1, f"is too large; allowed are {MAX_FILE_BYTES} bytes"))
    return False


def _code(name: str, file: _SourceFile, job: _Gathered) -> CodeReader | None:
    tree = parse(file.data, name)
    if isinstance(tree, ast.Module):
        job.words += retrieval.code_words(tree)
        return CodeReader(tree, name)
    job.problems.append(tree)
    job.words += retrieval.plain_words(file.data.decode("utf-8", "replace"))
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
        job.words += retrieval.plain_words(text)
    else:
        job.outside += settings


def _launch(reader: LaunchReader, text: str, job: _Gathered) -> None:
    job.outside += reader.settings(text)
    job.words += retrieval.plain_words(text)


def _together(declared: Sequence[LaunchOptions]) -> LaunchOptions:
    """Return the options of all files as one; the file named later wins."""
    names: dict[str, str] = {}
    for options in declared:
        names |= options.names
    switches = frozenset(flag for options in declared for flag in options.switches)
    return LaunchOptions(names, switches, next((o.positionals for o in reversed(declared) if o.positionals), ()))
