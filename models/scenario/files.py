"""Files: read with limits, written whole or not at all."""

from __future__ import annotations

import os
import secrets
import select
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TextIO

from truenorth.models.scenario.errors import InputError

MAX_FILE_BYTES = 64_000_000
LONGEST_LINE = 65_536
"""Characters of a line of CSV."""
PACKED = ".gz"
_WRITER_S = 5
"""A writer may come so late to a pipe that is read."""


@dataclass(frozen=True, slots=True)
class _Used:
    """Real paths of what the work at hand reads, and of what its results are to be written to."""

    read: set[str] = field(default_factory=set)
    promised: set[str] = field(default_factory=set)


_USED: ContextVar[_Used | None] = ContextVar("used", default=None)
"""Kept once a place for results has been promised: who loads a plan, betters it and saves it again is not hindered."""


def admit(path: str | Path) -> None:
    """Take note that a file is read, so that no result replaces it; every reader of the user's files asks here first.

    Raises
    ------
    InputError
        If it is a device, which may never end, or results have been promised this place.
    """
    with suppress(OSError, ValueError):  # what cannot be opened is said by whoever opens it
        mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise InputError(str(path), 1, "file", "is a device; allowed is a file or a pipe")
    used = _USED.get()
    if used is None:
        return
    real = os.path.realpath(path)
    if real in used.promised:
        raise InputError(str(path), 1, "file", "is both read and written; allowed is another name for the result")
    used.read.add(real)


def open_now(path: str, flags: int) -> int:
    """Open a file to read, as the opener of `open`: a pipe to which nobody writes would be waited for without end.

    Raises
    ------
    InputError
        If it is such a pipe.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not _has_writer(descriptor):
            problem = f"is a pipe to which nothing writes for {_WRITER_S} s; allowed is a file, or a pipe with a writer"
            raise InputError(path, 1, "file", problem)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _has_writer(descriptor: int) -> bool:
    """Say whether a pipe has something to read, or a writer that is silent as yet."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    if poll.poll(1000 * _WRITER_S):
        return True
    try:
        os.read(descriptor, 1)
    except BlockingIOError:
        return True
    return False


def read_beginning(path: Path, most_bytes: int, line: int | None = None) -> bytes:
    """Return the bytes of a file, at most so many.

    Parameters
    ----------
    line
        Where errors point to.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    admit(path)
    try:
        with open(path, "rb", opener=open_now) as file:
            return file.read(most_bytes)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(str(path), line, "file", f"cannot be read: {reason}; allowed is a readable file") from None


def read_text(path: Path) -> str:
    """Return the text of a file, which gzip has packed if its name ends in ``.gz``.

    Raises
    ------
    InputError
        If it cannot be read, is too large, or is not UTF-8.
    """
    data = read_beginning(path, MAX_FILE_BYTES + 1, 1)
    if path.suffix == PACKED:
        data = _unpack(path, data)
    if len(data) > MAX_FILE_BYTES:
        raise InputError(str(path), 1, "file", f"is too large; allowed are {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(str(path), line, "file", "is not UTF-8 text; allowed is UTF-8") from None


def _unpack(path: Path, data: bytes) -> bytes:
    """Return what gzip has packed, no more of it than shows that it is too large."""
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacking.decompress(data, MAX_FILE_BYTES + 1)
    except zlib.error as error:
        raise InputError(str(path), 1, "file", f"is damaged: {error}; allowed is a whole gzip file") from None
    if not unpacking.eof and len(unpacked) <= MAX_FILE_BYTES:
        raise InputError(str(path), 1, "file", "is damaged: it ends too soon; allowed is a whole gzip file")
    return unpacked


def read_bounded_lines(file: TextIO, name: str, longest: int, first: int = 1) -> Iterator[str]:
    """Yield the lines of an open file from the one at hand on.

    Parameters
    ----------
    name
        As errors name the file.
    longest
        A line with so many characters threatens the memory and is refused.
    first
        Number of the line at hand.

    Raises
    ------
    InputError
        For a line that is too long.
    """
    read = file.readline
    for line in count(first):
        text = read(longest)
        if not text:
            return
        if len(text) == longest:
            raise InputError(name, line, "row", f"is longer than {longest} characters; allowed are shorter lines")
        yield text


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a file under a temporary name in the same folder, then rename it; text is written as UTF-8.

    A link is followed, and what is no regular file (a pipe, ``/dev/null``) is written to directly.

    Raises
    ------
    InputError
        If the file cannot be written, or has been read; an earlier version of it is then untouched.
    """
    _refuse_what_is_read(path)
    data = content.encode() if isinstance(content, str) else content
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None


def promise(path: str | Path | None = None) -> None:
    """Refuse a path that could not be written, before the work whose result is to go there, and keep it for the result.

    From here on what is read is not written, and what is promised is not read; in the same context (`contextvars`).

    Parameters
    ----------
    path
        None for results whose names are not known yet.

    Raises
    ------
    InputError
        If the folder does not exist, the path is a folder, either may not be written, or the file is read as well.
    """
    used = _USED.get() or _Used()
    _USED.set(used)
    if path is not None:
        _refuse_what_is_read(path)
        assert_writable(path)
        used.promised.add(os.path.realpath(path))


def assert_writable(path: str | Path) -> None:
    """Refuse a path that `write_atomically` could not write.

    Raises
    ------
    InputError
        If the folder does not exist, the path is a folder, or either may not be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            target.open("ab").close()
        else:
            temporary = _temporary(target)
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            temporary.unlink()
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None


def _refuse_what_is_read(path: str | Path) -> None:
    used = _USED.get()
    if used is not None and os.path.realpath(path) in used.read:
        raise InputError(str(path), 1, "file", "is both read and written; allowed is another name for the result")


def _replace(target: Path, data: bytes) -> None:
    temporary = _temporary(target)
    try:
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename last through a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")


def _refusal(path: str | Path, error: Exception) -> InputError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(str(path), 1, "file", f"cannot be written: {reason}; allowed is a file in a writable folder")
