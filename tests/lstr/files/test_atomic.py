"""Files that appear whole or not at all."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from lstr.files import atomic
from lstr.files.atomic import temporary_for


def mode_of_new_file(path) -> int:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return path.stat().st_mode


def test_files_of_other_threads_keep_their_permissions(tmp_path):
    """At each line of a write another thread makes a file: the write once took the process's umask away meanwhile."""
    wanted, found, traced = mode_of_new_file(tmp_path / "plain"), [], sys.gettrace()

    def look(frame, event, argument):
        if frame.f_code.co_filename == atomic.__file__:
            found.append(others.submit(mode_of_new_file, tmp_path / f"other{len(found)}").result())
            return look
        return None

    with ThreadPoolExecutor(1) as others:
        sys.settrace(look)
        try:
            with temporary_for(tmp_path / "written") as temporary:
                temporary.write_text("whole")
        finally:
            sys.settrace(traced)
    assert len(found) > 5 and set(found) == {wanted} == {(tmp_path / "written").stat().st_mode}
    assert (tmp_path / "written").read_text() == "whole"
