"""Feature folders and label files together: labelled videos for training and evaluation."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import Clock
from lstr.config import WindowConfig
from lstr.errors import CheckpointError, LabelsError, RecipeError, few
from lstr.labels.check import NOTE, OTHER_RATE, UNITS, UNLABELLED, Finding, check, check_set, in_order, stop_at_errors
from lstr.labels.label_set import Labels, select, subset_named, targets, with_ambiguous
from lstr.pipelines.annotations.label_files import read_label_files
from lstr.pipelines.features.folder import FeatureFolder, open_folders, seen_streams
from lstr.pipelines.features.foreign import NOTHING, Stated
from lstr.pipelines.progress import Notice

Paths = str | Path | Sequence[str | Path]


class TwoStreamArray:
    """RGB (L, 2048) and flow (L, 1024), as arrays or FeatureRows; a stream that a model lacks has a width of 0."""

    def __init__(self, rgb: Any, flow: Any):
        self.rgb, self.flow = rgb, flow

    def __len__(self) -> int:
        return len(self.rgb)

    def __getitem__(self, chunks: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """Return rows (..., 3072) float32 of any chunk indices, RGB first (published order)."""
        return np.concatenate([self.rgb[chunks], self.flow[chunks]], axis=-1, dtype=np.float32)

    def narrowed(self, rgb_dim: int, flow_dim: int) -> "TwoStreamArray":
        """Return it without the streams whose width is 0."""
        none = np.zeros((len(self), 0), np.float32)
        return TwoStreamArray(self.rgb if rgb_dim else none, self.flow if flow_dim else none)


@dataclass(frozen=True)
class LabelledVideo:
    """A video's features (L, D) and multi-hot targets (L, C)."""

    id: str
    features: TwoStreamArray
    targets: NDArray[np.uint8]
    seen: tuple[str, ...] = ()
    """The streams whose network has seen it, as far as its record says"""


@dataclass(frozen=True)
class Split:
    """The labelled videos of one subset, with what they came from."""

    folder: FeatureFolder
    labels: Labels
    videos: list[LabelledVideo]

    @property
    def dims(self) -> tuple[int, int]:
        """Widths of the RGB and the flow features."""
        first = self.videos[0].features
        return first.rgb.shape[1], first.flow.shape[1]

    def only(self, streams: Collection[str]) -> "Split":
        """The same videos with the features of some streams; raises as `FeatureFolder.load`."""
        if not self.folder.recipe or not streams or set(self.folder.recipe.streams) <= set(streams):
            return self
        folder = self.folder.only(streams)
        labels = self.labels.videos
        cut = [replace(v, features=features_of(folder, v.id, labels[v.id].n_chunks)) for v in self.videos]
        return replace(self, folder=folder, videos=cut)

    def narrowed(self, config: WindowConfig, streams: Collection[str] = ()) -> "Split":
        """The same videos with what a model takes, of `streams` where these are known.

        Raises CheckpointError where a stream has another width.
        """
        if streams:
            return self.only(streams).narrowed(config)
        wanted = (config.rgb_dim, config.flow_dim)
        if any(want not in (0, has) for want, has in zip(wanted, self.dims, strict=True)):
            raise CheckpointError(
                f"The model takes features of width {wanted}, {self.folder.path} holds {self.dims}.",
                "give the feature folder of the checkpoint's recipe.",
            )
        cut = [replace(video, features=video.features.narrowed(*wanted)) for video in self.videos]
        return replace(self, videos=cut)

    @property
    def n_chunks(self) -> int:
        """Chunks in all."""
        return sum(len(video.features) for video in self.videos)

    @property
    def clock(self) -> Clock:
        """When chunks are."""
        return self.folder.clock


def features_of(folder: FeatureFolder, video_id: str, length: int | None = None) -> TwoStreamArray:
    """The features of a video, of `length` chunks at most. Raises as `FeatureFolder.load`."""
    return TwoStreamArray(*(array.until(length) for array in folder.load(video_id)))


def subset_of(labels: Labels, wanted: str | None, option: str = "--subset") -> str:
    """The `wanted` subset, or the one to test on: `testing` where the labels have it, else `validation`.

    Raises LabelsError when the labels have no such subset.
    """
    present = sorted({video.subset for video in labels.videos.values()})
    choices = [subset_named(wanted)] if wanted else ["testing", "validation"]
    for subset in choices:
        if subset in present:
            return subset
    if not labels.has_subsets:
        raise LabelsError(
            f"The label file names no subsets, so that all its videos are for training, none {' or '.join(choices)}.",
            f"give it subsets, or take all of its videos with {option} training.",
        )
    raise LabelsError(
        f"The label file has no {' or '.join(choices)} subset (it has: {', '.join(present) or 'none'}).",
        f"name one of them with {option}.",
    )


