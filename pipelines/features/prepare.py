"""The feature networks of a new feature folder, or as the folder was begun, calibrated where they are random."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import MissingPathError, RecipeError, VideoError
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.crops import NO_FRAMES
from lstr.extractors.presets import shape_of
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream, calibration_of, rebuild_twostream
from lstr.extractors.video.inputs import at_hand
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import open_chunks
from lstr.files.content import read_text
from lstr.files.remote import Place, RemoteFile, place
from lstr.pipelines.annotations.label_files import is_label_file, read_label_file
from lstr.pipelines.failures import left_out
from lstr.pipelines.features.any_folder import Features
from lstr.pipelines.features.extract_options import ExtractOptions
from lstr.pipelines.features.recipes import StoredRecipe
from lstr.pipelines.features.remote_folder import create_folder, open_folder
from lstr.pipelines.progress import Progress

LOOKED_AT = 50  # videos, or up to twice as many, that tell the shape of them all
CALIBRATION_CHUNKS = 256  # a few hundred are enough for a mean and a variance per channel


def training_ids(calibrate: Path, videos: Mapping[str, Place]) -> list[str]:
    """Ids to calibrate on: the training subset of labels of any form, or the lines of a text file.

    Raises MissingPathError when the file does not exist or names none of the videos.
    """
    if not calibrate.exists():
        raise MissingPathError(f"{calibrate} does not exist.", "give --calibrate a label file or a list of videos.")
    if calibrate.suffix == ".json" or (calibrate.suffix != ".txt" and is_label_file(calibrate)):
        labels = read_label_file(calibrate, present=videos)
        named = [i for i, video in labels.videos.items() if video.subset == "training"]
    else:
        try:
            named = [line.strip() for line in read_text(calibrate).splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            hint = "give --calibrate a label file or a list of videos, in UTF-8."
            raise MissingPathError(f"{calibrate} cannot be read ({error}).", hint) from error
    by_path = {path.resolve(): video_id for video_id, path in videos.items()}
    ids = sorted({i if i in videos else by_path.get(place(i).resolve(), "") for i in named} - {""})
    if not ids:
        raise MissingPathError(
            f"{calibrate} names none of the {len(videos)} videos to extract.",
            "name them by id, or give their folder too.",
        )
    return ids


def sampled_inputs(
    twostream: TwoStream,
    videos: Mapping[str, Place],
    workers: FlowWorkers | None,
    n_chunks: int,
    what: str,
) -> Generator[Progress, None, dict[str, list[NDArray[np.uint8]]]]:
    """What the networks see of chunks spread evenly over videos, by stream: the first crop (segments, H, W, C) of each.

    `workers` may be None where no network takes flow. A video that cannot be read is left out. Progress is of `what`.
    Raises VideoError when none can be read.
    """
    lengths = {}
    for video_id, source in videos.items():
        with left_out(source), at_hand(source) as (path, _):
            lengths[video_id] = probe(path).n_chunks
    total = sum(lengths.values())
    picked = np.unique(np.linspace(0, total - 1, min(n_chunks, total)).round().astype(int))
    recipe = twostream.recipe
    found: dict[str, list[NDArray[np.uint8]]] = {stream: [] for stream in recipe.streams}
    waiting, taken, start = [], 0, 0
    for video_id, length in lengths.items():
        wanted = set(picked[(picked >= start) & (picked < start + length)] - start)
        start += length
        if not wanted:
            continue
        with left_out(videos[video_id]), at_hand(videos[video_id]) as (path, _):
            for chunk in open_chunks(path, recipe.long_side)[2]:
                if chunk.index in wanted:
                    taken += 1
                    for stream, part in recipe.parts.items():
                        if stream != "flow":
                            found[stream].append(twostream.inputs.cropped(stream, chunk.frames)[: part.segments])
                    if recipe.flow and workers:
                        waiting.append((video_id, workers.submit(chunk.frames)))
                if chunk.index >= max(wanted):
                    break
    for at, (video_id, pending) in enumerate(waiting, start=1):
        with left_out(videos[video_id]):
            found["flow"].append(twostream.inputs.cropped("flow", NO_FRAMES, pending.result())[:1])
        yield Progress(what, at, len(waiting))
    if not taken or (waiting and not found["flow"]):
        raise VideoError(f"None of the videos for {what} can be read.", "give other videos.")
    return found


def calibrate_twostream(
    twostream: TwoStream,
    videos: Mapping[str, Place],
    workers: FlowWorkers | None,
    n_chunks: int = CALIBRATION_CHUNKS,
) -> Generator[Progress, None, dict[str, Any]]:
    """Batch-norm statistics for random networks from chunks spread evenly over videos, by stream.

    `workers` may be None where no network takes flow. A video that cannot be read is left out; extraction names it
    later. Raises VideoError when none can be read.
    """
    images = yield from sampled_inputs(twostream, videos, workers, n_chunks, "calibration")
    for stream, part in twostream.recipe.parts.items():
        if part.weights == "random":
            # neighbours in time are alike: a batch must mix videos
            order = np.random.default_rng(0).permutation(len(images[stream]))
            twostream.calibrate(stream, np.stack([images[stream][i] for i in order]))
    return calibration_of(twostream)


def as_begun(videos: Mapping[str, Place], options: ExtractOptions) -> tuple[TwoStream, Features] | None:
    """The networks and the folder as it was begun; None where it is new. Writes nothing, and looks into no video.

    Raises RecipeError when its recipe is not what the options request, and MissingPathError as `training_ids`.
    """
    output, recipe = options.output, options.recipe
    ids = tuple(training_ids(options.calibrate, videos)) if options.calibrate else ()
    existing = open_folder(output)
    begun = existing.recipe if existing else None
    if existing is None or begun is None:
        return None
    device = choose_device(options.device)
    if isinstance(recipe, StoredRecipe):
        return _as_stored(recipe, options, device)
    recipe = recipe.seeing_as(begun)
    # statistics of other networks do not fit: the recipes will differ, which create_folder says
    before = {name: part.network for name, part in begun.parts.items()}
    alike = {name for name, part in recipe.parts.items() if part.network == before.get(name)}
    calibration = {stream: known for stream, known in existing.calibration().items() if stream in alike}
    kept = replace(options.sources, calibration=calibration, calibrated_on=begun.calibrated_on)
    twostream = build_twostream(recipe, kept, device, options.precision or begun.precision)
    folder = create_folder(output, twostream.recipe, {})
    if ids and begun.is_random and ids != begun.calibrated_on:
        raise RecipeError(
            f"{output} was calibrated on other videos than {options.calibrate} names.",
            "choose another folder with -o.",
        )
    return twostream, folder


def prepare(
    videos: Mapping[str, Place], options: ExtractOptions, workers: FlowWorkers | None
) -> Generator[Progress, None, tuple[TwoStream, Features]]:
    """The networks and the folder: as the folder was begun when it exists, new otherwise.

    `workers` compute the recipe's flow. Raises RecipeError when the folder's recipe cannot be what the options are.
    """
    if begun := as_begun(videos, options):
        return begun
    recipe, sources = options.recipe, options.sources
    device = choose_device(options.device)
    if isinstance(recipe, StoredRecipe):
        return _as_stored(recipe, options, device)
    if any(part.follows for part in recipe.parts.values()):
        recipe = recipe.seeing(shape_of(_sizes(videos, recipe.long_side)))
    twostream = build_twostream(recipe, sources, device, options.precision)
    if options.calibrate and twostream.recipe.is_random:
        ids = training_ids(options.calibrate, videos)
        statistics = yield from calibrate_twostream(twostream, {i: videos[i] for i in ids}, workers)
        calibrated = replace(sources, calibration=statistics, calibrated_on=tuple(ids))
        twostream = build_twostream(recipe, calibrated, device, options.precision)
    return twostream, create_folder(options.output, twostream.recipe, calibration_of(twostream))


def _sizes(videos: Mapping[str, Place], long_side: int) -> Iterator[tuple[int, int]]:
    """Width and height of some of the videos, spread over those at hand, without any that cannot be read.

    Of videos that are all elsewhere the first one serves.
    """
    here = [source for source in videos.values() if not isinstance(source, RemoteFile)]
    for source in here[:: max(1, len(here) // LOOKED_AT)] or [*videos.values()][:1]:
        with left_out(source), at_hand(source) as (path, _):
            yield probe(path).size(long_side)


def _as_stored(stored: StoredRecipe, options: ExtractOptions, device: str) -> tuple[TwoStream, Features]:
    """The networks of a whole recipe, checked against its hashes, and a folder of it."""
    if options.calibrate:
        raise RecipeError(f"{stored.origin} brings its own calibration.", "leave out --calibrate.")
    brought = replace(options.sources, calibration=stored.calibration, calibrated_on=stored.recipe.calibrated_on)
    twostream = rebuild_twostream(stored.recipe, brought, device)
    return twostream, create_folder(options.output, twostream.recipe, calibration_of(twostream))
