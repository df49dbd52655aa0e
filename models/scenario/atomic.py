"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from models.scenario.errors import InputError


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write a file under a temporary name in the same folder, then rename it; text is written as UTF-8.

    A link is followed, and what is no regular file (a pipe, ``/dev/null``) is written to directly.

    Raises
    ------
    InputError
        If the file cannot be written; an earlier version of it is then untouched.
    """
    data = content.encode() if isinstance(content, str) else content
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None


def assert_writable(path: str | Path, read: Iterable[Path | None] = ()) -> None:
    """Refuse a path that `write_atomically` could not or should not write, before the work whose result is to go there.

    Parameters
    ----------
    read
        Files that the work reads, which its result must not replace.

    Raises
    ------
    InputError
        If the folder does not exist, the path is a folder, either may not be written, or the file is read as well.
    """
    target = Path(os.path.realpath(path))
    if any(other is not None and os.path.realpath(other) == str(target) for other in read):
        raise InputError(str(path), 1, "file", "is read as well; allowed is another name")
    try:
        if target.exists() and not target.is_file():
            target.open("ab").close()
        else:
            temporary = _temporary(target)
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            temporary.unlink()
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None


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
