"""One video to its two arrays and its record: what every engine runs, in whatever process."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from time import perf_counter
from types import MappingProxyType

from extractors.errors import ExtractorError, MissingPathError, VideoError
from extractors.flow import DIS_SMALLEST, FlowWorkers
from extractors.frames import n_frames_until
from extractors.twostream import FeatureRow, StageSeconds, TwoStream
from extractors.video import CHUNK, FrameReader, Video, probe, read_chunks
from pipelines.arrays import RowFile, fingerprints
from pipelines.remote import Place
from pipelines.remote_features import Features
from pipelines.remote_videos import at_hand
from pipelines.store import FeatureFolder, replacing, write_json

LONGEST = 250  # bytes of a name that .json can be added to, on the usual file systems
REPORT = "run it again with LSTR_DEBUG=1 and report what it prints."
Progress = Callable[[str, int, int], None]
"""Called as (video id, chunks done, chunks in all)."""


@dataclass(frozen=True)
class Outcome:
    """What became of one video: `done`, `kept` (finished before) or `failed` with a reason and a hint.

    The reason of a done one says what of a damaged file was kept; otherwise it is empty.
    """

    id: str
    source: Place
    state: str
    chunks: int = 0
    seconds: float = 0.0
    """It took, from opening the video to its record."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds each stage worked, as in the record."""
    reason: str = ""
    hint: str = ""


def open_chunks(path: Path, long_side: int, allow_damaged: bool = False) -> tuple[Video, FrameReader, Iterator]:
    """A video's facts, its reader, and its chunks; of a damaged one those before the damage, where that is allowed.

    Raises MissingPathError or VideoError, also when it is shorter than one chunk.
    """
    video = probe(path)
    if video.n_chunks == 0:
        raise VideoError(
            f"{path} lasts {video.duration:.2f} s, less than one chunk of {CHUNK} frames at 24 a second.",
            "give a video of at least a quarter of a second.",
        )
    reader = FrameReader(video, allow_damaged)
    return video, reader, read_chunks(reader, long_side)


def attempt(
    video_id: str,
    source: Place,
    folder: Features,
    twostream: TwoStream,
    workers: FlowWorkers | None,
    progress: Progress,
    allow_damaged: bool = False,
) -> Outcome:
    """Extract one video that is not done; what is wrong with it is an Outcome and stops nothing.

    Raises what would stop every other video too: OutputError, FlowError, RecipeError, WeightsError.
    """
    start = perf_counter()
    if len(os.fsencode(PurePath(video_id).name)) > LONGEST:
        return failed(video_id, source, f"{source} has a name too long for its features.", "rename or link it.")
    try:
        with folder.staged(video_id) as target, at_hand(source) as (path, origin):
            record = extract_video(video_id, path, target, twostream, workers, progress, allow_damaged, origin)
    except (VideoError, MissingPathError) as error:
        return failed(video_id, source, str(error), error.hint)
    except ExtractorError:
        raise
    except Exception as error:  # nobody thought of it, but the other videos may be well
        if os.environ.get("LSTR_DEBUG"):
            raise
        return failed(video_id, source, f"{source} met {described(error)}", REPORT)
    chunks, damaged = record["chunks"], record["decode_errors"] > 0
    note = f"damaged: {chunks} of {record['announced_chunks']} chunks were kept" if damaged else ""
    stages = {name: seconds for name, seconds in record["seconds"].items() if name != "total"}
    return Outcome(video_id, source, "done", chunks, perf_counter() - start, stages, note)


def described(error: Exception) -> str:
    """An error that no one foresaw, in a line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"


def failed(video_id: str, source: Place, reason: str, hint: str) -> Outcome:
    """The Outcome of a video that cannot be extracted."""
    return Outcome(video_id, source, "failed", reason=reason, hint=hint)


def extract_video(
    video_id: str,
    source: Path,
    folder: FeatureFolder,
    twostream: TwoStream,
    workers: FlowWorkers | None,
    progress: Progress,
    allow_damaged: bool = False,
    origin: Mapping = MappingProxyType({}),
) -> dict:
    """Write one video's array of each stream, then its record, which it returns.

    `origin` is what the record says of a source that was copied here. Nothing appears under a final name before all
    arrays are whole. Raises VideoError when the video is damaged.
    """
    stat = source.stat() if source.exists() else None
    video, reader, chunks = open_chunks(source, twostream.recipe.long_side, allow_damaged)
    width, height = video.size(twostream.recipe.long_side)
    if twostream.recipe.algorithm == "dis" and min(width, height) < DIS_SMALLEST:
        raise VideoError(f"{source} is {width}×{height} pixels, too small for DIS flow.", "use --flow tvl1.")
    start, twostream.seconds = perf_counter(), StageSeconds()
    with ExitStack() as stack:
        files = {}
        for stream in folder.streams:
            temporary = stack.enter_context(replacing(folder.array(stream, video_id)))
            files[stream] = RowFile(temporary, (getattr(twostream.recipe, stream).dim,))
            stack.callback(files[stream].close)
        for row in stack.enter_context(closing(twostream.rows(chunks, workers))):
            _append(files, row)
            progress(video_id, row.index + 1, video.n_chunks)
        n_chunks = files[folder.streams[0]].rows
        if n_chunks == 0:
            raise VideoError(f"{source} is damaged before its first chunk ends.", "record or download the file again.")
        for file in files.values():
            file.finish()
        arrays = {stream: fingerprints(file.path) for stream, file in files.items()}
    record = {
        "id": video_id,
        "source": str(source),
        "bytes": stat.st_size,
        "mtime": stat.st_mtime,
        **origin,
        "recipe": twostream.recipe.id,
        "arrays": arrays,
        "duration": float(reader.end),
        "chunks": n_chunks,
        "announced_chunks": video.n_chunks,
        "frames_24fps": n_frames_until(reader.end),
        "tail_frames_dropped": n_frames_until(reader.end) - n_chunks * CHUNK,
        "decoded_frames": reader.decoded,
        "header_frames": video.header_frames,
        "decode_errors": reader.decode_errors,
        "clock": reader.clock,
        "decoder": reader.decoder,
        "flow_backend": workers.backend if workers else None,
        "threads": workers.workers if workers else twostream.threads,
        "device": twostream.device,
        "seconds": {**asdict(twostream.seconds), "total": perf_counter() - start},
    }
    write_json(folder.record(video_id), record)
    return record


def _append(files: dict[str, RowFile], row: FeatureRow) -> None:
    for stream, file in files.items():
        file.append(getattr(row, stream))
