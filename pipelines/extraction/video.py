"""One video to its two arrays and its record: what every engine runs, in whatever process."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from copy import copy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePath
from time import perf_counter
from typing import Any

from lstr.extractors.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.prefetch import StepSeconds, closed_after, merged
from lstr.extractors.run import FeatureRow, TwoStream
from lstr.extractors.stages import WRITE
from lstr.extractors.video.file_reader import decoder_beside, open_chunks
from lstr.extractors.video.frames import CHUNK
from lstr.extractors.weights.published_files import sha256_of
from lstr.pipelines.extraction.chunk_cache import CacheError, ChunkCache
from lstr.pipelines.extraction.feature_rows import VideoRows, find_cached, rows_of_cache, rows_of_file
from lstr.pipelines.extraction.outcome import Outcome, failed
from lstr.pipelines.failures import Failure, failure_of
from lstr.pipelines.features.folder import FeatureFolder, Features
from lstr.pipelines.files.atomic import replacing
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.files.npy_rows import RowFile, fingerprints
from lstr.pipelines.files.remote import Place
from lstr.pipelines.files.videos import at_hand
from lstr.pipelines.networks.fold_networks import FoldNetworks
from lstr.pipelines.progress import Progress

LONGEST = 250  # bytes of a name that .json can be added to, on the usual file systems


@dataclass(frozen=True)
class VideoExtractor:
    """All that it takes to extract videos into a feature folder, one after the other in this process."""

    folder: Features
    networks: FoldNetworks
    flow: FlowWorkers | None
    """None where the recipe has no flow."""
    caches: Sequence[ChunkCache] = ()
    """Caches that may have a video's chunks already."""
    allow_damaged: bool = False
    at_once: int = 1
    """Videos at once by `engine`, which share the networks and the flow."""

    def engine(self, to_do: Mapping[str, Place]) -> Generator[Progress | Outcome, None, None]:
        """The engine that starts no other process. Raises as `extract`."""
        if self.at_once == 1:
            yield from self.one_by_one(to_do)
            return
        shared = self.networks.twostream
        shared.prepare(1, shared.batch)  # graphs are captured before any thread uses the GPU
        makers = [partial(self.one_by_one, {video_id: source}) for video_id, source in to_do.items()]
        with closing(merged(makers, self.at_once)) as events:
            yield from events

    def one_by_one(self, to_do: Mapping[str, Place]) -> Generator[Progress | Outcome, None, None]:
        """Videos in their order. Raises as `extract`."""
        for video_id, source in to_do.items():
            outcome = yield from self.extract(video_id, source)
            yield outcome

    def extract(self, video_id: str, source: Place) -> Generator[Progress, None, Outcome]:
        """Extract one video that is not done; what is wrong with it is an Outcome and stops nothing.

        Raises what would stop every other video too, as `failure_of`.
        """
        start = perf_counter()
        if len(os.fsencode(PurePath(video_id).name)) > LONGEST:
            too_long = Failure(f"{source} has a name too long for its features.", "rename or link it.")
            return failed(video_id, source, too_long)
        try:
            with self.folder.staged(video_id) as target, at_hand(source) as (path, origin):
                record, note = yield from self._write(video_id, path, origin, target)
        except Exception as error:
            return failed(video_id, source, failure_of(error, source))
        chunks, damaged = record["chunks"], record["decode_errors"] > 0
        reason = f"damaged: {chunks} of {record['announced_chunks']} chunks were kept" if damaged else ""
        stages = {name: seconds for name, seconds in record["seconds"].items() if name != "total"}
        return Outcome(video_id, source, "done", chunks, perf_counter() - start, stages, reason, note=note)

    def _write(
        self, video_id: str, source: Path, origin: Mapping[str, Any], folder: FeatureFolder
    ) -> Generator[Progress, None, tuple[dict[str, Any], str]]:
        """Write one video's array of each stream, then its record; returns that, and a sentence to warn with.

        `origin` is what the record says of a source that was copied here. Chunks are taken from a cache that has them;
        where they are damaged they are removed, and the file is decoded. Nothing appears under a final name before all
        arrays are whole. Raises VideoError when the video is damaged.
        """
        assert folder.recipe, "a folder that is written to has a recipe"
        stat = source.stat() if source.exists() else None
        sha256 = _sha256(source) if self.networks.cards or self.caches else None
        chosen = self.networks.of(video_id, sha256)
        twostream = copy(chosen.twostream)  # with seconds of its own
        start, note, written = perf_counter(), "", None
        cached = find_cached(self.caches, sha256, twostream, self.allow_damaged)
        if cached:
            cache, video = cached
            try:
                rows = rows_of_cache(video, twostream, self.flow)
                written = yield from _write_arrays(video_id, folder, twostream, rows)
            except CacheError as error:
                cache.drop(video)
                note = f"{error} {source} was decoded instead."
        if written is None:
            decoder = decoder_beside(twostream.device)
            opened = open_chunks(source, twostream.recipe.long_side, self.allow_damaged, decoder)
            rows = rows_of_file(source, opened, twostream, self.flow)
            written = yield from _write_arrays(video_id, folder, twostream, rows)
            cached = None
        arrays, facts = written
        record = {
            "id": video_id,
            "source": str(source),
            "bytes": stat.st_size if stat else None,
            "mtime": stat.st_mtime if stat else None,
            **origin,
            "recipe": folder.recipe.id,
            **chosen.to_dict(),
            "arrays": arrays,
            **facts,
            "tail_frames_dropped": facts["frames_24fps"] - facts["chunks"] * CHUNK,
            "cached": cached is not None,
            "threads": max(1, (self.flow.workers if self.flow else twostream.options.threads) // self.at_once),
            "device": twostream.device,
            "runtimes": twostream.runtimes,
            "seconds": {**asdict(twostream.seconds), "total": perf_counter() - start},
        }
        with WRITE:
            write_json(folder.record(video_id), record)
        return record, note


def _sha256(source: Path) -> str | None:
    """SHA-256 of a file; None where it cannot be read, which opening it as a video says better."""
    with suppress(OSError):
        return sha256_of(source) if source.is_file() else None
    return None


def _write_arrays(
    video_id: str, folder: FeatureFolder, twostream: TwoStream, video: VideoRows
) -> Generator[Progress, None, tuple[dict[str, dict[str, str]], dict[str, Any]]]:
    """Put a video's rows under their final names once they are whole; fingerprints by stream, facts of decoding."""
    twostream.seconds = StepSeconds()
    with ExitStack() as stack:
        files = {}
        for stream in folder.streams:
            temporary = stack.enter_context(replacing(folder.array(stream, video_id)))
            files[stream] = RowFile(temporary, (twostream.recipe.parts[stream].dim,))
            stack.callback(files[stream].close)
        for row in stack.enter_context(closed_after(video.rows)):
            _append(files, row)
            yield Progress(video_id, row.index + 1, video.announced)
        n_chunks = files[folder.streams[0]].rows
        if n_chunks == 0:
            raise VideoError(
                f"{video.name} is damaged before its first chunk ends.", "record or download the file again."
            )
        with WRITE:
            for file in files.values():
                file.finish()
            return {stream: fingerprints(file.path) for stream, file in files.items()}, video.facts(n_chunks)


@WRITE
def _append(files: Mapping[str, RowFile], row: FeatureRow) -> None:
    for stream, file in files.items():
        file.append(row.features[stream])
