"""The feature networks of a new feature folder, or as the folder was begun, calibrated where they are random."""

from contextlib import suppress
from pathlib import Path

import numpy as np

from extractors.errors import MissingPathError, RecipeError, VideoError
from extractors.flow.workers import FlowWorkers
from extractors.networks.build import WeightSources
from extractors.presets import Preset
from extractors.twostream import TwoStream, build_twostream, calibration_of, rebuild_twostream
from extractors.video.file_reader import open_chunks
from extractors.video.probe import probe
from lstr.labels import read_labels
from pipelines.features.remote_folder import Features, create_folder, open_folder
from pipelines.files.remote import Place, place
from pipelines.files.videos import at_hand
from pipelines.networks.recipes import StoredRecipe
from pipelines.progress import Tell

CALIBRATION_CHUNKS = 256  # a few hundred are enough for a mean and a variance a channel


def training_ids(calibrate: Path, videos: dict[str, Place]) -> list[str]:
    """Ids to calibrate on: the training subset of a label file (.json), or the lines of a text file.

    Raises MissingPathError when the file is not there or names none of the videos.
    """
    if not calibrate.is_file():
        raise MissingPathError(f"{calibrate} is not a file.", "give --calibrate a label file or a list of videos.")
    if calibrate.suffix == ".json":
        named = [i for i, video in read_labels(calibrate).videos.items() if video.subset == "training"]
    else:
        named = [line.strip() for line in calibrate.read_text().splitlines() if line.strip()]
    by_path = {path.resolve(): video_id for video_id, path in videos.items()}
    ids = sorted({i if i in videos else by_path.get(place(i).resolve(), "") for i in named} - {""})
    if not ids:
        raise MissingPathError(
            f"{calibrate} names none of the {len(videos)} videos given.", "name them by id, or give their folder too."
        )
    return ids


def calibrate_twostream(
    twostream: TwoStream,
    videos: dict[str, Place],
    workers: FlowWorkers | None,
    progress: Tell,
    n_chunks: int = CALIBRATION_CHUNKS,
) -> dict:
    """Batch-norm statistics for random networks from chunks spread evenly over videos, by stream.

    A video that cannot be read is left out; extraction names it later. Raises VideoError when none can.
    """
    lengths = {}
    for video_id, source in videos.items():
        with suppress(VideoError), at_hand(source) as (path, _):
            lengths[video_id] = probe(path).n_chunks
    total = sum(lengths.values())
    picked = np.unique(np.linspace(0, total - 1, min(n_chunks, total)).round().astype(int))
    streams = twostream.recipe.streams
    rgb, waiting, taken, start = [], [], 0, 0
    for video_id, length in lengths.items():
        wanted = set(picked[(picked >= start) & (picked < start + length)] - start)
        start += length
        if not wanted:
            continue
        with suppress(VideoError), at_hand(videos[video_id]) as (path, _):
            for chunk in open_chunks(path, twostream.recipe.long_side)[2]:
                if chunk.index in wanted:
                    taken += 1
                    if "rgb" in streams:
                        rgb.append(twostream.rgb_input(chunk.frames)[: twostream.recipe.rgb.segments])
                    if "flow" in streams:
                        waiting.append(workers.submit(chunk.frames))
                if chunk.index >= max(wanted):
                    break
    if not taken:
        raise VideoError("None of the videos to calibrate on can be read.", "give --calibrate other videos.")
    flow = []
    for pending in waiting:
        flow.append(twostream.flow_input(pending.result())[:1])
        progress("calibration", len(flow), len(waiting))
    images = {"rgb": rgb, "flow": flow}
    for stream in streams:
        if twostream.recipe.parts[stream].weights == "random":
            # neighbours in time are alike: a batch must mix videos
            order = np.random.default_rng(0).permutation(taken)
            twostream.calibrate(stream, np.stack([images[stream][i] for i in order]))
    return calibration_of(twostream)


def prepare(
    videos: dict[str, Place],
    output: Place,
    recipe: Preset | StoredRecipe,
    sources: WeightSources,
    calibrate: Path | None,
    workers: FlowWorkers | None,
    device: str,
    progress: Tell,
    precision: str | None = None,
) -> tuple[TwoStream, Features]:
    """The networks and the folder: as the folder was begun when it exists, new otherwise.

    `precision` of the networks is float32, bf16, or None for that of the folder; of a new one, what the recipe prefers.
    Raises RecipeError when the folder's recipe cannot be what these options ask for.
    """
    if isinstance(recipe, StoredRecipe):
        return _same(recipe, output, sources, calibrate, device)
    existing = open_folder(output)
    if existing:
        begun = existing.recipe
        kept = WeightSources(sources.rgb, sources.flow, existing.calibration(), begun.calibrated_on)
        asked = build_twostream(recipe, kept, device, precision or begun.precision)
        folder = create_folder(output, asked.recipe, {})
        if calibrate and begun.is_random and tuple(training_ids(calibrate, videos)) != begun.calibrated_on:
            raise RecipeError(
                f"{output} was calibrated on other videos than {calibrate} names.", "choose another folder with -o."
            )
        return asked, folder
    twostream = build_twostream(recipe, sources, device, precision)
    if calibrate and twostream.recipe.is_random:
        ids = training_ids(calibrate, videos)
        statistics = calibrate_twostream(twostream, {i: videos[i] for i in ids}, workers, progress)
        calibrated = WeightSources(sources.rgb, sources.flow, statistics, tuple(ids))
        twostream = build_twostream(recipe, calibrated, device, precision)
    return twostream, create_folder(output, twostream.recipe, calibration_of(twostream))


def _same(
    stored: StoredRecipe, output: Place, sources: WeightSources, calibrate: Path | None, device: str
) -> tuple[TwoStream, Features]:
    """The networks of a recipe that is there already, checked against its hashes, and a folder of it."""
    if calibrate:
        raise RecipeError(f"{stored.origin} brings its own calibration.", "leave out --calibrate.")
    brought = WeightSources(sources.rgb, sources.flow, stored.calibration, stored.recipe.calibrated_on)
    twostream = rebuild_twostream(stored.recipe, brought, device)
    return twostream, create_folder(output, twostream.recipe, calibration_of(twostream))