@dataclass(frozen=True)
class Dataset:
    """Feature folders and labels as they are, before anything is selected."""

    folder: FeatureFolder
    labels: Labels
    source: str
    """The label file, for messages."""

    def only(self, streams: Collection[str]) -> "Dataset":
        """With the features of some streams, or of all where none are named."""
        return replace(self, folder=self.folder.only(streams)) if streams else self

    def with_classes(self, classes: tuple[str, ...]) -> "Dataset":
        """With a model's classes, in its order, where the label file lists none, and has no others but `Ambiguous`."""
        classes = with_ambiguous(classes, self.labels.classes)
        if self.labels.lists_classes or not set(self.labels.classes) <= set(classes):
            return self
        return replace(self, labels=replace(self.labels, classes=classes))

    def with_durations(self) -> "Dataset":
        """With the durations of features where the label file states none, as a table of segments does not."""
        present = set(self.folder.ids())
        videos = {
            name: replace(video, duration=self.folder.clock.at(self.folder.length(name)))
            for name, video in self.labels.videos.items()
            if video.duration is None and video.n_chunks is None and name in present
        }
        return replace(self, labels=replace(self.labels, videos={**self.labels.videos, **videos}))

    def lengths(self, subsets: Collection[str] = ()) -> dict[str, int]:
        """Chunks of each video that has features: of all, or of some subsets and of the videos without labels.

        Raises RecipeError where the two streams of a video do not fit.
        """
        subsets = {subset_named(subset) for subset in subsets}
        others = {name for name, video in self.labels.videos.items() if subsets and video.subset not in subsets}
        return {video_id: self.folder.length(video_id) for video_id in self.folder.ids() if video_id not in others}

    def split(self, subset: str | None, skip_missing: bool = False, option: str = "--subset") -> Split:
        """The videos of a subset that have features, with their targets.

        Raises LabelsError when a labelled video has no features (unless `skip_missing`), RecipeError when features
        cannot be used.
        """
        subset = subset_of(self.labels, subset, option)
        wanted = select(self.labels, subset).videos
        present = set(self.folder.ids())
        missing = sorted(wanted.keys() - present)
        if missing and not skip_missing:
            some = few(missing)
            raise LabelsError(
                f"{self.source} names {len(missing)} {subset} videos that have no features in {self.folder.path}: "
                f"{some}.",
                "extract them with `lstr extract`, or leave them out with --set skip_missing=true.",
            )
        videos, clock = [], self.folder.clock
        for video_id in sorted(wanted.keys() & present):
            label = wanted[video_id]
            array = features_of(self.folder, video_id, label.n_chunks)
            seen = seen_streams(self.folder.read_record(video_id)) or ()
            truth = targets(label, self.labels.classes, len(array), clock)
            videos.append(LabelledVideo(video_id, array, truth, tuple(seen)))
        if not videos:
            raise LabelsError(
                f"No {subset} video of {self.source} has features in {self.folder.path}.",
                "check that video ids in the label file are the file names without their ending.",
            )
        widths = {(video.features.rgb.shape[1], video.features.flow.shape[1]) for video in videos}
        if len(widths) > 1:
            raise RecipeError(
                f"{self.folder.path} mixes features of different widths: {sorted(widths)}.", "extract them again."
            )
        return Split(self.folder, self.labels, videos)

    def check(self, subsets: Collection[str] = (), skip_missing: bool = False) -> list[Finding]:
        """Everything wrong or odd in the labels, and between them and the features of some subsets, or of all."""
        subsets = {subset_named(subset) for subset in subsets}
        return check(self.labels, self.lengths(subsets), subsets, skip_missing, clock=self.folder.clock)

    def notices(self, split: "Split") -> list[Notice]:
        """What to know of the labels before scores on a split of them are believed.

        Raises LabelsError where the times of its videos are no seconds.
        """
        lengths = {video.id: len(video.features) for video in split.videos}
        known = replace(self.labels, videos={name: self.labels.videos[name] for name in lengths})
        found = check(known, lengths, clock=split.clock)
        stop_at_errors([finding for finding in found if finding.kind in UNITS], self.source)
        of_split = [finding for finding in found if finding.kind in (OTHER_RATE, UNLABELLED)]
        kinds = ("never trained", "one recording")
        of_set = [finding for finding in check_set(self.labels) if finding.severity == NOTE or finding.kind in kinds]
        return [
            Notice(f"{self.source}: {finding.sentence}.", warning=finding.severity != NOTE)
            for finding in in_order([*of_split, *of_set])
        ]


class _Durations(Mapping[str, float]):
    """Seconds of the videos of a feature folder by id, read when they are asked for."""

    def __init__(self, folder: Any):
        self._folder, self._ids = folder, dict.fromkeys(folder.ids())

    def __getitem__(self, video_id: str) -> float:
        if video_id not in self._ids:
            raise KeyError(video_id)
        return float(self._folder.clock.at(self._folder.length(video_id)))

    def __contains__(self, video_id: object) -> bool:
        return video_id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def read_dataset(
    features: Paths,
    labels: Paths,
    streams: tuple[str | None, str | None] = (None, None),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    stated: Stated = NOTHING,
    clock: Clock | None = None,
) -> Dataset:
    """One or several feature folders and label files of any forms, see `read_label_files`.

    streams: folder names of RGB and flow where a root has several. dataset: which of a data_info.json. lenient: leave
    wrong segments in, for `Dataset.check`. stated: what is said of features of other people. clock: that of a model,
    which the features must have. Raises MissingPathError, RecipeError and LabelsError.
    """
    roots = [features] if isinstance(features, str | Path) else list(features)
    folder = open_folders(roots, *streams, stated)
    folder = folder if clock is None else folder.on(clock)
    files = [labels] if isinstance(labels, str | Path) else list(labels)
    read = read_label_files(files, roots, dataset, lenient, skip_missing, _Durations(folder), folder.clock)
    return Dataset(folder, read, few(list(map(str, files))))


def read_split(
    features: Paths, labels: str | Path, subset: str | None, skip_missing: bool = False, streams: Collection[str] = ()
) -> Split:
    """The videos of a subset that have features, with their targets, in one call; errors as of the parts.

    streams: of the features, all where none are named.
    """
    return read_dataset(features, labels, skip_missing=skip_missing).only(streams).split(subset, skip_missing)
