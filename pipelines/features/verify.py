"""Whether a feature folder is whole: every array, every row, every record."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from lstr.extractors.networks.weights_file import sha256_of
from lstr.files.arrays import open_array
from lstr.files.atomic import leftovers
from lstr.pipelines.features.folder import FeatureFolder
from lstr.pipelines.features.foreign import ids_below
from lstr.pipelines.progress import Tell


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a video; `stream` is empty if it is not about one array."""

    id: str
    stream: str
    what: str


@dataclass
class Verified:
    """What a folder holds: chunks of each whole video, faults, and how many arrays were compared with their hash."""

    chunks: dict[str, int]
    faults: list[Fault]
    hashed: int = 0
    leftovers: int = 0
    """Temporary files of killed runs"""


def verify(folder: FeatureFolder, progress: Tell = lambda *_: None) -> Verified:
    """Read every array of a feature folder: lengths, recipe, numbers that are not finite, rows of zeros, hashes.

    `progress` counts videos. A folder from elsewhere has no records, so only its arrays are read.
    """
    root = folder.paths[0]
    found = Verified({}, [], leftovers=len(leftovers(root)))
    recorded = ids_below(root / "records", ".json") if folder.recipe else set()
    ids = sorted(recorded.union(*folder.files.values()))
    widths = {stream: part.dim for stream, part in folder.recipe.parts.items()} if folder.recipe else {}
    for done, video_id in enumerate(ids, 1):
        record, lengths = folder.read_record(video_id), dict[str, int]()
        faults: list[tuple[str, str]] = []  # stream and what
        if folder.recipe and record is None:
            is_damaged = folder.record(video_id).exists()
            what = "its record is damaged" if is_damaged else "it has no record: its run was interrupted, or goes on"
            faults.append(("", what))
        elif folder.recipe and record is not None and record.get("recipe") != folder.recipe.id:
            faults.append(("", f"its record has recipe {record.get('recipe')}, the folder {folder.recipe.id}"))
        for stream in folder.streams:
            path = folder.array(stream, video_id)
            try:
                array = open_array(path)
            except (OSError, ValueError) as error:
                reason = f"cannot be used: {getattr(error, 'strerror', None) or error}"
                faults.append((stream, reason if path.exists() else "is missing"))
                continue
            if array.ndim != 2:
                faults.append((stream, f"holds {array.dtype} {array.shape}, not rows of features"))
                continue
            lengths[stream] = len(array)
            if array.shape[1] != (width := widths.setdefault(stream, array.shape[1])):
                faults.append((stream, f"width {array.shape[1]}, not {width}"))
            faults += [(stream, what) for what in _row_faults(array)]
            stored = None
            with suppress(AttributeError, TypeError, LookupError):
                stored = (record or {})["arrays"][stream]["sha256"]
            found.hashed += bool(stored)
            if stored and sha256_of(path) != stored:
                faults.append((stream, "its bytes are not those that were written (SHA-256)"))
        if len(set(lengths.values())) > 1:
            faults.append(("", f"lengths differ: {', '.join(f'{stream} {n}' for stream, n in lengths.items())}"))
        if record and any(length != record.get("chunks") for length in lengths.values()):
            faults.append(("", f"its record says {record.get('chunks')} chunks"))
        found.faults += [Fault(video_id, stream, what) for stream, what in faults]
        if not faults:
            found.chunks[video_id] = lengths[folder.streams[0]]
        progress(video_id, done, len(ids))
    return found


def _row_faults(array: np.ndarray) -> Iterator[str]:
    is_finite = np.isfinite(array).all(1)
    if not is_finite.all():
        yield f"{(~is_finite).sum()} of {len(array)} rows hold numbers that are not finite"
    is_zero = ~array.any(1)
    if is_zero.any():
        yield f"{is_zero.sum()} of {len(array)} rows are all zero"
