"""The feature networks of an extraction: for a new folder, as a folder was begun, and for a video those of its fold."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from lstr.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import FlowWorkers
from lstr.extractors.networks.build import build_network
from lstr.extractors.networks.weights_file import ModelCard, network_file, read_card
from lstr.extractors.networks.weights_folder import blind_fold, cards_of
from lstr.extractors.presets import shape_of
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream, calibration_of, rebuild_twostream
from lstr.extractors.video.inputs import at_hand
from lstr.extractors.video.probe import probe
from lstr.files.content import read_text
from lstr.files.remote import Place, RemoteFile, place
from lstr.pipelines.annotations.label_files import is_label_file, read_label_file
from lstr.pipelines.failures import left_out
from lstr.pipelines.features.extraction import ExtractOptions
from lstr.pipelines.features.output_folder import OutputFolder, create_output, open_output
from lstr.pipelines.features.recipes import StoredRecipe
from lstr.pipelines.progress import Progress
from lstr.pipelines.sampled_inputs import sampled_inputs

SAMPLED_VIDEOS = 50  # or up to twice as many, whose shapes tell the shape of all
CALIBRATION_CHUNKS = 256  # a few hundred are enough for a mean and a variance per channel
KEPT_FOLDS = (
    4  # pairs of networks in memory besides that of all videos; each takes some hundred MB and a second to make
)


def training_ids(calibrate: Path, videos: Mapping[str, Place]) -> list[str]:
    """Return the ids to calibrate on: the training subset of a label file, or the lines of a text file.

    Raises MissingPathError if the file does not exist or names none of the videos.
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


def begun_networks(videos: Mapping[str, Place], options: ExtractOptions) -> tuple[TwoStream, OutputFolder] | None:
    """Return the networks and the folder as it was begun; None if it is new. Writes nothing, and opens no video.

    Raises RecipeError if its recipe is not what the options request, and MissingPathError as `training_ids`.
    """
    output, recipe = options.output, options.recipe
    ids = tuple(training_ids(options.calibrate, videos)) if options.calibrate else ()
    folder = open_output(output)
    if folder is None:
        return None
    device, begun = choose_device(options.device), folder.recipe
    if isinstance(recipe, StoredRecipe):
        return _stored_networks(recipe, options, device)
    recipe = recipe.seeing_as(begun)
    # Statistics of other networks do not fit: the recipes will differ, which create_output says.
    before = {name: part.network for name, part in begun.parts.items()}
    alike = {name for name, part in recipe.parts.items() if part.network == before.get(name)}
    calibration = {stream: known for stream, known in folder.calibration().items() if stream in alike}
    kept = replace(options.sources, calibration=calibration, calibrated_on=begun.calibrated_on)
    twostream = build_twostream(recipe, kept, device, options.precision or begun.precision)
    folder = create_output(output, twostream.recipe, {})
    if ids and begun.is_random and ids != begun.calibrated_on:
        raise RecipeError(
            f"{output} was calibrated on other videos than {options.calibrate} names.",
            "choose another folder with -o.",
        )
    return twostream, folder


