"""Log files: plain or gzip, whatever their names, and every failure to read them said in one line."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from truenorth.models.scenario import InputError, admit, open_now

_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[io.BufferedReader | gzip.GzipFile, io.BufferedReader]]:
    """Open a file, unpacking gzip: what is in it, and the file itself, whose position says how much has been read.

    Raises
    ------
    InputError
        If it cannot be opened, or, while the block reads it, turns out to be damaged.
    """
    admit(path)
    try:
        with open(path, "rb", opener=open_now) as raw:
            # A look ahead, since a pipe cannot be wound back.
            packed = raw.peek(len(_GZIP)).startswith(_GZIP)
            yield gzip.GzipFile(fileobj=raw) if packed else raw, raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(str(path), 1, "file", f"is damaged: {error}; allowed is a whole gzip file") from None
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}; allowed is a readable file"
        raise InputError(str(path), 1, "file", problem) from None


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a file as text; bytes that are not UTF-8 become lone surrogates, so that their row is known.

    Raises
    ------
    InputError
        If it cannot be opened, is UTF-16, or, while the block reads it, turns out to be damaged.
    """
    with open_bytes(path) as (file, _):
        if file.peek(len(_UTF_16[0])).startswith(_UTF_16):
            raise InputError(str(path), 1, "file", f"is UTF-16; allowed is {utf_8_from('UTF-16')}")
        with io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text:
            yield text


def utf_8_from(encoding: str) -> str:
    """Return what is allowed in place of another encoding, and the remedy."""
    return f"UTF-8: convert the file, for instance with iconv -f {encoding} -t UTF-8"


def assert_each_once(files: Sequence[Path]) -> None:
    """Refuse a file that is named twice, whose rows would count twice.

    Raises
    ------
    InputError
        For the second of the two.
    """
    known: set[str] = set()
    for path in files:
        real = os.path.realpath(path)
        if real in known:
            raise InputError(str(path), None, "file", "is named twice; allowed is each file once")
        known.add(real)
