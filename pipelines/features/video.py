"""Build the networks of an extraction, and extract one video to its arrays and record; used by all engines."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lstr.errors import CacheError, MissingPathError, RecipeError, VideoError, WeightsError
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import FlowWorkers, default_workers, flow_workers, too_small
from lstr.extractors.networks.build import build_network
from lstr.extractors.networks.weights_file import ModelCard, WeightSources, network_file, read_card, sha256_of
from lstr.extractors.networks.weights_folder import blind_fold, cards_of
from lstr.extractors.presets import shape_of
from lstr.extractors.run import STEPS, FeatureRow, TwoStream, run_on
from lstr.extractors.stages import WRITE, closed_after
from lstr.extractors.twostream import build_twostream, calibration_of, rebuild_twostream
from lstr.extractors.video.frames import CHUNK, CHUNK_SECONDS, Chunk
from lstr.extractors.video.inputs import local_copy
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import open_chunks
from lstr.files.arrays import RowFile, fingerprints
from lstr.files.atomic import replacing
from lstr.files.content import write_json
from lstr.files.remote import Place, RemoteFile
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.failures import failure_of, skip_failure
from lstr.pipelines.features.chunk_cache import ChunkCache, caches_of, chunk_recipe, decoded_facts
from lstr.pipelines.features.extraction import ExtractOptions, Outcome
from lstr.pipelines.features.output_folder import OutputFolder, create_output, open_output, read_calibration
from lstr.pipelines.features.recipes import StoredRecipe
from lstr.pipelines.progress import Progress

T = TypeVar("T")
SAMPLED_VIDEOS = 50  # at least; up to twice this number of videos is probed for the most common aspect ratio
CALIBRATION_CHUNKS = 256  # a few hundred are enough for a mean and a variance per channel
CACHED_FOLDS = 4  # pairs of fold networks in memory; each takes about 100 MB, and a second to build


def training_ids(calibrate: Path, videos: Mapping[str, Place]) -> list[str]:
    """Return the ids of the videos in the training subset of a label file.

    Raises LabelsError if it cannot be read, and MissingPathError if it contains none of the videos.
    """
    labels = read_label_file(calibrate, present=videos)
    ids = sorted(i for i, video in labels.videos.items() if video.subset == "training" and i in videos)
    if not ids:
        raise MissingPathError(
            f"{calibrate} does not contain any of the {len(videos)} videos to extract.",
            "name them by id, or give their folder too.",
        )
    return ids


def sampled_inputs(
    twostream: TwoStream, videos: Mapping[str, Place], workers: FlowWorkers | None, n_chunks: int
) -> Generator[Progress, None, dict[str, list[NDArray[np.uint8]]]]:
    """Return inputs of the networks from chunks that are spread evenly over videos: first crops (H, W, C) by stream.

    `workers` compute the recipe's flow. Videos that cannot be read are skipped. Raises VideoError if none can be read.
    """
    lengths = {}
    for video_id, source in videos.items():
        with skip_failure(source), local_copy(source) as (path, _):
            lengths[video_id] = probe(path).n_chunks
    total = sum(lengths.values())
    picked = np.unique(np.linspace(0, total - 1, min(n_chunks, total)).round().astype(int))
    found: dict[str, list[NDArray[np.uint8]]] = {stream: [] for stream in twostream.recipe.streams}
    start = n_done = 0
    for video_id, length in lengths.items():
        wanted = set(picked[(picked >= start) & (picked < start + length)] - start)
        start += length
        if not wanted:
            continue
        with skip_failure(videos[video_id]), local_copy(videos[video_id]) as (path, _):
            for chunk in open_chunks(path, twostream.recipe.long_side)[2]:
                if chunk.index in wanted:
                    flow = workers.submit(chunk.frames).result() if workers else None
                    for stream, images in found.items():
                        images.append(twostream.views[stream].cropped(chunk.frames, flow)[0])
                    n_done += 1
                    yield Progress("calibration", n_done, len(picked))
                if chunk.index >= max(wanted):
                    break
    if not n_done:
        raise VideoError("None of the videos for calibration can be read.", "use other videos.")
    return found


def resume_networks(videos: Mapping[str, Place], options: ExtractOptions) -> tuple[TwoStream, OutputFolder] | None:
    """Return the networks and the output folder of an earlier run; None for a new folder. Writes and decodes nothing.

    Raises RecipeError if its recipe differs from the options, and MissingPathError as `training_ids`.
    """
    output, recipe = options.output, options.recipe
    ids = tuple(training_ids(options.calibrate, videos)) if options.calibrate else ()
    folder = open_output(output)
    if folder is None:
        return None
    device, stored = choose_device(options.device), folder.recipe
    if isinstance(recipe, StoredRecipe):
        return _stored_networks(recipe, options, device)
    # A folder keeps the frame size of its first run, so that all its features are comparable.
    sizes = {stream: part.size for stream, part in stored.parts.items() if part.size}
    followed = {stream: part for stream, part in recipe.parts.items() if part.follows and stream in sizes}
    recipe = recipe.having({stream: replace(part, size=sizes[stream]) for stream, part in followed.items()})
    # Do not use statistics of other networks; `create_output` will report that the recipes differ.
    before = {name: part.network for name, part in stored.parts.items()}
    alike = {name for name, part in recipe.parts.items() if part.network == before.get(name)}
    calibration = {stream: known for stream, known in read_calibration(output).items() if stream in alike}
    sources = WeightSources(options.weights, calibration=calibration, calibrated_on=stored.calibrated_on)
    twostream = build_twostream(recipe, sources, device, options.precision or stored.precision)
    folder = create_output(output, twostream.recipe, {})
    if ids and stored.random_streams and ids != stored.calibrated_on:
        raise RecipeError(
            f"{output} was calibrated on other videos than {options.calibrate} names.", "choose another folder with -o."
        )
    return twostream, folder


def new_networks(
    videos: Mapping[str, Place], options: ExtractOptions, workers: FlowWorkers | None
) -> Generator[Progress, None, tuple[TwoStream, OutputFolder]]:
    """Build the networks for a new folder, calibrate random ones if requested, and create the folder.

    `workers` compute the recipe's flow. Raises RecipeError, WeightsError, VideoError or OutputError.
    """
    recipe, sources = options.recipe, WeightSources(options.weights)
    device = choose_device(options.device)
    if isinstance(recipe, StoredRecipe):
        return _stored_networks(recipe, options, device)
    if any(part.follows for part in recipe.parts.values()):
        # A sample of the local videos; the first video if all are remote.
        here = [source for source in videos.values() if not isinstance(source, RemoteFile)]
        sizes = []
        for source in here[:: max(1, len(here) // SAMPLED_VIDEOS)] or [*videos.values()][:1]:
            with skip_failure(source), local_copy(source) as (path, _):
                sizes.append(probe(path).size(recipe.long_side))
        recipe = recipe.seeing(shape_of(sizes))
    twostream = build_twostream(recipe, sources, device, options.precision)
    if options.calibrate and twostream.recipe.random_streams:
        ids = training_ids(options.calibrate, videos)
        chosen = {i: videos[i] for i in ids}
        images = yield from sampled_inputs(twostream, chosen, workers, CALIBRATION_CHUNKS)
        for stream, part in twostream.recipe.parts.items():
            if part.weights == "random":
                # Shuffled, because a batch must mix videos: consecutive chunks are similar.
                order = np.random.default_rng(0).permutation(len(images[stream]))
                twostream.calibrate(stream, np.stack([images[stream][i] for i in order]))
        calibrated = replace(sources, calibration=calibration_of(twostream), calibrated_on=tuple(ids))
        twostream = build_twostream(recipe, calibrated, device, options.precision)
    return twostream, create_output(options.output, twostream.recipe, calibration_of(twostream))


def _stored_networks(stored: StoredRecipe, options: ExtractOptions, device: str) -> tuple[TwoStream, OutputFolder]:
    """Build the networks of a stored recipe, checked against its hashes, and return them with a folder for it."""
    if options.calibrate:
        raise RecipeError(f"{stored.origin} contains its own calibration.", "leave out --calibrate.")
    sources = WeightSources(options.weights, stored.calibration, stored.recipe.calibrated_on)
    twostream = rebuild_twostream(stored.recipe, sources, device)
    return twostream, create_output(options.output, twostream.recipe, calibration_of(twostream))


class FoldNetworks:
    """The networks of a recipe, `twostream`, and the networks of its folds, built at their first use.

    Args:
        without: Use the networks that were trained without this fold for every video, 0 for the networks of all videos;
            None chooses by video.

    Raises WeightsError if the weights lack networks of the recipe's folds, or the ids of training videos.
    """

    def __init__(self, twostream: TwoStream, without: int | None = None):
        self.twostream, self.without = twostream, without
        self.recipe = twostream.recipe
        # Model cards by stream, for weights with known training videos
        self.cards: dict[str, tuple[ModelCard, ...]] = {}
        for stream in self.recipe.streams:
            source, folds = twostream.sources.files.get(stream), self.recipe.parts[stream].folds
            if folds and not (source and network_file(source, stream, 1) != network_file(source, stream)):
                raise WeightsError(
                    f"The recipe needs the {len(folds)} {stream} networks of its folds, but the weights given are "
                    f"{source or 'missing'}.",
                    f"use the folder of these networks as --weights {stream}=DIR, or as --recipe DIR.",
                )
            if folds and source:
                self.cards[stream] = cards_of(source, stream, len(folds))
            elif source and (card := read_card(network_file(source, stream))):
                self.cards[stream] = (card,)
        self._cached = lru_cache(CACHED_FOLDS)(self._build)
        self._lock = threading.Lock()

    def of(self, video_id: str, sha256: str | None) -> tuple[TwoStream, dict[str, Any]]:
        """Return the networks for a video, by its id and its file's SHA-256 if known; and their part of the record.

        The record has their hashes, the fold that they were trained without (None for the networks of all videos), and
        the streams that were trained on the video, if known. Raises WeightsError if the file of a fold does not belong
        to the recipe.
        """
        # Features from networks that were trained on the video are better than features of new videos.
        twostream, fold = self.twostream, None
        seen: dict[str, Any] = {}
        if self.cards:
            folds = {stream: blind_fold(cards, video_id, sha256) for stream, cards in self.cards.items()}
            if self.without is not None:
                folds = dict.fromkeys(folds, self.without or None)
            known = {stream: cards[folds[stream] or 0].seen for stream, cards in self.cards.items()}
            seen = {"seen": [s for s, ids in known.items() if video_id in ids or sha256 in ids.values()]}
            fold = next(filter(None, folds.values()), None)
            with self._lock:
                twostream = self._cached(**folds) if fold else self.twostream
        networks = {stream: twostream.recipe.parts[stream].sha256 for stream in twostream.recipe.streams}
        return twostream, {"networks": networks, "fold": fold, **seen}

    def _build(self, **folds: int | None) -> TwoStream:
        networks = dict(self.twostream.networks)
        parts: dict[str, Any] = {}
        sources = self.twostream.sources
        for stream, fold in folds.items():
            part, source = self.recipe.parts[stream], sources.files.get(stream)
            if fold and source:
                networks[stream], parts[stream] = build_network(stream, part, sources, fold)
                if parts[stream].sha256 != part.folds[fold - 1]:
                    raise WeightsError(
                        f"{network_file(source, stream, fold)} has the hash {parts[stream].sha256}; the features were "
                        f"made with {part.weights} {part.folds[fold - 1]}.",
                        f"use the folder of these networks as --weights {stream}=DIR.",
                    )
        whole = self.twostream
        return TwoStream(networks, self.recipe.having(parts), whole.device, sources, whole.options)


@dataclass(frozen=True)
class VideoExtractor:
    """Extractor of videos into a feature folder, in this process."""

    folder: OutputFolder
    networks: FoldNetworks
    flow: FlowWorkers | None  # None if the recipe has no flow
    caches: Sequence[ChunkCache] = ()  # caches that may contain a video's chunks
    allow_damaged: bool = False
    at_once: int = 1  # number of videos that `engine` extracts at once, with shared networks and flow

    def engine(self, to_do: Mapping[str, Place]) -> Generator[Progress | Outcome, None, None]:
        """Extract videos without another process. Raises as `extract`."""
        if self.at_once == 1:
            for video_id, source in to_do.items():
                yield from self.extract(video_id, source)
            return
        shared = self.networks.twostream
        shared.prepare(1, shared.batch)  # capture CUDA graphs before any thread uses the GPU
        makers = [partial(self.extract, video_id, source) for video_id, source in to_do.items()]
        with closing(merged(makers, self.at_once)) as events:
            yield from events

    def extract(self, video_id: str, source: Place) -> Generator[Progress | Outcome, None, None]:
        """Extract one video that is not done; the last event is its Outcome, which also reports a failure.

        Raises only errors that affect all videos, as `failure_of`.
        """
        start = perf_counter()
        try:
            with self.folder.staged(video_id) as target, local_copy(source) as (path, origin):
                record, note = yield from self._write(video_id, path, origin, target)
        except Exception as error:
            yield Outcome(video_id, source, "failed", **failure_of(error, source)._asdict())
            return
        chunks, damaged = record["chunks"], record["decode_errors"] > 0
        reason = f"damaged: {chunks} of {record['announced_chunks']} chunks were kept" if damaged else ""
        stages = {name: seconds for name, seconds in record["seconds"].items() if name != "total"}
        yield Outcome(video_id, source, "done", chunks, perf_counter() - start, stages, reason, note=note)

    def _write(
        self, video_id: str, source: Path, origin: Mapping[str, Any], folder: OutputFolder
    ) -> Generator[Progress, None, tuple[dict[str, Any], str]]:
        """Write one video's array of each stream, then its record; return the record, and a warning.

        `origin` has the entries of the record about a downloaded source. Chunks come from a cache if it has them; if
        these are damaged, they are removed, and the file is decoded. Files get their final names only when all arrays
        are complete. Raises VideoError if the video is damaged.
        """
        stat = source.stat() if source.exists() else None
        sha256 = None
        if self.networks.cards or self.caches:
            with suppress(OSError):  # opening the video will report a better error
                sha256 = sha256_of(source) if source.is_file() else None
        chosen, about_networks = self.networks.of(video_id, sha256)
        twostream = copy(chosen)  # a copy has separate timings
        start, note = perf_counter(), ""
        found = (cache.find(sha256) for cache in self.caches) if sha256 else ()
        usable = (v for v in found if v and (self.allow_damaged or not v.record["decoded"]["decode_errors"]))
        cached = next(usable, None)
        if cached is not None:
            facts = dict(cached.record["decoded"])
            if "flow" not in twostream.recipe.streams:
                facts["flow_backend"] = None
            read = map(cached.read, range(len(cached)))
            chunks_with_flow = (
                (Chunk(index, (index + 1) * CHUNK_SECONDS, frames), flow) for index, (frames, flow) in enumerate(read)
            )
            rows = twostream.rows(chunks_with_flow, threads=self.flow.workers if self.flow else 0)
            name, announced = cached.record["source"], facts["announced_chunks"]
            try:
                arrays, _ = yield from _write_arrays(video_id, folder, twostream, rows, name, announced)
            except CacheError as error:
                cached.drop()
                cached, note = None, f"{error} {source} was decoded instead."
        if cached is None:
            long_side = twostream.recipe.long_side
            video, reader, chunks = open_chunks(source, long_side, self.allow_damaged, twostream.frames_seen)
            width, height = video.size(long_side)
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
            **about_networks,
            "arrays": arrays,
            **facts,
            "tail_frames_dropped": facts["frames_24fps"] - facts["chunks"] * CHUNK,
            "cached": cached is not None,
            "threads": max(1, (self.flow.workers if self.flow else twostream.options.threads) // self.at_once),
            "device": twostream.device,
            "runtimes": twostream.runtimes,
            "seconds": {**twostream.seconds, "total": perf_counter() - start},
        }
        with WRITE:
            write_json(folder.record(video_id), record)
        return record, note


@contextmanager
def open_worker(config: ExtractOptions) -> Iterator[VideoExtractor]:
    """Open an extractor for an existing feature folder, in a process that a job has started.

    Raises MissingPathError if the folder is missing, RecipeError or WeightsError if its networks cannot be built, and
    FlowError if the flow backend is missing.
    """
    folder = open_output(config.output)
    if folder is None:
        raise MissingPathError(
            f"{config.output} does not exist.", "choose a folder or a URL that every worker can reach with -o."
        )
    recipe, threads = folder.recipe, config.threads or default_workers()
    sources = WeightSources(config.weights, read_calibration(config.output), recipe.calibrated_on)
    device = choose_device(config.device)
    networks = FoldNetworks(run_on(rebuild_twostream(recipe, sources, device), config.runtime, threads), config.without)
    caches = caches_of(config.cache, chunk_recipe(recipe)) if config.cache else []
    with flow_workers(recipe.algorithm, threads, device=device) as flow:
        yield VideoExtractor(folder, networks, flow, caches, config.allow_damaged)


def _write_arrays(
    video_id: str, folder: OutputFolder, twostream: TwoStream, rows: Iterator[FeatureRow], name: str, announced: int
) -> Generator[Progress, None, tuple[dict[str, dict[str, str]], int]]:
    """Write a video's rows atomically; return fingerprints by stream, and the number of rows.

    `name` is the video's name for messages; it should have `announced` chunks. Raises VideoError without any row.
    """
    twostream.seconds = dict.fromkeys(STEPS, 0.0)
    with ExitStack() as stack:
        files = {}
        for stream in folder.recipe.streams:
            temporary = stack.enter_context(replacing(folder.array(stream, video_id)))
            files[stream] = RowFile(temporary, (twostream.recipe.parts[stream].dim,))
            stack.callback(files[stream].close)
        n_rows = 0
        for row in stack.enter_context(closed_after(rows)):
            with WRITE:
                for stream, file in files.items():
                    file.append(row.features[stream])
            n_rows = row.index + 1
            yield Progress(video_id, n_rows, announced)
        if not n_rows:
            raise VideoError(f"{name} is damaged before its first chunk ends.", "record or download the file again.")
        with WRITE:
            for file in files.values():
                file.finish()
            return {stream: fingerprints(file.path) for stream, file in files.items()}, n_rows


def merged(makers: Iterable[Callable[[], Iterable[T]]], n: int) -> Generator[T, None, None]:
    """Yield the items of many iterables, in the order of their arrival; `n` iterables run at once, each in a thread.

    The items of one iterable stay in order. An error of one iterable ends all. Closing the generator closes the
    iterables after their current items.
    """
    made: SimpleQueue[T | Future] = SimpleQueue()
    stopped = threading.Event()

    def work(make: Callable[[], Iterable[T]]) -> None:
        if stopped.is_set():
            return
        try:
            with closed_after(make()) as source:
                for item in source:
                    made.put(item)
                    if stopped.is_set():
                        break
        except BaseException:
            stopped.set()  # before this thread takes the next iterable
            raise

    with ThreadPoolExecutor(n, "merged") as pool:
        try:
            left = 0
            for make in makers:
                pool.submit(work, make).add_done_callback(made.put)
                left += 1
            while left:
                item = made.get()
                if isinstance(item, Future):
                    left -= 1
                    item.result()  # raises the error that ended it
                else:
                    yield item
        finally:
            stopped.set()