def new_networks(
    videos: Mapping[str, Place], options: ExtractOptions, workers: FlowWorkers | None
) -> Generator[Progress, None, tuple[TwoStream, OutputFolder]]:
    """Return the networks of a new folder and the folder, which is made; random ones are calibrated if requested.

    `workers` compute the recipe's flow. Raises RecipeError, WeightsError, VideoError or OutputError.
    """
    recipe, sources = options.recipe, options.sources
    device = choose_device(options.device)
    if isinstance(recipe, StoredRecipe):
        return _stored_networks(recipe, options, device)
    if any(part.follows for part in recipe.parts.values()):
        # Some of the videos here, spread over all of them; the first one if all are elsewhere.
        here = [source for source in videos.values() if not isinstance(source, RemoteFile)]
        sizes = []
        for source in here[:: max(1, len(here) // SAMPLED_VIDEOS)] or [*videos.values()][:1]:
            with left_out(source), at_hand(source) as (path, _):
                sizes.append(probe(path).size(recipe.long_side))
        recipe = recipe.seeing(shape_of(sizes))
    twostream = build_twostream(recipe, sources, device, options.precision)
    if options.calibrate and twostream.recipe.is_random:
        ids = training_ids(options.calibrate, videos)
        chosen = {i: videos[i] for i in ids}
        images = yield from sampled_inputs(twostream, chosen, workers, CALIBRATION_CHUNKS, "calibration")
        for stream, part in twostream.recipe.parts.items():
            if part.weights == "random":
                # Neighbours in time are alike: a batch must mix videos.
                order = np.random.default_rng(0).permutation(len(images[stream]))
                twostream.calibrate(stream, np.stack([images[stream][i] for i in order]))
        calibrated = replace(sources, calibration=calibration_of(twostream), calibrated_on=tuple(ids))
        twostream = build_twostream(recipe, calibrated, device, options.precision)
    return twostream, create_output(options.output, twostream.recipe, calibration_of(twostream))


def _stored_networks(stored: StoredRecipe, options: ExtractOptions, device: str) -> tuple[TwoStream, OutputFolder]:
    """Return the networks of a whole recipe, checked against its hashes, and a folder of it."""
    if options.calibrate:
        raise RecipeError(f"{stored.origin} brings its own calibration.", "leave out --calibrate.")
    brought = replace(options.sources, calibration=stored.calibration, calibrated_on=stored.recipe.calibrated_on)
    twostream = rebuild_twostream(stored.recipe, brought, device)
    return twostream, create_output(options.output, twostream.recipe, calibration_of(twostream))


@dataclass(frozen=True)
class Chosen:
    """The networks for one video, and what its record says about them."""

    twostream: TwoStream
    fold: int | None
    """The fold whose networks these are; None for those of all videos"""
    seen: tuple[str, ...] | None
    """The streams whose network has seen this video; None if no weights say what they have seen"""

    def to_dict(self) -> dict[str, Any]:
        """Return the entries of a record."""
        recipe = self.twostream.recipe
        networks = {stream: recipe.parts[stream].sha256 for stream in recipe.streams}
        return {"networks": networks, "fold": self.fold, **({} if self.seen is None else {"seen": list(self.seen)})}


class FoldNetworks:
    """The networks of a recipe: `twostream`, and those of its folds, made when a video first needs them.

    without: the fold that the networks of every video lack, 0 for those of all videos; None for the video's own. Raises
    WeightsError if the weights lack what the recipe's folds need, or do not say what they have seen.
    """

    def __init__(self, twostream: TwoStream, without: int | None = None):
        self.twostream, self.without = twostream, without
        self.recipe = twostream.recipe
        self.cards: dict[str, tuple[ModelCard, ...]] = {}
        """Cards of the streams whose weights say what they have seen"""
        for stream in self.recipe.streams:
            source, folds = twostream.sources.files.get(stream), self.recipe.parts[stream].folds
            if folds and not (source and network_file(source, stream, 1) != network_file(source, stream)):
                raise WeightsError(
                    f"The features come from {len(folds)} {stream} networks, each of which has not seen a fold, "
                    f"and {source or 'nothing'} was named.",
                    f"give their folder as --weights {stream}=DIR, or as --recipe DIR.",
                )
            if folds and source:
                self.cards[stream] = cards_of(source, stream, len(folds))
            elif source and (card := read_card(network_file(source, stream))):
                self.cards[stream] = (card,)
        self._made = lru_cache(KEPT_FOLDS)(self._make)
        self._making = Lock()

    def of(self, video_id: str, sha256: str | None) -> Chosen:
        """Return the networks for a video of this id, and of a file with this SHA-256 if it is known.

        Raises WeightsError if a fold's file is not the recipe's.
        """
        if not self.cards:
            return Chosen(self.twostream, None, None)
        folds = {stream: blind_fold(cards, video_id, sha256) for stream, cards in self.cards.items()}
        if self.without is not None:
            folds = dict.fromkeys(folds, self.without or None)
        seen = (s for s, cards in self.cards.items() if cards[folds[s] or 0].is_trained_on(video_id, sha256))
        with self._making:
            twostream = self._made(**folds) if any(folds.values()) else self.twostream
        return Chosen(twostream, next(filter(None, folds.values()), None), tuple(seen))

    def _make(self, **folds: int | None) -> TwoStream:
        networks = dict(self.twostream.networks)
        parts: dict[str, Any] = {}
        sources = self.twostream.sources
        for stream, fold in folds.items():
            part, source = self.recipe.parts[stream], sources.files.get(stream)
            if fold and source:
                networks[stream], parts[stream] = build_network(stream, part, sources, fold)
                if parts[stream].sha256 != part.folds[fold - 1]:
                    raise WeightsError(
                        f"{network_file(source, stream, fold)} is {parts[stream].sha256}, the "
                        f"features come from {part.weights} {part.folds[fold - 1]}.",
                        f"give the folder they were made with as --weights {stream}=DIR.",
                    )
        whole = self.twostream
        return TwoStream(networks, self.recipe.having(parts), whole.device, sources, whole.options)
