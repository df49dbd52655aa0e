"""Log files as text: plain or gzip, whatever their names, and every failure to read them said in one line."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from models.scenario import InputError

_GZIP = b"\x1f\x8b"


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a file, unpacking gzip; bytes that are not UTF-8 become lone surrogates, so that their row is known.

    Raises
    ------
    InputError
        If it cannot be opened, or, while the block reads it, turns out to be damaged.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            unpacked = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(unpacked, "utf-8-sig", "surrogateescape", newline="") as text:
                yield text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(str(path), 1, "file", f"is damaged: {error}; allowed is a whole gzip file") from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}; allowed is a readable file"
        raise InputError(str(path), 1, "file", problem) from None
