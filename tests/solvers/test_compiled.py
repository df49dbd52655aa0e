"""Machine code belongs to the texts that it was made of: another text, another folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import caching

from truenorth.models.instance import Ints
from truenorth.solvers.compiled import digest_texts, inlined, kernel

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for folder in ("solvers", "models"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_same_texts_elsewhere_have_the_same_digest(copied: Path) -> None:
    assert digest_texts(copied) == digest_texts(ROOT)


@pytest.mark.parametrize(
    "text",
    [
        "solvers/bounds/lagrangian/job_paths.py",  # kernels that kernels of other files call
        "solvers/bounds/lagrangian/shapes.py",  # no kernel, but the order of the fields that kernels read
        "solvers/search/decoder_kernel.py",
        "solvers/search/neighbourhood.py",
        "solvers/compiled.py",
        "models/tables.py",  # NEVER
    ],
)
def test_a_changed_text_has_another_digest(copied: Path, text: str) -> None:
    before = digest_texts(copied)
    path = copied / text
    path.write_text(path.read_text() + "CHANGED = 1\n")
    assert digest_texts(copied) != before


def test_a_kernel_in_a_new_folder_counts(copied: Path) -> None:
    before = digest_texts(copied)
    new = copied / "solvers/bounds/lagrangian/deeper/more.py"
    new.parent.mkdir()
    new.write_text("from truenorth.solvers.compiled import kernel\n")
    assert digest_texts(copied) != before


def test_what_no_kernel_reads_leaves_the_machine_code_as_it_is(copied: Path) -> None:
    before = digest_texts(copied)
    path = copied / "solvers/bounds/verify.py"
    path.write_text(path.read_text() + "CHANGED = 1\n")
    assert digest_texts(copied) == before


@kernel
def pick(values: Ints, at: Ints) -> int:
    values[at[0], 1] += 1
    return int(values[at[0], at[1]])


def test_indices_of_kernels_count_from_zero() -> None:
    # A choice between an index and one that counts from the end would be a `select` in the machine code.
    compiled: Any = pick
    assert compiled(np.arange(6).reshape(2, 3), np.array([1, 1])) == 5
    compiled.recompile()  # what comes from the cache cannot be inspected
    assert "select" not in compiled.inspect_llvm(compiled.signatures[0])


@inlined
def double(value: int) -> int:
    return 2 * value


@kernel
def quadruple(value: int) -> int:
    return double(double(value)) + double(1)


def test_parts_of_kernels_are_compiled_once_per_type_and_not_called_from_python() -> None:
    part: Any = double
    whole: Any = quadruple
    assert whole(3) == 14
    whole.recompile()  # what comes from the cache has compiled no part
    assert len(part.signatures) == 1  # not one more for the constant
    with pytest.raises(TypeError, match="part of kernels"):
        double(3)


@pytest.fixture
def _kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(numba.config), "CACHE_DIR", str(tmp_path))


def triple(value: int) -> int:
    return 3 * value


@pytest.mark.usefixtures("_kept_here")
@pytest.mark.parametrize("left", [0, 10, 60])
@pytest.mark.parametrize("kind", ["*.nbi", "*.nbc"])
def test_machine_code_that_is_cut_short_is_compiled_anew(tmp_path: Path, kind: str, left: int) -> None:
    assert kernel(triple)(2) == 6
    (file,) = tmp_path.rglob(kind)
    file.write_bytes(file.read_bytes()[:left])
    again: Any = kernel(triple)
    assert again(2) == 6
    assert sum(again.stats.cache_misses.values()) == 1
    whole: Any = kernel(triple)
    assert whole(2) == 6
    assert sum(whole.stats.cache_hits.values()) == 1


@pytest.mark.usefixtures("_kept_here")
def test_a_full_disk_keeps_no_machine_code_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", refuse)
    assert kernel(triple)(2) == 6
