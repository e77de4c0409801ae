"""Videos to a feature folder, resumable by running again."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from extractors.errors import MissingPathError, VideoError
from extractors.flow import DIS_SMALLEST, FlowWorkers
from extractors.frames import n_frames_until
from extractors.twostream import FeatureRow, StageSeconds, TwoStream
from extractors.video import CHUNK, FrameReader, Video, probe, read_chunks
from pipelines.store import (
    FeatureFolder,
    RowFile,
    fingerprints,
    open_features,
    replacing,
    sweep,
    write_json,
    write_jsonl,
)

Progress = Callable[[str, int, int], None]
"""Called as (video id, chunks done, chunks in all)."""


@dataclass(frozen=True)
class Outcome:
    """What became of one video: `done`, `kept` (finished before) or `failed` with a reason and a hint.

    The reason of a done one says what of a damaged file was kept; otherwise it is empty.
    """

    id: str
    source: Path
    state: str
    chunks: int = 0
    seconds: float = 0.0
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


def plan(videos: dict[str, Path], output: Path) -> list[tuple[str, str, int, str]]:
    """(id, seconds, chunks, state) of each video, reading headers only; the state is `done`, `to do` or an error."""
    folder = open_features(output) if (output / "recipe.json").exists() else None
    rows = []
    for video_id, path in videos.items():
        try:
            video = probe(path)
        except VideoError as error:
            rows.append((video_id, "", 0, str(error)))
        else:
            done = folder is not None and folder.is_done(video_id, path)
            rows.append((video_id, f"{video.duration:.1f}", video.n_chunks, "done" if done else "to do"))
    return rows


def extract(
    videos: dict[str, Path],
    folder: FeatureFolder,
    twostream: TwoStream,
    workers: FlowWorkers | None,
    progress: Progress,
    allow_damaged: bool = False,
) -> Iterator[Outcome]:
    """Extract each video that is not done; one bad video does not stop the rest.

    Yields an Outcome a video. `videos.jsonl` and `failed.jsonl` are compiled at the end, also after an interruption.
    """
    sweep(folder.path)
    failures = [f for f in read_jsonl(folder.path / "failed.jsonl") if f["id"] not in videos]
    try:
        for video_id, source in videos.items():
            if folder.is_done(video_id, source):
                yield Outcome(video_id, source, "kept", chunks=len(folder.load(video_id)[0]))
                continue
            folder.record(video_id).unlink(missing_ok=True)  # what is there is of another source or not whole
            start = perf_counter()
            try:
                record = extract_video(video_id, source, folder, twostream, workers, progress, allow_damaged)
            except (VideoError, MissingPathError) as error:
                failures.append({"id": video_id, "source": str(source), "reason": str(error)})
                yield Outcome(video_id, source, "failed", reason=str(error), hint=error.hint)
            else:
                chunks, damaged = record["chunks"], record["decode_errors"] > 0
                note = f"damaged: {chunks} of {record['announced_chunks']} chunks were kept" if damaged else ""
                yield Outcome(video_id, source, "done", chunks, perf_counter() - start, note)
    finally:
        records = (folder.read_record(video_id) for video_id in folder.ids())
        write_jsonl(folder.path / "videos.jsonl", [record for record in records if record])
        if failures or (folder.path / "failed.jsonl").exists():
            write_jsonl(folder.path / "failed.jsonl", failures)


def extract_video(
    video_id: str,
    source: Path,
    folder: FeatureFolder,
    twostream: TwoStream,
    workers: FlowWorkers | None,
    progress: Progress,
    allow_damaged: bool = False,
) -> dict:
    """Write one video's array of each stream, then its record, which it returns.

    Nothing appears under a final name before all arrays are whole. Raises VideoError when the video is damaged.
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
            files[stream] = RowFile(temporary, getattr(twostream.recipe, stream).dim)
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
        "device": twostream.device,
        "seconds": {**asdict(twostream.seconds), "total": perf_counter() - start},
    }
    write_json(folder.record(video_id), record)
    return record


def _append(files: dict[str, RowFile], row: FeatureRow) -> None:
    for stream, file in files.items():
        file.append(getattr(row, stream))


def read_jsonl(path: Path) -> list[dict]:
    """The objects of a JSONL file; empty when it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
