import os
import stat

import pytest

from ghofl import files


def test_a_file_is_written_whole(tmp_path):
    files.write(tmp_path / "a", "text")
    files.write(tmp_path / "a", b"bytes")
    assert (tmp_path / "a").read_bytes() == b"bytes"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_and_no_part(tmp_path, error):
    files.write(tmp_path / "a", "old")

    def fail_half_way():
        with files.replacing(tmp_path / "a") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail_half_way()
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_follow_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        files.write(tmp_path / "a", "x")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such folder: .*no'"):
        files.write(tmp_path / "no" / "a", "x")
