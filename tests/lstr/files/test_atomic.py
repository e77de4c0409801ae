"""Written files replace earlier ones; the tests of full disks have failed writes."""

import os

import pytest

from lstr.files.atomic import temporary_for


def test_a_written_file_replaces_the_old_file_and_has_usual_permissions(tmp_path, monkeypatch):
    """The umask cannot be read without changing it for all threads."""
    (tmp_path / "other").touch()
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("changes the umask of other threads"))
    for content in ("first", "second"):
        with temporary_for(tmp_path / "written") as temporary:
            temporary.write_text(content)
        assert (tmp_path / "written").read_text() == content
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "other").stat().st_mode
