"""One learning writes a folder at a time."""

import signal
import subprocess
import sys

import pytest

from lstr.errors import OutputError
from lstr.labels.label_set import Labels
from lstr.pipelines.learning.plan import Workspace, write_labels

HOLD = """
import sys, time
from pathlib import Path
from lstr.pipelines.learning.plan import Workspace
with Workspace(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.long
def test_another_process_is_refused_at_once_and_a_killed_one_holds_nothing(tmp_path):
    model = tmp_path / "deep" / "fall.lstr"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(model)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline() == "held\n"
            with pytest.raises(OutputError, match="fall.learn") as caught:
                with Workspace(model).locked():
                    pass
            assert "-o" in caught.value.hint and caught.value.exit_code == 2
        finally:
            other.send_signal(signal.SIGKILL)
    with Workspace(model).locked():
        assert model.with_suffix(".learn").is_dir()


def test_a_folder_into_which_nothing_came_goes_away(tmp_path):
    workspace = Workspace(tmp_path / "fall.lstr")
    with workspace.locked():
        assert not workspace.is_foreign
    assert not list(tmp_path.iterdir())
    with workspace.locked():
        (workspace.path / "part").touch()
        assert workspace.is_foreign
    assert [path.name for path in workspace.path.iterdir()] == ["part"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"), Workspace(tmp_path / "file" / "fall.lstr").locked():
        pass


def test_what_was_stopped_before_its_plan_is_no_strangers(tmp_path):
    """Labels are written before the plan, and anew with each, so that no plan goes on with those of another."""
    workspace = Workspace(tmp_path / "m.lstr")
    workspace.path.mkdir()
    write_labels(workspace.labels, Labels(("a",), {}, True))
    assert not workspace.is_foreign
    (workspace.path / "x").touch()
    assert workspace.is_foreign
