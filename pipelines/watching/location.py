"""Where a service keeps what it has seen."""

import os
from contextlib import suppress
from io import FileIO
from pathlib import Path

from lstr.errors import HistoryError, LstrError
from lstr.files.atomic import lock
from lstr.pipelines.watching.config_file import read_data

# The file of the events, in the folder `data`.
HISTORY = "history.sqlite"

# The folder of the clips, in the same.
CLIPS = "clips"

# The file that a service which runs has locked, in the same, with the number of its process.
LOCK = "lock"


def hold(folder: Path) -> FileIO:
    """Keep other services out of a folder until what this gives is closed, or the process killed.

    Raises HistoryError where another one has it, or where it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / LOCK).touch(mode=0o600)
        file = (folder / LOCK).open("a+b", buffering=0)
    except OSError as error:
        raise HistoryError(
            f"{folder} cannot be written ({error.strerror or error}).", "name another folder as `data`."
        ) from error
    if not lock(file):
        with file:
            file.seek(0)
            holder = file.read().decode(errors="replace").strip()
        raise HistoryError(
            f"Another `lstr watch` has {folder}{holder and f' (process {holder})'}.",
            "end that one first, or name another folder as `data`.",
        )
    with suppress(OSError):  # the number is for a person alone: a full disk keeps no service from its start
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
    return file


def history_of(path: Path) -> Path:
    """The history of a service, by its configuration or the folder of its data. Raises LstrError without one."""
    folder = path if path.is_dir() else read_data(path)
    if not (folder / HISTORY).exists():
        raise LstrError(f"Nothing was watched yet: {folder} has no {HISTORY}.", f"start it: lstr watch {path}")
    return folder / HISTORY
