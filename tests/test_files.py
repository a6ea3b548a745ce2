import multiprocessing
import os
import stat
import time
from threading import Timer

import pytest

from deadlines import join, until
from ghofl import files
from ghofl.custody.storage import FolderStorage
from ghofl.errors import BusyError, MessageError


def test_a_file_is_written_whole(tmp_path):
    files.write(tmp_path / "a", "text")
    files.write(tmp_path / "a", b"bytes")
    assert (tmp_path / "a").read_bytes() == b"bytes"
    assert os.listdir(tmp_path) == ["a"]


def test_content_is_on_the_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    done, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(f"{os.fstat(handle).st_size} bytes on the disk"))
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append("named"), replace(old, new)))
    files.write(tmp_path / "a", "text")
    assert done == ["4 bytes on the disk", "named"]


def test_what_a_site_adds_to_a_file_is_on_the_disk_when_it_goes_on(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(os.fstat(handle).st_size))
    memory = FolderStorage(tmp_path)
    memory.append("ledger", b"one\n")
    memory.append("ledger", b"two\n")
    assert done == [4, 8]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_and_no_part(tmp_path, error):
    files.write(tmp_path / "a", "old")

    def fail_half_way():
        with files.open_to_replace(tmp_path / "a") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail_half_way()
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such folder: .*no'"):
        files.write(tmp_path / "no" / "a", "x")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    previous = os.umask(request.param)
    yield request.param
    os.umask(previous)


def test_a_private_file_is_its_owner_s_whatever_the_umask(tmp_path, umask):
    (tmp_path / "a").write_text("open to everybody before")
    files.write(tmp_path / "a", "x", files.PRIVATE)
    with files.open_private(tmp_path / "b") as file:
        file.write(b"rows")
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "b") == 0o600
    files.write(tmp_path / "c", "for others too")
    assert mode_of(tmp_path / "c") == 0o666 & ~umask


def test_the_umask_of_the_process_is_never_changed(tmp_path, monkeypatch):
    """While it was, to read it, files of other threads were created open to everybody."""

    def refuse(_):
        raise AssertionError("the umask was changed")

    monkeypatch.setattr(os, "umask", refuse)
    files.write(tmp_path / "a", "x")
    files.write(tmp_path / "b", "x", files.PRIVATE)


def test_a_private_folder_and_the_parents_made_for_it_are_its_owner_s(tmp_path, umask):
    before = mode_of(tmp_path)
    files.private_folder(tmp_path / "a" / "b")
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o700
    assert mode_of(tmp_path) == before
    (tmp_path / "a").chmod(0o755)
    assert mode_of(files.private_folder(tmp_path / "a")) == 0o700


def test_a_folder_that_a_user_names_is_closed_unless_it_holds_other_things(tmp_path):
    for name, content in {"new": None, "empty": (), "ours": (files.LOCK, "x"), "everybody's": ("x",)}.items():
        if content is not None:
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(0o755)
            for file in content:
                (tmp_path / name / file).write_text("")
        files.own_folder(tmp_path / name)
        assert mode_of(tmp_path / name) == (0o755 if name == "everybody's" else 0o700), name


def hold(folder, begun, done):
    """In another process: be at work in a folder until told otherwise."""
    with files.lock(folder):
        begun.set()
        done.wait(30)


@pytest.mark.slow
def test_one_process_at_a_time_works_in_a_folder_and_a_second_one_waits(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    begun, done = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(tmp_path, begun, done))
    assert not files.is_busy(tmp_path)
    other.start()
    try:
        until(begun.is_set, "the other process is at work in the folder")
        assert files.is_busy(tmp_path)
        with pytest.raises(BusyError, match="another process is at work in .*; wait for it"), files.lock(tmp_path):
            pass
        with pytest.raises(BusyError, match="still was after 1 seconds"), files.lock(tmp_path, 1.0):
            pass
        Timer(0.3, done.set).start()
        started = time.monotonic()
        with files.lock(tmp_path, 30.0):
            assert time.monotonic() - started >= 0.2
            assert other.exitcode is None or other.exitcode == 0
    finally:
        done.set()
        join(other)
    assert not files.is_busy(tmp_path)
    assert mode_of(tmp_path / files.LOCK) == 0o600


def test_a_folder_and_a_pipe_that_nobody_writes_to_are_told_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.ghofl")
    for path in (tmp_path, tmp_path / "pipe.ghofl"):
        with pytest.raises(MessageError, match="a folder or a pipe; give a plain file"):
            files.FileBytes(path)
