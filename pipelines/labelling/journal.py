"""The journal of a labels project: one line a change, appended and on the disk before the change counts."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from lstr.errors import OutputError
from lstr.files.atomic import lock, unwritable
from lstr.files.content import read_jsonl, to_json


def journal_of(labels: Path) -> Path:
    """The journal of a labels file, beside it."""
    return labels.with_name(f"{labels.name}.journal")


class Journal:
    """Lines of JSON in a file that one process at a time has open.

    Raises OutputError where another process has it, OutputError where it cannot be written.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        if not lock(self._file):
            self._file.close()
            raise OutputError(
                f"Another `lstr label` has {path} open.",
                "use its page, or name another file with -o.",
            )

    def read(self) -> list[dict[str, Any]]:
        """The lines that are whole: a kill or a full disk may have cut one short."""
        return [line for line in read_jsonl(self.path) if isinstance(line, dict)]

    def append(self, line: dict[str, Any]) -> None:
        """Add a line; it is on the disk when this returns, or not at all. Raises OutputError."""
        size = os.fstat(self._file.fileno()).st_size
        data = to_json(line).encode() + b"\n"
        if size and not self._ends_whole(size):
            data = b"\n" + data
        try:
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            raise unwritable(self.path.parent, error) from error

    def close(self, forget: bool = False) -> None:
        """Let others have it; with `forget` nothing stays of one without a line."""
        if forget and not os.fstat(self._file.fileno()).st_size:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _ends_whole(self, size: int) -> bool:
        with self.path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"
