"""Where a service keeps what it has seen."""

from pathlib import Path

from lstr.errors import LstrError
from lstr.pipelines.watching.config_file import read_data

HISTORY = "history.sqlite"
"""The file of the events, in the folder `data`."""

CLIPS = "clips"
"""The folder of the clips, in the same."""


def history_of(path: Path) -> Path:
    """The history of a service, by its configuration or the folder of its data. Raises LstrError without one."""
    folder = path if path.is_dir() else read_data(path)
    if not (folder / HISTORY).exists():
        raise LstrError(f"Nothing was watched yet: {folder} has no {HISTORY}.", f"start it: lstr watch {path}")
    return folder / HISTORY
