"""Whether a feature folder is whole: every array, every row, every record."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstr.extractors.networks.weights_file import sha256_of
from lstr.files.arrays import open_array
from lstr.files.atomic import leftovers
from lstr.pipelines.features.folder import FeatureFolder
from lstr.pipelines.features.loose_files import ids_below
from lstr.pipelines.progress import Tell


@dataclass(frozen=True)
class Fault:
    """What is wrong with one video; `stream` is empty where it is not one array."""

    id: str
    stream: str
    what: str


@dataclass
class Verified:
    """What a folder holds: chunks of each whole video, faults, and how many arrays were held against their hash."""

    chunks: dict[str, int]
    faults: list[Fault]
    hashed: int = 0
    leftovers: int = 0
    """Temporary files of killed runs."""


def verify(folder: FeatureFolder, progress: Tell = lambda *_: None) -> Verified:
    """Read every array of a feature folder: lengths, recipe, numbers that are not finite, rows of zeros, hashes.

    `progress` counts videos. A folder from elsewhere has no records, so of it the arrays alone are read.
    """
    found = Verified({}, [], leftovers=len(leftovers(folder.path)))
    recorded = ids_below(folder.path / "records", ".json") if folder.recipe else set()
    ids = sorted(recorded.union(*(ids_below(path) for path in folder.folders.values())))
    widths = {stream: part.dim for stream, part in folder.recipe.parts.items()} if folder.recipe else {}
    for done, video_id in enumerate(ids, 1):
        record = folder.read_record(video_id)
        faults = list(_record_faults(folder, video_id, record))
        lengths = {}
        for stream in folder.streams:
            path = folder.array(stream, video_id)
            array, fault = _read(path)
            if array is None:
                faults.append(Fault(video_id, stream, fault))
                continue
            lengths[stream] = len(array)
            width = widths.setdefault(stream, array.shape[1])
            if array.shape[1] != width:
                faults.append(Fault(video_id, stream, f"width {array.shape[1]}, not {width}"))
            faults += [Fault(video_id, stream, what) for what in _row_faults(array)]
            stored = None
            with suppress(AttributeError, TypeError, LookupError):
                stored = (record or {})["arrays"][stream]["sha256"]
            if stored:
                found.hashed += 1
                if sha256_of(path) != stored:
                    faults.append(Fault(video_id, stream, "its bytes are not those that were written (SHA-256)"))
        if len(set(lengths.values())) > 1:
            different = ", ".join(f"{stream} {length}" for stream, length in lengths.items())
            faults.append(Fault(video_id, "", f"lengths differ: {different}"))
        if record and any(length != record.get("chunks") for length in lengths.values()):
            faults.append(Fault(video_id, "", f"its record says {record.get('chunks')} chunks"))
        found.faults += faults
        if not faults:
            found.chunks[video_id] = lengths[folder.streams[0]]
        progress(video_id, done, len(ids))
    return found


def _record_faults(folder: FeatureFolder, video_id: str, record: Mapping[str, Any] | None) -> Iterator[Fault]:
    if folder.recipe is None:
        return
    if record is None:
        damaged = folder.record(video_id).exists()
        what = "its record is damaged" if damaged else "it has no record: its run was interrupted, or goes on"
        yield Fault(video_id, "", what)
    elif record.get("recipe") != folder.recipe.id:
        yield Fault(video_id, "", f"its record has recipe {record.get('recipe')}, the folder {folder.recipe.id}")


def _read(path: Path) -> tuple[np.ndarray | None, str]:
    """An array of rows, or None and what is wrong with it."""
    if not path.exists():
        return None, "is missing"
    try:
        array = open_array(path)
    except (OSError, ValueError) as error:
        return None, f"cannot be used: {getattr(error, 'strerror', None) or error}"
    if array.ndim != 2:
        return None, f"holds {array.dtype} {array.shape}, not rows of features"
    return array, ""


def _row_faults(array: np.ndarray) -> Iterator[str]:
    finite = np.isfinite(array).all(1)
    if not finite.all():
        yield f"{(~finite).sum()} of {len(array)} rows hold numbers that are not finite"
    zero = ~array.any(1)
    if zero.any():
        yield f"{zero.sum()} of {len(array)} rows are all zero"
