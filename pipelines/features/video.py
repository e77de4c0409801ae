"""Extract one video to its arrays and its record: what every engine runs."""

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from time import perf_counter
from typing import Any

from lstr.errors import CacheError, MissingPathError, VideoError
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import FlowWorkers, default_workers, flow_workers, too_small
from lstr.extractors.networks.weights_file import sha256_of
from lstr.extractors.run import FeatureRow, TwoStream, run_on
from lstr.extractors.stages import WRITE, StepSeconds, closed_after, merged
from lstr.extractors.twostream import rebuild_twostream
from lstr.extractors.video.frames import CHUNK
from lstr.extractors.video.inputs import at_hand
from lstr.extractors.video.reader import open_chunks
from lstr.files.arrays import RowFile, fingerprints
from lstr.files.atomic import replacing
from lstr.files.content import write_json
from lstr.files.remote import Place
from lstr.pipelines.failures import failure_of
from lstr.pipelines.features.chunk_cache import CachedVideo, ChunkCache, cached_chunks, caches_of, decoded_facts
from lstr.pipelines.features.extraction import Outcome, WorkerConfig
from lstr.pipelines.features.networks import FoldNetworks
from lstr.pipelines.features.output_folder import OutputFolder, open_output
from lstr.pipelines.progress import Progress

MAX_NAME_BYTES = 250  # of a name that .json can be added to, on the usual file systems


@dataclass(frozen=True)
class VideoExtractor:
    """Extracts videos into a feature folder, in this process."""

    folder: OutputFolder
    networks: FoldNetworks
    flow: FlowWorkers | None
    """None if the recipe has no flow"""
    caches: Sequence[ChunkCache] = ()
    """Caches that may have a video's chunks already"""
    allow_damaged: bool = False
    at_once: int = 1
    """Videos at once by `engine`, which share the networks and the flow"""

    def engine(self, to_do: Mapping[str, Place]) -> Generator[Progress | Outcome, None, None]:
        """Extract videos without another process. Raises as `extract`."""
        if self.at_once == 1:
            yield from self.one_by_one(to_do)
            return
        shared = self.networks.twostream
        shared.prepare(1, shared.batch)  # graphs are captured before any thread uses the GPU
        makers = [partial(self.one_by_one, {video_id: source}) for video_id, source in to_do.items()]
        with closing(merged(makers, self.at_once)) as events:
            yield from events

    def one_by_one(self, to_do: Mapping[str, Place]) -> Generator[Progress | Outcome, None, None]:
        """Extract videos in their order. Raises as `extract`."""
        for video_id, source in to_do.items():
            outcome = yield from self.extract(video_id, source)
            yield outcome

    def extract(self, video_id: str, source: Place) -> Generator[Progress, None, Outcome]:
        """Extract one video that is not done; what is wrong with it is in its Outcome and stops nothing.

        Raises what would stop every other video too, as `failure_of`.
        """
        start = perf_counter()
        try:
            if len(os.fsencode(PurePath(video_id).name)) > MAX_NAME_BYTES:
                raise VideoError(f"{source} has a name too long for its features.", "rename or link it.")
            with self.folder.staged(video_id) as target, at_hand(source) as (path, origin):
                record, note = yield from self._write(video_id, path, origin, target)
        except Exception as error:
            return Outcome.failed(video_id, source, failure_of(error, source))
        chunks, damaged = record["chunks"], record["decode_errors"] > 0
        reason = f"damaged: {chunks} of {record['announced_chunks']} chunks were kept" if damaged else ""
        stages = {name: seconds for name, seconds in record["seconds"].items() if name != "total"}
        return Outcome(video_id, source, "done", chunks, perf_counter() - start, stages, reason, note=note)

    def _write(
        self, video_id: str, source: Path, origin: Mapping[str, Any], folder: OutputFolder
    ) -> Generator[Progress, None, tuple[dict[str, Any], str]]:
        """Write one video's array of each stream, then its record; return that, and a warning.

        `origin` is what the record says about a source that was copied here. Chunks are taken from a cache that has
        them; if they are damaged they are removed, and the file is decoded. Nothing appears under a final name before
        all arrays are whole. Raises VideoError if the video is damaged.
        """
        stat = source.stat() if source.exists() else None
        sha256 = None
        if self.networks.cards or self.caches:
            with suppress(OSError):  # opening it as a video says better why it cannot be read
                sha256 = sha256_of(source) if source.is_file() else None
        chosen = self.networks.of(video_id, sha256)
        twostream = copy(chosen.twostream)  # with seconds of its own
        start, note = perf_counter(), ""
        if found := self._find_cached(sha256):
            cache, cached = found
            facts = cached.record["decoded"] | ({} if "flow" in twostream.recipe.streams else {"flow_backend": None})
            rows = twostream.rows_with_flow(cached_chunks(cached), self.flow.workers if self.flow else 0)
            name, announced = cached.record["source"], facts["announced_chunks"]
            try:
                arrays, _ = yield from _write_arrays(video_id, folder, twostream, rows, name, announced)
            except CacheError as error:
                cache.drop(cached)
                note, found = f"{error} {source} was decoded instead.", None
        if found is None:
            video, reader, chunks = open_chunks(source, twostream.recipe.long_side, self.allow_damaged)
            width, height = video.size(twostream.recipe.long_side)
            if too_small(twostream.recipe.algorithm, width, height):
                raise VideoError(
                    f"{source} is {width}×{height} pixels, too small for DIS flow.",
                    "use --set recipe.flow_algorithm=tvl1.",
                )
            rows = twostream.rows(chunks, self.flow)
            arrays, n_chunks = yield from _write_arrays(video_id, folder, twostream, rows, str(source), video.n_chunks)
            facts = decoded_facts(video, reader, n_chunks, self.flow.backend if self.flow else None)
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
            "cached": found is not None,
            "threads": max(1, (self.flow.workers if self.flow else twostream.options.threads) // self.at_once),
            "device": twostream.device,
            "runtimes": twostream.runtimes,
            "seconds": {**asdict(twostream.seconds), "total": perf_counter() - start},
        }
        with WRITE:
            write_json(folder.record(video_id), record)
        return record, note

    def _find_cached(self, sha256: str | None) -> tuple[ChunkCache, CachedVideo] | None:
        """Return cached chunks of a video file with this SHA-256, and their cache."""
        if sha256 is None:
            return None
        found = ((cache, video) for cache in self.caches if (video := cache.find(sha256)))
        return next(
            (pair for pair in found if self.allow_damaged or not pair[1].record["decoded"]["decode_errors"]), None
        )


