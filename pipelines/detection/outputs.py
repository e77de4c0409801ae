"""What a detection leaves behind: lines as they are made, and at the end one file per format, whole or not at all."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from lstr.extractors.errors import VideoError
from lstr.pipelines.annotations.format import Detection
from lstr.pipelines.annotations.formats import FORMATS as ALL_FORMATS
from lstr.pipelines.files.atomic import unwritable

FORMATS = tuple(name for name, form in ALL_FORMATS.items() if form.detects)
"""Names of what a detection can be written in."""
DEFAULT = ("json", "jsonl", "npy", "html")
"""What is written where no format is chosen."""


def open_lines(path: Path) -> TextIO:
    """Open a text file for writing, folders made. Raises OutputError where that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error


def write_lines(sinks: Sequence[TextIO], values: Sequence[Mapping[str, Any]]) -> None:
    """Put one JSON object per line into every sink, and out of this process at once."""
    for sink in sinks:
        sink.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
        sink.flush()


def write_outputs(output: Path, detection: Detection, formats: Collection[str]) -> list[Path]:
    """Write a finished detection as ID and the format's suffix into a folder; returns the files.

    `jsonl` is not written here, and `mp4` is left out without a video. Raises OutputError, and VideoError where the
    video cannot be read again, all else being written.
    """
    files, failed = [], None
    # the slowest first and the timeline last: who interrupts the writing finds no file that looks like a whole run
    for name in (name for name in reversed(FORMATS) if name in formats):
        form = ALL_FORMATS[name]
        if not form.is_due(detection):
            continue
        path = output / f"{detection.id}{form.suffix}"
        files.append(path)
        try:
            form.write_detection(path, detection)
        except VideoError as error:  # the rest of the run is sound
            failed = error
    if failed:
        raise failed
    return files
