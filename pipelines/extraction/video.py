"""One video to its two arrays and its record: what every engine runs, in whatever process."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path, PurePath
from time import perf_counter
from types import MappingProxyType

from extractors.errors import ExtractorError, MissingPathError, VideoError
from extractors.flow.workers import FlowWorkers
from extractors.networks.published_files import sha256_of
from extractors.twostream import FeatureRow, StepSeconds, TwoStream
from extractors.video.file_reader import open_chunks
from extractors.video.frames import CHUNK
from pipelines.extraction.chunk_cache import CacheError, ChunkCache
from pipelines.extraction.feature_rows import VideoRows, find_cached, rows_of_cache, rows_of_file
from pipelines.extraction.outcome import REPORT, Outcome, described, failed
from pipelines.features.folder import FeatureFolder
from pipelines.features.remote_folder import Features
from pipelines.files.atomic import replacing
from pipelines.files.json_files import write_json
from pipelines.files.npy_rows import RowFile, fingerprints
from pipelines.files.remote import Place
from pipelines.files.videos import at_hand
from pipelines.networks.fold_networks import FoldNetworks
from pipelines.progress import Tell

LONGEST = 250  # bytes of a name that .json can be added to, on the usual file systems


def attempt(
    video_id: str,
    source: Place,
    folder: Features,
    networks: FoldNetworks,
    workers: FlowWorkers | None,
    progress: Tell,
    allow_damaged: bool = False,
    caches: Sequence[ChunkCache] = (),
) -> Outcome:
    """Extract one video that is not done; what is wrong with it is an Outcome and stops nothing.

    `caches` may have its chunks already. Raises what would stop every other video too: OutputError, FlowError,
    RecipeError, WeightsError.
    """
    start, notes = perf_counter(), []
    if len(os.fsencode(PurePath(video_id).name)) > LONGEST:
        return failed(video_id, source, f"{source} has a name too long for its features.", "rename or link it.")
    try:
        with folder.staged(video_id) as target, at_hand(source) as (path, origin):
            how = {"origin": origin, "caches": caches, "notice": notes.append}
            record = extract_video(video_id, path, target, networks, workers, progress, allow_damaged, **how)
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
    return Outcome(video_id, source, "done", chunks, perf_counter() - start, stages, note, note=" ".join(notes))


def extract_video(
    video_id: str,
    source: Path,
    folder: FeatureFolder,
    networks: FoldNetworks,
    workers: FlowWorkers | None,
    progress: Tell,
    allow_damaged: bool = False,
    origin: Mapping = MappingProxyType({}),
    caches: Sequence[ChunkCache] = (),
    notice: Callable[[str], None] = lambda _: None,
) -> dict:
    """Write one video's array of each stream, then its record, which it returns.

    `origin` is what the record says of a source that was copied here. Cached chunks are taken where there are any;
    where they are damaged they are removed, `notice` is told, and the file is decoded. Nothing appears under a final
    name before all arrays are whole. Raises VideoError when the video is damaged.
    """
    stat = source.stat() if source.exists() else None
    sha256 = _sha256(source) if networks.cards or caches else None
    chosen = networks.of(video_id, sha256)
    twostream = chosen.twostream
    start, written = perf_counter(), None
    cached = find_cached(caches, sha256, twostream, allow_damaged)
    if cached:
        cache, video = cached
        try:
            written = _write(video_id, folder, twostream, rows_of_cache(video, twostream, workers), progress)
        except CacheError as error:
            cache.drop(video)
            notice(f"{error} {source} was decoded instead.")
    if written is None:
        opened = open_chunks(source, twostream.recipe.long_side, allow_damaged)
        written = _write(video_id, folder, twostream, rows_of_file(source, opened, twostream, workers), progress)
        cached = None
    arrays, facts = written
    record = {
        "id": video_id,
        "source": str(source),
        "bytes": stat.st_size,
        "mtime": stat.st_mtime,
        **origin,
        "recipe": folder.recipe.id,
        **chosen.to_dict(),
        "arrays": arrays,
        **facts,
        "tail_frames_dropped": facts["frames_24fps"] - facts["chunks"] * CHUNK,
        "cached": cached is not None,
        "threads": workers.workers if workers else twostream.threads,
        "device": twostream.device,
        "seconds": {**asdict(twostream.seconds), "total": perf_counter() - start},
    }
    write_json(folder.record(video_id), record)
    return record


def _sha256(source: Path) -> str | None:
    """Of a file; None where it cannot be read, which who opens it as a video says better."""
    with suppress(OSError):
        return sha256_of(source) if source.is_file() else None


def _write(
    video_id: str, folder: FeatureFolder, twostream: TwoStream, video: VideoRows, progress: Tell
) -> tuple[dict, dict]:
    """Put a video's rows under their final names once they are whole; fingerprints by stream, facts of decoding."""
    twostream.seconds = StepSeconds()
    with ExitStack() as stack:
        files = {}
        for stream in folder.streams:
            temporary = stack.enter_context(replacing(folder.array(stream, video_id)))
            files[stream] = RowFile(temporary, (twostream.recipe.parts[stream].dim,))
            stack.callback(files[stream].close)
        for row in stack.enter_context(closing(video.rows)):
            _append(files, row)
            progress(video_id, row.index + 1, video.announced)
        n_chunks = files[folder.streams[0]].rows
        if n_chunks == 0:
            raise VideoError(
                f"{video.name} is damaged before its first chunk ends.", "record or download the file again."
            )
        for file in files.values():
            file.finish()
        return {stream: fingerprints(file.path) for stream, file in files.items()}, video.facts(n_chunks)


def _append(files: dict[str, RowFile], row: FeatureRow) -> None:
    for stream, file in files.items():
        file.append(row.features[stream])