@contextmanager
def open_worker(config: WorkerConfig) -> Iterator[VideoExtractor]:
    """Open what extracts into a feature folder that was begun, in a process that a job has started.

    Raises MissingPathError if there is no such folder, RecipeError or WeightsError if its networks cannot be made here,
    FlowError without the flow backend.
    """
    folder = open_output(config.output)
    if folder is None:
        raise MissingPathError(
            f"{config.output} is not there.", "choose a folder or a URL that every worker can reach with -o."
        )
    recipe, threads = folder.recipe, config.threads or default_workers()
    sources = replace(config.sources, calibration=folder.calibration(), calibrated_on=recipe.calibrated_on)
    device = choose_device(config.device)
    networks = FoldNetworks(run_on(rebuild_twostream(recipe, sources, device), config.runtime, threads), config.without)
    caches = caches_of(config.cache, recipe) if config.cache else []
    with flow_workers(recipe.algorithm, threads, config.flow_backend, device) as flow:
        yield VideoExtractor(folder, networks, flow, caches, config.allow_damaged)


def _write_arrays(
    video_id: str,
    folder: OutputFolder,
    twostream: TwoStream,
    rows: Iterator[FeatureRow],
    name: str,
    announced: int,
) -> Generator[Progress, None, tuple[dict[str, dict[str, str]], int]]:
    """Write a video's rows under their final names once they are whole; return fingerprints by stream and rows.

    `name` is the video's, for messages; it should have `announced` chunks. Raises VideoError if it has no row.
    """
    twostream.seconds = StepSeconds()
    with ExitStack() as stack:
        files = {}
        for stream in folder.streams:
            temporary = stack.enter_context(replacing(folder.array(stream, video_id)))
            files[stream] = RowFile(temporary, (twostream.recipe.parts[stream].dim,))
            stack.callback(files[stream].close)
        done = 0
        for row in stack.enter_context(closed_after(rows)):
            with WRITE:
                for stream, file in files.items():
                    file.append(row.features[stream])
            done = row.index + 1
            yield Progress(video_id, done, announced)
        if not done:
            raise VideoError(f"{name} is damaged before its first chunk ends.", "record or download the file again.")
        with WRITE:
            for file in files.values():
                file.finish()
            return {stream: fingerprints(file.path) for stream, file in files.items()}, done
