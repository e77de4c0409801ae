"""What a detection leaves behind at its end: one file per format, whole or not at all."""

from collections.abc import Collection
from pathlib import Path

from lstr.extractors.errors import VideoError
from lstr.pipelines.annotations.format import Detection
from lstr.pipelines.annotations.formats import FORMATS as ALL_FORMATS

FORMATS = tuple(name for name, form in ALL_FORMATS.items() if form.detects)
"""Names of what a detection can be written in."""
DEFAULT = ("json", "jsonl", "npy", "html")
"""What is written where no format is chosen."""


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
