"""Files are written whole or not at all."""

import os
from contextvars import copy_context
from pathlib import Path

import pytest

from truenorth.models.scenario import InputError, admit, assert_writable, promise, write_atomically


def test_writes_text_and_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_atomically(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    write_atomically(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert list(tmp_path.iterdir()) == [path]


def test_mode_is_that_of_the_user_or_of_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    before = os.umask(0o027)
    try:
        write_atomically(path, "a")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o600)
    write_atomically(path, "b")
    assert path.stat().st_mode & 0o777 == 0o600


def test_link_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_device_stays_a_device() -> None:
    write_atomically("/dev/null", "gone")
    assert_writable("/dev/null")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none/plan.json", "No such file or directory"), ("", "Is a directory"), ("file/plan.json", "Not a directory")],
)
def test_unwritable(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").write_text("old")
    for attempt in (lambda path: write_atomically(path, "new"), assert_writable):
        with pytest.raises(InputError) as caught:
            attempt(str(tmp_path / name))
        expected = f"1: file: cannot be written: {reason}; allowed is a file in a writable folder"
        assert str(caught.value) == f"{tmp_path / name}:{expected}"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failure_on_the_way_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_asking_leaves_no_trace(tmp_path: Path) -> None:
    assert_writable(tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []


def test_what_is_read_is_no_place_for_the_result(tmp_path: Path) -> None:
    log, link = tmp_path / "log.csv", tmp_path / "link.csv"
    log.write_text("old")
    link.symlink_to(log)

    def work() -> None:
        promise()
        admit(log)
        for path in (log, link, tmp_path / "." / "log.csv"):
            for attempt in (promise, lambda path: write_atomically(path, "new")):
                with pytest.raises(InputError, match=r"\.csv:1: file: is both read and written; allowed is another"):
                    attempt(path)
        promise(tmp_path / "other.csv")
        with pytest.raises(InputError, match="both read and written"):
            admit(tmp_path / "other.csv")

    copy_context().run(work)
    assert log.read_text() == "old"
    admit(log)
    write_atomically(log, "new")  # where nothing was promised, what was read may be bettered


def test_a_device_is_no_input() -> None:
    with pytest.raises(InputError, match="/dev/zero:1: file: is a device; allowed is a file or a pipe"):
        admit("/dev/zero")
